#include "services/agent/link_probe.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "services/agent/link_server.h"
#include "services/agent/probe_socket.h"

namespace tessera::agent {
namespace {

absl::Status MeasureRoundTrips(ProbeSocket& socket, int pings, LinkSample& sample) {
  TESSERA_RETURN_IF_ERROR(socket.SendAll("P", 1));
  TESSERA_RETURN_IF_ERROR(socket.SendNumber(static_cast<uint64_t>(pings)));
  std::vector<absl::Duration> times;
  for (int i = 0; i < pings; ++i) {
    const auto start = std::chrono::steady_clock::now();
    TESSERA_RETURN_IF_ERROR(socket.SendNumber(static_cast<uint64_t>(i)));
    TESSERA_RETURN_IF_ERROR(socket.ReceiveNumber().status());
    times.push_back(absl::FromChrono(std::chrono::steady_clock::now() - start));
  }
  std::sort(times.begin(), times.end());
  sample.round_trip_least = times.front();
  sample.round_trip_median = times[times.size() / 2];
  tcp_info info{};
  socklen_t size = sizeof info;
  if (::getsockopt(socket.fd(), IPPROTO_TCP, TCP_INFO, &info, &size) == 0) {
    sample.kernel_round_trip = absl::Microseconds(info.tcpi_rtt);
  }
  return absl::OkStatus();
}

// Of three quarters of the burst, at the receiver.
absl::StatusOr<absl::Duration> Burst(ProbeSocket& socket, char direction, int64_t bytes) {
  TESSERA_RETURN_IF_ERROR(socket.SendAll(&direction, 1));
  TESSERA_RETURN_IF_ERROR(socket.SendNumber(static_cast<uint64_t>(bytes)));
  if (direction == 'R') return socket.ReceiveBurst(bytes);
  TESSERA_RETURN_IF_ERROR(socket.SendBurst(bytes));
  TESSERA_ASSIGN_OR_RETURN(const uint64_t nanoseconds, socket.ReceiveNumber());
  return absl::Nanoseconds(static_cast<int64_t>(nanoseconds));
}

struct Rate {
  double bytes_per_second = 0;
  double confidence = 0;
};

absl::StatusOr<Rate> MeasureRate(ProbeSocket& socket, char direction, const LinkProbeOptions& options) {
  const int64_t most = std::min(options.most_burst_bytes, kMostBurstBytes);
  int64_t bytes = std::min(options.least_burst_bytes, most);
  const auto rate = [&](absl::Duration took) {
    return 0.75 * static_cast<double>(bytes) / std::max(absl::ToDoubleSeconds(took), 1e-9);
  };
  absl::Duration first;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(first, Burst(socket, direction, bytes));
    if (first >= options.burst || bytes >= most) break;
    bytes = std::min(2 * bytes, most);
  }
  TESSERA_ASSIGN_OR_RETURN(const absl::Duration second, Burst(socket, direction, bytes));
  const double a = rate(first);
  const double b = rate(second);
  Rate result{.bytes_per_second = (a + b) / 2, .confidence = std::min(a, b) / std::max(a, b)};
  if (first < options.burst) result.confidence /= 2;
  return result;
}

}  // namespace

absl::StatusOr<LinkSample> MeasureLink(const std::string& address, const LinkProbeOptions& options) {
  if (options.pings < 1 || options.least_burst_bytes < 1024 ||
      options.most_burst_bytes < options.least_burst_bytes) {
    return absl::InvalidArgumentError("link probe: needs a ping, and bursts of 1024 bytes or more");
  }
  TESSERA_ASSIGN_OR_RETURN(ProbeSocket socket, ProbeSocket::Connect(address, options.timeout));
  LinkSample sample;
  TESSERA_RETURN_IF_ERROR(MeasureRoundTrips(socket, options.pings, sample));
  TESSERA_ASSIGN_OR_RETURN(const Rate there, MeasureRate(socket, 'S', options));
  TESSERA_ASSIGN_OR_RETURN(const Rate back, MeasureRate(socket, 'R', options));
  sample.send_bytes_per_second = there.bytes_per_second;
  sample.receive_bytes_per_second = back.bytes_per_second;
  sample.confidence = std::min(there.confidence, back.confidence);
  return sample;
}

}  // namespace tessera::agent
