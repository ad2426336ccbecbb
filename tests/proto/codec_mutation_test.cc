#include <random>

#include "gtest/gtest.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/validate.h"

namespace tessera::spec {
namespace {

constexpr const char* kSeeds[] = {
    "name: tiny\nspec:\n  model: {preset: llama-8m}\n  data: {train: /d}\n  workers: {count: 4, batch: 8}\n"
    "  schedule: {steps: 100}\n  deadlines: {step: 5m}\n  resources: {memoryLimitBytes: 512MiB}\n  env: {A: "
    "'b'}\n",
    "{\"name\":\"tiny\",\"spec\":{\"subnetwork\":{\"coverage\":0.5,\"scheme\":\"cyclic\"},\"dropping\":{"
    "\"layerLimits\":"
    "[{\"pattern\":\"a\",\"min\":0.1}]},\"schedule\":{\"tokens\":1e6}}}",
    "apiVersion: tessera.dev/v1\nkind: TrainingJob\nmetadata:\n  name: x\nspec: |\n  text\n...\n---\n",
};
constexpr std::string_view kTokens[] = {":",
                                        "-",
                                        "\n",
                                        "\n  ",
                                        "{",
                                        "}",
                                        "[",
                                        "]",
                                        "\"",
                                        "'",
                                        "#",
                                        "&a",
                                        "*a",
                                        "!!str",
                                        "---\n",
                                        "\t",
                                        "1e999",
                                        ".inf",
                                        "9999999999999999999999",
                                        "\xff",
                                        "\0",
                                        "null",
                                        "|",
                                        ">",
                                        "?",
                                        ",",
                                        "%YAML 1.2\n",
                                        "\\u0000",
                                        "<<"};

std::string Mutated(std::string text, std::mt19937_64* random) {
  const int edits = 1 + static_cast<int>((*random)() % 6);
  for (int i = 0; i < edits; ++i) {
    const size_t at = text.empty() ? 0 : (*random)() % text.size();
    switch ((*random)() % 4) {
      case 0:
        text.insert(at, std::string(kTokens[(*random)() % std::size(kTokens)]));
        break;
      case 1:
        text.erase(at, (*random)() % 12);
        break;
      case 2:
        if (!text.empty()) text[at] = static_cast<char>((*random)());
        break;
      default:
        text.insert(at, text.substr(at / 2, (*random)() % 40));
    }
  }
  return text;
}

TEST(CodecMutation, NoMutationOfAFileCrashesAndWhatIsReadIsWrittenBack) {
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::string text = Mutated(kSeeds[round % std::size(kSeeds)], &random);
    auto job = ParseJob(text);
    if (!job.ok()) {
      ASSERT_FALSE(job.status().message().empty());
      ASSERT_FALSE(ViolationsFrom(job.status()).empty()) << text;
      continue;
    }
    ++accepted;
    const auto again = ParseJob(ToYaml(*job));
    ASSERT_TRUE(again.ok() || job->ByteSizeLong() == 0) << again.status() << "\n" << text;
    if (again.ok()) ASSERT_EQ(ToJson(*again), ToJson(*job)) << text;
    ApplyDefaults(&*job);
    for (const Violation& violation : Validate(*job)) ASSERT_FALSE(ToLine(violation).empty());
  }
  EXPECT_GT(accepted, 100);  // the mutations are not all plain rubbish
}

}  // namespace
}  // namespace tessera::spec
