#include "worker/checkpoint/hf_weights.h"

#include <torch/types.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/checkpoint/durable_file.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::string>> Files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  const std::string single = path + "/model.safetensors", index = path + "/model.safetensors.index.json";
  if (fs::exists(single, error)) return std::vector<std::string>{single};
  if (!fs::exists(index, error)) {
    return absl::NotFoundError(
        absl::StrCat(path, ": holds neither model.safetensors nor model.safetensors.index.json"));
  }
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(index));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    return absl::DataLossError(absl::StrCat(index, ": has no weight_map"));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : json["weight_map"].items()) {
    if (!file.is_string())
      return absl::DataLossError(absl::StrCat(index, ": weight_map of ", tensor, " is no name"));
    names.insert(path + "/" + file.get<std::string>());
  }
  return std::vector<std::string>(names.begin(), names.end());
}

bool MayBeIgnored(const std::string& name) {
  // What is computed, tied, or of a part that the model does not have.
  for (const char* end : {"rotary_emb.inv_freq", "num_batches_tracked", "relative_position_index",
                          "position_ids", "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"}) {
    if (absl::EndsWith(name, end)) return true;
  }
  return name == "lm_head.weight" || absl::StartsWith(name, "cls.seq_relationship.") ||
         absl::StartsWith(name, "bert.pooler.");
}

}  // namespace

absl::StatusOr<std::unique_ptr<HuggingFaceWeights>> HuggingFaceWeights::Open(const std::string& path,
                                                                             const plan::ModelShape& shape) {
  TESSERA_ASSIGN_OR_RETURN(const auto paths, Files(path));
  std::unique_ptr<HuggingFaceWeights> weights(new HuggingFaceWeights);
  std::set<std::string> surplus;
  for (const std::string& file : paths) {
    TESSERA_ASSIGN_OR_RETURN(auto opened, SafetensorsFile::Open(file));
    for (const std::string& name : opened->names()) surplus.insert(name);
    weights->files_.push_back(std::move(opened));
  }
  std::vector<std::string> complaints;
  std::vector<std::pair<std::string, std::vector<int64_t>>> wanted;
  for (const plan::Parameter& parameter : shape.parameters)
    wanted.emplace_back(parameter.name, parameter.dims);
  for (const plan::Buffer& buffer : shape.buffers) wanted.emplace_back(buffer.name, buffer.dims);
  for (const auto& [name, model_dims] : wanted) {
    const SafetensorsFile* holder = nullptr;
    for (const auto& file : weights->files_) {
      if (file->Has(name)) holder = file.get();
    }
    weights->names_.push_back(name);
    weights->in_.push_back(holder);
    surplus.erase(name);
    if (holder == nullptr) {
      complaints.push_back(absl::StrCat("missing ", name));
    } else if (const auto dims = holder->Dims(name); dims != model_dims) {
      complaints.push_back(absl::StrCat(name, " is [", absl::StrJoin(dims, ", "), "], the model's is [",
                                        absl::StrJoin(model_dims, ", "), "]"));
    }
  }
  for (const std::string& name : surplus) {
    if (!MayBeIgnored(name)) complaints.push_back(absl::StrCat("unexpected ", name));
  }
  if (!complaints.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, " does not fit the model: ", absl::StrJoin(complaints, "; ")));
  }
  return weights;
}

absl::StatusOr<at::Tensor> HuggingFaceWeights::Read(int parameter) const {
  return in_[parameter]->Read(names_[parameter]);
}

absl::StatusOr<Weights> HuggingFaceWeights::ReadAll() const {
  Weights weights;
  for (size_t i = 0; i < names_.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(at::Tensor tensor, Read(static_cast<int>(i)));
    weights.push_back(std::move(tensor));
  }
  return weights;
}

}  // namespace tessera::worker
