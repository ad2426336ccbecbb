// Loss of a whole model on a token dataset.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "worker/data/token_dataset.h"
#include "worker/eval/exported_model.h"

namespace tessera::worker {

struct EvaluateOptions {
  int64_t tokens = 65536;  // the data's first samples, rounded up to whole ones; 0: all
  int64_t batch = 4;
  int64_t sequence_length = 256;
};

struct Evaluation {
  int64_t tokens = 0;
  int64_t data_tokens = 0;   // of the whole data
  double loss = 0;           // nats per token
  double perplexity = 0;     // exp(loss)
  double bits_per_byte = 0;  // of the text the targets stand for; 0 without a tokenizer
};

// InvalidArgument: the data has less than one sample, or ids outside the model's vocabulary.
absl::StatusOr<Evaluation> Evaluate(const ExportedModel& exported, const TokenDataset& data,
                                    const EvaluateOptions& options);

// The data's first `samples` samples through the model: `tokens` [S, T], `logits` [S, T, V] and the
// tokens' text as bytes, for a comparison with another implementation.
absl::Status DumpLogits(const ExportedModel& exported, const TokenDataset& data, int64_t samples,
                        int64_t sequence_length, const std::string& path);

}  // namespace tessera::worker
