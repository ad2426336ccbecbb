// Holders of a unit must agree bit for bit; this notices when they do not.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "worker/comm/communicator.h"
#include "worker/parallel/unit_store.h"

namespace tessera::worker {

// Of the bits of a contiguous fp32 tensor; depends on their order.
uint64_t BitSum(const at::Tensor& tensor);

// Compares weights and moments of every unit between its holders; of a sharded store nothing is there
// twice, so there is nothing to compare. All ranks call it together and get
// the same verdict: Internal names the first unit that differs and the ranks that are not like its owner.
absl::Status CompareHolders(const UnitStore& store, Communicator& all);

}  // namespace tessera::worker
