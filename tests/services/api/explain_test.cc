#include "services/api/explain.h"

#include <map>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/job_builder.h"

namespace tessera::services {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

TEST(Explain, SaysWithNumbersWhyThePlanIsWhatItIs) {
  v1::TrainingJob job = SmallJob("tiny");
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  job.mutable_status()->set_reason("WaitingForMemory");
  job.mutable_status()->set_message("needs 2 GiB, 1 GiB is free");
  v1::Plan plan;
  plan.set_generation(3);
  plan.set_reason("workers changed");
  plan.set_spectral_gap(0.25);
  plan.set_fit("worker 1 needs 2 GiB of 1 GiB");
  plan.set_nearest_coverage(0.25);
  plan.mutable_inputs()->set_workers(4);
  plan.mutable_inputs()->set_coverage(0.5);
  plan.add_workers()->mutable_memory()->set_peak(int64_t{2} << 30);
  v1::PlanAlternative* ddp = plan.add_alternatives();
  ddp->set_name("ddp");
  ddp->set_memory_bytes(int64_t{4} << 30);
  v1::Event event;
  event.set_type("Warning");
  event.set_reason("WorkerLost");
  event.set_message("rank 1 was killed by signal 9");
  const auto answer = ExplainJob(job, {v1::Plan(), plan}, {event});
  EXPECT_EQ(answer.summary(), "Job tiny is queued (WaitingForMemory): needs 2 GiB, 1 GiB is free");
  EXPECT_THAT(answer.reasons(), Contains("Plan 3: workers changed"));
  EXPECT_THAT(answer.reasons(), Contains(HasSubstr("Coverage 0.5")));
  EXPECT_THAT(answer.reasons(), Contains(HasSubstr("largest worker: 2 GiB")));
  EXPECT_THAT(answer.reasons(), Contains(HasSubstr("DDP would need 4 GiB")));
  EXPECT_THAT(answer.reasons(), Contains("The largest coverage that fits is 0.25"));
  EXPECT_THAT(answer.reasons(), Contains(HasSubstr("rank 1 was killed by signal 9")));
  EXPECT_EQ(answer.plan().generation(), 3);
}

TEST(ExplainTest, AWaitingJobIsToldWhatEndsWhen) {
  v1::TrainingJob job;
  job.set_name("large");
  job.set_uid("1");
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  job.mutable_status()->add_workers()->set_memory_predicted_bytes(int64_t{2} << 30);
  v1::TrainingJob later = job, soon = job, done = job;
  later.set_name("later");
  later.set_uid("2");
  later.mutable_status()->set_state(v1::JOB_STATE_STARTING);
  soon.set_name("soon");
  soon.set_uid("3");
  soon.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  soon.mutable_status()->mutable_eta()->set_seconds(300);
  soon.mutable_status()->set_step(10);
  soon.mutable_status()->set_total_steps(40);
  done.set_uid("4");
  done.mutable_status()->set_state(v1::JOB_STATE_SUCCEEDED);
  const auto answer = ExplainJob(job, {}, {}, {job, later, soon, done});
  EXPECT_THAT(
      answer.reasons(),
      ElementsAre(HasSubstr("need 2 GiB in all"),
                  "Job soon gives back 2 GiB of tensors when it ends, in about 5 min (step 10 of 40)",
                  HasSubstr("Job later gives back 2 GiB of tensors when it ends, it is not yet known when"),
                  HasSubstr("`tessera suspend soon`")));
  soon.set_namespace_("lab");
  const auto elsewhere = ExplainJob(job, {}, {}, {job, soon});
  EXPECT_THAT(elsewhere.reasons(), Contains(HasSubstr("Job lab/soon gives back 2 GiB")));
  EXPECT_THAT(elsewhere.reasons(), Contains(HasSubstr("`tessera -n lab suspend soon`")));
}

TEST(ExplainTest, EveryStateIsExplainedAndOneThatWaitsForItsUserSaysForWhat) {
  v1::TrainingJob job;
  job.set_name("tiny");
  job.mutable_status()->set_total_steps(10);
  job.mutable_status()->set_checkpoint("/checkpoints/step-5");
  job.mutable_status()->set_exported_model("/model");
  job.mutable_status()->add_workers()->set_state("Rendezvous");
  const std::map<v1::JobState, std::string> wanted = {
      {v1::JOB_STATE_QUEUED, "It waits with priority 0"},
      {v1::JOB_STATE_STARTING, "Worker 0: Rendezvous"},
      {v1::JOB_STATE_SUSPENDED, "`tessera resume tiny`"},
      {v1::JOB_STATE_FAILED, "`tessera retry tiny` submits it again, from /checkpoints/step-5"},
      {v1::JOB_STATE_CANCELLED, "`tessera retry tiny`"},
      {v1::JOB_STATE_SUCCEEDED, "The model is in /model"}};
  for (int value = v1::JobState_MIN + 1; value <= v1::JobState_MAX; ++value) {
    const auto state = static_cast<v1::JobState>(value);
    job.mutable_status()->set_state(state);
    const auto answer = ExplainJob(job, {}, {});
    EXPECT_THAT(answer.summary(), testing::StartsWith("Job tiny is ")) << value;
    EXPECT_THAT(answer.reasons(), Contains(HasSubstr("Step 0 of 10"))) << value;
    if (wanted.contains(state)) {
      EXPECT_THAT(answer.reasons(), Contains(HasSubstr(wanted.at(state)))) << value;
    }
  }
}

}  // namespace
}  // namespace tessera::services
