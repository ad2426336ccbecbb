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
  int64_t context = 256;  // the model sees this many tokens at most
};

// Appends to prompt (begin token when empty) and returns the new tokens alone. Sampling is a
// function of the logits and the seed. on_token, if set, sees each as it comes.
// InvalidArgument: an option or a prompt token out of range, or no tokenizer.
absl::StatusOr<std::vector<int32_t>> Generate(const ExportedModel& exported, std::vector<int32_t> prompt,
                                              const GenerateOptions& options,
                                              const std::function<void(int32_t)>& on_token = nullptr);

}  // namespace tessera::worker
