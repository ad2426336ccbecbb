// What a trainer is asked to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/plan/mask_schedule.h"
#include "worker/checkpoint/checkpoint_folder.h"
#include "worker/data/sampler.h"
#include "worker/dropping/dropping_reducer.h"
#include "worker/parallel/gradient_reducer.h"
#include "worker/parallel/runner.h"
#include "worker/train/learning_rate.h"
#include "worker/train/norm_estimator.h"
#include "worker/train/optimizer.h"

namespace tessera::worker {

struct TrainerOptions {
  uint64_t seed = 1;                 // weights and order of samples
  int64_t batch = 4;                 // samples per rank and micro-step
  std::vector<int64_t> shares;       // of each rank instead of `batch`, for unequal workers; empty: equal
  int64_t targets_per_sample = 256;  // counts samples out of evaluation_tokens
  int64_t end_of_data = Sampler::kEndless;  // samples of the whole run, over all passes; then it ends
  int accumulation = 1;
  LearningRateSchedule schedule;  // total_steps is the length of the run
  OptimizerOptions optimizer;
  double clip_norm = 1;      // 0: no clipping
  bool bf16 = false;         // computation: worker/nn/autocast.h
  plan::MaskSchedule masks;  // of the plan's units, from the plan's holders on
  StoreOptions store;        // its moments are the optimizer's
  RunnerOptions runner;      // its seed is ours
  NormEstimate norm_estimate = NormEstimate::kAssembled;
  ReducerOptions reducer;
  std::optional<DroppingOptions> dropping;  // none: gradients are dense
  int64_t dropping_first_step = 0;          // those before it are dense all the same
  int64_t statistics_step = 0;              // layers are measured after it; 0: when asked alone
  int64_t statistics_interval = 0;          // and again after so many steps; 0: once
  double drift = 0;  // and when so large a part of a rank's second moments has moved between layers; 0: not
  int64_t checksum_interval = 100;  // steps between comparisons of the holders; 0: none

  int64_t evaluation_interval = 0;    // 0: at the start and the end only
  int64_t evaluation_tokens = 65536;  // 0: all

  std::string checkpoint_directory;  // empty: no checkpoints
  int64_t checkpoint_interval = 0;   // 0: at the end only
  Retention retention;
  std::string resume_from;      // a complete checkpoint
  bool allow_previous = false;  // or one before it, when it is damaged
  std::string initial_weights;  // folder or file in Hugging Face safetensors layout
  std::string job;              // kept in the manifests, opaque
};

}  // namespace tessera::worker
