#include "worker/checkpoint/agreement.h"

#include <torch/types.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::worker {

absl::StatusOr<std::vector<std::string>> GatherTexts(const std::string& own, Communicator& all) {
  const at::Tensor size = at::full({1}, static_cast<int64_t>(own.size()), at::kLong);
  at::Tensor sizes = at::empty({all.size()}, at::kLong);
  TESSERA_RETURN_IF_ERROR(all.AllGather(size, sizes));
  const int64_t longest = std::max<int64_t>(1, sizes.max().item<int64_t>());
  const at::Tensor mine = at::zeros({longest}, at::kByte);
  std::memcpy(mine.data_ptr(), own.data(), own.size());
  at::Tensor gathered = at::empty({longest * all.size()}, at::kByte);
  TESSERA_RETURN_IF_ERROR(all.AllGather(mine, gathered));
  std::vector<std::string> texts;
  for (int rank = 0; rank < all.size(); ++rank) {
    const char* text = static_cast<const char*>(gathered.const_data_ptr()) + rank * longest;
    texts.emplace_back(text, static_cast<size_t>(sizes[rank].item<int64_t>()));
  }
  return texts;
}

absl::Status ShareVerdict(const absl::Status& own, Communicator& all) {
  std::string mine;
  if (!own.ok()) {
    mine.push_back(static_cast<char>(own.code()));
    absl::StrAppend(&mine, own.message().empty() ? absl::StatusCodeToString(own.code()) : own.message());
  }
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(mine, all));
  std::string errors;
  absl::StatusCode code = absl::StatusCode::kOk;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    if (texts[rank].empty()) continue;
    if (code == absl::StatusCode::kOk) code = static_cast<absl::StatusCode>(texts[rank][0]);
    absl::StrAppend(&errors, errors.empty() ? "" : "; ", "rank ", rank, ": ", texts[rank].substr(1));
  }
  // Neither of these is what it means between ranks: a lost peer, and memory.
  if (code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kResourceExhausted) {
    code = absl::StatusCode::kFailedPrecondition;
  }
  return absl::Status(code, errors);
}

}  // namespace tessera::worker
