#include "worker/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/worker/train/training_rig.h"
#include "worker/checkpoint/initial_weights.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = testing::TempDir() + "/tessera-checkpoint-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    rig_.ranks = 4;
    rig_.coverage = 0.5;
    rig_.options.schedule.total_steps = 8;
    rig_.options.checkpoint_directory = directory_;
    rig_.options.checkpoint_interval = 4;
    rig_.options.checkpoint_keep = 3;
  }
  ~CheckpointTest() override { fs::remove_all(directory_); }

  absl::Status LoadAlone(const std::string& path) {
    TrainingRig alone;
    const plan::MaskPlan plan = alone.Plan();
    auto store = UnitStore::Create(alone.model, plan, 0);
    return LoadCheckpoint(path, store->get()).status();
  }

  std::string directory_;
  TrainingRig rig_;
};

TEST_F(CheckpointTest, ResumedEqualsUninterruptedBitForBit) {
  const auto whole = rig_.Train();
  ASSERT_TRUE(whole[0].result.ok()) << whole[0].result.status();
  ASSERT_EQ(ListCheckpoints(directory_).size(), 2u);
  TrainingRig again = rig_;
  again.options.resume_from = directory_ + "/step-00000004";
  const auto resumed = again.Train();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_TRUE(resumed[rank].result.ok()) << resumed[rank].result.status();
    EXPECT_TRUE(SameBits(whole[rank], resumed[rank]));
    EXPECT_EQ(resumed[rank].reports.steps.size(), 4u);
    EXPECT_EQ(resumed[rank].reports.steps.back().loss, whole[rank].reports.steps.back().loss);
    EXPECT_EQ(resumed[rank].result->tokens, whole[rank].result->tokens);
  }
}

TEST_F(CheckpointTest, AnotherWorldSizeAndMaskPlanTakeTheSameState) {
  const auto four = rig_.Train();
  ASSERT_TRUE(four[0].result.ok());
  TrainingRig one;
  const plan::MaskPlan plan = one.Plan();
  auto store = UnitStore::Create(one.model, plan, 0);
  const auto info = LoadCheckpoint(four[0].result->checkpoint, store->get());
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->step, 8);
  for (const RankOutcome& rank : four) {
    for (size_t u = 0; u < rank.units.size(); ++u) {
      if (!rank.units[u]) continue;
      EXPECT_TRUE(at::equal(rank.units[u]->parameters, (*store)->Find(static_cast<int>(u))->parameters));
      EXPECT_TRUE(at::equal(rank.units[u]->exp_avg_sq, (*store)->Find(static_cast<int>(u))->exp_avg_sq));
    }
  }
}

TEST_F(CheckpointTest, KeepsTheNewestOnly) {
  rig_.options.checkpoint_interval = 2;
  rig_.options.checkpoint_keep = 2;
  ASSERT_TRUE(rig_.Train()[0].result.ok());
  EXPECT_EQ(ListCheckpoints(directory_),
            (std::vector<std::string>{directory_ + "/step-00000006", directory_ + "/step-00000008"}));
}

TEST_F(CheckpointTest, AStopWithCheckpointLeavesOne) {
  rig_.options.schedule.total_steps = 100;
  rig_.options.checkpoint_interval = 0;
  rig_.on_step = [](int rank, const StepReport& report, TrainerSignals& signals) {
    if (rank != 0 || report.step != 2) return;
    signals.checkpoint = true;
    signals.stop = true;
  };
  const auto out = rig_.Train();
  for (const RankOutcome& outcome : out) {
    ASSERT_TRUE(outcome.result.ok());
    EXPECT_TRUE(outcome.result->stopped);
    EXPECT_EQ(outcome.result->checkpoint, directory_ + "/step-00000003");
  }
  EXPECT_TRUE(LoadAlone(directory_ + "/step-00000003").ok());
}

TEST_F(CheckpointTest, AStopImpliesOneAlsoWhenTheWishWasMetBefore) {
  rig_.options.schedule.total_steps = 100;
  rig_.options.checkpoint_interval = 0;
  rig_.on_step = [](int rank, const StepReport& report, TrainerSignals& signals) {
    if (rank != 1) return;
    // The order arrives in halves, a step apart.
    if (report.step == 2) signals.checkpoint = true;
    if (report.step == 3) signals.stop = true;
  };
  for (const RankOutcome& outcome : rig_.Train()) {
    ASSERT_TRUE(outcome.result.ok());
    EXPECT_EQ(outcome.reports.checkpoints.size(), 2u);
    EXPECT_EQ(outcome.result->checkpoint, directory_ + "/step-00000004");
  }
}

TEST_F(CheckpointTest, AWishThatArrivesWhileOneIsWrittenIsMetByTheNextStep) {
  rig_.options.schedule.total_steps = 8;
  rig_.options.checkpoint_interval = 3;
  // Reported after the records of step 3 are agreed on and before its checkpoint is written.
  rig_.on_step = [](int rank, const StepReport& report, TrainerSignals& signals) {
    if (rank == 1 && report.step == 3) signals.checkpoint = true;
  };
  const auto out = rig_.Train();
  ASSERT_TRUE(out[0].result.ok());
  ASSERT_GE(out[0].reports.checkpoints.size(), 2u);
  EXPECT_EQ(out[0].reports.checkpoints[1], directory_ + "/step-00000004");
}

TEST_F(CheckpointTest, AFullDiskLeavesTheOneBeforeIntactAndTrainingGoesOn) {
  const std::string disk = directory_ + "/disk";
  fs::create_directory(disk);
  if (::getuid() != 0 || ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=2m") != 0) {
    GTEST_SKIP() << "needs the right to mount a small disk";
  }
  rig_.options.schedule.total_steps = 12;
  rig_.options.checkpoint_directory = disk;
  rig_.on_step = [&](int rank, const StepReport& report, TrainerSignals&) {
    if (rank != 0) return;
    if (report.step == 6) {
      std::ofstream ballast(disk + "/ballast");
      while (ballast.write(std::string(4096, 'x').data(), 4096).flush()) {
      }
    }
    if (report.step == 8) {
      EXPECT_TRUE(LoadAlone(disk + "/step-00000004").ok());
    }
    if (report.step == 10) {
      EXPECT_EQ(ListCheckpoints(disk), (std::vector<std::string>{disk + "/step-00000004"}));
      EXPECT_TRUE(LoadAlone(disk + "/step-00000004").ok());
      EXPECT_FALSE(fs::exists(disk + "/step-00000008.tmp"));
      fs::remove(disk + "/ballast");
    }
  };
  const auto out = rig_.Train();
  for (const RankOutcome& outcome : out) {
    EXPECT_TRUE(outcome.result.ok()) << outcome.result.status();
    EXPECT_EQ(outcome.reports.steps.size(), 12u);
    EXPECT_EQ(outcome.reports.checkpoints.size(), 2u);
  }
  EXPECT_EQ(ListCheckpoints(disk).size(), 2u);
  ::umount(disk.c_str());
}

TEST_F(CheckpointTest, LeftOversOfKilledRunsGoWithTheNextCompleteOne) {
  fs::create_directories(directory_ + "/step-00000003.tmp/units");
  fs::create_directories(directory_ + "/step-00000099.tmp");
  fs::create_directories(directory_ + "/notes.tmp");
  ASSERT_TRUE(rig_.Train()[0].result.ok());
  EXPECT_FALSE(fs::exists(directory_ + "/step-00000003.tmp"));
  EXPECT_FALSE(fs::exists(directory_ + "/step-00000099.tmp"));
  EXPECT_TRUE(fs::exists(directory_ + "/notes.tmp"));
}

TEST_F(CheckpointTest, DamagedFilesAreNamed) {
  ASSERT_TRUE(rig_.Train()[0].result.ok());
  const std::string checkpoint = directory_ + "/step-00000008";
  const std::string unit = checkpoint + "/" + ReadManifest(checkpoint)->units[2].file;
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

TEST_F(CheckpointTest, WhatCantBeWrittenIsTriedAgainAndFailsTheRunOnlyAtTheEnd) {
  // A file where the attempt's folder has to be: works for root too, whom permissions do not stop.
  const std::string blocked = directory_ + "/blocked";
  std::ofstream(blocked) << "in the way";
  rig_.options.checkpoint_directory = blocked;
  for (const RankOutcome& outcome : rig_.Train()) {
    EXPECT_EQ(outcome.reports.steps.size(), 8u) << "training went on after the failure at step 4";
    EXPECT_FALSE(outcome.result.ok());
    EXPECT_NE(outcome.result.status().message().find("rank 0: " + blocked), std::string::npos)
        << outcome.result.status();
  }
}

TEST_F(CheckpointTest, AFailedAttemptLeavesTheOneBeforeIntact) {
  ASSERT_TRUE(rig_.Train()[0].result.ok());
  // The attempt's manifest can't be put in place of a folder that is in use as a file's name.
  const plan::MaskPlan plan = rig_.Plan();
  RunRanks(4, [&](int rank, World& world) {
    auto store = UnitStore::Create(rig_.model, plan, rank);
    CheckpointInfo info;
    info.step = 12;
    if (rank == 0) std::ofstream(directory_ + "/step-00000012.tmp") << "left over";
    ASSERT_TRUE(world.all().Barrier().ok());
    // A left-over of a killed run is no obstacle.
    EXPECT_TRUE(WriteCheckpoint(directory_, info, **store, world.all(), 5).ok());
    // A unit's file that rank 1 can't create is every rank's error.
    info.step = 16;
    const absl::StatusOr<std::string> failed =
        WriteCheckpoint(rank == 1 ? directory_ + "/nowhere" : directory_, info, **store, world.all(), 5);
    EXPECT_FALSE(failed.ok());
  });
  EXPECT_EQ(ListCheckpoints(directory_).size(), 3u);
  EXPECT_FALSE(fs::exists(directory_ + "/step-00000016.tmp"));
  EXPECT_TRUE(LoadAlone(directory_ + "/step-00000008").ok());
}

TEST_F(CheckpointTest, AnotherModelsCheckpointIsRefused) {
  ASSERT_TRUE(rig_.Train()[0].result.ok());
  TrainingRig other;
  other.model = ToyModel(3);
  other.options.resume_from = directory_ + "/step-00000008";
  EXPECT_TRUE(absl::IsFailedPrecondition(other.Train()[0].result.status()));
}

TEST_F(CheckpointTest, InitialWeightsComeByName) {
  const auto trained = rig_.Train();
  ASSERT_TRUE(trained[0].result.ok());
  TrainingRig one;
  one.options.schedule.total_steps = 0;
  one.options.initial_weights = trained[0].result->checkpoint + "/units";
  const auto loaded = one.Train();
  ASSERT_TRUE(loaded[0].result.ok()) << loaded[0].result.status();
  for (const RankOutcome& rank : trained) EXPECT_EQ(LargestDifference(rank.weights, loaded[0].weights), 0);
  one.options.initial_weights = directory_ + "/none";
  EXPECT_FALSE(one.Train()[0].result.ok());
}

}  // namespace
}  // namespace tessera::worker
