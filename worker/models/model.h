// A model is written once, for one process that holds everything. It calls
// BlockRunner::Run for each residual block and publishes a ModelShape; who holds
// what, which blocks are skipped, recomputed or gathered, and which gradients
// meet whom is decided outside (worker/parallel).
//
// Shapes: B batch, T sequence length, D hidden size, V vocabulary.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/plan/model_shape.h"
#include "worker/models/block_runner.h"

namespace tessera::worker {

// By index of ModelShape::parameters, then by index of ModelShape::buffers. An undefined tensor is not
// held here. Whatever the size of a slice, a block runs with the heads, neurons and inner channels that
// its weights have.
using Weights = std::vector<at::Tensor>;

struct Batch {
  at::Tensor inputs;   // tokens [B, T] int64, or images [B, C, H, W] fp32
  at::Tensor targets;  // int64 [B, T], or [B] for one a sample; kIgnoredTarget has neither loss nor count
  int64_t target_count = 0;
  at::Tensor padding{};  // [B, T] bool: positions that no other sees; undefined: none
};
inline constexpr int64_t kIgnoredTarget = -100;

enum class Task : uint8_t { kNextToken, kMaskedToken, kTextClass, kImageClass };

// What a model reads and tells.
struct ModelInput {
  Task task = Task::kNextToken;
  int64_t classes = 0;                          // targets are below; a language model's is its vocabulary
  int64_t vocab_size = 0;                       // tokens are below; 0: images
  int64_t max_length = 0;                       // of a text in tokens; 0: any
  int64_t channels = 0, height = 0, width = 0;  // of an image; height 0: any size
};

// Immutable and thread-safe: weights are arguments.
class Model {
 public:
  virtual ~Model() = default;
  virtual const plan::ModelShape& shape() const = 0;
  virtual const ModelInput& input() const = 0;
  // Fills `out` (the parameter's dims, fp32) with initial values, a pure function
  // of (seed, parameter): every holder gets the same bits without a broadcast.
  virtual void Initialize(int parameter, uint64_t seed, at::Tensor& out) const = 0;
  // SUM over the batch's targets of the cross-entropy in nats, a scalar with a
  // graph when grad mode is on. A language model's logits are never whole in memory.
  virtual at::Tensor Loss(const Weights& weights, const Batch& batch, BlockRunner& runner) const = 0;
  // Of the batch's inputs (its targets are not looked at): [B, T, V], or [B, classes] for one a sample.
  virtual at::Tensor Logits(const Weights& weights, const Batch& batch, BlockRunner& runner) const = 0;
  // Parameters whose product is the output of a residual branch of the block: scaling
  // them by s equals branch_scale = s. Lets an export fold the evaluation scale in.
  virtual std::vector<int> BranchOutputs(int block) const = 0;
  // config.json of the same model; of the families of Hugging Face in their layout.
  virtual std::string HuggingFaceConfig() const = 0;
};

// What a model remembers of a text to continue it token by token. Starts empty and belongs to one
// text (batch), one model and one set of weights.
struct DecodingState {
  struct Block {
    at::Tensor keys, values;  // [B, capacity, G, K], the first `positions` of capacity in use
  };
  std::vector<Block> blocks;
  int64_t positions = 0;
};

// A model that continues texts is this as well.
class TextGenerator {
 public:
  virtual ~TextGenerator() = default;
  // tokens [B, T] that follow those `state` has seen -> [B, 1, V], what Logits of the whole text gives
  // for its last position. Appends them to the state. Without gradients.
  virtual at::Tensor Decode(const Weights& weights, const at::Tensor& tokens, BlockRunner& runner,
                            DecodingState& state) const = 0;
};

// What a job says of its model; config_json wins over preset.
struct ModelConfig {
  std::string preset;
  std::string config_json;  // text of a Hugging Face config.json
  int64_t vocab_size = 0;   // 0: the preset's
  int64_t classes = 0;      // of a classifier; 0: the preset's
};

// NotFound lists the known presets; InvalidArgument names the field of the config.
absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config);

// One line at the end of a model's file registers it.
class ModelFamily {
 public:
  virtual ~ModelFamily() = default;
  virtual std::string name() const = 0;  // model_type of its config.json
  virtual std::vector<std::string> presets() const = 0;
  virtual absl::StatusOr<std::unique_ptr<Model>> Make(const ModelConfig& config) const = 0;
};
void RegisterModelFamily(std::unique_ptr<ModelFamily> family);
std::vector<const ModelFamily*> ModelFamilies();

#define TESSERA_REGISTER_MODEL(Family)                     \
  [[maybe_unused]] static const bool registered_##Family = \
      (::tessera::worker::RegisterModelFamily(std::make_unique<Family>()), true)

}  // namespace tessera::worker
