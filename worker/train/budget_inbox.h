// Gradient budgets that the scheduler sends while training runs, by plan generation, until the trainer adopts
// them. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tessera::worker {

class BudgetInbox {
 public:
  // kept: elements, by parameter of the shape.
  void Put(int64_t generation, std::vector<int64_t> kept) {
    const absl::MutexLock lock(&mutex_);
    budgets_[generation] = std::move(kept);
  }
  // Hands out those of `generation` and forgets older ones.
  std::optional<std::vector<int64_t>> Take(int64_t generation) {
    const absl::MutexLock lock(&mutex_);
    std::optional<std::vector<int64_t>> taken;
    const auto found = budgets_.find(generation);
    if (found != budgets_.end()) taken = std::move(found->second);
    budgets_.erase(budgets_.begin(), budgets_.upper_bound(generation));
    return taken;
  }

 private:
  absl::Mutex mutex_;
  std::map<int64_t, std::vector<int64_t>> budgets_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tessera::worker
