// Checkpoints that were damaged after they had been written.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "tests/status.h"
#include "tests/worker/checkpoint/checkpoint_rig.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using DamagedCheckpointTest = CheckpointTest;

TEST_F(DamagedCheckpointTest, DamagedFilesAreNamed) {
  ASSERT_OK(rig_.Train()[0].result);
  const std::string checkpoint = directory_ + "/step-00000008";
  const std::string unit = checkpoint + "/" + ReadManifest(checkpoint)->files[2].file;
  {
    std::fstream file(unit, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-3, std::ios::end);
    file.put(static_cast<char>(0x5a));
  }
  absl::Status status = LoadAlone(checkpoint);
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_NE(status.message().find(unit), std::string::npos) << status;

  fs::resize_file(unit, fs::file_size(unit) - 100);
  status = LoadAlone(checkpoint);
  EXPECT_TRUE(absl::IsDataLoss(status) && status.message().find("the manifest says") != std::string::npos)
      << status;

  fs::remove(unit);
  EXPECT_TRUE(absl::IsDataLoss(LoadAlone(checkpoint)));

  std::ofstream(checkpoint + "/manifest.json") << "{";
  EXPECT_TRUE(absl::IsDataLoss(LoadAlone(checkpoint)));

  fs::remove(checkpoint + "/manifest.json");
  EXPECT_TRUE(absl::IsNotFound(LoadAlone(checkpoint)));
  EXPECT_EQ(ListCheckpoints(directory_).size(), 1u) << "a folder without manifest is no checkpoint";
}

void FlipBit(const std::string& path, int64_t byte, int bit) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(byte);
  const char value = static_cast<char>(file.get() ^ (1 << bit));
  file.seekp(byte);
  file.put(value);
}

TEST_F(DamagedCheckpointTest, ADamagedOneIsPassedOverIfAllowedAndTheRunEndsAsIfItHadNotBeen) {
  const auto whole = rig_.Train();
  ASSERT_OK(whole[0].result);
  const std::string newest = directory_ + "/step-00000008", before = directory_ + "/step-00000004";
  const std::string victim = newest + "/" + ReadManifest(newest)->files.back().file;
  FlipBit(victim, static_cast<int64_t>(fs::file_size(victim)) / 2, 3);
  TrainingRig again = rig_;
  again.options.resume_from = newest;
  for (const RankOutcome& outcome : again.Train()) {
    EXPECT_TRUE(absl::IsDataLoss(outcome.result.status())) << outcome.result.status();
    EXPECT_NE(outcome.result.status().message().find(victim), std::string::npos) << "on every rank";
    EXPECT_NE(outcome.result.status().message().find("allowPrevious"), std::string::npos) << "the remedy";
  }
  EXPECT_TRUE(fs::exists(newest)) << "not touched unless a good one was found";
  again.options.allow_previous = true;
  const auto resumed = again.Train();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_OK(resumed[rank].result) << resumed[rank].result.status();
    EXPECT_TRUE(SameBits(whole[rank], resumed[rank]));
    EXPECT_EQ(resumed[rank].reports.steps.size(), 4u);
    EXPECT_EQ(resumed[rank].reports.resumed_from, before);
    ASSERT_EQ(resumed[rank].reports.passed_over.size(), 1u);
    EXPECT_NE(resumed[rank].reports.passed_over[0].find(victim), std::string::npos);
  }
  EXPECT_TRUE(fs::exists(newest + ".damaged"));
  EXPECT_OK(LoadAlone(newest)) << "written anew";
}

TEST_F(DamagedCheckpointTest, WithoutAGoodOneAllAreNamedAndNoneIsMoved) {
  ASSERT_OK(rig_.Train()[0].result);
  const std::string newest = directory_ + "/step-00000008", before = directory_ + "/step-00000004";
  fs::remove(newest + "/" + ReadManifest(newest)->files[0].file);
  std::ofstream(before + "/manifest.json") << "{}";
  TrainingRig again = rig_;
  again.options.resume_from = newest;
  again.options.allow_previous = true;
  for (const RankOutcome& outcome : again.Train()) {
    const std::string message(outcome.result.status().message());
    EXPECT_TRUE(absl::IsDataLoss(outcome.result.status())) << outcome.result.status();
    EXPECT_NE(message.find(newest), std::string::npos) << message;
    EXPECT_NE(message.find(before), std::string::npos) << message;
  }
  EXPECT_TRUE(fs::exists(newest) && fs::exists(before));
}

TEST_F(DamagedCheckpointTest, NoFlippedBitIsLoaded) {
  ASSERT_OK(rig_.Train()[0].result);
  const std::string checkpoint = directory_ + "/step-00000008";
  std::vector<std::string> files = {checkpoint + "/manifest.json"};
  const Manifest manifest = *ReadManifest(checkpoint);
  for (const ManifestFile& file : manifest.files) files.push_back(checkpoint + "/" + file.file);
  for (const std::string& file : files) {
    const auto bytes = static_cast<int64_t>(fs::file_size(file));
    // First and last byte, and some between.
    for (int i = 0; i <= 12; ++i) {
      const int64_t byte = std::min(bytes - 1, bytes * i / 12);
      FlipBit(file, byte, i % 8);
      const absl::Status status = LoadAlone(checkpoint);
      // White space of the manifest may turn into other white space.
      const bool same_manifest = i == 12 && file == files[0] && status.ok();
      EXPECT_TRUE(absl::IsDataLoss(status) || same_manifest) << file << " byte " << byte << ": " << status;
      if (!status.ok()) EXPECT_NE(status.message().find(file), std::string::npos) << status;
      FlipBit(file, byte, i % 8);
    }
  }
  EXPECT_OK(LoadAlone(checkpoint));
}

}  // namespace
}  // namespace tessera::worker
