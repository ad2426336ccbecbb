// How much memory the gradients of a step take.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <utility>

#include "tests/status.h"
#include "tests/worker/train/training_rig.h"
#include "worker/comm/communicator.h"
#include "worker/dropping/dropping_reducer.h"
#include "worker/parallel/runner.h"
#include "worker/parallel/weight_fetcher.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {

// Bytes, of a rig of one rank, when those of a step are all there: whole, or what dropping keeps of them.
inline int64_t GradientMemory(const TrainingRig& rig) {
  InstallMemoryCounter();
  const plan::MaskPlan plan = rig.Plan();
  const auto world = MakeLoopbackWorld();
  const auto store = *UnitStore::Create(rig.model, plan, 0, rig.options.store);
  store->Initialize(1);
  std::unique_ptr<GradientReducer> reducer;
  if (rig.options.dropping.has_value()) {
    auto made = MakeDroppingReducer(store.get(), world.get(), {}, *rig.options.dropping, 0);
    reducer = std::move(made->reducer);
  } else {
    reducer = *GradientReducer::Create(store.get(), world.get(), {});
  }
  const auto fetcher = *WeightFetcher::Create(store.get(), world.get());
  TrainingRunner runner(*store, fetcher.get(), reducer.get(), {}, 0);
  EXPECT_OK(runner.Begin());
  const Batch batch = rig.data.Of({0, 1});
  reducer->BeginMicroStep(true, true, batch.target_count);
  rig.model.Loss(runner.weights(), batch, runner).backward();
  runner.End();
  EXPECT_OK(reducer->EndMicroStep());
  const int64_t all = LiveTensorBytes();
  for (int position = 0; position < static_cast<int>(store->held().size()); ++position) {
    reducer->Visit(position, [](GroupState&) {});
  }
  return all - LiveTensorBytes();
}

}  // namespace tessera::worker
