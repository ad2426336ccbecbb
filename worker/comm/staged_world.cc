#include "worker/comm/staged_world.h"

#include <torch/types.h>

#include <map>
#include <utility>
#include <vector>

#include "base/status_macros.h"

namespace tessera::worker {
namespace {

// Page-locked where there is a device to copy from.
at::Tensor HostLike(const at::Tensor& tensor) {
  return at::empty(tensor.sizes(), at::dtype(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
}

class StagedWork final : public Work {
 public:
  StagedWork(std::unique_ptr<Work> work, std::vector<at::Tensor> kept, at::Tensor from, at::Tensor to)
      : work_(std::move(work)), kept_(std::move(kept)), from_(std::move(from)), to_(std::move(to)) {}

  absl::Status Wait() override {
    TESSERA_RETURN_IF_ERROR(work_->Wait());
    if (to_.defined()) to_.copy_(from_);
    kept_.clear();
    from_ = to_ = at::Tensor();
    return absl::OkStatus();
  }

 private:
  std::unique_ptr<Work> work_;
  std::vector<at::Tensor> kept_;
  at::Tensor from_, to_;
};

class StagedCommunicator final : public Communicator {
 public:
  StagedCommunicator(Communicator* host, Staged staged) : host_(host), staged_(staged) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) override {
    if (Passes(tensor)) return host_->AllReduceSum(std::move(tensor));
    at::Tensor here = HostLike(tensor).copy_(tensor);
    return Start(host_->AllReduceSum(here), {}, here, tensor);
  }
  std::unique_ptr<Work> ReduceScatterSum(at::Tensor in, at::Tensor out) override {
    if (Passes(in)) return host_->ReduceScatterSum(std::move(in), std::move(out));
    const at::Tensor source = HostLike(in).copy_(in), target = HostLike(out);
    return Start(host_->ReduceScatterSum(source, target), {source}, target, out);
  }
  std::unique_ptr<Work> StartAllGather(at::Tensor in, at::Tensor out) override {
    if (Passes(in)) return host_->StartAllGather(std::move(in), std::move(out));
    const at::Tensor source = HostLike(in).copy_(in), target = HostLike(out);
    return Start(host_->StartAllGather(source, target), {source}, target, out);
  }
  std::unique_ptr<Work> StartBroadcast(at::Tensor tensor, int root) override {
    if (Passes(tensor)) return host_->StartBroadcast(std::move(tensor), root);
    const at::Tensor here = HostLike(tensor);
    const bool sends = root == rank();
    if (sends) here.copy_(tensor);
    return Start(host_->StartBroadcast(here, root), {}, here, sends ? at::Tensor() : tensor);
  }
  std::unique_ptr<Work> StartExchange(at::Tensor in, std::vector<int64_t> to, at::Tensor out,
                                      std::vector<int64_t> from) override {
    if (Passes(in))
      return host_->StartExchange(std::move(in), std::move(to), std::move(out), std::move(from));
    const at::Tensor source = HostLike(in).copy_(in), target = HostLike(out);
    return Start(host_->StartExchange(source, std::move(to), target, std::move(from)), {source}, target, out);
  }
  absl::Status Barrier() override { return host_->Barrier(); }
  int64_t bytes_sent() const override { return host_->bytes_sent(); }

 private:
  bool Passes(const at::Tensor& tensor) const { return staged_ == Staged::kDeviceTensors && tensor.is_cpu(); }
  static std::unique_ptr<Work> Start(std::unique_ptr<Work> work, std::vector<at::Tensor> kept,
                                     at::Tensor from, at::Tensor to) {
    return std::make_unique<StagedWork>(std::move(work), std::move(kept), std::move(from), std::move(to));
  }

  Communicator* const host_;
  const Staged staged_;
};

class StagedWorld final : public World {
 public:
  StagedWorld(std::unique_ptr<World> host, Staged staged)
      : host_(std::move(host)), staged_(staged), all_(&host_->all(), staged) {}

  Communicator& all() override { return all_; }
  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks, Channel channel) override {
    TESSERA_ASSIGN_OR_RETURN(Communicator * host, host_->Group(ranks, channel));
    if (host == &host_->all()) return &all_;
    auto& group = groups_[host];
    if (group == nullptr) group = std::make_unique<StagedCommunicator>(host, staged_);
    return group.get();
  }
  int64_t bytes_sent() const override { return host_->bytes_sent(); }
  std::string waiting() const override { return host_->waiting(); }

 private:
  std::unique_ptr<World> host_;
  const Staged staged_;
  StagedCommunicator all_;
  std::map<Communicator*, std::unique_ptr<StagedCommunicator>> groups_;
};

}  // namespace

std::unique_ptr<World> MakeStagedWorld(std::unique_ptr<World> host, Staged staged) {
  return std::make_unique<StagedWorld>(std::move(host), staged);
}

}  // namespace tessera::worker
