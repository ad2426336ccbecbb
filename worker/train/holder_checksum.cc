#include "worker/train/holder_checksum.h"

#include <ATen/ATen.h>

#include <bit>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace tessera::worker {

uint64_t BitSum(const at::Tensor& tensor) {
  const at::Tensor here = tensor.to(at::kCPU);
  const auto* words = reinterpret_cast<const uint32_t*>(here.const_data_ptr<float>());
  const int64_t n = tensor.numel();
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<uint64_t>(words[i]) * static_cast<uint64_t>(2 * i + 1);
  return sum;
}

absl::Status CompareHolders(const UnitStore& store, Communicator& all) {
  if (store.options().sharded) return absl::OkStatus();  // nothing is there twice
  const auto& groups = store.groups();
  const int64_t count = static_cast<int64_t>(groups.size());
  const at::Tensor own = at::zeros({count}, at::kLong);
  for (const GroupState& state : store.held()) {
    uint64_t sum = 0;
    for (const StateSpan& span : state.spans) {
      sum = std::rotl(sum, 1) + BitSum(span.parameters);
      int turn = 21;
      for (const at::Tensor& moment : span.moments) {
        sum += std::rotl(BitSum(moment), turn);
        turn += 21;
      }
    }
    own.data_ptr<int64_t>()[state.group] = static_cast<int64_t>(sum);
  }
  at::Tensor sums = at::empty({count * all.size()}, at::kLong);
  TESSERA_RETURN_IF_ERROR(all.AllGather(own, sums));
  const int64_t* values = sums.const_data_ptr<int64_t>();
  for (int64_t g = 0; g < count; ++g) {
    const std::vector<int>& holders = groups[g].holders;
    std::vector<int> different;
    for (int rank : holders) {
      if (values[rank * count + g] != values[holders[0] * count + g]) different.push_back(rank);
    }
    if (!different.empty()) {
      std::vector<std::string> units;
      for (int unit : groups[g].units) units.push_back(store.plan().units()[unit].name);
      return absl::InternalError(absl::StrCat(
          "weights or optimizer moments of unit '", absl::StrJoin(units, "', '"), "' on rank(s) ",
          absl::StrJoin(different, ", "), " differ from those of its owner, rank ", holders[0]));
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
