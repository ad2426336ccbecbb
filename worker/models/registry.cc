#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/models/model.h"

namespace tessera::worker {
namespace {

std::vector<std::unique_ptr<ModelFamily>>& Families() {
  static auto& families = *new std::vector<std::unique_ptr<ModelFamily>>;
  return families;
}

}  // namespace

void RegisterModelFamily(std::unique_ptr<ModelFamily> family) { Families().push_back(std::move(family)); }

std::vector<const ModelFamily*> ModelFamilies() {
  std::vector<const ModelFamily*> families;
  for (const auto& family : Families()) families.push_back(family.get());
  return families;
}

absl::StatusOr<std::unique_ptr<Model>> MakeModel(const ModelConfig& config) {
  std::vector<std::string> known;
  if (!config.config_json.empty()) {
    const auto json = nlohmann::json::parse(config.config_json, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) return absl::InvalidArgumentError("config.json is no JSON object");
    const auto type = json.find("model_type");
    if (type == json.end() || !type->is_string()) {
      return absl::InvalidArgumentError("config.json: model_type is missing");
    }
    for (const auto& family : Families()) {
      if (type->get<std::string>() == family->name()) return family->Make(config);
      known.push_back(family->name());
    }
    return absl::UnimplementedError(absl::StrCat("config.json: model_type '", type->get<std::string>(),
                                                 "' is not known; known: ", absl::StrJoin(known, ", ")));
  }
  for (const auto& family : Families()) {
    for (const std::string& preset : family->presets()) {
      if (preset == config.preset) return family->Make(config);
      known.push_back(preset);
    }
  }
  return absl::NotFoundError(
      absl::StrCat("model preset '", config.preset, "' is not known; known: ", absl::StrJoin(known, ", ")));
}

}  // namespace tessera::worker
