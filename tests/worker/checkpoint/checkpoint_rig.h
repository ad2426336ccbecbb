// Four ranks that write checkpoints to a folder of their own.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

#include "tests/worker/train/training_rig.h"
#include "worker/checkpoint/checkpoint.h"

namespace tessera::worker {

class CheckpointTest : public testing::Test {
 protected:
  CheckpointTest() {
    std::string name = testing::TempDir() + "/tessera-checkpoint-XXXXXX";
    directory_ = std::filesystem::canonical(::mkdtemp(name.data()));
    rig_.ranks = 4;
    rig_.coverage = 0.5;
    rig_.options.schedule.total_steps = 8;
    rig_.options.checkpoint_directory = directory_;
    rig_.options.checkpoint_interval = 4;
    rig_.options.retention.keep = 3;
  }
  ~CheckpointTest() override { std::filesystem::remove_all(directory_); }

  absl::Status LoadAlone(const std::string& path) {
    TrainingRig alone;
    const plan::MaskPlan plan = alone.Plan();
    auto store = UnitStore::Create(alone.model, plan, 0);
    return LoadCheckpoint(path, store->get()).status();
  }

  std::string directory_;
  TrainingRig rig_;
};

}  // namespace tessera::worker
