#include "worker/cuda/nccl_world.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "worker/comm/group_table.h"
#include "worker/cuda/nccl_calls.h"

namespace tessera::cuda {
namespace {

using worker::Channel;
using worker::Communicator;
using worker::NcclOptions;
using worker::NcclTraffic;
using worker::RendezvousClient;
using worker::Work;
using worker::World;

cudaStream_t CurrentStream() { return c10::cuda::getCurrentCUDAStream().stream(); }

// Of a type that NCCL has not, one that it refuses.
ncclDataType_t TypeOf(const at::Tensor& tensor) {
  const auto type = worker::NcclTypeOf(tensor.scalar_type());
  return type.ok() ? static_cast<ncclDataType_t>(*type) : ncclNumTypes;
}

class NcclWork final : public Work {
 public:
  NcclWork(absl::Status started, NcclCalls* calls, std::shared_ptr<Event> done,
           std::vector<at::Tensor> tensors)
      : started_(std::move(started)), calls_(calls), done_(std::move(done)), tensors_(std::move(tensors)) {}
  // Whoever gets the memory next must not write to it before the collective has ended.
  ~NcclWork() override { Join().IgnoreError(); }

  absl::Status Wait() override {
    TESSERA_RETURN_IF_ERROR(started_);
    absl::Status joined = Join();
    TESSERA_RETURN_IF_ERROR(calls_->status());
    return joined;
  }

 private:
  absl::Status Join() {
    absl::Status joined;
    if (started_.ok() && !tensors_.empty()) joined = done_->Block(CurrentStream());
    tensors_.clear();
    return joined;
  }

  absl::Status started_;
  NcclCalls* calls_;
  std::shared_ptr<Event> done_;
  std::vector<at::Tensor> tensors_;
};

class NcclCommunicator final : public Communicator {
 public:
  // The host's group is made when a tensor of the host is first sent in it.
  using HostGroup = std::function<absl::StatusOr<Communicator*>()>;

  NcclCommunicator(const std::string& name, int rank, int size, ncclComm_t communicator, cudaStream_t stream,
                   NcclCalls* calls, HostGroup host)
      : all_reduce_(absl::StrCat("all-reduce in group {", name, "}")),
        reduce_scatter_(absl::StrCat("reduce-scatter in group {", name, "}")),
        all_gather_(absl::StrCat("all-gather in group {", name, "}")),
        broadcast_(absl::StrCat("broadcast in group {", name, "}")),
        exchange_(absl::StrCat("exchange in group {", name, "}")),
        rank_(rank),
        size_(size),
        communicator_(communicator),
        stream_(stream),
        calls_(calls),
        host_(std::move(host)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Work> AllReduceSum(at::Tensor tensor) override {
    if (tensor.is_cpu()) {
      return OnHost([&](Communicator& host) { return host.AllReduceSum(tensor); });
    }
    sent_ += NcclTraffic::AllReduce(static_cast<int64_t>(tensor.nbytes()), size_);
    return Start(all_reduce_, {tensor}, [&] {
      void* const data = tensor.mutable_data_ptr();
      return ncclAllReduce(data, data, static_cast<size_t>(tensor.numel()), TypeOf(tensor), ncclSum,
                           communicator_, stream_);
    });
  }

  std::unique_ptr<Work> ReduceScatterSum(at::Tensor in, at::Tensor out) override {
    if (in.is_cpu()) {
      return OnHost([&](Communicator& host) { return host.ReduceScatterSum(in, out); });
    }
    sent_ += NcclTraffic::ReduceScatter(static_cast<int64_t>(in.nbytes()), size_);
    return Start(reduce_scatter_, {in, out}, [&] {
      return ncclReduceScatter(in.const_data_ptr(), out.mutable_data_ptr(), static_cast<size_t>(out.numel()),
                               TypeOf(in), ncclSum, communicator_, stream_);
    });
  }

  std::unique_ptr<Work> StartAllGather(at::Tensor in, at::Tensor out) override {
    if (in.is_cpu()) {
      return OnHost([&](Communicator& host) { return host.StartAllGather(in, out); });
    }
    sent_ += NcclTraffic::AllGather(static_cast<int64_t>(in.nbytes()), size_);
    return Start(all_gather_, {in, out}, [&] {
      return ncclAllGather(in.const_data_ptr(), out.mutable_data_ptr(), static_cast<size_t>(in.numel()),
                           TypeOf(in), communicator_, stream_);
    });
  }

  std::unique_ptr<Work> StartBroadcast(at::Tensor tensor, int root) override {
    if (tensor.is_cpu()) {
      return OnHost([&](Communicator& host) { return host.StartBroadcast(tensor, root); });
    }
    sent_ += NcclTraffic::Broadcast(static_cast<int64_t>(tensor.nbytes()), size_);
    return Start(broadcast_, {tensor}, [&] {
      void* const data = tensor.mutable_data_ptr();
      return ncclBroadcast(data, data, static_cast<size_t>(tensor.numel()), TypeOf(tensor), root,
                           communicator_, stream_);
    });
  }

  std::unique_ptr<Work> StartExchange(at::Tensor in, std::vector<int64_t> to, at::Tensor out,
                                      std::vector<int64_t> from) override {
    if (in.is_cpu()) {
      return OnHost([&](Communicator& host) { return host.StartExchange(in, to, out, from); });
    }
    const auto bytes = static_cast<int64_t>(in.element_size());
    sent_ += (in.numel() - to[static_cast<size_t>(rank_)]) * bytes;
    return Start(exchange_, {in, out}, [&] {
      const char* source = static_cast<const char*>(in.const_data_ptr());
      char* target = static_cast<char*>(out.mutable_data_ptr());
      ncclResult_t result = ncclGroupStart();
      for (int peer = 0; peer < size_ && result == ncclSuccess; ++peer) {
        const auto outgoing = static_cast<size_t>(to[peer] * bytes),
                   incoming = static_cast<size_t>(from[peer] * bytes);
        if (outgoing > 0) result = ncclSend(source, outgoing, ncclInt8, peer, communicator_, stream_);
        if (incoming > 0 && result == ncclSuccess) {
          result = ncclRecv(target, incoming, ncclInt8, peer, communicator_, stream_);
        }
        source += outgoing;
        target += incoming;
      }
      const ncclResult_t ended = ncclGroupEnd();
      return result == ncclSuccess ? ended : result;
    });
  }

  absl::Status Barrier() override {
    TESSERA_ASSIGN_OR_RETURN(Communicator * host, host_());
    return host->Barrier();
  }

  // Of tensors of the device; what goes over the host's world is counted there.
  int64_t bytes_sent() const override { return sent_; }

 private:
  template <typename Function>
  std::unique_ptr<Work> OnHost(const Function& function) {
    absl::Status status = calls_->status();
    if (status.ok()) {
      auto host = host_();
      if (host.ok()) return function(**host);
      status = host.status();
    }
    return std::make_unique<NcclWork>(std::move(status), calls_, nullptr, std::vector<at::Tensor>());
  }

  template <typename Function>
  std::unique_ptr<Work> Start(const std::string& operation, std::vector<at::Tensor> tensors,
                              const Function& function) {
    auto done = std::make_shared<Event>();
    Event computed;  // what is sent, by the stream that computes
    absl::Status started = computed.Record(CurrentStream());
    if (started.ok()) started = computed.Block(stream_);
    if (started.ok()) started = calls_->Start(operation, communicator_, stream_, done, function);
    return std::make_unique<NcclWork>(std::move(started), calls_, std::move(done), std::move(tensors));
  }

  const std::string all_reduce_, reduce_scatter_, all_gather_, broadcast_, exchange_;
  const int rank_, size_;
  const ncclComm_t communicator_;
  const cudaStream_t stream_;
  NcclCalls* const calls_;
  const HostGroup host_;
  std::atomic<int64_t> sent_{0};
};

class NcclWorld final : public World {
 public:
  NcclWorld(const NcclOptions& options, int device, std::unique_ptr<World> host)
      : options_(options),
        host_(std::move(host)),
        main_(c10::cuda::getStreamFromPool(/*isHighPriority=*/true, static_cast<c10::DeviceIndex>(device))),
        weights_(
            c10::cuda::getStreamFromPool(/*isHighPriority=*/true, static_cast<c10::DeviceIndex>(device))),
        calls_(device, options.collective_timeout),
        groups_(options.rank) {}

  absl::Status Connect(const std::string& device, RendezvousClient* rendezvous) {
    TESSERA_RETURN_IF_ERROR(CompareDevices(device, rendezvous));
    ncclUniqueId id;
    const char* const key = "nccl/id";
    if (options_.rank == 0) {
      TESSERA_RETURN_IF_ERROR(
          worker::StatusOfNccl(ncclGetUniqueId(&id), "making NCCL's id", ncclGetLastError(nullptr)));
      TESSERA_RETURN_IF_ERROR(rendezvous->Set(key, std::string(id.internal, sizeof id.internal)));
    } else {
      TESSERA_ASSIGN_OR_RETURN(const std::string text, rendezvous->Get(key, options_.rendezvous_timeout));
      if (text.size() != sizeof id.internal) return absl::InternalError("NCCL's id is of another version");
      std::memcpy(id.internal, text.data(), sizeof id.internal);
    }
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.splitShare = 1;
    config.shrinkShare = 1;
    config.maxCTAs = options_.most_blocks;
    TESSERA_RETURN_IF_ERROR(calls_.MakeCommunicator(
        "rendezvous of NCCL", nullptr, &parent_, options_.rendezvous_timeout,
        [&] { return ncclCommInitRankConfig(&parent_, options_.size, id, options_.rank, &config); }));
    std::vector<int> ranks(options_.size);
    for (int i = 0; i < options_.size; ++i) ranks[i] = i;
    TESSERA_ASSIGN_OR_RETURN(all_, Group(ranks, Channel::kMain));
    return absl::OkStatus();
  }

  Communicator& all() override { return *all_; }

  absl::StatusOr<Communicator*> Group(absl::Span<const int> ranks, Channel channel) override {
    return groups_.Find(ranks, channel, [&](const std::string& name, int index) {
      return MakeGroup(name, index, ranks, channel);
    });
  }

  int64_t bytes_sent() const override { return host_->bytes_sent() + groups_.bytes_sent(); }

  std::string waiting() const override {
    std::string operation = calls_.Waiting();
    return !operation.empty() ? operation : host_->waiting();
  }

 private:
  // NCCL's own answer to two ranks on one device is "invalid usage".
  absl::Status CompareDevices(const std::string& device, RendezvousClient* rendezvous) const {
    const auto key = [](int rank) { return absl::StrCat("nccl/device/", rank); };
    TESSERA_RETURN_IF_ERROR(rendezvous->Set(key(options_.rank), device));
    std::vector<std::string> devices(options_.size);
    for (int rank = 0; rank < options_.size; ++rank) {
      TESSERA_ASSIGN_OR_RETURN(devices[rank], rendezvous->Get(key(rank), options_.rendezvous_timeout));
    }
    return worker::CheckDistinctDevices(devices);
  }

  absl::StatusOr<std::unique_ptr<NcclCommunicator>> MakeGroup(const std::string& name, int index,
                                                              absl::Span<const int> ranks, Channel channel) {
    ncclComm_t communicator = parent_;
    if (channel == Channel::kWeights || static_cast<int>(ranks.size()) < options_.size) {
      TESSERA_RETURN_IF_ERROR(worker::CheckGroupCount(made_, options_.most_groups));
      ++made_;
      TESSERA_RETURN_IF_ERROR(Derive(name, ranks, &communicator));
    }
    const c10::cuda::CUDAStream& stream = channel == Channel::kWeights ? weights_ : main_;
    return std::make_unique<NcclCommunicator>(
        name, index, static_cast<int>(ranks.size()), communicator, stream.stream(), &calls_,
        [this, channel, members = std::vector<int>(ranks.begin(), ranks.end())] {
          return host_->Group(members, channel);
        });
  }

  absl::Status Derive(const std::string& name, absl::Span<const int> ranks, ncclComm_t* communicator) {
    const std::string operation = absl::StrCat("rendezvous in group {", name, "}");
    *communicator = nullptr;
    // Shrinking takes nothing under way on the parent.
    main_.synchronize();
    weights_.synchronize();
    std::vector<int> excluded = worker::ExcludedRanks(options_.size, ranks);
    return calls_.MakeCommunicator(operation, parent_, communicator, options_.rendezvous_timeout, [&] {
      if (excluded.empty()) return ncclCommSplit(parent_, 0, options_.rank, communicator, nullptr);
      return ncclCommShrink(parent_, excluded.data(), static_cast<int>(excluded.size()), communicator,
                            nullptr, NCCL_SHRINK_DEFAULT);
    });
  }

  const NcclOptions options_;
  std::unique_ptr<World> host_;
  c10::cuda::CUDAStream main_, weights_;
  NcclCalls calls_;
  ncclComm_t parent_ = nullptr;
  int made_ = 0;  // beside the parent
  worker::GroupTable<NcclCommunicator> groups_;
  Communicator* all_ = nullptr;
};

}  // namespace

absl::StatusOr<std::unique_ptr<World>> MakeNcclWorld(const NcclOptions& options, int device,
                                                     const std::string& bus_id, RendezvousClient* rendezvous,
                                                     std::unique_ptr<World> host) {
  if (options.size == 1) return worker::MakeLoopbackWorld();
  auto world = std::make_unique<NcclWorld>(options, device, std::move(host));
  TESSERA_RETURN_IF_ERROR(world->Connect(absl::StrCat(options.host, "/", bus_id), rendezvous));
  return world;
}

}  // namespace tessera::cuda
