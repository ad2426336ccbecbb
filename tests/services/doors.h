// Both doors of a service in this process, on free ports, around a fake controller.
#pragma once

#include <memory>
#include <string>

#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "services/api/api.h"
#include "services/grpc/server.h"
#include "services/rest/server.h"
#include "tessera/v1/api.grpc.pb.h"
#include "tessera/v1/worker.grpc.pb.h"
#include "tests/patience.h"
#include "tests/services/fake_controller.h"

namespace tessera::services {

constexpr char kClientToken[] = "client-token-0123456789abcdef0123456789";

struct Doors {
  explicit Doors(RestOptions rest_options = {}, int max_watches = 4,
                 absl::Duration hello_deadline = kPatience)
      : store(scheduler::MakeMemoryStore()),
        controller(store.get()),
        api(&controller, store.get(), {.max_watches = max_watches, .nodes = [] {
                                         v1::NodeProfile node;
                                         node.set_name("here");
                                         return std::vector{node};
                                       }}) {
    GrpcOptions grpc_options;
    grpc_options.policy.token = std::make_shared<ClientToken>(kClientToken);
    grpc_options.hello_deadline = hello_deadline;
    grpc = *GrpcServer::Start(grpc_options, &api, &controller);
    rest_options.content.token = std::make_shared<ClientToken>(kClientToken);
    rest_options.content.metrics = [] { return std::string("# metrics\n"); };
    rest = *RestServer::Start(rest_options, &api);
  }
  std::shared_ptr<grpc::Channel> Channel() const {
    return grpc::CreateChannel("127.0.0.1:" + std::to_string(grpc->port()),
                               grpc::InsecureChannelCredentials());
  }

  std::unique_ptr<scheduler::JobStore> store;
  FakeController controller;
  Api api;
  std::unique_ptr<GrpcServer> grpc;
  std::unique_ptr<RestServer> rest;
};

inline void Authorize(grpc::ClientContext* context, const std::string& token = kClientToken) {
  context->AddMetadata("authorization", "Bearer " + token);
  context->set_deadline(absl::ToChronoTime(absl::Now() + kPatience));
}

}  // namespace tessera::services
