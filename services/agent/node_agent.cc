#include "services/agent/node_agent.h"

#include <algorithm>

namespace tessera::agent {
namespace {

constexpr absl::Duration kRetry = absl::Seconds(5);
constexpr absl::Duration kLeastWait = absl::Seconds(1);
constexpr absl::Duration kMostWait = absl::Minutes(10);

}  // namespace

v1::LinkProfile ToProfile(const std::string& peer, const LinkSample& sample) {
  v1::LinkProfile link;
  link.set_peer(peer);
  link.set_round_trip_seconds(absl::ToDoubleSeconds(sample.round_trip_median));
  link.set_least_round_trip_seconds(absl::ToDoubleSeconds(sample.round_trip_least));
  link.set_kernel_round_trip_seconds(absl::ToDoubleSeconds(sample.kernel_round_trip));
  link.set_bandwidth_bytes_per_second(sample.send_bytes_per_second);
  link.set_receive_bandwidth_bytes_per_second(sample.receive_bytes_per_second);
  link.set_confidence(sample.confidence);
  return link;
}

NodeAgent::~NodeAgent() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void NodeAgent::Start() {
  thread_ = std::thread([this] { Run(); });
}

void NodeAgent::Run() {
  while (true) {
    const absl::Duration wait = Pass();
    absl::MutexLock lock(&mutex_);
    if (mutex_.AwaitWithTimeout(absl::Condition(&stopping_), wait)) return;
  }
}

absl::Duration NodeAgent::Pass() {
  *next_.mutable_node() = options_.profile();
  next_.mutable_node()->set_address(options_.address);
  const absl::StatusOr<v1::ReportNodeResponse> answer = options_.report(next_);
  if (!answer.ok()) {
    if (options_.on_error) options_.on_error(answer.status());
    return kRetry;
  }
  next_.clear_links();
  for (const v1::LinkTarget& target : answer->measure()) {
    const absl::StatusOr<LinkSample> sample = options_.measure(target.address());
    if (sample.ok()) {
      *next_.add_links() = ToProfile(target.peer(), *sample);
      continue;
    }
    v1::LinkProfile& failed = *next_.add_links();
    failed.set_peer(target.peer());
    failed.set_error(std::string(sample.status().message()));
  }
  if (next_.links_size() > 0) return absl::ZeroDuration();
  const absl::Duration wait =
      absl::Seconds(answer->next_report().seconds()) + absl::Nanoseconds(answer->next_report().nanos());
  return std::clamp(wait, kLeastWait, kMostWait);
}

}  // namespace tessera::agent
