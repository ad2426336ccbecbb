#include "worker/train/holder_checksum.h"

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace tessera::worker {

uint64_t BitSum(const at::Tensor& tensor) {
  const auto* words = reinterpret_cast<const uint32_t*>(tensor.const_data_ptr<float>());
  const int64_t n = tensor.numel();
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(words[i]) * static_cast<uint64_t>(2 * i + 1);
  return sum;
}

absl::Status CompareHolders(const UnitStore& store, Communicator& all) {
  const auto& units = store.plan().units();
  const int64_t count = static_cast<int64_t>(units.size());
  const at::Tensor own = at::zeros({count}, at::kLong);
  for (const UnitState& state : store.units()) {
    const uint64_t sum = BitSum(state.parameters) + std::rotl(BitSum(state.exp_avg), 21) +
                         std::rotl(BitSum(state.exp_avg_sq), 42);
    own.data_ptr<int64_t>()[state.unit] = static_cast<int64_t>(sum);
  }
  at::Tensor sums = at::empty({count * all.size()}, at::kLong);
  TESSERA_RETURN_IF_ERROR(all.AllGather(own, sums));
  const int64_t* values = sums.const_data_ptr<int64_t>();
  for (int64_t unit = 0; unit < count; ++unit) {
    const auto holders = store.plan().Holders(static_cast<int>(unit));
    std::vector<int> different;
    for (int rank : holders) {
      if (values[rank * count + unit] != values[holders[0] * count + unit]) different.push_back(rank);
    }
    if (!different.empty()) {
      return absl::InternalError(absl::StrCat("weights or optimizer moments of unit '", units[unit].name,
                                              "' on rank(s) ", absl::StrJoin(different, ", "),
                                              " differ from those of its owner, rank ", holders[0]));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
