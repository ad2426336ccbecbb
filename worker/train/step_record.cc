#include "worker/train/step_record.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/status_macros.h"

namespace tessera::worker {

namespace {
constexpr int64_t kFields = sizeof(StepRecord) / sizeof(double);
static_assert(sizeof(StepRecord) % sizeof(double) == 0);
}  // namespace

Agreement Agree(absl::Span<const StepRecord> records, double clip_norm) {
  Agreement agreed;
  double squared_norm = 0, loss_sum = 0, tokens = 0;
  agreed.checkpoint_written = !records.empty();
  uint32_t selection = 0;
  double generation = records.empty() ? 0 : records[0].plan_generation;
  for (size_t rank = 0; rank < records.size(); ++rank) {
    const StepRecord& record = records[rank];
    squared_norm += record.squared_norm;
    loss_sum += record.loss_sum;
    tokens += record.tokens;
    agreed.same_generation &= record.plan_generation == records[0].plan_generation;
    generation = std::min(generation, record.plan_generation);
    selection += static_cast<uint32_t>(record.selection);
    agreed.statistics |= record.wants_statistics != 0;
    if (record.out_of_memory != 0 && agreed.short_rank < 0) agreed.short_rank = static_cast<int>(rank);
    agreed.stop |= record.wants_stop != 0;
    agreed.checkpoint |= record.wants_checkpoint != 0;
    agreed.fenced |= record.fenced != 0;
    agreed.end_of_data |= record.end_of_data != 0;
    agreed.checkpoint_written &= record.checkpoint_written != 0;
    if (record.compute_seconds > records[agreed.slowest_rank].compute_seconds) {
      agreed.slowest_rank = static_cast<int>(rank);
    }
  }
  agreed.same_selection = selection == 0;
  agreed.checkpoint &= !agreed.fenced;
  agreed.gradient_norm = std::sqrt(squared_norm);
  if (clip_norm > 0) agreed.clip_factor = std::min(1.0, clip_norm / (agreed.gradient_norm + 1e-6));
  agreed.loss = tokens > 0 ? loss_sum / tokens : 0;
  agreed.tokens = static_cast<int64_t>(tokens);
  agreed.plan_generation = static_cast<int64_t>(generation);
  return agreed;
}

absl::StatusOr<std::vector<StepRecord>> GatherRecords(const StepRecord& own, Communicator& all) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const at::Tensor in = at::empty({kFields}, options);
  std::memcpy(in.data_ptr(), &own, sizeof(own));
  at::Tensor out = at::empty({kFields * all.size()}, options);
  TESSERA_RETURN_IF_ERROR(all.AllGather(in, out));
  std::vector<StepRecord> records(all.size());
  std::memcpy(records.data(), out.data_ptr(), records.size() * sizeof(StepRecord));
  return records;
}

}  // namespace tessera::worker
