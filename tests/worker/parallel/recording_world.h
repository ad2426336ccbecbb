// Passes everything on to a world that outlives it, and writes down which collectives of gradients and
// weights a rank starts, in their order.
#pragma once

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
  explicit RecordingWorld(World* world, std::vector<StartedCollective>* log) : world_(world), log_(log) {
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
  class Recorder final : public Communicator {
   public:
    Recorder(RecordingWorld* world, Communicator* inner, Channel channel, std::string group)
        : world_(world), inner_(inner), channel_(channel), group_(std::move(group)) {}
    int rank() const override { return inner_->rank(); }
    int size() const override { return inner_->size(); }
    std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) override {
      Note("all-reduce", tensor);
      return inner_->AllReduceSum(std::move(tensor));
    }
    std::unique_ptr<Work> ReduceScatterSum(at::Tensor in, at::Tensor out) override {
      Note("reduce-scatter", in);
      return inner_->ReduceScatterSum(std::move(in), std::move(out));
    }
    std::unique_ptr<Work> StartAllGather(at::Tensor in, at::Tensor out) override {
      Note("all-gather", in);
      return inner_->StartAllGather(std::move(in), std::move(out));
    }
    std::unique_ptr<Work> StartBroadcast(at::Tensor tensor, int root) override {
      Note("broadcast", tensor);
      return inner_->StartBroadcast(std::move(tensor), root);
    }
    std::unique_ptr<Work> StartExchange(at::Tensor in, std::vector<int64_t> to, at::Tensor out,
                                        std::vector<int64_t> from) override {
      Note("exchange", in);
      return inner_->StartExchange(std::move(in), std::move(to), std::move(out), std::move(from));
    }
    absl::Status Barrier() override { return inner_->Barrier(); }
    int64_t bytes_sent() const override { return inner_->bytes_sent(); }

   private:
    // Small records are of other types; on a device they go over the host's connections.
    void Note(const char* operation, const at::Tensor& tensor) {
      const bool values = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kBFloat16;
      if (values && inner_->size() > 1 && world_->log_ != nullptr) {
        world_->log_->push_back({channel_, group_, operation});
      }
    }

    RecordingWorld* const world_;
    Communicator* const inner_;
    const Channel channel_;
    const std::string group_;
  };

  World* const world_;
  std::vector<StartedCollective>* const log_;
  std::unique_ptr<Recorder> all_;
  std::map<Communicator*, std::unique_ptr<Recorder>> groups_;
};

}  // namespace tessera::worker
