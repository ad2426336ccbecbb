// Passes everything on to a world that outlives it, and writes down which collectives of gradients and
// weights a rank starts, in their order.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/comm/communicator.h"

namespace tessera::worker {

struct StartedCollective {
  Channel channel = Channel::kMain;
  std::string group;      // "0,1"
  std::string operation;  // "all-reduce"
};

class RecordingWorld final : public World {
 public:
  // told: of each start, "all-reduce {0,1}", and of each wait; may be empty.
  RecordingWorld(World* world, std::vector<StartedCollective>* log,
                 std::function<void(const std::string&)> told = nullptr)
      : world_(world), log_(log), told_(std::move(told)) {
    std::vector<std::string> ranks;
    for (int i = 0; i < world->all().size(); ++i) ranks.push_back(absl::StrCat(i));
    all_ = std::make_unique<Recorder>(this, &world->all(), Channel::kMain, absl::StrJoin(ranks, ","));
  }

  Communicator& all() override { return *all_; }
  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks, Channel channel) override {
    auto inner = world_->Group(ranks, channel);
    if (!inner.ok()) return inner.status();
    if (*inner == &world_->all()) return all_.get();
    auto& group = groups_[*inner];
    if (group == nullptr)
      group = std::make_unique<Recorder>(this, *inner, channel, absl::StrJoin(ranks, ","));
    return group.get();
  }
  int64_t bytes_sent() const override { return world_->bytes_sent(); }
  std::string waiting() const override { return world_->waiting(); }

 private:
  class ToldWork final : public Work {
   public:
    ToldWork(const RecordingWorld* world, std::string what, std::unique_ptr<Work> work)
        : world_(world), what_(std::move(what)), work_(std::move(work)) {}
    absl::Status Wait() override {
      world_->told_(absl::StrCat("wait for ", what_));
      return work_->Wait();
    }

   private:
    const RecordingWorld* const world_;
    const std::string what_;
    const std::unique_ptr<Work> work_;
  };

  class Recorder final : public Communicator {
   public:
    Recorder(RecordingWorld* world, Communicator* inner, Channel channel, std::string group)
        : world_(world), inner_(inner), channel_(channel), group_(std::move(group)) {}
    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) override {
      const std::string told = Note("all-reduce", tensor);
      return Told(told, inner_->AllReduceSum(std::move(tensor)));
    }
    std::unique_ptr<Work> ReduceScatterSum(at::Tensor in, at::Tensor out) override {
      const std::string told = Note("reduce-scatter", in);
      return Told(told, inner_->ReduceScatterSum(std::move(in), std::move(out)));
    }
    std::unique_ptr<Work> StartAllGather(at::Tensor in, at::Tensor out) override {
      const std::string told = Note("all-gather", in);
      return Told(told, inner_->StartAllGather(std::move(in), std::move(out)));
    }
    std::unique_ptr<Work> StartBroadcast(at::Tensor tensor, int root) override {
      const std::string told = Note("broadcast", tensor);
      return Told(told, inner_->StartBroadcast(std::move(tensor), root));
    }
    std::unique_ptr<Work> StartExchange(at::Tensor in, std::vector<int64_t> to, at::Tensor out,
                                        std::vector<int64_t> from) override {
      const std::string told = Note("exchange", in);
      return Told(told, inner_->StartExchange(std::move(in), std::move(to), std::move(out), std::move(from)));
    }
    absl::Status Barrier() override { return inner_->Barrier(); }
    int64_t bytes_sent() const override { return inner_->bytes_sent(); }

   private:
    // Small records are of other types; on a device they go over the host's connections. -> what is told of
    // it; empty: nothing.
    std::string Note(const char* operation, const at::Tensor& tensor) {
      const bool values = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16;
      if (!values || inner_->size() == 1) return "";
      if (world_->log_ != nullptr) world_->log_->push_back({channel_, group_, operation});
      if (!world_->told_) return "";
      std::string told = absl::StrCat(operation, " {", group_, "} ", tensor.numel());
      world_->told_(absl::StrCat("start ", told));
      return told;
    }
    std::unique_ptr<Work> Told(const std::string& told, std::unique_ptr<Work> work) {
      if (told.empty()) return work;
      return std::make_unique<ToldWork>(world_, told, std::move(work));
    }

    RecordingWorld* const world_;
    Communicator* const inner_;
    const Channel channel_;
    const std::string group_;
  };

  World* const world_;
  std::vector<StartedCollective>* const log_;
  const std::function<void(const std::string&)> told_;
  std::unique_ptr<Recorder> all_;
  std::map<Communicator*, std::unique_ptr<Recorder>> groups_;
};

}  // namespace tessera::worker
