#include <future>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"
#include "tests/services/http_client.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

constexpr char kWatch[] = "/v1/namespaces/default/trainingJobs/tiny:watch";

std::unique_ptr<Doors> World(const RestOptions& options = {}, int max_watches = 4) {
  auto doors = std::make_unique<Doors>(options, max_watches);
  v1::CreateTrainingJobRequest request;
  *request.mutable_training_job() = SmallJob("tiny");
  EXPECT_OK(doors->api.jobs.Create(request));
  return doors;
}

std::string Ask(const std::string& headers = "") {
  return std::string("GET ") + kWatch + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + kClientToken +
         "\r\n" + headers + "\r\n";
}

int64_t IdOf(const std::string& event) {
  int64_t id = 0;
  EXPECT_TRUE(event.substr(0, 4) == "id: " && absl::SimpleAtoi(event.substr(4, event.find('\n') - 4), &id))
      << event;
  return id;
}

TEST(RestEvents, FollowTheJobAndResumeAfterTheLastOneSeen) {
  const auto doors = World();
  int64_t seen = 0;
  {
    HttpClient client(doors->rest->port());
    client.Send(Ask());
    EXPECT_NE(client.ReadUntil("\r\n\r\n").find("text/event-stream"), std::string::npos);
    EXPECT_NE(client.ReadUntil("\n\n").find("\"state\":\"queued\""), std::string::npos);
    ASSERT_OK(doors->controller.SetState({"default", "tiny"}, v1::JOB_STATE_RUNNING));
    const std::string event = client.ReadUntil("\n\n");
    EXPECT_NE(event.find("\"state\":\"running\""), std::string::npos);
    seen = IdOf(event);
  }
  // Nothing happened since: the first event of a resumed stream is the next change.
  HttpClient client(doors->rest->port());
  client.Send(Ask("Last-Event-ID: " + std::to_string(seen) + "\r\n"));
  client.ReadUntil("\r\n\r\n");
  ASSERT_TRUE(doors->controller.Await([](FakeController& c)
                                          ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.watches_.size() == 1; }));
  ASSERT_OK(doors->controller.SetState({"default", "tiny"}, v1::JOB_STATE_SUCCEEDED));
  const std::string event = client.ReadUntil("\n\n");
  EXPECT_GT(IdOf(event), seen);
  EXPECT_NE(event.find("\"state\":\"succeeded\""), std::string::npos);
  ASSERT_OK(doors->controller.Delete({"default", "tiny"}, ""));
  EXPECT_NE(client.ReadUntil("\n\n").find("event: deleted"), std::string::npos);
  EXPECT_TRUE(client.AtEnd());
}

TEST(RestEvents, OfARevisionThatIsNotKeptAreGone) {
  const auto doors = World();
  EXPECT_EQ(Http(*doors, "GET", kWatch, "", "Last-Event-ID: 999999\r\n").status, 410);
  EXPECT_EQ(Http(*doors, "GET", kWatch, "", "Last-Event-ID: abc\r\n").status, 400);
}

TEST(RestEvents, AreKeptAlive) {
  RestOptions options;
  options.event_keep_alive = absl::Milliseconds(20);
  const auto doors = World(options);
  HttpClient client(doors->rest->port());
  client.Send(Ask());
  client.ReadUntil("\n\n: keep-alive\n\n");
  EXPECT_NE(client.ReadUntil(": keep-alive\n\n"), "");
}

TEST(RestEvents, AClientThatLeavesFreesItsPlace) {
  const auto doors = World({}, /*max_watches=*/1);
  {
    HttpClient client(doors->rest->port());
    client.Send(Ask());
    client.ReadUntil("\n\n");
    EXPECT_EQ(Http(*doors, "GET", kWatch).status, 429);
  }
  EXPECT_TRUE(doors->controller.Await([](FakeController& c)
                                          ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.watches_.empty(); }));
}

TEST(RestEvents, EndWhenTheServiceStops) {
  const auto doors = World();
  HttpClient client(doors->rest->port());
  client.Send(Ask());
  client.ReadUntil("\r\n\r\n");
  client.ReadUntil("\n\n");
  auto stopped = std::async(std::launch::async, [&] { doors->rest->Stop(kPatience); });
  EXPECT_TRUE(client.AtEnd());
  stopped.get();
}

}  // namespace
}  // namespace tessera::services
