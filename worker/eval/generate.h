// Continues a text.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/eval/exported_model.h"

namespace tessera::worker {

struct GenerateOptions {
  int64_t tokens = 200;      // at most; ends earlier at the end token
  double temperature = 0.8;  // 0: always the likeliest token
  int64_t top_k = 40;        // 0: all tokens
  uint64_t seed = 1;
  // The model sees this many tokens at most. A longer text goes on from the last half of it, so that
  // its beginning need not be computed again for each token.
  int64_t context = 256;
};

// Appends to prompt (begin token when empty) and returns the new tokens alone. Sampling is a
// function of the logits and the seed, nearly one of the text and the seed: logits of a text and of the
// same text token by token differ by rounding. on_token, if set, sees each as it comes.
// InvalidArgument: an option or a prompt token out of range, or no tokenizer.
absl::StatusOr<std::vector<int32_t>> Generate(const ExportedModel& exported, std::vector<int32_t> prompt,
                                              const GenerateOptions& options,
                                              const std::function<void(int32_t)>& on_token = nullptr);

}  // namespace tessera::worker
