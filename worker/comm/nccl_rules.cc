#include "worker/comm/nccl_rules.h"

#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace tessera::worker {

std::vector<int> ExcludedRanks(int world_size, absl::Span<const int> group) {
  std::vector<int> excluded;
  size_t next = 0;  // group is ascending
  for (int rank = 0; rank < world_size; ++rank) {
    if (next < group.size() && group[next] == rank) {
      ++next;
    } else {
      excluded.push_back(rank);
    }
  }
  return excluded;
}

absl::Status CheckDistinctDevices(absl::Span<const std::string> devices) {
  std::map<std::string, size_t> seen;
  for (size_t rank = 0; rank < devices.size(); ++rank) {
    const auto [other, fresh] = seen.emplace(devices[rank], rank);
    if (fresh) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("ranks ", other->second, " and ", rank, " use one GPU, ", devices[rank],
                     ", which NCCL refuses; give each worker a GPU of its own, or set spec.backend to gloo"));
  }
  return absl::OkStatus();
}

absl::Status CheckGroupCount(int groups, int most_groups) {
  if (groups < most_groups) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "the plan has more sets of holders than the ", most_groups,
      " NCCL communicators that a worker makes, as each takes device memory; use spec.subnetwork.granularity "
      "block, or spec.subnetwork.scheme cyclic, or spec.backend gloo"));
}

absl::StatusOr<int> NcclTypeOf(at::ScalarType type) {
  switch (type) {
    case at::kChar:
      return 0;
    case at::kByte:
    case at::kBool:
      return 1;
    case at::kInt:
      return 2;
    case at::kLong:
      return 4;
    case at::kHalf:
      return 6;
    case at::kFloat:
      return 7;
    case at::kDouble:
      return 8;
    case at::kBFloat16:
      return 9;
    default:
      return absl::InvalidArgumentError(absl::StrCat("NCCL has no type for ", c10::toString(type)));
  }
}

absl::Status StatusOfNccl(int result, const std::string& operation, const std::string& detail) {
  constexpr int kSuccess = 0, kSystemError = 2, kRemoteError = 6, kInProgress = 7, kTimeout = 8;
  constexpr const char* kNames[] = {"success",        "CUDA error",       "system error",
                                    "internal error", "invalid argument", "invalid usage",
                                    "remote error",   "in progress",      "time-out"};
  if (result == kSuccess || result == kInProgress) return absl::OkStatus();
  const std::string name =
      result >= 0 && result <= kTimeout ? kNames[result] : absl::StrCat("error ", result);
  const std::string message = absl::StrCat(operation, " failed: NCCL ", name, detail.empty() ? "" : ": ",
                                           detail.substr(0, detail.find('\n')));
  if (absl::StrContains(detail, "out of memory")) return absl::ResourceExhaustedError(message);
  if (result == kSystemError || result == kRemoteError || result == kTimeout)
    return absl::UnavailableError(message);
  return absl::InternalError(message);
}

}  // namespace tessera::worker
