// Every route of the table through both doors: the same request, the same answer.
#include <filesystem>
#include <fstream>

#include "absl/strings/str_replace.h"
#include "grpcpp/impl/codegen/client_unary_call.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "services/api/dispatch.h"
#include "services/api/route.h"
#include "tests/services/http_client.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

using nlohmann::json;

class Parity : public testing::Test {
 protected:
  Parity() {
    char pattern[] = "/tmp/tessera-parity-XXXXXX";
    folder_ = mkdtemp(pattern);
    std::filesystem::create_directories(folder_ + "/logs");
    std::filesystem::create_directories(folder_ + "/checkpoints/step-00000002");
    std::ofstream(folder_ + "/checkpoints/step-00000002/manifest.json")
        << R"({"step": 2, "workers": 3, "files": [{"bytes": 10}, {"bytes": 20}]})";
    std::ofstream(folder_ + "/metrics.jsonl") << R"({"step": 1, "loss": 2.5, "tokens": 64})"
                                              << "\n"
                                              << R"({"step": 1, "validation_loss": 2.25})"
                                              << "\n";
    std::ofstream(folder_ + "/logs/epoch-1-rank-0.log") << "hello\n";
  }
  ~Parity() override { std::filesystem::remove_all(folder_); }

  // One world per call, so that calls that change something start from the same state.
  std::unique_ptr<Doors> World() {
    auto doors = std::make_unique<Doors>();
    v1::CreateTrainingJobRequest request;
    *request.mutable_training_job() = SmallJob("tiny");
    EXPECT_OK(doors->api.jobs.Create(request));
    EXPECT_OK(doors->controller.Change({"default", "tiny"}, [&](v1::TrainingJob* job) {
      job->mutable_status()->set_epoch(1);
      job->mutable_status()->set_state(v1::JOB_STATE_RUNNING);
      job->mutable_status()->set_run_directory(folder_);
      job->mutable_status()->add_workers()->set_node("here");
      job->mutable_create_time()->set_seconds(1);
    }));
    v1::Plan plan;
    plan.set_generation(1);
    EXPECT_OK(doors->store->AddPlan({"default", "tiny"}, plan));
    v1::Event event;
    event.set_revision(5);
    event.mutable_time()->set_seconds(7);
    event.set_reason("Created");
    EXPECT_OK(doors->store->AddEvent({"default", "tiny"}, event));
    return doors;
  }

  static json OverGrpc(Doors* doors, const std::string& rpc, const google::protobuf::Message& request) {
    const auto* method =
        google::protobuf::DescriptorPool::generated_pool()->FindMethodByName("tessera.v1." + rpc);
    std::unique_ptr<google::protobuf::Message> response(
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(method->output_type())->New());
    grpc::ClientContext context;
    Authorize(&context);
    const std::string path = "/tessera.v1." + absl::StrReplaceAll(rpc, {{".", "/"}});
    const grpc::Status status =
        grpc::internal::BlockingUnaryCall<google::protobuf::Message, google::protobuf::Message>(
            doors->Channel().get(),
            grpc::internal::RpcMethod(path.c_str(), grpc::internal::RpcMethod::NORMAL_RPC), &context, request,
            response.get());
    if (!status.ok()) return {{"code", static_cast<int>(status.error_code())}};
    return json::parse(spec::ToJson(*response));
  }

  // What is sent with a route; null for nothing.
  static json BodyOf(const Route& route) {
    const std::string rpc = route.rpc;
    if (rpc == "JobService.CreateTrainingJob") return json::parse(spec::ToJson(SmallJob("other")));
    if (rpc == "JobService.UpdateTrainingJob") return {{"spec", {{"priority", 7}}}};
    if (rpc == "JobService.ResizeTrainingJob") return {{"workers", 3}};
    if (rpc == "JobService.RecomputeBudgets") return {{"budgetsOf", 1}};
    if (rpc == "NodeService.ReportNode") return {{"node", {{"name", "there"}}}};
    return json::object();
  }
  static std::string TextOf(const Route& route) { return *route.body == '\0' ? "" : BodyOf(route).dump(); }

  // The request that the URL stands for, built here by hand of the route's variables.
  static std::unique_ptr<google::protobuf::Message> RequestOf(const Route& route) {
    auto request = NewRequest(route.rpc);
    json fields = json::object();
    for (const auto& [name, value] :
         {std::pair{"namespace", "default"}, {"name", "tiny"}, {"generation", "1"}}) {
      if (std::string(route.path).find(std::string("{") + name + "}") != std::string::npos)
        fields[name] = value;
    }
    const json body = BodyOf(route);
    if (std::string(route.body) == "training_job") fields["trainingJob"] = body;
    if (std::string(route.body) == "*") fields.update(body);
    EXPECT_OK(spec::ParseMessage(fields.dump(), request.get()));
    return request;
  }

  static std::string Url(const Route& route) {
    return absl::StrReplaceAll(route.path,
                               {{"{namespace}", "default"}, {"{name}", "tiny"}, {"{generation}", "1"}});
  }

  std::string folder_;
};

TEST_F(Parity, EveryUnaryRouteAnswersAlike) {
  for (const Route& route : Routes()) {
    if (route.stream) continue;
    SCOPED_TRACE(std::string(route.method) + " " + route.path);
    const auto rest_world = World();
    const HttpAnswer answer = Http(*rest_world, route.method, Url(route), TextOf(route));
    ASSERT_LT(answer.status, 300) << answer.body;
    const auto grpc_world = World();
    json expected = OverGrpc(grpc_world.get(), route.rpc, *RequestOf(route));
    if (*route.part != '\0') expected = {{"workers", expected["status"]["workers"]}};
    EXPECT_EQ(json::parse(answer.body), expected);
  }
}

TEST_F(Parity, EveryUnaryRouteOfAMissingJobFailsAlike) {
  for (const Route& route : Routes()) {
    if (route.stream || std::string(route.path).find("{name}") == std::string::npos) continue;
    SCOPED_TRACE(std::string(route.method) + " " + route.path);
    const Doors doors;
    const HttpAnswer answer = Http(doors, route.method, Url(route), TextOf(route));
    EXPECT_EQ(answer.status, 404);
    EXPECT_EQ(json::parse(answer.body)["code"], "NOT_FOUND");
    EXPECT_EQ(OverGrpc(const_cast<Doors*>(&doors), route.rpc, *RequestOf(route)), (json{{"code", 5}}));
  }
}

TEST_F(Parity, AWatchSendsTheSameFirstUpdate) {
  const auto doors = World();
  HttpClient client(doors->rest->port());
  client.Send(
      "GET /v1/namespaces/default/trainingJobs/tiny:watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " +
      std::string(kClientToken) + "\r\n\r\n");
  client.ReadUntil("\r\n\r\n");
  const std::string event = client.ReadUntil("\n\n");
  const json over_rest = json::parse(event.substr(event.find("data: ") + 6));
  auto jobs = v1::JobService::NewStub(doors->Channel());
  grpc::ClientContext context;
  Authorize(&context);
  v1::WatchTrainingJobRequest request;
  request.set_name("tiny");
  v1::WatchTrainingJobResponse update;
  ASSERT_TRUE(jobs->WatchTrainingJob(&context, request)->Read(&update));
  EXPECT_EQ(over_rest, json::parse(spec::ToJson(update)));
}

}  // namespace
}  // namespace tessera::services
