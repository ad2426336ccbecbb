#include "worker/checkpoint/manifest.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
constexpr int kVersion = 1;

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }
uint64_t FromHex(const json& value) { return std::stoull(value.get<std::string>(), nullptr, 16); }

}  // namespace

std::string StepDirectoryName(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string UnitFileName(const std::string& unit) {
  std::string safe = unit;
  std::replace(safe.begin(), safe.end(), '/', '_');
  return absl::StrCat("units/", safe, ".safetensors");
}

std::string ToJson(const Manifest& manifest) {
  json units = json::array();
  for (const ManifestUnit& unit : manifest.units) {
    units.push_back({{"name", unit.name},
                     {"file", unit.file},
                     {"bytes", unit.bytes},
                     {"crc32c", Hex(unit.crc32c)},
                     {"holder_share", unit.holder_share},
                     {"always_on", unit.always_on},
                     {"holders", unit.holders}});
  }
  const json root = {{"version", kVersion},
                     {"step", manifest.info.step},
                     {"tokens", manifest.info.tokens},
                     {"seed", manifest.info.seed},
                     {"job", manifest.info.job},
                     {"model_config", manifest.model_config},
                     {"shape_fingerprint", Hex(manifest.shape_fingerprint)},
                     {"mask_fingerprint", Hex(manifest.mask_fingerprint)},
                     {"workers", manifest.workers},
                     {"units", units}};
  return root.dump(1) + "\n";
}

absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json";
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::NotFoundError(absl::StrCat(path, ": no such file; not a complete checkpoint"));
  std::stringstream text;
  text << in.rdbuf();
  try {
    const json root = json::parse(text.str());
    if (root.at("version").get<int>() != kVersion) {
      return absl::DataLossError(
          absl::StrCat(path, ": version ", root.at("version").dump(), ", expected ", kVersion));
    }
    Manifest manifest;
    manifest.info.step = root.at("step");
    manifest.info.tokens = root.at("tokens");
    manifest.info.seed = root.at("seed");
    manifest.info.job = root.at("job");
    manifest.model_config = root.at("model_config");
    manifest.shape_fingerprint = FromHex(root.at("shape_fingerprint"));
    manifest.mask_fingerprint = FromHex(root.at("mask_fingerprint"));
    manifest.workers = root.at("workers");
    for (const json& item : root.at("units")) {
      ManifestUnit unit;
      unit.name = item.at("name");
      unit.file = item.at("file");
      unit.bytes = item.at("bytes");
      unit.crc32c = static_cast<uint32_t>(FromHex(item.at("crc32c")));
      unit.holder_share = item.at("holder_share");
      unit.always_on = item.at("always_on");
      unit.holders = item.at("holders").get<std::vector<int>>();
      manifest.units.push_back(std::move(unit));
    }
    return manifest;
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": ", error.what()));
  }
}

std::vector<std::string> ListCheckpoints(const std::string& directory) {
  std::vector<std::string> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(directory, ignored)) {
    const std::string name = entry.path().filename();
    const bool complete = absl::StartsWith(name, "step-") && entry.path().extension().empty() &&
                          fs::exists(entry.path() / "manifest.json", ignored);
    if (complete) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace tessera::worker
