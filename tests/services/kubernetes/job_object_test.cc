#include "services/kubernetes/job_object.h"

#include <gmock/gmock.h>

#include <limits>

#include "proto/tessera/v1/violation.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

const absl::Time kEarlier = absl::FromUnixSeconds(1'700'000'000);
const absl::Time kNow = kEarlier + absl::Seconds(60);

Json Object() {
  return {{"apiVersion", "tessera.dev/v1"},
          {"kind", "TrainingJob"},
          {"metadata",
           {{"name", "llama"},
            {"namespace", "training"},
            {"uid", "0123abcd-0000"},
            {"generation", 3},
            {"labels", {{"team", "a"}}},
            {"annotations", {{"kubectl.kubernetes.io/last-applied-configuration", "{}"}}}}},
          {"spec", {{"model", {{"preset", "llama-1m"}}}, {"workers", {{"count", 2}}}, {"priority", 7}}}};
}

v1::TrainingJob Job(v1::JobState state) {
  v1::TrainingJob job;
  job.set_name("llama");
  job.set_uid("job-uid");
  job.mutable_spec()->mutable_model()->set_preset("llama-1m");
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_reason("Because");
  job.mutable_status()->set_message("of something");
  job.mutable_status()->set_step(12);
  return job;
}

Json ConditionIn(const Json& status, const std::string& type) {
  for (const Json& condition : status["conditions"]) {
    if (condition["type"] == type) return condition;
  }
  return Json();
}

TEST(JobRequestOf, TakesNameAndSpecAndAsksOnceForEachObject) {
  const auto request = JobRequestOf(Object(), "default");
  ASSERT_OK(request);
  EXPECT_EQ(request->namespace_(), "default");
  EXPECT_EQ(request->request_id(), "kubernetes-0123abcd-0000");
  EXPECT_EQ(request->training_job().name(), "llama");
  EXPECT_EQ(request->training_job().spec().priority(), 7);
  EXPECT_EQ(request->training_job().namespace_(), "");  // the request's own
}

TEST(JobRequestOf, NamesWhatIsWrong) {
  Json object = Object();
  object["spec"]["workers"]["count"] = "many";
  const auto request = JobRequestOf(object, "default");
  ASSERT_EQ(spec::ViolationsFrom(request.status()).size(), 1u);
  EXPECT_EQ(spec::ViolationsFrom(request.status())[0].path, "spec.workers.count");
}

TEST(ObjectOf, ComesBackAsTheSameSpecAndHidesValues) {
  v1::TrainingJob job = Job(v1::JOB_STATE_QUEUED);
  (*job.mutable_spec()->mutable_env())["SECRET"] = "hush";
  const Json object = ObjectOf(job, "training");
  EXPECT_THAT(object.dump(), ::testing::Not(HasSubstr("hush")));
  EXPECT_EQ(object["metadata"]["annotations"][kUidAnnotation], "job-uid");
  EXPECT_EQ(JobRequestOf(object, "default")->training_job().spec().model().preset(), "llama-1m");
}

TEST(StatusOf, HasTheConditionsThatPeopleWaitFor) {
  const Json running = StatusOf(Job(v1::JOB_STATE_RUNNING), Object(), kNow);
  EXPECT_EQ(ConditionIn(running, "Accepted")["status"], "True");
  EXPECT_EQ(ConditionIn(running, "Running")["status"], "True");
  EXPECT_EQ(ConditionIn(running, "Succeeded")["status"], "False");
  EXPECT_EQ(running["observedGeneration"], 3);
  EXPECT_EQ(running["step"], 12);
  const Json succeeded = StatusOf(Job(v1::JOB_STATE_SUCCEEDED), Object(), kNow);
  EXPECT_EQ(ConditionIn(succeeded, "Succeeded")["status"], "True");
  EXPECT_EQ(ConditionIn(succeeded, "Running")["status"], "False");
  EXPECT_EQ(ConditionIn(StatusOf(Job(v1::JOB_STATE_FAILED), Object(), kNow), "Failed")["message"],
            "of something");
}

TEST(StatusOf, ATransitionKeepsItsTime) {
  Json object = Object();
  object["status"] = StatusOf(Job(v1::JOB_STATE_STARTING), object, kEarlier);
  EXPECT_EQ(StatusOf(Job(v1::JOB_STATE_STARTING), object, kNow), object["status"]);
  const Json later = StatusOf(Job(v1::JOB_STATE_RUNNING), object, kNow);
  EXPECT_EQ(ConditionIn(later, "Accepted")["lastTransitionTime"],
            ConditionIn(object["status"], "Accepted")["lastTransitionTime"]);
  EXPECT_NE(ConditionIn(later, "Running")["lastTransitionTime"],
            ConditionIn(object["status"], "Running")["lastTransitionTime"]);
}

TEST(StatusOf, ALossThatIsNoNumberIsLeftOut) {
  v1::TrainingJob job = Job(v1::JOB_STATE_RUNNING);
  job.mutable_status()->set_loss(std::numeric_limits<double>::quiet_NaN());
  job.mutable_status()->set_validation_loss(2.51234567);
  const Json status = StatusOf(job, Object(), kNow);
  EXPECT_FALSE(status.contains("loss")) << status;
  EXPECT_EQ(status["validationLoss"], 2.5123);
}

TEST(RefusedStatus, SaysWhyAndStaysTheSame) {
  Json object = Object();
  object["status"] =
      RefusedStatus(absl::InvalidArgumentError("spec.workers.count: must be"), object, kEarlier);
  EXPECT_EQ(ConditionIn(object["status"], "Accepted")["status"], "False");
  EXPECT_EQ(ConditionIn(object["status"], "Accepted")["reason"], "Invalid");
  EXPECT_THAT(ConditionIn(object["status"], "Accepted")["message"].get<std::string>(),
              HasSubstr("spec.workers.count"));
  EXPECT_EQ(RefusedStatus(absl::InvalidArgumentError("spec.workers.count: must be"), object, kNow),
            object["status"]);
  EXPECT_EQ(RefusedStatus(absl::ResourceExhaustedError("x"), object, kNow)["reason"], "DoesNotFit");
}

TEST(IsNews, IsAnotherStateAndNotAnotherStep) {
  const Json before = StatusOf(Job(v1::JOB_STATE_RUNNING), Object(), kNow);
  v1::TrainingJob job = Job(v1::JOB_STATE_RUNNING);
  job.mutable_status()->set_step(13);
  Json object = Object();
  object["status"] = before;
  EXPECT_FALSE(IsNews(before, StatusOf(job, object, kNow)));
  EXPECT_TRUE(IsNews(before, StatusOf(Job(v1::JOB_STATE_SUCCEEDED), object, kNow)));
  EXPECT_TRUE(IsNews(Json::object(), before));
}

TEST(EventOf, NamesTheObjectAndIsTheSameTwice) {
  v1::Event event;
  event.set_revision(42);
  event.set_type("Warning");
  event.set_reason("WorkerFailed");
  event.set_message("rank 1");
  event.mutable_time()->set_seconds(1'700'000'000);
  const Json told = EventOf(event, Object());
  EXPECT_EQ(told["metadata"]["name"], "llama.0123abcd.42");
  EXPECT_EQ(told["involvedObject"]["uid"], "0123abcd-0000");
  EXPECT_EQ(told["lastTimestamp"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(told, EventOf(event, Object()));
}

}  // namespace
}  // namespace tessera::services
