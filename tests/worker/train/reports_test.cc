#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/status.h"
#include "worker/checkpoint/crc32c.h"
#include "worker/train/event_file.h"
#include "worker/train/metrics_log.h"

namespace tessera::worker {
namespace {

class ReportsTest : public testing::Test {
 protected:
  ReportsTest() {
    std::string name = testing::TempDir() + "/tessera-reports-XXXXXX";
    directory_ = ::mkdtemp(name.data());
  }
  ~ReportsTest() override { std::filesystem::remove_all(directory_); }
  static std::string Read(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
  }
  std::string directory_;
};

StepReport AtStep(int64_t step) {
  StepReport report;
  report.step = step;
  report.loss = 2.5;
  return report;
}

TEST(Crc32cTest, KnownValues) {
  EXPECT_EQ(Crc32c("123456789", 9), 0xe3069283u);
  const std::string zeros(32, '\0');
  EXPECT_EQ(Crc32c(zeros.data(), 32), 0x8a9136aau);
  EXPECT_EQ(Crc32c("6789", 4, Crc32c("12345", 5)), 0xe3069283u);
}

TEST_F(ReportsTest, AResumedLogDropsTheStepsThatWereTakenBack) {
  const std::string path = directory_ + "/metrics.jsonl";
  {
    auto log = MetricsLog::Open(path, 0);
    ASSERT_OK(log);
    for (int64_t step = 1; step <= 5; ++step) (*log)->OnStep(AtStep(step));
  }
  {
    auto log = MetricsLog::Open(path, 3);
    ASSERT_OK(log);
    (*log)->OnStep(AtStep(4));
    (*log)->OnEvaluation(4, 1.25, 512);
  }
  std::stringstream lines(Read(path));
  std::vector<int64_t> steps;
  nlohmann::json last;
  for (std::string line; std::getline(lines, line);) {
    last = nlohmann::json::parse(line);
    steps.push_back(last["step"]);
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 2, 3, 4, 4}));
  EXPECT_EQ(last["validation_loss"], 1.25);
}

TEST_F(ReportsTest, EventRecordsCarryLengthAndMaskedChecksums) {
  auto file = EventFile::Create(directory_, absl::FromUnixSeconds(1000));
  ASSERT_OK(file);
  (*file)->OnEvaluation(7, 0.5, 512);
  const std::string bytes = Read(std::filesystem::directory_iterator(directory_)->path());
  const auto masked = [](const char* data, size_t n) {
    const uint32_t crc = Crc32c(data, n);
    return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
  };
  size_t at = 0;
  int records = 0;
  std::string event;
  for (; at < bytes.size(); ++records) {
    uint64_t length;
    uint32_t head, tail;
    std::memcpy(&length, &bytes[at], 8);
    std::memcpy(&head, &bytes[at + 8], 4);
    EXPECT_EQ(head, masked(&bytes[at], 8));
    event = bytes.substr(at + 12, length);
    std::memcpy(&tail, &bytes[at + 12 + length], 4);
    EXPECT_EQ(tail, masked(event.data(), event.size()));
    at += 16 + length;
  }
  EXPECT_EQ(records, 2);
  EXPECT_EQ(at, bytes.size());
  EXPECT_NE(event.find("loss/validation"), std::string::npos);
}

}  // namespace
}  // namespace tessera::worker
