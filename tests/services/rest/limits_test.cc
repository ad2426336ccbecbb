#include <future>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/job_codec.h"
#include "tests/services/http_client.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

constexpr char kJobs[] = "/v1/namespaces/default/trainingJobs";

std::string SmallJobText(const std::string& name) { return spec::ToJsonValue(SmallJob(name)).dump(); }

TEST(RestLimits, BodiesAndHeadersAreBounded) {
  RestOptions options;
  options.max_body_bytes = 1000;
  options.max_header_bytes = 2000;
  const Doors doors(options);
  EXPECT_EQ(Http(doors, "POST", "/v1/namespaces/default/trainingJobs", std::string(1001, ' ')).status, 413);
  EXPECT_EQ(Http(doors, "GET", "/healthz", "", "X: " + std::string(3000, 'x') + "\r\n").status, 431);
  HttpClient chunked(doors.rest->port());
  chunked.Send(
      "POST /v1/namespaces/default/trainingJobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n800\r\n" +
      std::string(0x800, ' ') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.Read().status, 413);
}

TEST(RestLimits, OneConnectionServesManyRequests) {
  const Doors doors;
  HttpClient client(doors.rest->port());
  for (int i = 0; i < 10; ++i)
    EXPECT_EQ(client.Call("GET", "/v1/nodes").body, "{\"nodes\":[{\"name\":\"here\",\"age\":\"0s\"}]}\n");
}

TEST(RestLimits, TooManyConnectionsAreRefusedPolitely) {
  RestOptions options;
  options.max_connections = 1;
  const Doors doors(options);
  HttpClient first(doors.rest->port());
  EXPECT_EQ(first.Call("GET", "/healthz").status, 200);
  HttpClient second(doors.rest->port());
  EXPECT_EQ(second.Read().status, 503);
  EXPECT_EQ(first.Call("GET", "/healthz").status, 200);
}

TEST(RestLimits, ClientsThatSendOrReadSlowlyHoldNoThread) {
  RestOptions options;
  options.handler_threads = 1;
  const Doors doors(options);
  std::vector<std::unique_ptr<HttpClient>> slow;
  const std::string head = "GET /openapi.json HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 30; ++i) {
    slow.push_back(std::make_unique<HttpClient>(doors.rest->port()));
    // Some never end their request; the others ask for more than the socket holds and read nothing.
    slow.back()->Send(head);
    for (int j = 0; i % 2 == 0 && j < 20; ++j) slow.back()->Send((j == 0 ? "\r\n" : "\r\n" + head + "\r\n"));
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(Http(doors, "GET", "/v1/nodes").status, 200);
}

TEST(RestLimits, AReplicaThatStandsByAnswersProbesAndNothingElse) {
  RestOptions options;
  options.content.token = std::make_shared<ClientToken>(kClientToken);
  options.content.standby = "another one leads";
  const auto server = RestServer::Start(options, nullptr);
  ASSERT_OK(server);
  for (const char* probe : {"/healthz", "/readyz"}) {
    EXPECT_EQ(HttpClient((*server)->port()).Call("GET", probe).status, 200) << probe;
  }
  const std::string watch = std::string(kJobs) + "/a:watch";
  for (const char* path : {kJobs, "/metrics", "/v1/prometheusTargets", watch.c_str()}) {
    const HttpAnswer answer = HttpClient((*server)->port()).Call("GET", path);
    EXPECT_EQ(answer.status, 503) << path;
    EXPECT_NE(answer.body.find("another one leads"), std::string::npos) << path;
  }
}

TEST(RestLimits, AnIdleConnectionIsClosed) {
  RestOptions options;
  options.read_timeout = absl::Milliseconds(50);
  const Doors doors(options);
  HttpClient client(doors.rest->port());
  client.Send("GET /healthz HT");
  EXPECT_TRUE(client.AtEnd());
}

TEST(RestLimits, ASlowHandlerIsAnswered504) {
  RestOptions options;
  options.handler_timeout = absl::Milliseconds(30);
  absl::Notification go;
  Doors doors(options);
  doors.controller.during_create = [&] { go.WaitForNotification(); };
  const HttpAnswer answer = Http(doors, "POST", kJobs, SmallJobText("a"));
  go.Notify();
  EXPECT_EQ(answer.status, 504);
}

TEST(RestLimits, HealthAndOtherCallsAreAnsweredWhileJobsArePlannedAndMorePlansAreRefused) {
  Doors doors;
  absl::Notification go;
  int running = 0;
  doors.controller.during_create = [&] {
    {
      absl::MutexLock lock(&doors.controller.mutex_);
      ++running;
    }
    go.WaitForNotification();
  };
  std::vector<std::future<int>> creations;
  for (int i = 0; i < 4; ++i) {
    creations.push_back(std::async(std::launch::async, [&doors, i] {
      return Http(doors, "POST", kJobs, SmallJobText("job-" + std::to_string(i))).status;
    }));
  }
  doors.controller.Await([&](FakeController&) { return running == 4; });
  EXPECT_EQ(Http(doors, "POST", kJobs, SmallJobText("more")).status, 429);
  EXPECT_EQ(Http(doors, "POST", std::string(kJobs) + "?validateOnly=true", SmallJobText("more")).status, 429);
  const auto stub = v1::JobService::NewStub(doors.Channel());
  grpc::ClientContext context;
  Authorize(&context);
  v1::CreateTrainingJobRequest request;
  *request.mutable_training_job() = SmallJob("more");
  v1::CreateTrainingJobResponse response;
  EXPECT_EQ(stub->CreateTrainingJob(&context, request, &response).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Http(doors, "GET", "/healthz").status, 200);
  EXPECT_EQ(Http(doors, "GET", "/readyz").status, 200);
  EXPECT_EQ(Http(doors, "GET", "/v1/nodes").status, 200);
  go.Notify();
  for (auto& creation : creations) EXPECT_EQ(creation.get(), 201);
  EXPECT_EQ(Http(doors, "POST", kJobs, SmallJobText("more")).status, 201);
}

TEST(RestLimits, AJobWhoseCallerHungUpWhileItWasPlannedIsNotStored) {
  absl::Notification started;
  absl::Notification go;
  Doors doors;
  doors.controller.during_create = [&] {
    started.Notify();
    go.WaitForNotification();
  };
  {
    HttpClient client(doors.rest->port());
    const std::string body = SmallJobText("a");
    client.Send(std::string("POST ") + kJobs + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " +
                kClientToken + "\r\nContent-Type: application/json\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n" + body);
    started.WaitForNotification();
  }
  go.Notify();
  EXPECT_TRUE(doors.controller.Await([](FakeController& c)
                                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.abandoned_ == 1; }));
  EXPECT_FALSE(doors.store->Get({"default", "a"}).ok());
}

TEST(RestLimits, DrainFinishesTheRequestAndEndsIdleConnections) {
  RestOptions options;
  absl::Notification started;
  absl::Notification go;
  Doors doors(options);
  doors.controller.during_create = [&] {
    started.Notify();
    go.WaitForNotification();
  };
  HttpClient idle(doors.rest->port());
  EXPECT_EQ(idle.Call("GET", "/healthz").status, 200);
  auto busy =
      std::async(std::launch::async, [&] { return Http(doors, "POST", kJobs, SmallJobText("a")).status; });
  started.WaitForNotification();
  auto stopped = std::async(std::launch::async, [&] { doors.rest->Stop(kPatience); });
  EXPECT_TRUE(idle.AtEnd());
  go.Notify();
  EXPECT_EQ(busy.get(), 201);
  stopped.get();
}

}  // namespace
}  // namespace tessera::services
