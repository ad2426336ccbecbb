#include "worker/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/status.h"
#include "tests/worker/checkpoint/checkpoint_rig.h"
#include "worker/checkpoint/initial_weights.h"
#include "worker/checkpoint/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

TEST_F(CheckpointTest, ResumedEqualsUninterruptedBitForBit) {
  const auto whole = rig_.Train();
  ASSERT_OK(whole[0].result) << whole[0].result.status();
  ASSERT_EQ(ListCheckpoints(directory_).size(), 2u);
  TrainingRig again = rig_;
  again.options.resume_from = directory_ + "/step-00000004";
  const auto resumed = again.Train();
  for (int rank = 0; rank < 4; ++rank) {
    ASSERT_OK(resumed[rank].result) << resumed[rank].result.status();
    EXPECT_TRUE(SameBits(whole[rank], resumed[rank]));
    EXPECT_EQ(resumed[rank].reports.steps.size(), 4u);
    EXPECT_EQ(resumed[rank].reports.steps.back().loss, whole[rank].reports.steps.back().loss);
    EXPECT_EQ(resumed[rank].result->tokens, whole[rank].result->tokens);
  }
}

TEST_F(CheckpointTest, AnotherWorldSizeAndMaskPlanTakeTheSameState) {
  const auto four = rig_.Train();
  ASSERT_OK(four[0].result);
  TrainingRig one;
  const plan::MaskPlan plan = one.Plan();
  auto store = UnitStore::Create(one.model, plan, 0);
  const auto info = LoadCheckpoint(four[0].result->checkpoint, store->get());
  ASSERT_OK(info);
  EXPECT_EQ(info->step, 8);
  for (const RankOutcome& rank : four) {
    for (const auto& [group, flats] : rank.groups) {
      EXPECT_TRUE(at::equal(flats[0], (*store)->Find(group)->parameters));
      EXPECT_TRUE(at::equal(flats[2], (*store)->Find(group)->moments[1]));
    }
  }
}

TEST_F(CheckpointTest, KeepsTheNewestOnly) {
  rig_.options.checkpoint_interval = 2;
  rig_.options.retention.keep = 2;
  ASSERT_OK(rig_.Train()[0].result);
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
    ASSERT_OK(outcome.result);
    EXPECT_TRUE(outcome.result->stopped);
    EXPECT_EQ(outcome.result->checkpoint, directory_ + "/step-00000003");
  }
  EXPECT_OK(LoadAlone(directory_ + "/step-00000003"));
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
    ASSERT_OK(outcome.result);
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
  ASSERT_OK(out[0].result);
  ASSERT_GE(out[0].reports.checkpoints.size(), 2u);
  EXPECT_EQ(out[0].reports.checkpoints[0], directory_ + "/step-00000003");
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
      EXPECT_OK(LoadAlone(disk + "/step-00000004"));
    }
    if (report.step == 10) {
      EXPECT_EQ(ListCheckpoints(disk), (std::vector<std::string>{disk + "/step-00000004"}));
      EXPECT_OK(LoadAlone(disk + "/step-00000004"));
      fs::remove(disk + "/ballast");  // on a busy machine early enough for the attempt of step 8, too
    }
  };
  const auto out = rig_.Train();
  for (const RankOutcome& outcome : out) {
    EXPECT_OK(outcome.result);
    EXPECT_EQ(outcome.reports.steps.size(), 12u);
    EXPECT_GE(outcome.reports.checkpoints.size(), 2u);
    EXPECT_EQ(outcome.reports.checkpoints.back(), disk + "/step-00000012");
  }
  EXPECT_OK(LoadAlone(disk + "/step-00000012"));
  for (const auto& entry : fs::directory_iterator(disk)) EXPECT_NE(entry.path().extension(), ".tmp");
  ::umount(disk.c_str());
}

TEST_F(CheckpointTest, LeftOversOfKilledRunsGoWithTheNextCompleteOne) {
  fs::create_directories(directory_ + "/step-00000003.tmp/units");
  fs::create_directories(directory_ + "/step-00000099.tmp");
  fs::create_directories(directory_ + "/notes.tmp");
  ASSERT_OK(rig_.Train()[0].result);
  EXPECT_FALSE(fs::exists(directory_ + "/step-00000003.tmp"));
  EXPECT_FALSE(fs::exists(directory_ + "/step-00000099.tmp"));
  EXPECT_TRUE(fs::exists(directory_ + "/notes.tmp"));
}

TEST_F(CheckpointTest, WhatCantBeWrittenIsTriedAgainAndFailsTheRunOnlyAtTheEnd) {
  // A file where the attempt's folder has to be: works for root too, whom permissions do not stop.
  const std::string blocked = directory_ + "/blocked";
  std::ofstream(blocked) << "in the way";
  rig_.options.checkpoint_directory = blocked;
  for (const RankOutcome& outcome : rig_.Train()) {
    EXPECT_EQ(outcome.reports.steps.size(), 8u) << "training went on after the failure at step 4";
    EXPECT_FALSE(outcome.result.ok());
    EXPECT_NE(outcome.result.status().message().find("rank 0: can't create " + blocked), std::string::npos)
        << outcome.result.status();
  }
}

TEST_F(CheckpointTest, AFailedAttemptLeavesTheOneBeforeIntact) {
  ASSERT_OK(rig_.Train()[0].result);
  // The attempt's manifest can't be put in place of a folder that is in use as a file's name.
  const plan::MaskPlan plan = rig_.Plan();
  RunRanks(4, [&](int rank, World& world) {
    auto store = UnitStore::Create(rig_.model, plan, rank);
    CheckpointInfo info;
    info.step = 12;
    if (rank == 0) std::ofstream(directory_ + "/step-00000012-0.tmp") << "left over";
    ASSERT_OK(world.all().Barrier());
    // A left-over of a killed run is no obstacle.
    EXPECT_OK(WriteCheckpoint(directory_, info, **store, world.all(), {.keep = 5}));
    // A unit's file that rank 1 can't create is every rank's error.
    info.step = 16;
    const absl::StatusOr<std::string> failed = WriteCheckpoint(
        rank == 1 ? directory_ + "/nowhere" : directory_, info, **store, world.all(), {.keep = 5});
    EXPECT_FALSE(failed.ok());
  });
  EXPECT_EQ(ListCheckpoints(directory_).size(), 3u);
  for (const auto& entry : fs::directory_iterator(directory_)) EXPECT_NE(entry.path().extension(), ".tmp");
  EXPECT_OK(LoadAlone(directory_ + "/step-00000008"));
}

TEST_F(CheckpointTest, KeepsThoseOfEveryNthStepAsWell) {
  rig_.options.schedule.total_steps = 12;
  rig_.options.checkpoint_interval = 2;
  rig_.options.retention = {.keep = 1, .keep_every = 4};
  ASSERT_OK(rig_.Train()[0].result);
  EXPECT_EQ(ListCheckpoints(directory_),
            (std::vector<std::string>{directory_ + "/step-00000004", directory_ + "/step-00000008",
                                      directory_ + "/step-00000012"}));
}

TEST_F(CheckpointTest, RetentionNeitherCountsNorRemovesWhatIsNewerThanTheOneJustWritten) {
  for (const char* step : {"step-00000002", "step-00000004", "step-00000008", "step-100000000"}) {
    fs::create_directories(directory_ + "/" + step);
    std::ofstream(directory_ + "/" + step + "/manifest.json") << "{}";
  }
  RemoveOld(directory_, {.keep = 1}, 4);
  EXPECT_EQ(ListCheckpoints(directory_),
            (std::vector<std::string>{directory_ + "/step-00000004", directory_ + "/step-00000008",
                                      directory_ + "/step-100000000"}))
      << "by number, not by name";
}

TEST_F(CheckpointTest, TrainingGoesOnWhileOneIsWritten) {
  // The same bits as of a run that stops for each: what a checkpoint holds is the state of its step, however
  // far training has gone meanwhile.
  rig_.options.schedule.total_steps = 12;
  rig_.options.checkpoint_interval = 1;
  rig_.options.retention.keep = 12;
  ASSERT_OK(rig_.Train()[0].result);
  ASSERT_EQ(ListCheckpoints(directory_).size(), 12u);
  const auto whole = rig_.Train();
  for (int step : {1, 5, 11}) {
    TrainingRig again = rig_;
    again.options.checkpoint_directory = directory_ + "/again";
    again.options.resume_from = directory_ + "/" + StepDirectoryName(step);
    const auto resumed = again.Train();
    ASSERT_OK(resumed[0].result) << resumed[0].result.status();
    for (int rank = 0; rank < 4; ++rank) EXPECT_TRUE(SameBits(whole[rank], resumed[rank]));
  }
}

TEST_F(CheckpointTest, AnotherModelsCheckpointIsRefused) {
  ASSERT_OK(rig_.Train()[0].result);
  TrainingRig other;
  other.model = ToyModel(3);
  other.options.resume_from = directory_ + "/step-00000008";
  EXPECT_TRUE(absl::IsFailedPrecondition(other.Train()[0].result.status()));
}

TEST_F(CheckpointTest, InitialWeightsComeByName) {
  const auto trained = rig_.Train();
  ASSERT_OK(trained[0].result);
  TrainingRig one;
  one.options.schedule.total_steps = 0;
  const std::string weights = directory_ + "/model.safetensors";
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (size_t i = 0; i < rig_.model.shape().parameters.size(); ++i) {
    for (const RankOutcome& rank : trained) {
      if (rank.weights[i].defined() && tensors.size() == i) {
        tensors.emplace_back(rig_.model.shape().parameters[i].name, rank.weights[i]);
      }
    }
  }
  ASSERT_OK(WriteSafetensors(weights, tensors));
  one.options.initial_weights = weights;
  const auto loaded = one.Train();
  ASSERT_OK(loaded[0].result) << loaded[0].result.status();
  for (const RankOutcome& rank : trained) EXPECT_EQ(LargestDifference(rank.weights, loaded[0].weights), 0);
  one.options.initial_weights = directory_ + "/none";
  EXPECT_FALSE(one.Train()[0].result.ok());
  one.options.initial_weights = weights;
  one.model = ToyModel(7);
  const absl::Status other = one.Train()[0].result.status();
  for (const char* name : {"layers.6.gain", "layers.6.up", "layers.6.down"}) {
    EXPECT_NE(other.message().find(absl::StrCat("missing ", name)), std::string::npos) << other;
  }
}

// Weights and moments: what another layout resumes goes on as the first did.
TEST_F(CheckpointTest, NeuronsAndShardsResumeEachOther) {
  const auto rig = [&](plan::Granularity granularity, bool sharded) {
    TrainingRig made = rig_;
    made.ranks = 3;
    made.coverage = 0.67;
    made.granularity = granularity;
    made.options.store.sharded = sharded;
    made.options.schedule.total_steps = 4;
    made.options.checkpoint_interval = 2;
    made.options.retention.keep = 9;
    made.options.checkpoint_directory += granularity == plan::Granularity::kBlock ? "/block" : "/neuron";
    made.options.checkpoint_directory += sharded ? "-sharded" : "-whole";
    return made;
  };
  for (const auto granularity : {plan::Granularity::kBlock, plan::Granularity::kNeuron}) {
    for (const bool sharded : {false, true}) {
      const TrainingRig writer = rig(granularity, sharded);
      const auto written = writer.Train();
      ASSERT_OK(written[0].result) << written[0].result.status();
      TrainingRig reader = rig(granularity, !sharded);
      reader.options.checkpoint_directory = "";
      reader.options.resume_from = writer.options.checkpoint_directory + "/step-00000002";
      const auto read = reader.Train();
      for (const RankOutcome& rank : read) {
        ASSERT_OK(rank.result);
        // Shards are summed in another order: roundings, through two steps of Adam.
        for (const RankOutcome& other : written)
          EXPECT_LT(LargestDifference(rank.weights, other.weights), 2e-4);
      }
      // Another granularity reads the same weights.
      TrainingRig other = rig(
          granularity == plan::Granularity::kBlock ? plan::Granularity::kNeuron : plan::Granularity::kBlock,
          sharded);
      other.options.checkpoint_directory = "";
      other.options.resume_from = writer.options.checkpoint_directory + "/step-00000004";
      for (const RankOutcome& rank : other.Train()) {
        ASSERT_OK(rank.result);
        for (const RankOutcome& from : written) EXPECT_EQ(LargestDifference(rank.weights, from.weights), 0);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::worker
