// The exact words for everything a job can ask for in vain.
#include "proto/tessera/v1/validate.h"

#include <cmath>

#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/job_codec.h"
#include "tests/case_name.h"
#include "tests/status.h"

namespace tessera::spec {
namespace {

// A valid job with one fragment of spec laid over it.
v1::TrainingJob JobWith(const std::string& overlay) {
  auto job = ParseJob("{name: a, spec: {model: {preset: p}, data: {train: /d}, schedule: {steps: 100}}}");
  auto extra = ParseJob(overlay.empty() ? "{spec: {}}" : overlay);
  EXPECT_TRUE(job.ok() && extra.ok()) << extra.status();
  job->MergeFrom(*extra);
  ApplyDefaults(&*job);
  return *job;
}

std::string Complaints(const v1::TrainingJob& job) {
  return absl::StrJoin(Validate(job), "\n", [](std::string* out, const Violation& v) {
    *out += (v.unimplemented ? "! " : "") + ToLine(v);
  });
}

TEST(Validate, AcceptsTheSmallestJob) { EXPECT_EQ(Complaints(JobWith("")), ""); }

TEST(Validate, AcceptsAnEmptyNameForTheServiceToFill) {
  v1::TrainingJob job = JobWith("");
  job.clear_name();
  EXPECT_EQ(Complaints(job), "");
}

TEST(Validate, AnEmptyJobNeedsThreeThings) {
  v1::TrainingJob job;
  ApplyDefaults(&job);
  EXPECT_EQ(Complaints(job),
            "spec.model: needs a model; set preset (for example llama-8m) or configPath\n"
            "spec.data.train: needs data; token shards are made with `tessera data prepare`\n"
            "spec.schedule: needs a length; set steps, tokens or epochs");
}

struct Complaint {
  const char* overlay;
  const char* text;
};

class ValidateTable : public testing::TestWithParam<Complaint> {};

TEST_P(ValidateTable, Says) { EXPECT_EQ(Complaints(JobWith(GetParam().overlay)), GetParam().text); }

std::string NameOfCase(const testing::TestParamInfo<Complaint>& info) {
  return CaseName(info.index, info.param.text);
}

constexpr char kLabel[] =
    "must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen at either end";

INSTANTIATE_TEST_SUITE_P(
    Wrong, ValidateTable,
    testing::Values(
        Complaint{"{namespace: a_b}",
                  "namespace: must be 1 to 63 lower-case letters, digits and hyphens, with no hyphen "
                  "at either end, found \"a_b\"; for example a-b"},
        Complaint{"{spec: {model: {configPath: /c}}}",
                  "spec.model.configPath: excludes spec.model.preset, found \"/c\"; keep one of them"},
        Complaint{"{spec: {data: {train: file:///d}, checkpoint: {uri: /a/b://c}}}", ""},
        Complaint{
            "{spec: {model: {initialWeights: w}}}",
            "spec.model.initialWeights: must be an absolute path, or file:/// and one, found \"w\"; use "
            "an absolute path of the service's machine, for example /data"},
        Complaint{"{spec: {data: {train: ../d}}}",
                  "spec.data.train: must be an absolute path, or file:/// and one, found \"../d\"; use an "
                  "absolute path of the service's machine, for example /data"},
        Complaint{"{spec: {data: {tokenizer: file://host/d}}}",
                  "spec.data.tokenizer: must be an absolute path, or file:/// and one, found "
                  "\"file://host/d\"; use an absolute path of the service's machine, for example /data"},
        Complaint{"{spec: {data: {validation: http://h/d}}}",
                  "! spec.data.validation: is not available in this version, found \"http://h/d\"; use an "
                  "absolute path of the service's machine, for example /data"},
        Complaint{
            "{spec: {checkpoint: {uri: s3://bucket/run}}}",
            "! spec.checkpoint.uri: is not available in this version, found \"s3://bucket/run\"; use an "
            "absolute path of the service's machine, for example /data"},
        Complaint{"{spec: {model: {vocabSize: 1}}}",
                  "spec.model.vocabSize: must be from 2 to 16777216, found 1"},
        Complaint{"{spec: {data: {sequenceLength: 0}}}",
                  "spec.data.sequenceLength: must be from 1 to 1048576, found 0"},
        Complaint{"{spec: {workers: {count: 0}}}", "spec.workers.count: must be from 1 to 1024, found 0"},
        Complaint{"{spec: {workers: {batch: -1}}}", "spec.workers.batch: must be from 1 to 65536, found -1"},
        Complaint{"{spec: {subnetwork: {coverage: 0}}}",
                  "spec.subnetwork.coverage: must be above 0.0 and at most 1.0, found 0.0"},
        Complaint{"{spec: {subnetwork: {coverage: 1.5}}}",
                  "spec.subnetwork.coverage: must be above 0.0 and at most 1.0, found 1.5"},
        Complaint{"{spec: {subnetwork: {minHolders: 0}}}",
                  "spec.subnetwork.minHolders: must be at least 1, found 0"},
        Complaint{"{spec: {subnetwork: {minHolders: 5}}}",
                  "spec.subnetwork.minHolders: must be at most spec.workers.count, 4, found 5; use 4 or "
                  "fewer, or more "
                  "workers"},
        Complaint{"{spec: {subnetwork: {minGap: 2}}}",
                  "spec.subnetwork.minGap: must be from 0.0 to 1.0, found 2.0"},
        Complaint{"{spec: {subnetwork: {scheme: full, coverage: 0.5}}}",
                  "spec.subnetwork.coverage: must be 1 with spec.subnetwork.scheme full, found 0.5; use "
                  "scheme auto, cyclic, random_balanced, size_aware or placed for less"},
        Complaint{
            "{spec: {workers: {count: 2}, resources: {perWorker: [{memoryLimitBytes: 1GiB}]}}}",
            "spec.resources.perWorker: must have one for each of spec.workers.count, 2, found 1 entries; "
            "give one entry per rank, or none"},
        Complaint{"{spec: {workers: {count: 1}, resources: {perWorker: [{speed: 0}]}}}",
                  "spec.resources.perWorker[0].speed: must be above 0.0 and at most 1000000.0, found 0.0"},
        Complaint{"{spec: {workers: {count: 1000000}}}",
                  "spec.workers.count: must be from 1 to 1024, found 1000000"},
        Complaint{"{spec: {workers: {balanceBatch: true}, subnetwork: {scheme: cyclic}}}",
                  "spec.workers.balanceBatch: needs a scheme that weighs workers, found true; set "
                  "spec.subnetwork.scheme to auto or placed"},
        Complaint{
            "{spec: {workers: {count: 2}, resources: {perWorker: [{flopsPerSecond: 1e12}, {}]}}}",
            "spec.resources.perWorker[1].flopsPerSecond: is missing; give it for all workers, or speed for "
            "all"},
        Complaint{
            "{spec: {workers: {count: 1}, resources: {perWorker: [{flopsPerSecond: -1}]}}}",
            "spec.resources.perWorker[0].flopsPerSecond: must be above 0.0 and at most 1e+20, found -1.0"},
        Complaint{"{spec: {subnetwork: {resampleEvery: -1}}}",
                  "spec.subnetwork.resampleEvery: must be at least 0, found -1"},
        Complaint{"{spec: {optimizer: {learningRate: 0}}}",
                  "spec.optimizer.learningRate: must be above 0.0 and at most 10.0, found 0.0"},
        Complaint{"{spec: {optimizer: {beta1: 1}}}",
                  "spec.optimizer.beta1: must be at least 0 and below 1, found 1.0"},
        Complaint{"{spec: {optimizer: {beta2: -0.5}}}",
                  "spec.optimizer.beta2: must be at least 0 and below 1, found -0.5"},
        Complaint{"{spec: {optimizer: {epsilon: 0}}}",
                  "spec.optimizer.epsilon: must be above 0.0 and at most 1.0, found 0.0"},
        Complaint{"{spec: {optimizer: {weightDecay: -1}}}",
                  "spec.optimizer.weightDecay: must be from 0.0 to 1.0, found -1.0"},
        Complaint{"{spec: {optimizer: {clipNorm: -1}}}",
                  "spec.optimizer.clipNorm: must be at least 0.0, found -1.0"},
        Complaint{"{spec: {schedule: {tokens: 5}}}",
                  "spec.schedule.tokens: excludes spec.schedule.steps, found 5; keep one of them"},
        Complaint{"{spec: {schedule: {steps: 0}}}", "spec.schedule.steps: must be at least 1, found 0"},
        Complaint{"{spec: {schedule: {warmupSteps: -1}}}",
                  "spec.schedule.warmupSteps: must be at least 0, found -1"},
        Complaint{"{spec: {schedule: {warmupSteps: 100}}}",
                  "spec.schedule.warmupSteps: must be below spec.schedule.steps, 100, found 100; use 5, 5 % "
                  "of the run"},
        Complaint{"{spec: {schedule: {finalLearningRateRatio: 2}}}",
                  "spec.schedule.finalLearningRateRatio: must be from 0.0 to 1.0, found 2.0"},
        Complaint{"{spec: {schedule: {accumulation: 0}}}",
                  "spec.schedule.accumulation: must be from 1 to 65536, found 0"},
        Complaint{"{spec: {evaluation: {interval: -1}}}",
                  "spec.evaluation.interval: must be at least 0, found -1"},
        Complaint{"{spec: {evaluation: {interval: 5}}}",
                  "spec.evaluation.interval: needs spec.data.validation, found 5; set spec.data.validation, "
                  "or interval "
                  "to 0"},
        Complaint{"{spec: {evaluation: {tokens: -1}}}",
                  "spec.evaluation.tokens: must be at least 0, found -1"},
        Complaint{"{spec: {checkpoint: {interval: -1}}}",
                  "spec.checkpoint.interval: must be at least 0, found -1"},
        Complaint{"{spec: {checkpoint: {keep: 0}}}", "spec.checkpoint.keep: must be from 1 to 1000, found 0"},
        Complaint{"{spec: {checkpoint: {keepEvery: -1}}}",
                  "spec.checkpoint.keepEvery: must be at least 0, found -1"},
        Complaint{"{spec: {resources: {memoryLimitBytes: -1}}}",
                  "spec.resources.memoryLimitBytes: must be at least 0, found -1"},
        Complaint{"{spec: {resources: {cpuThreads: 0}}}",
                  "spec.resources.cpuThreads: must be from 1 to 1024, found 0"},
        Complaint{"{spec: {resources: {gpus: -1}}}", "spec.resources.gpus: must be at least 0, found -1"},
        Complaint{"{spec: {retry: {infrastructure: -1}}}",
                  "spec.retry.infrastructure: must be from 0 to 1000, found -1"},
        Complaint{"{spec: {retry: {outOfMemory: -1}}}",
                  "spec.retry.outOfMemory: must be from 0 to 1000, found -1"},
        Complaint{"{spec: {retry: {application: -1}}}",
                  "spec.retry.application: must be from 0 to 1000, found -1"},
        Complaint{"{spec: {retry: {backoff: -1s}}}", "spec.retry.backoff: must not be negative, found -1s"},
        Complaint{"{spec: {deadlines: {step: -1s}}}", "spec.deadlines.step: must not be negative, found -1s"},
        Complaint{"{spec: {ttlAfterFinished: -1s}}",
                  "spec.ttlAfterFinished: must not be negative, found -1s"},
        Complaint{"{spec: {env: {1A: secret}}}",
                  "spec.env: must be names of letters, digits and _, no digit first, found \"1A\""},
        Complaint{"{spec: {env: {TESSERA_RANK: secret}}}",
                  "spec.env: is a name that the service sets itself, found \"TESSERA_RANK\"; remove it"},
        Complaint{"{spec: {env: {CUDA_VISIBLE_DEVICES: '0'}}}",
                  "spec.env: would name GPUs that other jobs have, found \"CUDA_VISIBLE_DEVICES\"; use "
                  "spec.resources.gpus"}),
    NameOfCase);

INSTANTIATE_TEST_SUITE_P(
    Dropping, ValidateTable,
    testing::Values(
        Complaint{"{spec: {dropping: {mode: enforce, density: 0}}}",
                  "spec.dropping.density: must be above 0.0 and at most 1.0, found 0.0"},
        Complaint{"{spec: {dropping: {mode: enforce, density: 1.5}}}",
                  "spec.dropping.density: must be above 0.0 and at most 1.0, found 1.5"},
        Complaint{
            "{spec: {dropping: {density: 0.3}}}",
            "spec.dropping.density: needs spec.dropping.mode, found 0.3; set spec.dropping.mode to enforce, "
            "or remove it"},
        Complaint{"{spec: {dropping: {mode: enforce, rule: balanced}}}",
                  "spec.dropping.rule: is not known, found \"balanced\"; use one of cyclic_top_k, magnitude, "
                  "momentum_ratio, "
                  "random, rotation, second_moment, sketch_top_k"},
        Complaint{
            "{spec: {dropping: {mode: enforce, rule: cyclic_top_k, residual: none}}}",
            "spec.dropping.residual: leaves rule cyclic_top_k nothing to pick by, found none; use bf16, fp32 "
            "or auto"},
        Complaint{
            "{spec: {dropping: {mode: enforce, rule: second_moment, residual: none, importanceShare: 1}}}",
            "spec.dropping.importanceShare: leaves no element to the rotation: without a residual some would "
            "never move, found 1.0; use at most 0.9"},
        Complaint{"{spec: {optimizer: {name: sgd}, dropping: {mode: enforce, rule: second_moment}}}",
                  "spec.dropping.rule: needs the moments of adamw, and spec.optimizer.name is sgd, found "
                  "\"second_moment\"; use rotation, or cyclic_top_k with a residual"},
        Complaint{"{spec: {dropping: {mode: enforce, refresh: 0}}}",
                  "spec.dropping.refresh: must be at least 1, found 0"},
        Complaint{"{spec: {dropping: {mode: auto, recompute: 5}}}",
                  "spec.dropping.recompute: must be at least 20, found 5"},
        Complaint{"{spec: {dropping: {mode: shadow, layerLimits: [{pattern: a, min: 0.5, max: 0.2}]}}}",
                  "spec.dropping.layerLimits[0].min: is above max, 0.2, found 0.5; lower it"}),
    NameOfCase);

INSTANTIATE_TEST_SUITE_P(
    NotYet, ValidateTable,
    testing::Values(
        Complaint{"{spec: {data: {format: images, sequenceLength: 7}}}",
                  "spec.data.sequenceLength: must be 1 for images, found 7; leave it out"},
        Complaint{"{spec: {workers: {count: 4, min: 5}}}", "spec.workers.min: must be from 1 to 4, found 5"},
        Complaint{"{spec: {workers: {count: 4, min: 0}}}", "spec.workers.min: must be from 1 to 4, found 0"},
        Complaint{"{spec: {workers: {count: 4, max: 3}}}",
                  "spec.workers.max: must be from 4 to 1024, found 3"},
        Complaint{"{spec: {workers: {count: 4, min: 2}, subnetwork: {minHolders: 3}}}",
                  "spec.subnetwork.minHolders: must be at most spec.workers.min, 2, found 3; use fewer, or a "
                  "larger spec.workers.min"},
        Complaint{"{spec: {workers: {count: 4, min: 2}, schedule: {flopMatched: true}}}",
                  "spec.schedule.flopMatched: may give another number of steps with every number of workers; "
                  "use spec.schedule.steps, or set spec.workers.min and max to spec.workers.count, 4"},
        Complaint{"{spec: {workers: {count: 1, max: 2}, resources: {perWorker: [{speed: 1}]}}}",
                  "spec.resources.perWorker: names workers one by one, whose number spec.workers.min and max "
                  "let change, found 1 entries; leave it out, or set spec.workers.min and max to "
                  "spec.workers.count, 1"},
        Complaint{"{spec: {sharding: fsdp, dropping: {mode: enforce, rule: magnitude}}}",
                  "spec.dropping.rule: lets every holder pick for itself, which is not available with "
                  "spec.sharding fsdp, found \"magnitude\"; use cyclic_top_k"},
        Complaint{
            "{spec: {dropping: {mode: enforce, rule: magnitude, workerLimits: [{pattern: '0', max: 0.1}]}}}",
            "spec.dropping.rule: lets every holder pick for itself, which is not available with "
            "spec.dropping.workerLimits, found \"magnitude\"; use cyclic_top_k"},
        Complaint{"{spec: {resources: {gpus: 1}, dropping: {mode: enforce, rule: magnitude}}}",
                  "spec.dropping.rule: lets every holder pick for itself, which is not available with "
                  "spec.resources.gpus, found \"magnitude\"; use cyclic_top_k"},
        Complaint{"{spec: {subnetwork: {granularity: neuron, batchNorm: average}}}",
                  "spec.subnetwork.batchNorm: needs whole blocks, and spec.subnetwork.granularity is neuron, "
                  "found average; use estimate"},
        Complaint{
            "{spec: {schedule: {epochs: 1}}}",
            "spec.schedule.epochs: excludes spec.schedule.steps and tokens, found 1.0; keep one of them"},
        Complaint{"{spec: {resources: {gpus: 2}}}",
                  "! spec.resources.gpus: is not available in this version, found 2; use 1 and more workers: "
                  "each computes on one GPU"},
        Complaint{"{spec: {backend: nccl}}",
                  "spec.backend: needs GPUs, found nccl; set spec.resources.gpus to 1, or use gloo or auto: "
                  "workers then train on the CPU"}),
    NameOfCase);

TEST(Validate, RegimesAndOptimizersThatDoNotGoTogetherAreRefused) {
  const auto complaint = [](const char* spec) {
    const std::vector<Violation> found = Validate(JobWith(spec));
    return found.size() == 1 ? found[0].path + ": " + found[0].message : std::to_string(found.size());
  };
  EXPECT_EQ(complaint("{spec: {optimizer: {momentum: 0.9}}}"),
            "spec.optimizer.momentum: is not a field of adamw");
  EXPECT_EQ(complaint("{spec: {optimizer: {name: lion}}}"), "spec.optimizer.name: is no optimizer");
  EXPECT_EQ(complaint("{spec: {sharding: fsdp, subnetwork: {masking: backward, absentWeights: stored}}}"),
            "spec.subnetwork.absentWeights: excludes spec.sharding fsdp, which keeps no whole weights");
  EXPECT_EQ(complaint("{spec: {sharding: fsdp, subnetwork: {masking: backward, granularity: neuron}, "
                      "activationCheckpointing: always, optimizer: {name: sgd}, schedule: {decay: step}}}"),
            "0");
}

TEST(Validate, LabelsFollowRfc1123) {
  for (const char* bad : {"A", "-a", "a-", "a.b", "a/b", "../x", "a\nb"}) {
    v1::TrainingJob job = JobWith("");
    job.set_name(bad);
    ASSERT_EQ(Validate(job).size(), 1u) << bad;
    EXPECT_EQ(Validate(job)[0].message, kLabel);
  }
  v1::TrainingJob job = JobWith("");
  job.set_name(std::string(63, 'a'));
  EXPECT_TRUE(Validate(job).empty());
  job.set_name(std::string(64, 'a'));
  EXPECT_FALSE(Validate(job).empty());
}

TEST(Validate, UnknownEnumNumbersFromTheWireAreRefused) {
  v1::TrainingJob job = JobWith("");
  job.mutable_spec()->set_precision(static_cast<v1::Precision>(77));
  job.mutable_spec()->set_backend(static_cast<v1::Backend>(77));
  EXPECT_EQ(Complaints(job),
            "spec.precision: is not a known value, found 77\nspec.backend: is not a known value, found 77");
}

TEST(Validate, ACoverageExcludesAnAutomaticOne) {
  EXPECT_EQ(
      Complaints(JobWith("{spec: {subnetwork: {coverage: 0.5, coverageAuto: true}}}")),
      "spec.subnetwork.coverage: excludes spec.subnetwork.coverageAuto, found 0.5; take one of them out");
  EXPECT_EQ(Complaints(JobWith("{spec: {subnetwork: {coverageAuto: true}}}")), "");
}

TEST(Validate, NotANumberIsRefusedEverywhere) {
  v1::TrainingJob job = JobWith("");
  const double nan = std::nan("");
  job.mutable_spec()->mutable_subnetwork()->set_coverage(nan);
  job.mutable_spec()->mutable_subnetwork()->set_min_gap(nan);
  job.mutable_spec()->mutable_optimizer()->set_learning_rate(nan);
  job.mutable_spec()->mutable_optimizer()->set_clip_norm(nan);
  job.mutable_spec()->mutable_schedule()->set_final_learning_rate_ratio(nan);
  const std::string complaints = Complaints(job);
  EXPECT_EQ(Validate(job).size(), 5u);
  EXPECT_EQ(complaints.find("found null"), std::string::npos) << complaints;
}

TEST(Validate, OnlyWhatIsMissingMakesAnUnimplementedStatus) {
  EXPECT_EQ(MakeInvalid(Validate(JobWith("{spec: {resources: {gpus: 2}}}"))).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(MakeInvalid(Validate(JobWith("{spec: {resources: {gpus: 2}, workers: {batch: 0}}}"))).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_OK(MakeInvalid({}));
}

TEST(Validate, SecretsOfTheEnvironmentAreNeverShown) {
  const std::string text = Complaints(JobWith("{spec: {env: {1A: hunter2, TESSERA_X: hunter2}}}"));
  EXPECT_EQ(text.find("hunter2"), std::string::npos);
}

}  // namespace
}  // namespace tessera::spec
