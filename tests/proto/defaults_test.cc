#include "proto/tessera/v1/defaults.h"

#include "gtest/gtest.h"
#include "proto/tessera/v1/job_codec.h"
#include "tests/status.h"

namespace tessera::spec {
namespace {

TEST(Defaults, OfASmallJobAreThese) {
  auto job = ParseJob("spec: {model: {preset: llama-8m}, data: {train: /d}, schedule: {steps: 200}}");
  ASSERT_OK(job);
  ApplyDefaults(&*job);
  EXPECT_EQ(
      ToJson(*job),
      R"({"namespace":"default","spec":{"model":{"preset":"llama-8m"},)"
      R"("data":{"train":"/d","format":"tokens","sequenceLength":256,"augmentation":true},)"
      R"("workers":{"count":4,"min":4,"max":4,"batch":4,"balanceBatch":false},)"
      R"("subnetwork":{"granularity":"block","masking":"forward","coverage":1.0,"minHolders":1,"minGap":0.0,)"
      R"("scheme":"auto","residualScale":"evaluation","endsAlwaysOn":true,"seed":1,"resampleEvery":0,)"
      R"("batchNorm":"estimate","absentWeights":"stored"},)"
      R"("dropping":{"mode":"off"},"sharding":"none","activationCheckpointing":"never","precision":"fp32",)"
      R"("optimizer":{"name":"adamw","learningRate":0.001,"beta1":0.9,"beta2":0.95,"epsilon":1e-08,)"
      R"("weightDecay":0.1,"clipNorm":1.0},)"
      R"("schedule":{"steps":200,"flopMatched":false,"warmupSteps":10,"decay":"cosine",)"
      R"("finalLearningRateRatio":0.1,"accumulation":1,"seed":1},)"
      R"("evaluation":{"interval":0,"tokens":65536},"checkpoint":{"interval":0,"keep":2,"exportHuggingFace":true,"keepEvery":0,"allowPrevious":false},)"
      R"("resources":{"memoryLimitBytes":0,"gpus":0},"backend":"auto",)"
      R"("retry":{"infrastructure":3,"outOfMemory":0,"application":0,"backoff":"1s"},)"
      R"("deadlines":{"start":"120s","rendezvous":"120s","firstStep":"600s","step":"300s","checkpoint":"600s",)"
      R"("drain":"60s"},"priority":0,"suspend":false,"gradientPrecision":"fp32","activationCheckpointingEvery":1,)"
      R"("regularization":{"stochasticDepth":0.0,"dropout":0.0}}})");
}

TEST(Defaults, AppliedTwiceChangeNothingMore) {
  v1::TrainingJob job;
  ApplyDefaults(&job);
  const std::string once = ToJson(job);
  ApplyDefaults(&job);
  EXPECT_EQ(ToJson(job), once);
}

TEST(Defaults, LeaveWhatIsSet) {
  auto job = ParseJob(
      "spec: {workers: {max: 2}, optimizer: {clipNorm: 0}, schedule: {seed: 9, warmupSteps: 0, steps: 100},"
      " retry: {infrastructure: 0}, deadlines: {step: 1s}}");
  ASSERT_OK(job);
  ApplyDefaults(&*job);
  EXPECT_EQ(job->spec().workers().count(), 2);
  EXPECT_EQ(job->spec().optimizer().clip_norm(), 0);
  EXPECT_EQ(job->spec().subnetwork().seed(), 9u);
  EXPECT_EQ(job->spec().schedule().warmup_steps(), 0);
  EXPECT_EQ(job->spec().retry().infrastructure(), 0);
  EXPECT_EQ(job->spec().deadlines().step().seconds(), 1);
}

}  // namespace
}  // namespace tessera::spec
