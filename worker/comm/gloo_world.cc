#include "worker/comm/gloo_world.h"

#include <unistd.h>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "worker/comm/scheduler_store.h"

namespace tessera::worker {
namespace {

using c10d::ProcessGroupGloo;

// c10d appends a C++ stack trace to its messages; the first line is what a reader needs.
absl::Status LostPeer(const std::string& group, const char* operation, const std::exception& error) {
  std::string what = error.what();
  what = what.substr(0, what.find('\n'));
  return absl::UnavailableError(absl::StrCat(operation, " in group {", group, "} failed: ", what));
}

class GlooWork final : public Work {
 public:
  GlooWork(std::string group, c10::intrusive_ptr<c10d::Work> work)
      : group_(std::move(group)), work_(std::move(work)) {}
  GlooWork(std::string group, absl::Status failed) : group_(std::move(group)), failed_(std::move(failed)) {}

  absl::Status Wait() override {
    if (!failed_.ok()) return failed_;
    try {
      work_->wait();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return LostPeer(group_, "all-reduce", error);
    }
  }

 private:
  std::string group_;
  c10::intrusive_ptr<c10d::Work> work_;
  absl::Status failed_;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(std::string name, c10::intrusive_ptr<ProcessGroupGloo> group)
      : name_(std::move(name)), group_(std::move(group)) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) override {
    sent_ += int64_t{2} * (size() - 1) * static_cast<int64_t>(tensor.nbytes()) / size();
    try {
      std::vector<at::Tensor> tensors{std::move(tensor)};
      return std::make_unique<GlooWork>(name_, group_->allreduce(tensors));
    } catch (const std::exception& error) {
      return std::make_unique<GlooWork>(name_, LostPeer(name_, "all-reduce", error));
    }
  }

  absl::Status AllGather(const at::Tensor& in, at::Tensor& out) override {
    sent_ += (size() - 1) * static_cast<int64_t>(in.nbytes());
    try {
      at::Tensor input = in;
      group_->all_gather_single(out, input)->wait();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return LostPeer(name_, "all-gather", error);
    }
  }

  absl::Status Broadcast(at::Tensor tensor, int root) override {
    sent_ += (size() - 1) * static_cast<int64_t>(tensor.nbytes()) / size();
    try {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      std::vector<at::Tensor> tensors{std::move(tensor)};
      group_->broadcast(tensors, options)->wait();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return LostPeer(name_, "broadcast", error);
    }
  }

  absl::Status Barrier() override {
    try {
      group_->barrier()->wait();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return LostPeer(name_, "barrier", error);
    }
  }

  int64_t bytes_sent() const override { return sent_; }

 private:
  std::string name_;
  c10::intrusive_ptr<ProcessGroupGloo> group_;
  std::atomic<int64_t> sent_{0};
};

class GlooWorld final : public World {
 public:
  GlooWorld(GlooOptions options, c10::intrusive_ptr<c10d::Store> store)
      : options_(std::move(options)), store_(std::move(store)), self_(MakeLoopbackWorld()) {}

  absl::Status ConnectAll() {
    std::vector<int> ranks(options_.size);
    for (int i = 0; i < options_.size; ++i) ranks[i] = i;
    auto all = Group(ranks);
    if (!all.ok()) return all.status();
    all_ = *all;
    return absl::OkStatus();
  }

  Communicator& all() override { return *all_; }

  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks) override {
    const auto mine = std::find(ranks.begin(), ranks.end(), options_.rank);
    TESSERA_CHECK(mine != ranks.end() && std::is_sorted(ranks.begin(), ranks.end()));
    if (ranks.size() == 1) return &self_->all();
    auto& group = groups_[{ranks.begin(), ranks.end()}];
    if (group == nullptr) {
      const std::string name = absl::StrJoin(ranks, ",");
      try {
        auto options =
            ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(options_.rendezvous_timeout));
        options->threads = options_.threads;
        options->devices.push_back(options_.bind_address.empty()
                                       ? ProcessGroupGloo::createDefaultDevice()
                                       : ProcessGroupGloo::createDeviceForHostname(options_.bind_address));
        auto made = c10::make_intrusive<ProcessGroupGloo>(
            c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("group/", name), store_),
            static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), options);
        made->setTimeout(absl::ToChronoMilliseconds(options_.collective_timeout));
        group = std::make_unique<GlooCommunicator>(name, std::move(made));
      } catch (const std::exception& error) {
        return LostPeer(name, "rendezvous", error);
      }
    }
    return group.get();
  }

  int64_t bytes_sent() const override {
    int64_t sum = 0;
    for (const auto& [ranks, group] : groups_) {
      if (group != nullptr) sum += group->bytes_sent();
    }
    return sum;
  }

 private:
  GlooOptions options_;
  c10::intrusive_ptr<c10d::Store> store_;
  std::unique_ptr<World> self_;  // for groups of this rank alone
  std::map<std::vector<int>, std::unique_ptr<GlooCommunicator>> groups_;
  Communicator* all_ = nullptr;
};

absl::StatusOr<std::unique_ptr<World>> Connect(const GlooOptions& options,
                                               c10::intrusive_ptr<c10d::Store> store) {
  auto world = std::make_unique<GlooWorld>(options, std::move(store));
  if (absl::Status status = world->ConnectAll(); !status.ok()) return status;
  return world;
}

}  // namespace

absl::StatusOr<std::unique_ptr<World>> MakeGlooWorld(const GlooOptions& options,
                                                     RendezvousClient* rendezvous) {
  if (options.size == 1) return MakeLoopbackWorld();
  return Connect(options, MakeSchedulerStore(rendezvous, options.rendezvous_timeout));
}

absl::StatusOr<std::unique_ptr<World>> MakeGlooWorldOverFile(const GlooOptions& options,
                                                             const std::string& path) {
  if (options.size == 1) return MakeLoopbackWorld();
  try {
    auto store = c10::make_intrusive<c10d::FileStore>(path, options.size);
    store->setTimeout(absl::ToChronoMilliseconds(options.rendezvous_timeout));
    return Connect(options, std::move(store));
  } catch (const std::exception& error) {
    return LostPeer("file", "rendezvous", error);
  }
}

}  // namespace tessera::worker
