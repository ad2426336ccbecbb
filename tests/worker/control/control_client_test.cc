#include "worker/control/control_client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "services/auth/certificates.h"
#include "tests/patience.h"
#include "tests/status.h"
#include "tests/worker/control/fake_scheduler.h"
#include "worker/control/endpoint.h"
#include "worker/control/exit_code.h"
#include "worker/control/scheduler_rendezvous.h"

namespace tessera::worker {
namespace {

class ControlTest : public testing::Test {
 protected:
  ControlTest() {
    std::string name = testing::TempDir() + "/tessera-control-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    options_.first_backoff = absl::Milliseconds(20);
    options_.progress_interval = absl::Milliseconds(50);
    options_.grace = kPatience;
    options_.identity.set_rank(2);
    handlers_.stop = [this](const v1::Stop& stop) {
      stop_reason_ = stop.reason();
      if (!stopped_.HasBeenNotified()) stopped_.Notify();
    };
    handlers_.checkpoint = [] {};
    handlers_.plan = [](const v1::Plan&) {};
    handlers_.scheduler_lost = [this] { lost_.Notify(); };
  }
  ~ControlTest() override { std::filesystem::remove_all(directory_); }

  std::string WriteFile(const std::string& name, const std::string& text) {
    std::ofstream(directory_ + "/" + name) << text;
    return directory_ + "/" + name;
  }
  static v1::WorkerUp Progress(int64_t step) {
    v1::WorkerUp up;
    up.mutable_progress()->set_step(step);
    return up;
  }

  std::string directory_;
  ControlOptions options_;
  ControlHandlers handlers_;
  absl::Notification stopped_, lost_;
  std::string stop_reason_;
};

TEST_F(ControlTest, HelloGetsTheAssignmentAndOrdersArrive) {
  FakeScheduler scheduler;
  scheduler.token = "secret";
  scheduler.assignment.set_world_size(4);
  scheduler.after_hello.emplace_back().mutable_stop()->set_reason("enough");
  options_.scheduler = scheduler.address();
  options_.token_file = WriteFile("token", "secret\n");
  options_.metrics_address = "127.0.0.1:9";
  auto client = ControlClient::Start(options_, std::move(handlers_));
  const auto assignment = client->WaitForAssignment(kPatience);
  ASSERT_OK(assignment);
  EXPECT_EQ(assignment->world_size(), 4);
  stopped_.WaitForNotification();
  EXPECT_EQ(stop_reason_, "enough");
  v1::WorkerUp hello;
  ASSERT_TRUE(scheduler.Await([](const v1::WorkerUp& up) { return up.has_hello(); }, &hello));
  EXPECT_EQ(hello.hello().identity().rank(), 2);
  EXPECT_EQ(hello.hello().metrics_address(), "127.0.0.1:9");
}

TEST_F(ControlTest, AWebProxyInTheEnvironmentIsNotAskedForTheScheduler) {
  for (const char* name : {"grpc_proxy", "http_proxy", "https_proxy"}) {
    ::setenv(name, "http://127.0.0.1:1", 1);
  }
  FakeScheduler scheduler;
  options_.scheduler = scheduler.address();
  auto client = ControlClient::Start(options_, std::move(handlers_));
  EXPECT_OK(client->WaitForAssignment(kPatience));
  SchedulerRendezvousOptions store;
  store.scheduler = scheduler.address();
  store.call_timeout = kPatience;
  EXPECT_OK(MakeSchedulerRendezvous(store)->Set("k", "v"));
  for (const char* name : {"grpc_proxy", "http_proxy", "https_proxy"}) ::unsetenv(name);
}

TEST_F(ControlTest, AWrongTokenIsARefusalNotARetry) {
  FakeScheduler scheduler;
  scheduler.token = "secret";
  options_.scheduler = scheduler.address();
  options_.token_file = WriteFile("token", "guess");
  auto client = ControlClient::Start(options_, std::move(handlers_));
  const auto assignment = client->WaitForAssignment(kPatience);
  EXPECT_TRUE(absl::IsUnauthenticated(assignment.status())) << assignment.status();
  EXPECT_EQ(ExitCodeOf(OutcomeOf(assignment.status())), kExitInvalid);
}

TEST_F(ControlTest, AnHttpsSchedulerIsKnownByItsAuthorityAndAnotherIsNot) {
  const auto issued = services::IssueCertificates(directory_ + "/tls", {"localhost"}, absl::Now());
  const auto other = services::IssueCertificates(directory_ + "/other", {"localhost"}, absl::Now());
  ASSERT_TRUE(issued.ok() && other.ok()) << issued.status() << other.status();
  const auto text = [](const std::string& file) {
    std::stringstream all;
    all << std::ifstream(file).rdbuf();
    return all.str();
  };
  grpc::SslServerCredentialsOptions tls;
  tls.pem_key_cert_pairs.push_back({text(issued->key), text(issued->certificate)});
  FakeScheduler scheduler(0, grpc::SslServerCredentials(tls));
  SchedulerRendezvousOptions store;
  store.scheduler = absl::StrCat("https://localhost:", scheduler.port());
  store.ca_file = issued->authority;
  EXPECT_OK(MakeSchedulerRendezvous(store)->Set("k", "v"));
  store.ca_file = directory_ + "/none.pem";
  EXPECT_NE(MakeSchedulerRendezvous(store)->Set("k", "v").message().find("none.pem': can't open"),
            std::string::npos);
  options_.scheduler = store.scheduler;
  options_.ca_file = WriteFile("ca.pem", text(other->authority));
  options_.grace = absl::Milliseconds(100);
  auto client = ControlClient::Start(options_, std::move(handlers_));
  lost_.WaitForNotification();
  EXPECT_FALSE(client->WaitForAssignment(absl::ZeroDuration()).ok());
  WriteFile("ca.pem", text(issued->authority));  // read anew at each connection
  EXPECT_OK(client->WaitForAssignment(kPatience));
}

TEST_F(ControlTest, ProgressIsThinnedToTheNewestAndNothingElseIs) {
  FakeScheduler scheduler;
  options_.scheduler = scheduler.address();
  options_.progress_interval = absl::Hours(1);
  auto client = ControlClient::Start(options_, std::move(handlers_));
  ASSERT_OK(client->WaitForAssignment(kPatience));
  for (int64_t step = 1; step <= 500; ++step) {
    client->Send(Progress(step));
    if (step != 250) continue;
    v1::WorkerUp evaluated = Progress(step);
    evaluated.mutable_progress()->set_validation_loss(1.5);
    client->Send(evaluated);
  }
  v1::WorkerUp checkpoint;
  checkpoint.mutable_checkpoint()->set_path("p");
  client->Send(checkpoint);
  EXPECT_OK(client->Finish({}));
  int progress = 0, evaluated = 0;
  for (const v1::WorkerUp& up : scheduler.received()) {
    progress += up.has_progress();
    evaluated += up.has_progress() && up.progress().has_validation_loss();
  }
  EXPECT_LT(progress, 10);
  EXPECT_EQ(evaluated, 1);
  const auto received = scheduler.received();
  ASSERT_GE(received.size(), 3u);
  EXPECT_EQ(received[received.size() - 3].progress().step(), 500);
  EXPECT_EQ(received[received.size() - 2].checkpoint().path(), "p");
  EXPECT_TRUE(received.back().has_finished());
}

TEST_F(ControlTest, AKilledSchedulerIsFoundAgainAtItsNewAddress) {
  auto first = std::make_unique<FakeScheduler>();
  options_.scheduler = "file:" + WriteFile("endpoint.json", "{\"grpc\": \"" + first->address() + "\"}");
  auto client = ControlClient::Start(options_, std::move(handlers_));
  ASSERT_OK(client->WaitForAssignment(kPatience));
  first->Kill();
  v1::WorkerUp training;
  training.mutable_phase()->set_phase(v1::WORKER_PHASE_TRAINING);
  client->Send(training);
  v1::WorkerUp checkpoint;
  checkpoint.mutable_checkpoint()->set_step(8);
  client->Send(Progress(8));
  client->Send(checkpoint);  // while nobody is there
  FakeScheduler second;
  WriteFile("endpoint.json", "{\"grpc\": \"" + second.address() + "\"}");
  v1::WorkerUp hello;
  ASSERT_TRUE(second.Await([](const v1::WorkerUp& up) { return up.has_hello(); }, &hello));
  EXPECT_EQ(hello.hello().step(), 8);
  EXPECT_EQ(hello.hello().phase(), v1::WORKER_PHASE_TRAINING) << "a scheduler that knows nothing is told";
  EXPECT_TRUE(second.Await([](const v1::WorkerUp& up) { return up.checkpoint().step() == 8; }));
  EXPECT_OK(client->Finish({}));
  EXPECT_TRUE(second.Await([](const v1::WorkerUp& up) { return up.has_finished(); }));
}

TEST_F(ControlTest, AnEndThatWasNotConfirmedIsSaidAgain) {
  auto first = std::make_unique<FakeScheduler>();
  first->drop_finished = true;
  options_.scheduler = "file:" + WriteFile("endpoint.json", "{\"grpc\": \"" + first->address() + "\"}");
  auto client = ControlClient::Start(options_, std::move(handlers_));
  ASSERT_OK(client->WaitForAssignment(kPatience));
  FakeScheduler second;
  WriteFile("endpoint.json", "{\"grpc\": \"" + second.address() + "\"}");
  EXPECT_OK(client->Finish({}));
  EXPECT_TRUE(second.Await([](const v1::WorkerUp& up) { return up.has_finished(); }));
}

TEST_F(ControlTest, ASchedulerThatStaysAwayIsGivenUpAfterTheGrace) {
  options_.scheduler = "file:" + directory_ + "/none.json";
  options_.grace = absl::Milliseconds(100);
  auto client = ControlClient::Start(options_, std::move(handlers_));
  lost_.WaitForNotification();
  const auto assignment = client->WaitForAssignment(absl::Milliseconds(10));
  EXPECT_TRUE(absl::IsDeadlineExceeded(assignment.status()));
  EXPECT_NE(assignment.status().message().find("none.json"), std::string::npos) << assignment.status();
}

TEST_F(ControlTest, RendezvousStoreSpeaksToTheScheduler) {
  FakeScheduler scheduler;
  scheduler.token = "secret";
  SchedulerRendezvousOptions options;
  options.scheduler = scheduler.address();
  options.token_file = WriteFile("token", "secret");
  auto store = MakeSchedulerRendezvous(options);
  const std::string binary("\0\xff\x80", 3);
  ASSERT_OK(store->Set("k", binary));
  EXPECT_EQ(*store->Get("k", kPatience), binary);
  EXPECT_EQ(*store->Add("n", 3), 3);
  EXPECT_EQ(*store->Add("n", 4), 7);
  EXPECT_TRUE(*store->Check({"k", "n"}));
  EXPECT_FALSE(*store->Check({"k", "x"}));
  EXPECT_EQ(*store->CompareSet("k", binary, "v"), "v");
  EXPECT_EQ(*store->Count(), 2);
  EXPECT_TRUE(*store->Delete("k"));
  EXPECT_FALSE(*store->Delete("k"));
  EXPECT_TRUE(absl::IsDeadlineExceeded(store->Get("never", absl::Milliseconds(50)).status()));
  options.token_file = WriteFile("other", "guess");
  EXPECT_TRUE(absl::IsUnauthenticated(MakeSchedulerRendezvous(options)->Set("k", "v")));
}

TEST(EndpointTest, FilesAndAddresses) {
  EXPECT_EQ(*ResolveScheduler("host:1"), "host:1");
  EXPECT_TRUE(absl::IsNotFound(ResolveScheduler("file:/nowhere/x").status()));
  EXPECT_TRUE(IsLoopback("127.0.0.1:5") && IsLoopback("localhost:5") && IsLoopback("[::1]:5"));
  EXPECT_FALSE(IsLoopback("10.0.0.1:5") || IsLoopback("localhost.example:5"));
  EXPECT_EQ(*ReadToken(""), "");
}

}  // namespace
}  // namespace tessera::worker
