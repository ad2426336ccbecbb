#include "services/cli/report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/services/cli/example_job.h"

namespace tessera::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ReportInputs Finished() {
  ReportInputs inputs;
  inputs.job = ExampleJob();
  auto* status = inputs.job.mutable_status();
  status->set_state(v1::JOB_STATE_SUCCEEDED);
  status->set_step(300);
  status->set_validation_loss(1.5);
  status->set_initial_validation_loss(5.5);
  status->mutable_end_time()->set_seconds(1200);
  status->set_checkpoint("/s/jobs/1/checkpoints/step-300");
  status->set_exported_model("/s/jobs/1/export");
  status->set_run_directory("/s/jobs/1/run");
  inputs.plan = ExamplePlan();
  inputs.tokens_per_byte = 1;
  return inputs;
}

TEST(RenderReport, TellsTheWholeStory) {
  EXPECT_EQ(Text(RenderReport(Finished(), 120, kUnicode)), R"(
quickstart SUCCEEDED in 3:20, step 300 of 300, 553k tokens

                 assembled model  untrained
validation loss           1.5000     5.5000
perplexity                4.4817   244.6919
bits per byte             2.1640     7.9348

           coverage  memory planned  measured  off by  sent/step planned  measured  off by  resident
worker 0       50 %         180 MiB   181 MiB  +0.6 %           12.0 MiB  12.0 MiB  +0.0 %   400 MiB
worker 1       50 %         180 MiB   181 MiB  +0.6 %           12.0 MiB  13.0 MiB  +8.3 %   400 MiB
with ddp      100 %         300 MiB                             24.0 MiB
with fsdp     100 %         220 MiB                             36.0 MiB
the largest worker took 60 % of the memory and sent 54 % of the bytes that plain data parallelism would need

checkpoint   /s/jobs/1/checkpoints/step-300
Hugging Face /s/jobs/1/export
JSONL        /s/jobs/1/run/metrics.jsonl
TensorBoard  /s/jobs/1/run/tensorboard
logs         /s/jobs/1/run/logs
)");
}

TEST(RenderReport, AFailedJobSaysWhyAndWhichRank) {
  ReportInputs inputs = Finished();
  inputs.brief = true;
  auto* status = inputs.job.mutable_status();
  status->set_state(v1::JOB_STATE_FAILED);
  status->set_step(17);
  status->set_reason("WorkerFailed");
  status->set_message("rank 1 ended with exit code 3");
  status->mutable_workers(1)->set_last_error("data/train.bin: not a token shard");
  const std::string text = Text(RenderReport(inputs, 80, kAscii));
  EXPECT_THAT(text, HasSubstr("quickstart FAILED in 3:20, step 17 of 300"));
  EXPECT_THAT(text, HasSubstr("  WorkerFailed: rank 1 ended with exit code 3\n"));
  EXPECT_THAT(text, HasSubstr("  rank 1: data/train.bin: not a token shard\n"));
  EXPECT_THAT(text, HasSubstr("/s/jobs/1/run/logs"));
  EXPECT_THAT(text, Not(HasSubstr("validation loss")));
}

TEST(RenderReport, LeavesOutWhatIsNotKnown) {
  ReportInputs inputs = Finished();
  inputs.plan.reset();
  inputs.tokens_per_byte = 0;
  inputs.job.mutable_status()->clear_exported_model();
  const std::string text = Text(RenderReport(inputs, 120, kAscii));
  EXPECT_THAT(text, Not(HasSubstr("ddp")));
  EXPECT_THAT(text, Not(HasSubstr("bits per byte")));
  EXPECT_THAT(text, Not(HasSubstr("Hugging Face")));
}

TEST(RenderReport, NarrowTerminalsKeepPlannedAndMeasuredMemory) {
  for (const auto& line : RenderReport(Finished(), 48, kAscii)) {
    if (line.find("/s/") == std::string::npos && line.find("SUCCEEDED") == std::string::npos) {
      EXPECT_LE(DisplayWidth(line), 48) << line;
    }
  }
  EXPECT_THAT(Text(RenderReport(Finished(), 48, kAscii)), HasSubstr("memory planned  measured"));
}

TEST(RenderSeeAgain, CurlReadsTheTokenFromItsFile) {
  Endpoint endpoint;
  endpoint.rest = "http://127.0.0.1:8080";
  endpoint.token_file = "/s/token";
  EXPECT_THAT(
      RenderSeeAgain(ExampleJob(), endpoint, kAscii),
      ElementsAre("", "see it again", "  tessera get quickstart",
                  "  curl -H \"Authorization: Bearer $(cat '/s/token')\" "
                  "http://127.0.0.1:8080/v1/namespaces/default/trainingJobs/quickstart",
                  "  curl -H \"Authorization: Bearer $(cat '/s/token')\" http://127.0.0.1:8080/metrics"));
}

}  // namespace
}  // namespace tessera::cli
