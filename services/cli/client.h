// One connection to the service. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "services/cli/endpoint.h"
#include "tessera/v1/api.grpc.pb.h"

namespace tessera::cli {

class Client {
 public:
  // Does not wait for a connection. InvalidArgument for an address that a token must not
  // be sent to in the clear.
  static absl::StatusOr<std::unique_ptr<Client>> Make(const Endpoint& endpoint, const std::string& token);

  // client.Call(&v1::JobService::Stub::GetTrainingJob, request). Errors carry the violations
  // that the service found (spec::ViolationsFrom).
  template <typename Service, typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Service::*method)(grpc::ClientContext*, const Request&,
                                                                Response*),
                                const Request& request, absl::Duration timeout = absl::Seconds(30)) {
    grpc::ClientContext context;
    Prepare(&context);
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    Response response;
    const grpc::Status status = (Stub<Service>().*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  v1::JobService::Stub& jobs() { return *jobs_; }
  void Prepare(grpc::ClientContext* context) const;  // puts the token in

  absl::Status FromGrpc(const grpc::Status& status) const;
  const Endpoint& endpoint() const { return endpoint_; }

 private:
  Client(const Endpoint& endpoint, const std::string& token, const std::shared_ptr<grpc::Channel>& channel);

  template <typename Service>
  Service& Stub();

  const Endpoint endpoint_;
  const std::string token_;
  const std::unique_ptr<v1::JobService::Stub> jobs_;
  const std::unique_ptr<v1::PlanService::Stub> plans_;
  const std::unique_ptr<v1::NodeService::Stub> nodes_;
};

template <>
inline v1::JobService::Stub& Client::Stub() {
  return *jobs_;
}
template <>
inline v1::PlanService::Stub& Client::Stub() {
  return *plans_;
}
template <>
inline v1::NodeService::Stub& Client::Stub() {
  return *nodes_;
}

}  // namespace tessera::cli
