// A family of models of one class and one struct of hyperparameters, named as presets or read from a
// config.json.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "worker/models/model.h"

namespace tessera::worker {

// `Kind` has the constructor Kind(const Config&), where Config has a field `classes`, and a field
// `vocab_size` where the model reads tokens.
template <typename Kind, typename Config>
class PresetFamily : public ModelFamily {
 public:
  using Presets = std::vector<std::pair<std::string, Config>>;
  using Parser = absl::StatusOr<Config> (*)(const std::string& config_json);

  // name: model_type of the config.json that `parse` reads. presets outlives it.
  PresetFamily(std::string name, const Presets& presets, Parser parse)
      : name_(std::move(name)), presets_(presets), parse_(parse) {}

  std::string name() const override { return name_; }
  std::vector<std::string> presets() const override {
    std::vector<std::string> names;
    for (const auto& [name, config] : presets_) names.push_back(name);
    return names;
  }
  // The registry asks for known presets only.
  absl::StatusOr<std::unique_ptr<Model>> Make(const ModelConfig& wanted) const override {
    Config config;
    if (wanted.config_json.empty()) {
      for (const auto& [name, preset] : presets_) {
        if (name == wanted.preset) config = preset;
      }
    } else {
      TESSERA_ASSIGN_OR_RETURN(config, parse_(wanted.config_json));
    }
    if (wanted.classes > 0) config.classes = wanted.classes;
    if constexpr (requires { config.vocab_size; }) {
      if (wanted.vocab_size > 0) config.vocab_size = wanted.vocab_size;
    }
    return std::make_unique<Kind>(config);
  }

 private:
  const std::string name_;
  const Presets& presets_;
  const Parser parse_;
};

}  // namespace tessera::worker
