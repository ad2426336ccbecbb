#include "worker/control/scheduler_rendezvous.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "worker/control/endpoint.h"
#include "worker/control/scheduler_channel.h"

namespace tessera::worker {
namespace {

using Request = v1::StoreRequest;

class SchedulerRendezvous final : public RendezvousClient {
 public:
  explicit SchedulerRendezvous(const SchedulerRendezvousOptions& options) : options_(options) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    Request request = Make(Request::OPERATION_SET, {key});
    request.set_value(value);
    return Call(request, options_.call_timeout).status();
  }

  absl::StatusOr<std::string> Get(const std::string& key, absl::Duration timeout) override {
    TESSERA_ASSIGN_OR_RETURN(const auto response, Call(Make(Request::OPERATION_GET, {key}), timeout));
    return FirstValue(response, key);
  }

  absl::StatusOr<int64_t> Add(const std::string& key, int64_t amount) override {
    Request request = Make(Request::OPERATION_ADD, {key});
    request.set_amount(amount);
    TESSERA_ASSIGN_OR_RETURN(const auto response, Call(request, options_.call_timeout));
    return response.number();
  }

  absl::StatusOr<bool> Check(const std::vector<std::string>& keys) override {
    TESSERA_ASSIGN_OR_RETURN(const auto response,
                             Call(Make(Request::OPERATION_CHECK, keys), options_.call_timeout));
    return response.number() != 0;
  }

  absl::StatusOr<bool> Delete(const std::string& key) override {
    TESSERA_ASSIGN_OR_RETURN(const auto response,
                             Call(Make(Request::OPERATION_DELETE, {key}), options_.call_timeout));
    return response.number() != 0;
  }

  absl::StatusOr<std::string> CompareSet(const std::string& key, const std::string& expected,
                                         const std::string& desired) override {
    Request request = Make(Request::OPERATION_COMPARE_SET, {key});
    request.set_expected(expected);
    request.set_value(desired);
    TESSERA_ASSIGN_OR_RETURN(const auto response, Call(request, options_.call_timeout));
    return FirstValue(response, key);
  }

  absl::StatusOr<int64_t> Count() override {
    TESSERA_ASSIGN_OR_RETURN(const auto response,
                             Call(Make(Request::OPERATION_COUNT, {}), options_.call_timeout));
    return response.number();
  }

 private:
  Request Make(Request::Operation operation, const std::vector<std::string>& keys) const {
    Request request;
    request.set_job_uid(options_.job_uid);
    request.set_epoch(options_.epoch);
    request.set_operation(operation);
    for (const std::string& key : keys) request.add_keys(key);
    return request;
  }

  static absl::StatusOr<std::string> FirstValue(const v1::StoreResponse& response, const std::string& key) {
    if (response.values_size() < 1) {
      return absl::InternalError(absl::StrCat("the scheduler sent no value for rendezvous key '", key, "'"));
    }
    return response.values(0);
  }

  absl::StatusOr<v1::StoreResponse> Call(const Request& request, absl::Duration timeout) {
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + std::max(timeout, absl::Milliseconds(1))));
    context.set_wait_for_ready(true);
    TESSERA_ASSIGN_OR_RETURN(const std::string token, ReadToken(options_.token_file));
    if (!token.empty()) context.AddMetadata("authorization", absl::StrCat("Bearer ", token));
    TESSERA_ASSIGN_OR_RETURN(const auto stub, Stub());
    v1::StoreResponse response;
    const grpc::Status status = stub->Store(&context, request, &response);
    if (status.ok()) return response;
    return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                        absl::StrCat("rendezvous key '", request.keys_size() > 0 ? request.keys(0) : "",
                                     "': ", status.error_message()));
  }

  // One channel for as long as the scheduler's address stays.
  absl::StatusOr<std::shared_ptr<v1::WorkerService::Stub>> Stub() {
    TESSERA_ASSIGN_OR_RETURN(const std::string address, ResolveScheduler(options_.scheduler));
    absl::MutexLock lock(&mutex_);
    if (stub_ == nullptr || address != address_) {
      TESSERA_ASSIGN_OR_RETURN(const auto channel, OpenSchedulerChannel(address, options_.ca_file, {}));
      stub_ = v1::WorkerService::NewStub(channel);
      address_ = address;
    }
    return stub_;
  }

  const SchedulerRendezvousOptions options_;
  absl::Mutex mutex_;
  std::string address_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<v1::WorkerService::Stub> stub_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<RendezvousClient> MakeSchedulerRendezvous(const SchedulerRendezvousOptions& options) {
  return std::make_unique<SchedulerRendezvous>(options);
}

}  // namespace tessera::worker
