#include "worker/comm/gloo_world.h"

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/comm/catch_torch.h"
#include "worker/comm/group_table.h"
#include "worker/comm/scheduler_store.h"

namespace tessera::worker {
namespace {

using c10d::ProcessGroupGloo;

// What the rank's thread waits in, for others to see. The names outlive the world.
using WaitMark = std::atomic<const std::string*>;

class Waiting {
 public:
  Waiting(WaitMark* mark, const std::string& what) : mark_(mark) { mark_->store(&what); }
  ~Waiting() { mark_->store(nullptr); }

 private:
  WaitMark* mark_;
};

class GlooWork final : public Work {
 public:
  GlooWork(const std::string& name, WaitMark* mark, c10::intrusive_ptr<c10d::Work> work)
      : name_(name), mark_(mark), work_(std::move(work)) {}

  absl::Status Wait() override {
    const Waiting waiting(mark_, name_);
    try {
      work_->wait();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return StatusOfCollective(name_, error);
    }
  }

 private:
  const std::string& name_;
  WaitMark* mark_;
  c10::intrusive_ptr<c10d::Work> work_;
};

class FailedWork final : public Work {
 public:
  explicit FailedWork(absl::Status status) : status_(std::move(status)) {}
  absl::Status Wait() override { return status_; }

 private:
  absl::Status status_;
};

// Of a reduce-scatter: waits for this rank's part of everybody's tensor and adds them up.
class SumOfParts final : public Work {
 public:
  SumOfParts(std::unique_ptr<Work> exchange, at::Tensor in, at::Tensor parts, at::Tensor out)
      : exchange_(std::move(exchange)), in_(std::move(in)), parts_(std::move(parts)), out_(std::move(out)) {}

  absl::Status Wait() override {
    absl::Status status = exchange_->Wait();
    in_.reset();
    if (status.ok()) at::sum_out(out_, parts_.view({-1, out_.numel()}), at::IntArrayRef({0}));
    parts_.reset();
    return status;
  }

 private:
  std::unique_ptr<Work> exchange_;
  at::Tensor in_, parts_, out_;
};

class GlooCommunicator final : public Communicator {
 public:
  GlooCommunicator(const std::string& ranks, c10::intrusive_ptr<ProcessGroupGloo> group, WaitMark* mark)
      : all_reduce_(absl::StrCat("all-reduce in group {", ranks, "}")),
        reduce_scatter_(absl::StrCat("reduce-scatter in group {", ranks, "}")),
        all_gather_(absl::StrCat("all-gather in group {", ranks, "}")),
        broadcast_(absl::StrCat("broadcast in group {", ranks, "}")),
        exchange_(absl::StrCat("exchange in group {", ranks, "}")),
        barrier_(absl::StrCat("barrier in group {", ranks, "}")),
        group_(std::move(group)),
        mark_(mark) {}

  int rank() const override { return group_->getRank(); }
  int size() const override { return group_->getSize(); }

  std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) override {
    sent_ += int64_t{2} * (size() - 1) * static_cast<int64_t>(tensor.nbytes()) / size();
    return Start(all_reduce_, [&] {
      std::vector<at::Tensor> tensors{std::move(tensor)};
      return group_->allreduce(tensors);
    });
  }

  // c10d's own on Gloo all-reduces a copy, which sends twice as much: here the parts change places, and are
  // added where they belong.
  std::unique_ptr<Work> ReduceScatterSum(at::Tensor in, at::Tensor out) override {
    sent_ += (size() - 1) * static_cast<int64_t>(in.nbytes()) / size();
    at::Tensor parts = at::empty_like(in);
    auto exchange = Start(reduce_scatter_, [&] {
      std::vector<int64_t> even;
      return group_->all_to_all_single(parts, in, even, even);
    });
    return std::make_unique<SumOfParts>(std::move(exchange), std::move(in), std::move(parts), std::move(out));
  }

  std::unique_ptr<Work> StartAllGather(at::Tensor in, at::Tensor out) override {
    sent_ += (size() - 1) * static_cast<int64_t>(in.nbytes());
    return Start(all_gather_, [&] { return group_->all_gather_single(out, in); });
  }

  std::unique_ptr<Work> StartBroadcast(at::Tensor tensor, int root) override {
    sent_ += (size() - 1) * static_cast<int64_t>(tensor.nbytes()) / size();
    return Start(broadcast_, [&] {
      c10d::BroadcastOptions options;
      options.rootRank = root;
      std::vector<at::Tensor> tensors{std::move(tensor)};
      return group_->broadcast(tensors, options);
    });
  }

  std::unique_ptr<Work> StartExchange(at::Tensor in, std::vector<int64_t> to, at::Tensor out,
                                      std::vector<int64_t> from) override {
    sent_ += (in.numel() - to[static_cast<size_t>(rank())]) * in.element_size();
    return Start(exchange_, [&] { return group_->all_to_all_single(out, in, from, to); });
  }

  absl::Status Barrier() override {
    return Start(barrier_, [&] { return group_->barrier(); })->Wait();
  }

  int64_t bytes_sent() const override { return sent_; }

 private:
  template <typename Function>
  std::unique_ptr<Work> Start(const std::string& name, const Function& function) {
    try {
      return std::make_unique<GlooWork>(name, mark_, function());
    } catch (const std::exception& error) {
      return std::make_unique<FailedWork>(StatusOfCollective(name, error));
    }
  }

  const std::string all_reduce_, reduce_scatter_, all_gather_, broadcast_, exchange_, barrier_;
  c10::intrusive_ptr<ProcessGroupGloo> group_;
  WaitMark* mark_;
  std::atomic<int64_t> sent_{0};
};

class GlooWorld final : public World {
 public:
  GlooWorld(GlooOptions options, c10::intrusive_ptr<c10d::Store> store)
      : options_(std::move(options)), store_(std::move(store)), groups_(options_.rank) {}

  absl::Status ConnectAll() {
    std::vector<int> ranks(options_.size);
    for (int i = 0; i < options_.size; ++i) ranks[i] = i;
    auto all = Group(ranks, Channel::kMain);
    if (!all.ok()) return all.status();
    all_ = *all;
    return absl::OkStatus();
  }

  Communicator& all() override { return *all_; }

  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks, Channel channel) override {
    return groups_.Find(ranks, channel, [&](const std::string& name, int index) {
      return Meet(name, index, static_cast<int>(ranks.size()));
    });
  }

  int64_t bytes_sent() const override { return groups_.bytes_sent(); }

  std::string waiting() const override {
    const std::string* what = mark_.load();
    return what != nullptr ? *what : "";
  }

 private:
  absl::StatusOr<std::unique_ptr<GlooCommunicator>> Meet(const std::string& name, int index, int size) {
    const std::string operation = absl::StrCat("rendezvous in group {", name, "}");
    const Waiting waiting(&mark_, operation);
    try {
      auto options =
          ProcessGroupGloo::Options::create(absl::ToChronoMilliseconds(options_.rendezvous_timeout));
      options->threads = options_.threads;
      options->devices.push_back(options_.bind_address.empty()
                                     ? ProcessGroupGloo::createDefaultDevice()
                                     : ProcessGroupGloo::createDeviceForHostname(options_.bind_address));
      auto made = c10::make_intrusive<ProcessGroupGloo>(
          c10::make_intrusive<c10d::PrefixStore>(absl::StrCat("group/", name), store_), index, size, options);
      made->setTimeout(absl::ToChronoMilliseconds(options_.collective_timeout));
      return std::make_unique<GlooCommunicator>(name, std::move(made), &mark_);
    } catch (const std::exception& error) {
      return StatusOfCollective(operation, error);
    }
  }

  GlooOptions options_;
  WaitMark mark_ = nullptr;
  c10::intrusive_ptr<c10d::Store> store_;
  GroupTable<GlooCommunicator> groups_;
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
    return StatusOfCollective("rendezvous over a file", error);
  }
}

}  // namespace tessera::worker
