#include "worker/eval/job_model.h"

#include <google/protobuf/util/json_util.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/line_dataset.h"
#include "worker/data/text_file.h"
#include "worker/data/tokenizer.h"

namespace tessera::worker {

std::string TokenizerFolder(const v1::DataSpec& data) {
  if (!data.tokenizer().empty()) return data.tokenizer();
  if (data.train().empty()) return {};
  std::error_code error;
  const std::filesystem::path train(data.train());
  if (std::filesystem::is_directory(train, error)) return train;
  return train.has_parent_path() ? train.parent_path().string() : ".";
}

std::string TokenizerFolderOfJob(const std::string& spec_json) {
  v1::TrainingJobSpec spec;
  if (!google::protobuf::util::JsonStringToMessage(spec_json, &spec).ok()) return {};
  const std::string folder = TokenizerFolder(spec.data());
  return HoldsTokenizer(folder) ? folder : "";
}

absl::StatusOr<bool> UsesEvaluationScale(const std::string& spec_json) {
  v1::TrainingJobSpec spec;
  if (!google::protobuf::util::JsonStringToMessage(spec_json, &spec).ok()) {
    return absl::InvalidArgumentError(
        "the checkpoint does not say of which job it is, so --residual-scale must be given");
  }
  const v1::ResidualScale scale = spec.subnetwork().residual_scale();
  return scale == v1::RESIDUAL_SCALE_EVALUATION || scale == v1::RESIDUAL_SCALE_UNSPECIFIED;
}

absl::StatusOr<std::unique_ptr<Model>> MakeJobModel(const v1::TrainingJobSpec& spec) {
  ModelConfig config;
  config.preset = spec.model().preset();
  const bool from_file = !spec.model().config_path().empty();
  if (config.preset.empty() == !from_file) {
    return absl::InvalidArgumentError("model: give exactly one of preset and config_path");
  }
  if (from_file) {
    const auto text = ReadTextFile(spec.model().config_path());
    if (!text.ok())
      return absl::InvalidArgumentError(absl::StrCat("model.config_path: ", text.status().message()));
    config.config_json = *text;
  }
  if (spec.model().has_classes()) {
    if (spec.model().classes() < 1) return absl::InvalidArgumentError("model.classes: must be positive");
    config.classes = spec.model().classes();
  }
  if (spec.model().has_vocab_size()) {
    if (spec.model().vocab_size() < 1)
      return absl::InvalidArgumentError("model.vocab_size: must be positive");
    config.vocab_size = spec.model().vocab_size();
  } else if (spec.data().format() == v1::DATA_FORMAT_LINES) {
    const auto codec = OpenTextCodec(spec.data().tokenizer());
    if (!codec.ok())
      return absl::InvalidArgumentError(absl::StrCat("data.tokenizer: ", codec.status().message()));
    config.vocab_size = codec->vocab_size;
  } else if (spec.data().format() != v1::DATA_FORMAT_SYNTHETIC &&
             spec.data().format() != v1::DATA_FORMAT_IMAGES) {
    const auto tokenizer = OpenTokenizer(TokenizerFolder(spec.data()));
    if (tokenizer.ok()) {
      config.vocab_size = (*tokenizer)->vocab_size();
    } else if (!spec.data().tokenizer().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("data.tokenizer: ", tokenizer.status().message()));
    }
  }
  auto model = MakeModel(config);
  if (absl::IsNotFound(model.status())) {
    return absl::InvalidArgumentError(absl::StrCat("model.preset: ", model.status().message()));
  }
  return model;
}

}  // namespace tessera::worker
