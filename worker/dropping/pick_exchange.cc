#include "worker/dropping/pick_exchange.h"

#include <torch/types.h>

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "worker/dropping/listed_elements.h"

namespace tessera::worker {

std::unique_ptr<PickExchange> PickExchange::Start(KeptPieces* pieces, Communicator* holders, WireType wire,
                                                  std::vector<Part> parts) {
  auto exchange = std::unique_ptr<PickExchange>(new PickExchange);
  exchange->pieces_ = pieces;
  exchange->ranks_ = holders->size();
  exchange->parts_ = std::move(parts);
  for (const Part& part : exchange->parts_) exchange->kept_ += part.piece->kept;
  const int64_t kept = exchange->kept_, all = exchange->ranks_ * kept;
  const auto type = wire == WireType::kBFloat16 ? at::kBFloat16 : at::kFloat;
  const at::Tensor indices = at::empty({kept}, at::kInt), values = at::empty({kept}, type);
  int64_t at = 0;
  for (const Part& part : exchange->parts_) {
    const int64_t count = part.piece->kept;
    ListKept(part.piece->selection, indices.data_ptr<int32_t>() + at);
    values.narrow(0, at, count).copy_(at::from_blob(part.ring, {count}, at::kFloat));
    at += count;
  }
  exchange->indices_ = at::empty({all}, at::kInt);
  exchange->values_ = at::empty({all}, type);
  exchange->works_.push_back(holders->StartAllGather(indices, exchange->indices_));
  exchange->works_.push_back(holders->StartAllGather(values, exchange->values_));
  return exchange;
}

PickExchange::~PickExchange() {
  for (const auto& work : works_) work->Wait().IgnoreError();
}

absl::Status PickExchange::Finish() {
  absl::Status gathered;
  for (const auto& work : works_) gathered.Update(work->Wait());
  works_.clear();
  TESSERA_RETURN_IF_ERROR(gathered);
  const int32_t* const indices = indices_.const_data_ptr<int32_t>();
  int64_t at = 0;
  for (const Part& part : parts_) {
    const int64_t count = part.piece->kept;
    std::vector<absl::Span<const int32_t>> lists;
    for (int rank = 0; rank < ranks_; ++rank) {
      lists.push_back(absl::MakeConstSpan(indices + rank * kept_ + at, count));
    }
    TESSERA_ASSIGN_OR_RETURN(std::vector<uint64_t> words, JoinLists(part.piece->elements, lists));
    pieces_->Join(*part.piece, std::move(words));
    std::fill_n(part.ring, part.piece->room, 0.0f);
    for (int rank = 0; rank < ranks_; ++rank) {
      FloatView values;
      if (values_.scalar_type() == at::kFloat) {
        values.fp32 = values_.const_data_ptr<float>() + rank * kept_ + at;
      } else {
        values.bf16 = static_cast<const uint16_t*>(values_.const_data_ptr()) + rank * kept_ + at;
      }
      AddListed(part.piece->selection, lists[rank], values, part.ring);
    }
    at += count;
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
