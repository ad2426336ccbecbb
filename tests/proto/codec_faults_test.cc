// The exact words for every way a file can be wrong.
#include "gtest/gtest.h"
#include "proto/tessera/v1/job_codec.h"
#include "tests/case_name.h"

namespace tessera::spec {
namespace {

struct Fault {
  const char* text;
  const char* complaint;
};

class CodecFaults : public testing::TestWithParam<Fault> {};

TEST(CodecLimits, AFileFullOfRepeatedOrUnknownKeysIsReadQuicklyAndItsComplaintsAreBounded) {
  std::string repeated, unknown = "spec:\n";
  for (int i = 0; i < 20000; ++i) {
    repeated += "name: a\n";
    unknown += "  key" + std::to_string(i) + ": a\n";
  }
  EXPECT_LE(ViolationsFrom(ParseJob(repeated).status()).size(), 101u);
  EXPECT_LE(ViolationsFrom(ParseJob(unknown).status()).size(), 101u);
}

TEST_P(CodecFaults, AreSaidInFull) {
  const auto job = ParseJob(GetParam().text);
  ASSERT_FALSE(job.ok()) << GetParam().text;
  EXPECT_EQ(std::string(job.status().message()), GetParam().complaint) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Table, CodecFaults,
    testing::Values(
        Fault{"", "is empty; write a message as YAML or JSON"},
        Fault{"# only a comment\n", "is empty; write a message as YAML or JSON"},
        Fault{"hello", "line 1: must be a mapping with name and spec, found hello"},
        Fault{"- a\n- b\n", "line 1: must be a mapping with name and spec, found a list"},
        Fault{"name: a\nspec:\n  workres: {}\n",
              "spec.workres (line 3): is not a field; did you mean workers?"},
        Fault{"spec:\n  steps: 3\n",
              "spec.steps (line 2): is not a field; did you mean spec.schedule.steps?"},
        Fault{"spec: {checkpoint: {zzzzzz: 1}}",
              "spec.checkpoint.zzzzzz (line 1): is not a field; remove it; known here: uri, interval, keep, "
              "exportHuggingFace, keepEvery, allowPrevious, resumeFrom"},
        Fault{"name: a\nmodel: {preset: x}\n",
              "model (line 2): is a field of the spec; put it under \"spec:\", as spec.model"},
        Fault{"name: a\nname: b\n", "name (line 2): is given twice; keep one; the other is in line 1"},
        Fault{"{\"name\": \"a\", \"name\": \"b\"}", "name: is given twice; keep one"},
        Fault{"spec: {workers: {batch: 1}}\n---\nspec: {}\n",
              "holds more than one document; write one job per file; remove what follows the second ---"},
        Fault{"spec:\n  schedule:\n    warmupSteps: 1\n    warmup_steps: 2\n",
              "spec.schedule.warmupSteps (line 4): is given twice, in two spellings; keep warmupSteps or "
              "warmup_steps"},
        Fault{"spec:\n  workers:\n    batch: many\n",
              "spec.workers.batch (line 3): must be a whole number, found many"},
        Fault{"spec: {workers: {batch: 2.5}}",
              "spec.workers.batch (line 1): must be a whole number, found 2.5"},
        Fault{"spec: {workers: {batch: 3000000000}}",
              "spec.workers.batch (line 1): must be from -2147483648 to 2147483647, found 3000000000"},
        Fault{"spec: {subnetwork: {seed: -1}}",
              "spec.subnetwork.seed (line 1): must be from 0 to 18446744073709551615, found -1"},
        Fault{"spec: {subnetwork: {coverage: .nan}}",
              "spec.subnetwork.coverage (line 1): must be a finite number, found .nan"},
        Fault{"spec: {subnetwork: {coverage: 1e999}}",
              "spec.subnetwork.coverage (line 1): is too large for a number, found 1e999"},
        Fault{"spec: {subnetwork: {coverage: half}}",
              "spec.subnetwork.coverage (line 1): must be a number, found half"},
        Fault{"spec: {subnetwork: {scheme: cylic}}",
              "spec.subnetwork.scheme (line 1): must be one of full, cyclic, random_balanced, size_aware, "
              "auto, placed, "
              "found cylic; "
              "did you mean cyclic?"},
        Fault{"spec: {suspend: yes}", "spec.suspend (line 1): must be true or false, found yes"},
        Fault{"spec: {suspend: \"true\"}", "spec.suspend (line 1): must be true or false, found \"true\""},
        Fault{"spec: {workers: 4}", "spec.workers (line 1): must be a mapping of fields, found 4"},
        Fault{"spec: {dropping: {layerLimits: x}}",
              "spec.dropping.layerLimits (line 1): must be a list, found x"},
        Fault{"spec: {dropping: {layerLimits: [{min: a}]}}",
              "spec.dropping.layerLimits[0].min (line 1): must be a number, found a"},
        Fault{"spec: {deadlines: {step: 5}}",
              "spec.deadlines.step (line 1): must be a duration, found 5; write it like 30s, 5m or 1h30m"},
        Fault{"spec: {resources: {memoryLimitBytes: 2 gigs}}",
              "spec.resources.memoryLimitBytes (line 1): must be a number of bytes, found 2 gigs; write it "
              "like 512MiB, "
              "2Gi or 1.5GB"},
        Fault{"{\"name\": 5}", "name: must be text, found 5; put it in quotes"},
        Fault{"name: [a]", "name (line 1): must be text, found a list"},
        Fault{"spec: {env: {TOKEN: [secret]}}", "spec.env.TOKEN (line 1): must be text, found a list"},
        Fault{"name: \"a\nspec: {", "line 2: is not valid YAML: illegal EOF in scalar"},
        Fault{"{\"name\": \"a\"", "line 1: is not valid JSON: expected '}'"},
        Fault{"a: &x 1\nb: *x\n", "line 2: aliases (*name) are not accepted; write the value out"},
        Fault{"name: !!binary aGk=", "line 1: tags (tag:yaml.org,2002:binary) are not accepted; remove it"},
        Fault{"name: caf\xe9\n", "line 1: is not UTF-8 text: bad byte at offset 9; save the file as UTF-8"},
        Fault{"apiVersion: v2\nkind: Pod\n",
              "apiVersion (line 1): must be tessera.dev/v1, found v2\nkind (line 2): must be TrainingJob, "
              "found Pod"},
        Fault{"metadata: {name: a, labels: {x: y}}",
              "metadata.labels (line 1): is not kept by this service; remove it"},
        Fault{"name: b\nmetadata: {name: a}",
              "metadata.name (line 2): differs from name, found a; keep one of them"},
        Fault{"spec: {workers: {batch: x, count: y}, precision: fp8}",
              "spec.workers.batch (line 1): must be a whole number, found x\n"
              "spec.workers.count (line 1): must be a whole number, found y\n"
              "spec.precision (line 1): must be one of fp32, bf16, found fp8"}),
    [](const auto& info) { return CaseName(info.index, info.param.complaint); });

TEST(CodecFaults, TravelAsAPayload) {
  const auto status = ParseJob("spec:\n  workers: {batch: x}\n").status();
  const std::vector<Violation> expected = {
      {.path = "spec.workers.batch", .value = "x", .message = "must be a whole number", .line = 2}};
  EXPECT_EQ(ViolationsFrom(status), expected);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(ViolationsFrom(absl::InternalError("x")).empty());
}

TEST(CodecFaults, DeepNestingIsRefusedInBothForms) {
  EXPECT_EQ(ParseJob(std::string(100000, '[')).status().code(), absl::StatusCode::kInvalidArgument);
  std::string yaml = "a:\n";
  for (int i = 1; i < 60; ++i) yaml += std::string(i, ' ') + "a:\n";
  EXPECT_EQ(ParseJob(yaml).status().message(), "line 33: is nested too deeply");
}

TEST(CodecFaults, OversizedTextIsRefused) {
  EXPECT_EQ(ParseJob(std::string(kMaxTextBytes + 1, ' ')).status().message(),
            "must have at most 1048576 bytes, found 1048577 bytes");
}

}  // namespace
}  // namespace tessera::spec
