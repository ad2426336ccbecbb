// How one rank drops gradients.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/dropping/dropping_rule.h"
#include "worker/dropping/kept_operations.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

enum class ResidualKeep : uint8_t { kNone, kBf16, kFp32 };

struct DroppingOptions {
  const DroppingRule* rule = nullptr;
  double importance_share = 0;  // of each budget; what the rule picks
  int64_t refresh = 1;          // steps between picks
  ResidualKeep residual = ResidualKeep::kNone;
  bool freeze_unsent = false;  // the optimizer leaves unsent elements alone; otherwise their gradient is zero
  uint64_t seed = 1;
  std::vector<int64_t> kept;          // by parameter of the shape, of all its elements
  std::vector<double> worker_shares;  // of what is kept, what each rank contributes, 0-1; empty: all of it
  KeptDevice* device = nullptr;       // where the store's tensors are; null: the host
  bool fused = false;                 // the device has the optimizer's step in one pass, and it is AdamW

  // Holders pick each for itself: what a tensor that is kept in part sends goes with its indices.
  bool picks_alone() const { return rule->needs().agreement == RuleAgreement::kNone && importance_share > 0; }
};

// InvalidArgument, Unimplemented: a rule without what it needs, or a budget that is none of its parameter's;
// says which field of the job to change.
absl::Status CheckDropping(const DroppingOptions& options, const UnitStore& store);

}  // namespace tessera::worker
