#include "services/cli/display.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/cli/example_job.h"

namespace tessera::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const absl::Time kNow = absl::FromUnixSeconds(1045);

TEST(RenderProgress, ShowsTheRunAndEveryWorker) {
  EXPECT_EQ(Text(RenderProgress(ExampleJob(), kNow, "Ctrl-C stops", 100, kUnicode)),
            R"(quickstart  RUNNING  plan 1  elapsed 0:45
██████████████████░░░░░░░░░░░░░░░░░░░░░░  45 %  step 135/300  ETA 0:55
loss 2.1342  validation 2.2011 (untrained 5.5512)  12.3k tokens/s  0.33 s/step  lr 3.00e-04
rank  worker    step  coverage   memory     peak  predicted  sent/step   planned
   0  Training   135      50 %  120 MiB  181 MiB    180 MiB   12.0 MiB  12.0 MiB
   1  Training   135      50 %  120 MiB  181 MiB    180 MiB   13.0 MiB  12.0 MiB
Ctrl-C stops
)");
}

TEST(RenderProgress, NarrowTerminalsKeepMemoryLongest) {
  EXPECT_EQ(Text(RenderProgress(ExampleJob(), kNow, "", 40, kAscii)),
            R"(quickstart  RUNNING  plan 1  elapsed 0:~
[###-----]  45 %  step 135/300  ETA 0:55
loss 2.1342  validation 2.2011 (untrain~
rank  worker     memory  predicted
   0  Training  120 MiB    180 MiB
   1  Training  120 MiB    180 MiB
)");
}

TEST(RenderProgress, NoLineIsWiderThanTheTerminal) {
  v1::TrainingJob job = ExampleJob();
  job.mutable_status()->mutable_workers(1)->set_last_error(
      "out of memory:\nneeds 300 MiB and then some more of it");
  job.mutable_status()->add_notices("backend gloo was used, since the machine has no GPU");
  for (const Style& style : {kUnicode, kAscii, kColor}) {
    for (int width = 1; width < 150; ++width) {
      for (const auto& line : RenderProgress(job, kNow, "a hint of some length", width, style)) {
        EXPECT_LE(DisplayWidth(line), width) << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      }
    }
  }
}

TEST(RenderProgress, SaysWhyAJobDoesNotRun) {
  v1::TrainingJob job;
  job.set_name("big");
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  job.mutable_status()->set_reason("NoCapacity");
  job.mutable_status()->set_message("needs 4 GiB, 1 GiB is free");
  EXPECT_THAT(RenderProgress(job, kNow, "", 80, kAscii),
              ElementsAre("big  QUEUED", "NoCapacity: needs 4 GiB, 1 GiB is free"));
}

TEST(ProgressLog, SaysEachChangeOnce) {
  ProgressLog log;
  const v1::TrainingJob job = ExampleJob();
  EXPECT_THAT(
      log.Update(job, kNow),
      ElementsAre(
          "state RUNNING", "2 workers Training", "step 135  validation loss 2.2011",
          "step 135/300 (45 %)  loss 2.1342  12.3k tokens/s  peak memory 181 MiB of 180 MiB predicted  "
          "sent/step 13.0 MiB  ETA 0:55"));
  EXPECT_THAT(log.Update(job, kNow + absl::Seconds(10)), IsEmpty());
}

TEST(ProgressLog, WaitsTwoSecondsOrATwentiethOfTheRun) {
  ProgressLog log;
  v1::TrainingJob job = ExampleJob();
  log.Update(job, kNow);
  job.mutable_status()->set_step(136);
  EXPECT_THAT(log.Update(job, kNow + absl::Seconds(1)), IsEmpty());
  EXPECT_THAT(log.Update(job, kNow + absl::Seconds(2)), ElementsAre(HasSubstr("step 136/300")));
  job.mutable_status()->set_step(150);
  EXPECT_THAT(log.Update(job, kNow + absl::Seconds(2)), ElementsAre(HasSubstr("step 150/300 (50 %)")));
}

TEST(ProgressLog, ShowsErrorsRestartsAndNotices) {
  ProgressLog log;
  v1::TrainingJob job = ExampleJob();
  log.Update(job, kNow);
  job.mutable_status()->set_restarts(1);
  job.mutable_status()->add_notices("evaluation data is short");
  job.mutable_status()->mutable_workers(1)->set_state("Lost");
  job.mutable_status()->mutable_workers(1)->set_last_error("killed by signal 9");
  EXPECT_THAT(log.Update(job, kNow), ElementsAre("restarts 1", "note: evaluation data is short",
                                                 "rank 1 Lost", "rank 1 error: killed by signal 9"));
}

}  // namespace
}  // namespace tessera::cli
