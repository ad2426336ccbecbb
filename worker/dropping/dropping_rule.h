// What makes a gradient element important. A rule is one file in rules/ that ends in a registration line.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/kernels/importance.h"

namespace tessera::worker {

// fp32 or bf16 values; at most one of the pointers is set.
struct FloatView {
  const float* fp32 = nullptr;
  const uint16_t* bf16 = nullptr;
  bool empty() const { return fp32 == nullptr && bf16 == nullptr; }
};

// One tensor on one rank, before a step. Moments are the same on all its holders, residuals are not.
struct RuleInput {
  uint64_t seed = 0;
  int64_t tensor = 0;  // the same on all holders, another for each tensor
  int64_t step = 0;    // counts from 0
  int64_t elements = 0;
  int64_t picks = 0;                     // wanted, at most `elements`
  const float* first_moment = nullptr;   // [elements]; null: there is none
  const float* second_moment = nullptr;  // [elements]
  FloatView residual;                    // [elements], what was not sent so far
  const float* gradient = nullptr;       // [elements], this rank's; null: none has come, or it is too early
  absl::Span<const float> sketch;        // of the holders' summed residuals, see sketch.h
};

// How all holders come to the same picks.
enum class RuleAgreement : uint8_t {
  kAlike,   // each computes them from what all have: nothing travels
  kTurn,    // the holder whose turn it is computes them from its residual; they travel as a bitmap
  kSketch,  // each computes them from the sum of the holders' sketches, which travels
  kNone,    // they do not: each picks when its gradient comes, and sends its own with their indices
};

struct RuleNeeds {
  bool first_moment = false;
  bool second_moment = false;
  bool residual = false;
  RuleAgreement agreement = RuleAgreement::kAlike;
  double default_share = 0;  // of the budget that is picked; the rest rotates
  // What it looks at in tensors, element by element, if it does: a device picks by it.
  std::optional<kernels::Importance> importance{};
};

class DroppingRule {
 public:
  virtual ~DroppingRule() = default;
  virtual absl::string_view name() const = 0;  // as job files spell it
  virtual RuleNeeds needs() const = 0;
  // A bitmap of the picks, words [ceil(elements / 64)]: exactly input.picks bits, or fewer where the rule
  // takes elements by the chunk. A pure function.
  virtual void Pick(const RuleInput& input, absl::Span<uint64_t> words) const = 0;
};

// Called before main; the registry keeps the rule for the life of the process.
bool RegisterDroppingRule(std::unique_ptr<DroppingRule> rule);
std::vector<const DroppingRule*> DroppingRules();  // by name
// InvalidArgument lists the known ones.
absl::StatusOr<const DroppingRule*> FindDroppingRule(absl::string_view name);

#define TESSERA_REGISTER_DROPPING_RULE(Class)             \
  [[maybe_unused]] static const bool registered_##Class = \
      ::tessera::worker::RegisterDroppingRule(std::make_unique<Class>())

}  // namespace tessera::worker
