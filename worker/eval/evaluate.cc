#include "worker/eval/evaluate.h"

#include <c10/core/InferenceMode.h>
#include <torch/types.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/safetensors.h"

namespace tessera::worker {
namespace {

absl::StatusOr<Batch> ReadSamples(const ExportedModel& exported, const TokenDataset& data, int64_t first,
                                  int64_t count, int64_t length) {
  std::vector<int64_t> indices(count);
  for (int64_t i = 0; i < count; ++i) indices[i] = first + i;
  Batch batch = data.Read(indices, length);
  const int64_t largest = std::max(batch.inputs.max().item<int64_t>(), batch.targets.max().item<int64_t>());
  if (largest >= exported.model->shape().vocab_size) {
    return absl::InvalidArgumentError(absl::StrCat("the data holds token ", largest,
                                                   "; the model's vocabulary has ",
                                                   exported.model->shape().vocab_size));
  }
  return batch;
}

std::string TextOf(const Tokenizer& tokenizer, const at::Tensor& tokens) {
  const at::Tensor ids = tokens.reshape({-1}).to(at::kInt);
  return tokenizer.Decode({ids.const_data_ptr<int32_t>(), static_cast<size_t>(ids.numel())});
}

absl::Status CheckLength(const TokenDataset& data, int64_t length) {
  if (data.samples(length) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the data has ", data.tokens(), " tokens; one sample of length ", length, " needs ", length + 1));
}

}  // namespace

absl::StatusOr<Evaluation> Evaluate(const ExportedModel& exported, const TokenDataset& data,
                                    const EvaluateOptions& options) {
  const c10::InferenceMode inference;
  const int64_t length = options.sequence_length;
  TESSERA_RETURN_IF_ERROR(CheckLength(data, length));
  const int64_t all = data.samples(length);
  const int64_t wanted = options.tokens <= 0 ? all : std::min(all, (options.tokens + length - 1) / length);
  Evaluation result;
  result.data_tokens = data.tokens();
  double sum = 0;
  int64_t bytes = 0;
  WholeRunner runner;
  for (int64_t first = 0; first < wanted; first += options.batch) {
    TESSERA_ASSIGN_OR_RETURN(const Batch batch, ReadSamples(exported, data, first,
                                                            std::min(options.batch, wanted - first), length));
    sum += exported.model->Loss(exported.weights, batch, runner).item<double>();
    result.tokens += batch.target_count;
    if (exported.tokenizer != nullptr)
      bytes += static_cast<int64_t>(TextOf(*exported.tokenizer, batch.targets).size());
  }
  result.loss = sum / static_cast<double>(result.tokens);
  result.perplexity = std::exp(result.loss);
  if (bytes > 0) result.bits_per_byte = sum / std::log(2.0) / static_cast<double>(bytes);
  return result;
}

absl::Status DumpLogits(const ExportedModel& exported, const TokenDataset& data, int64_t samples,
                        int64_t sequence_length, const std::string& path) {
  const at::NoGradGuard no_grad;
  TESSERA_RETURN_IF_ERROR(CheckLength(data, sequence_length));
  TESSERA_ASSIGN_OR_RETURN(
      const Batch batch,
      ReadSamples(exported, data, 0, std::min(samples, data.samples(sequence_length)), sequence_length));
  WholeRunner runner;
  std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"tokens", batch.inputs}, {"logits", exported.model->Logits(exported.weights, batch, runner)}};
  if (exported.tokenizer != nullptr) {
    const std::string text = TextOf(*exported.tokenizer, batch.inputs);
    at::Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
    tensors.emplace_back("text", bytes);
  }
  return WriteSafetensors(path, tensors);
}

}  // namespace tessera::worker
