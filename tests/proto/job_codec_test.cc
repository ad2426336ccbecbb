#include "proto/tessera/v1/job_codec.h"

#include <limits>

#include "google/protobuf/util/message_differencer.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/defaults.h"
#include "tessera/v1/worker.pb.h"
#include "tests/status.h"

namespace tessera::spec {
namespace {

using google::protobuf::util::MessageDifferencer;

constexpr char kFile[] = R"(name: tiny
spec:
  model: {preset: llama-8m}
  data:
    train: /data/train
    validation:            # null means: not set
  workers: {count: 4, batch: 8}
  subnetwork:
    granularity: block
    coverage: 0.5
    minHolders: 2
    scheme: random_balanced
    seed: 18446744073709551615
  resources: {memory_limit_bytes: 512MiB}
  schedule: {tokens: 1e6, warmup_steps: "10"}
  deadlines: {drain: 1m30s, step: 0.25s}
  suspend: true
  env: {OMP_NUM_THREADS: 1, MODE: "on"}
)";

v1::TrainingJob Parsed(const std::string& text) {
  auto job = ParseJob(text);
  EXPECT_OK(job);
  return job.ok() ? *job : v1::TrainingJob();
}

TEST(JobCodec, ReadsEveryKindOfField) {
  const v1::TrainingJob job = Parsed(kFile);
  EXPECT_EQ(job.name(), "tiny");
  EXPECT_EQ(job.spec().model().preset(), "llama-8m");
  EXPECT_EQ(job.spec().data().validation(), "");
  EXPECT_EQ(job.spec().workers().batch(), 8);
  EXPECT_EQ(job.spec().subnetwork().granularity(), v1::GRANULARITY_BLOCK);
  EXPECT_EQ(job.spec().subnetwork().scheme(), v1::MASK_SCHEME_RANDOM_BALANCED);
  EXPECT_EQ(job.spec().subnetwork().coverage(), 0.5);
  EXPECT_EQ(job.spec().subnetwork().seed(), 18446744073709551615u);
  EXPECT_EQ(job.spec().resources().memory_limit_bytes(), int64_t{512} << 20);
  EXPECT_EQ(job.spec().schedule().tokens(), 1000000);
  EXPECT_EQ(job.spec().schedule().warmup_steps(), 10);
  EXPECT_EQ(job.spec().deadlines().drain().seconds(), 90);
  EXPECT_EQ(job.spec().deadlines().step().nanos(), 250000000);
  EXPECT_TRUE(job.spec().suspend());
  EXPECT_EQ(job.spec().env().at("OMP_NUM_THREADS"), "1");
  EXPECT_EQ(job.spec().env().at("MODE"), "on");
}

TEST(JobCodec, YamlAndJsonOfOneJobAreTheSameMessage) {
  const v1::TrainingJob job = Parsed(kFile);
  EXPECT_TRUE(MessageDifferencer::Equals(job, Parsed(ToYaml(job)))) << ToYaml(job);
  EXPECT_TRUE(MessageDifferencer::Equals(job, Parsed(ToJson(job)))) << ToJson(job);
  EXPECT_TRUE(MessageDifferencer::Equals(job, Parsed(ToPrettyJson(job))));
}

TEST(JobCodec, KubernetesFormIsThePlainForm) {
  const v1::TrainingJob job = Parsed(R"(
apiVersion: tessera.dev/v1
kind: TrainingJob
metadata: {name: tiny, namespace: team, resourceVersion: "12", uid: x}
spec: {workers: {count: 2}}
)");
  EXPECT_TRUE(
      MessageDifferencer::Equals(job, Parsed("{name: tiny, namespace: team, spec: {workers: {count: 2}}}")));
}

TEST(JobCodec, EnumsAreReadInThreeSpellingsAndWrittenInOne) {
  for (const char* spelling :
       {"random_balanced", "RANDOM_BALANCED", "MASK_SCHEME_RANDOM_BALANCED", "random-balanced"}) {
    const auto job = Parsed(std::string("spec: {subnetwork: {scheme: ") + spelling + "}}");
    EXPECT_EQ(ToJson(job), R"({"spec":{"subnetwork":{"scheme":"random_balanced"}}})") << spelling;
  }
}

TEST(JobCodec, WhatAGetPrintsCanBeSubmittedAgain) {
  v1::TrainingJob stored = Parsed(kFile);
  ApplyDefaults(&stored);
  v1::TrainingJob wanted = stored;
  stored.set_uid("0b2c");
  stored.set_etag("7");
  stored.mutable_create_time()->set_seconds(1700000000);
  stored.mutable_status()->set_state(v1::JOB_STATE_RUNNING);
  stored.mutable_status()->set_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_TRUE(MessageDifferencer::Equals(wanted, Parsed(ToYaml(stored))));
  EXPECT_TRUE(MessageDifferencer::Equals(wanted, Parsed(ToPrettyJson(stored))));
}

TEST(JobCodec, NumbersStayNumbersAndFingerprintsAreText) {
  v1::Plan plan;
  plan.set_generation(int64_t{1} << 60);
  plan.set_mask_fingerprint(0xFEDCBA9876543210u);
  plan.mutable_create_time()->set_seconds(1700000000);
  plan.mutable_create_time()->set_nanos(5000000);
  const std::string json = ToJson(plan);
  EXPECT_EQ(json, R"({"generation":1152921504606846976,"createTime":"2023-11-14T22:13:20.005Z",)"
                  R"("maskFingerprint":"0xfedcba9876543210"})");
  v1::Plan read;
  ASSERT_OK(ParseMessage(json, &read));
  EXPECT_TRUE(MessageDifferencer::Equals(plan, read));
}

TEST(JobCodec, TextThatLooksLikeSomethingElseSurvivesYaml) {
  v1::TrainingJob job;
  for (const char* text : {"true", "123", "", "null", "~", "a: b", "- x", "#c", " lead", "line\nbreak",
                           "\"q\"", "ünï", "1e3", ".nan", "{x}", "*alias", "yes", "0x10", "\x01"}) {
    (*job.mutable_spec()->mutable_env())["K" + std::to_string(job.spec().env_size())] = text;
  }
  EXPECT_TRUE(MessageDifferencer::Equals(job, Parsed(ToYaml(job)))) << ToYaml(job);
}

TEST(JobCodec, EveryTextIsValidJsonAndComesBack) {
  v1::TrainingJob job;
  auto& env = *job.mutable_spec()->mutable_env();
  for (int c = 1; c < 128; ++c) env["A" + std::to_string(c)] = std::string(1, static_cast<char>(c));
  env["QUOTE\"D\\"] = "a \"quoted\" \\ path\nwith lines\tand ünïcödé 漢字";
  EXPECT_TRUE(MessageDifferencer::Equals(job, Parsed(ToJson(job)))) << ToJson(job);
  // What is no UTF-8 becomes the replacement character, not invalid JSON.
  (*job.mutable_spec()->mutable_env())["A1"] = "\xff\xfe";
  EXPECT_EQ(nlohmann::json::parse(ToJson(job))["spec"]["env"]["A1"], "\ufffd\ufffd");
  EXPECT_EQ(ToJson(v1::TrainingJob()), "{}");
}

TEST(JobCodec, BytesTravelAsBase64) {
  v1::StoreRequest request;
  request.set_value(std::string("\0\xff\x01", 3));
  v1::StoreRequest read;
  ASSERT_OK(ParseMessage(ToJson(request), &read));
  EXPECT_EQ(read.value(), request.value());
}

TEST(JobCodec, TwoMembersOfAOneofAreRefused) {
  v1::WorkerUp up;
  const auto status = ParseMessage("{phase: {step: 1}, checkpoint: {step: 2}}", &up);
  EXPECT_EQ(status.message(),
            "checkpoint (line 1): excludes another field that is set, found a mapping; keep one of them");
}

}  // namespace
}  // namespace tessera::spec
