// A scheduler's worker service in this process, under the test's control.
#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "tests/patience.h"
#include "worker/comm/rendezvous_client.h"

namespace tessera::worker {

// Answers Hello with `assignment`, keeps what comes, ends a stream after Finished.
class FakeScheduler final : public v1::WorkerService::Service {
 public:
  // port 0: any free one.
  explicit FakeScheduler(int port = 0, const std::shared_ptr<grpc::ServerCredentials>& credentials =
                                           grpc::InsecureServerCredentials()) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(absl::StrCat("127.0.0.1:", port), credentials, &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeScheduler() override { Kill(); }

  // Breaks all streams, as a killed scheduler does.
  void Kill() {
    if (server_ != nullptr) server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }
  int port() const { return port_; }

  grpc::Status Connect(grpc::ServerContext* context,
                       grpc::ServerReaderWriter<v1::WorkerDown, v1::WorkerUp>* stream) override {
    if (const grpc::Status refused = CheckToken(*context); !refused.ok()) return refused;
    v1::WorkerUp up;
    while (stream->Read(&up)) {
      if (up.has_hello()) {
        v1::WorkerDown down;
        *down.mutable_assignment() = assignment;
        down.mutable_assignment()->set_rank(up.hello().identity().rank());
        if (adapt) adapt(*down.mutable_assignment());
        stream->Write(down);
        absl::MutexLock lock(&mutex_);
        for (const v1::WorkerDown& message : after_hello) stream->Write(message);
      }
      absl::MutexLock lock(&mutex_);
      received_.push_back(up);
      if (up.has_finished() && up.finished().outcome() == hold_until_other_ends) {
        const auto both = [&] {
          return std::count_if(received_.begin(), received_.end(),
                               [](const v1::WorkerUp& each) { return each.has_finished(); }) > 1;
        };
        mutex_.Await(absl::Condition(&both));
        held_stream_ended = context->IsCancelled();
      }
      if (up.has_finished() && drop_finished) return {grpc::StatusCode::UNAVAILABLE, "going down"};
    }
    return grpc::Status::OK;
  }

  grpc::Status Store(grpc::ServerContext* context, const v1::StoreRequest* request,
                     v1::StoreResponse* response) override {
    if (const grpc::Status refused = CheckToken(*context); !refused.ok()) return refused;
    using R = v1::StoreRequest;
    const std::vector<std::string> keys(request->keys().begin(), request->keys().end());
    switch (request->operation()) {
      case R::OPERATION_SET:
        return ToGrpc(store_.Set(keys[0], request->value()));
      case R::OPERATION_GET: {
        auto value = store_.Get(keys[0], absl::FromChrono(context->deadline()) - absl::Now());
        if (value.ok()) response->add_values(*value);
        return ToGrpc(value.status());
      }
      case R::OPERATION_ADD:
        response->set_number(*store_.Add(keys[0], request->amount()));
        return grpc::Status::OK;
      case R::OPERATION_CHECK:
        response->set_number(*store_.Check(keys));
        return grpc::Status::OK;
      case R::OPERATION_DELETE:
        response->set_number(*store_.Delete(keys[0]));
        return grpc::Status::OK;
      case R::OPERATION_COMPARE_SET:
        response->add_values(*store_.CompareSet(keys[0], request->expected(), request->value()));
        return grpc::Status::OK;
      case R::OPERATION_COUNT:
        response->set_number(*store_.Count());
        return grpc::Status::OK;
      default:
        return {grpc::StatusCode::INVALID_ARGUMENT, "no operation"};
    }
  }

  // Waits for a message of which `is` is true; the last such message.
  template <typename Predicate>
  bool Await(const Predicate& is, v1::WorkerUp* message = nullptr) {
    absl::MutexLock lock(&mutex_);
    const auto there = [&] { return std::any_of(received_.begin(), received_.end(), is); };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) return false;
    for (const v1::WorkerUp& up : received_) {
      if (message != nullptr && is(up)) *message = up;
    }
    return true;
  }
  std::vector<v1::WorkerUp> received() {
    absl::MutexLock lock(&mutex_);
    return received_;
  }

  v1::Assignment assignment;
  std::vector<v1::WorkerDown> after_hello;
  std::string token;
  bool drop_finished = false;
  std::function<void(v1::Assignment& of_rank)> adapt;
  // The stream of a worker with this outcome is left open until two workers have told of their end.
  std::optional<v1::WorkerOutcome> hold_until_other_ends;
  bool held_stream_ended = false;  // by its worker, before the other's end was told

 private:
  grpc::Status CheckToken(const grpc::ServerContext& context) const {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find("authorization");
    const std::string given =
        found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
    if (token.empty() || given == "Bearer " + token) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, "no such worker"};
  }
  static grpc::Status ToGrpc(const absl::Status& status) {
    return {static_cast<grpc::StatusCode>(status.code()), std::string(status.message())};
  }

  MemoryRendezvous store_;
  absl::Mutex mutex_;
  std::vector<v1::WorkerUp> received_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace tessera::worker
