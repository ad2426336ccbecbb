#include <algorithm>

#include "absl/time/clock.h"
#include "services/grpc/services.h"
#include "services/grpc/worker_reactor.h"

namespace tessera::services {
namespace {

constexpr absl::Duration kLongestStoreCall = absl::Minutes(10);
constexpr absl::Duration kStoreSlice = absl::Seconds(1);

}  // namespace

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* GrpcWorkerService::Connect(
    grpc::CallbackServerContext* context) {
  return WorkerReactor::Start(&door_, &greetings_, Authorization(*context));
}

grpc::Status GrpcWorkerService::Store(grpc::ServerContext* context, const v1::StoreRequest* request,
                                      v1::StoreResponse* response) {
  v1::WorkerIdentity worker;
  worker.set_job_uid(request->job_uid());
  worker.set_epoch(request->epoch());
  worker.set_rank(-1);
  if (absl::Status status = CheckWorker(door_.controller, door_.review, Authorization(*context), worker);
      !status.ok()) {
    return ToGrpcStatus(status);
  }
  const absl::Time deadline =
      std::min(absl::FromChrono(context->deadline()), absl::Now() + kLongestStoreCall);
  // In slices, so that a call whose caller is gone, or a server that stops, ends its wait.
  while (true) {
    auto result = door_.controller->Store(*request, std::min(deadline, absl::Now() + kStoreSlice));
    if (result.ok()) {
      *response = *std::move(result);
      return grpc::Status::OK;
    }
    if (!absl::IsDeadlineExceeded(result.status()) || absl::Now() >= deadline || context->IsCancelled()) {
      return ToGrpcStatus(result.status());
    }
  }
}

}  // namespace tessera::services
