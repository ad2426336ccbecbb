#include <future>
#include <memory>
#include <optional>
#include <string>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/violation.h"
#include "services/grpc/status.h"
#include "tests/services/doors.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

v1::TrainingJob Create(Doors* doors, const std::string& name) {
  v1::CreateTrainingJobRequest request;
  *request.mutable_training_job() = SmallJob(name);
  return doors->api.jobs.Create(request)->training_job();
}

// A client that watches a job of the service.
class Watcher {
 public:
  Watcher(Doors& doors, const std::string& name) : jobs_(v1::JobService::NewStub(doors.Channel())) {
    Authorize(&context_);
    v1::WatchTrainingJobRequest request;
    request.set_name(name);
    stream_ = jobs_->WatchTrainingJob(&context_, request);
  }
  // The next that is told; none: the watch has ended.
  std::optional<v1::WatchTrainingJobResponse> Read() {
    v1::WatchTrainingJobResponse update;
    return stream_->Read(&update) ? std::optional(update) : std::nullopt;
  }
  grpc::StatusCode End() { return stream_->Finish().error_code(); }
  void Leave() { context_.TryCancel(); }

 private:
  std::unique_ptr<v1::JobService::Stub> jobs_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<v1::WatchTrainingJobResponse>> stream_;
};

TEST(GrpcDoor, WantsTheClientsToken) {
  Doors doors;
  auto jobs = v1::JobService::NewStub(doors.Channel());
  v1::ListTrainingJobsResponse response;
  grpc::ClientContext none;
  EXPECT_EQ(jobs->ListTrainingJobs(&none, {}, &response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext wrong;
  Authorize(&wrong, "worker-token-of-epoch-1");
  EXPECT_EQ(jobs->ListTrainingJobs(&wrong, {}, &response).error_code(), grpc::StatusCode::UNAUTHENTICATED);
  grpc::ClientContext right;
  Authorize(&right);
  EXPECT_TRUE(jobs->ListTrainingJobs(&right, {}, &response).ok());
  grpc::ClientContext watch_context;
  v1::WatchTrainingJobResponse update;
  auto watch = jobs->WatchTrainingJob(&watch_context, {});
  EXPECT_FALSE(watch->Read(&update));
  EXPECT_EQ(watch->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

TEST(GrpcDoor, WatchGivesTheStateAndEveryChangeUntilTheJobIsDeleted) {
  Doors doors;
  Create(&doors, "tiny");
  Watcher watcher(doors, "tiny");
  EXPECT_EQ(watcher.Read().value().training_job().status().state(), v1::JOB_STATE_QUEUED);
  ASSERT_OK(doors.controller.SetState({"default", "tiny"}, v1::JOB_STATE_RUNNING));
  EXPECT_EQ(watcher.Read().value().training_job().status().state(), v1::JOB_STATE_RUNNING);
  ASSERT_OK(doors.controller.Delete({"default", "tiny"}, ""));
  EXPECT_TRUE(watcher.Read().value().deleted());
  EXPECT_FALSE(watcher.Read().has_value());
  EXPECT_EQ(watcher.End(), grpc::StatusCode::OK);
}

TEST(GrpcDoor, AWatcherThatLeavesFreesItsPlace) {
  Doors doors({}, /*max_watches=*/1);
  Create(&doors, "tiny");
  {
    Watcher first(doors, "tiny");
    ASSERT_TRUE(first.Read().has_value());
    Watcher second(doors, "tiny");
    EXPECT_FALSE(second.Read().has_value());
    EXPECT_EQ(second.End(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    first.Leave();
    first.End();
  }
  EXPECT_TRUE(doors.controller.Await([](FakeController& c)
                                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.watches_.empty(); }));
}

// An API server that does not answer holds up those that are asked about, and nobody else.
TEST(GrpcDoor, AWatcherThatNobodyVouchesForYetHoldsUpNobodyAndMayLeave) {
  absl::Notification answer;
  absl::BlockingCounter asked(2);
  Doors doors;
  Create(&doors, "tiny");
  GrpcOptions options;
  options.policy.token = std::make_shared<ClientToken>(kClientToken);
  options.policy.review = [&](const std::string&, const std::string&) -> absl::StatusOr<std::string> {
    asked.DecrementCount();
    answer.WaitForNotification();
    return "alice";
  };
  const auto reviewed = *GrpcServer::Start(options, &doors.api, &doors.controller);
  auto jobs = v1::JobService::NewStub(grpc::CreateChannel("127.0.0.1:" + std::to_string(reviewed->port()),
                                                          grpc::InsecureChannelCredentials()));
  v1::WatchTrainingJobRequest request;
  request.set_name("tiny");
  grpc::ClientContext contexts[2];
  std::unique_ptr<grpc::ClientReader<v1::WatchTrainingJobResponse>> watches[2];
  for (int i = 0; i < 2; ++i) {
    Authorize(&contexts[i], "token-of-alice");
    watches[i] = jobs->WatchTrainingJob(&contexts[i], request);
  }
  asked.Wait();
  grpc::ClientContext own;
  Authorize(&own);
  v1::WatchTrainingJobResponse update;
  auto known = jobs->WatchTrainingJob(&own, request);
  EXPECT_TRUE(known->Read(&update)) << "the service's own token needs no review";
  contexts[0].TryCancel();
  watches[0]->Finish();
  answer.Notify();
  EXPECT_TRUE(watches[1]->Read(&update));
  EXPECT_EQ(update.training_job().name(), "tiny");
  for (grpc::ClientContext* context : {&own, &contexts[1]}) context->TryCancel();
  known->Finish();
  watches[1]->Finish();
  EXPECT_TRUE(doors.controller.Await([](FakeController& c)
                                         ABSL_NO_THREAD_SAFETY_ANALYSIS { return c.watches_.empty(); }));
}

TEST(GrpcDoor, DrainEndsWatchesWithUnavailable) {
  Doors doors;
  Create(&doors, "tiny");
  Watcher watcher(doors, "tiny");
  ASSERT_TRUE(watcher.Read().has_value());
  auto stopped = std::async(std::launch::async, [&] { doors.grpc->Stop(kPatience); });
  EXPECT_FALSE(watcher.Read().has_value());
  EXPECT_EQ(watcher.End(), grpc::StatusCode::UNAVAILABLE);
  stopped.get();
}

TEST(GrpcDoor, FieldFaultsArriveAsDetails) {
  Doors doors;
  auto jobs = v1::JobService::NewStub(doors.Channel());
  grpc::ClientContext context;
  Authorize(&context);
  v1::CreateTrainingJobRequest request;
  *request.mutable_training_job() = SmallJob("tiny");
  request.mutable_training_job()->mutable_spec()->mutable_workers()->set_batch(0);
  v1::CreateTrainingJobResponse response;
  const auto status = FromGrpcStatus(jobs->CreateTrainingJob(&context, request, &response));
  ASSERT_EQ(spec::ViolationsFrom(status).size(), 1u);
  EXPECT_EQ(spec::ViolationsFrom(status)[0].path, "spec.workers.batch");
}

TEST(GrpcDoor, TwoServersDoNotShareAPort) {
  Doors doors;
  GrpcOptions options;
  options.port = doors.grpc->port();
  EXPECT_EQ(GrpcServer::Start(options, &doors.api, &doors.controller).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace tessera::services
