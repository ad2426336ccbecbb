#include "worker/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "worker/checkpoint/durable_file.h"

namespace tessera::worker {
namespace {

using nlohmann::json;
constexpr int kVersion = 2;

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }
uint64_t FromHex(const json& value) { return std::stoull(value.get<std::string>(), nullptr, 16); }

json ToValue(const std::vector<ManifestFile>& files) {
  json list = json::array();
  for (const ManifestFile& file : files) {
    json pieces = json::array();
    for (const Piece& piece : file.pieces) {
      pieces.push_back({piece.parameter, piece.dim, piece.begin, piece.length, piece.first, piece.count});
    }
    list.push_back({{"file", file.file},
                    {"unit", file.unit},
                    {"bytes", file.digest.bytes},
                    {"crc32c", Hex(file.digest.crc32c)},
                    {"pieces", std::move(pieces)}});
  }
  return list;
}

std::vector<ManifestFile> FilesOf(const json& list) {
  std::vector<ManifestFile> files;
  for (const json& item : list) {
    ManifestFile file;
    file.file = item.at("file");
    file.unit = item.at("unit");
    file.digest.bytes = item.at("bytes");
    file.digest.crc32c = static_cast<uint32_t>(FromHex(item.at("crc32c")));
    for (const json& piece : item.at("pieces")) {
      file.pieces.push_back({piece.at(0).get<int>(), piece.at(1).get<int>(), piece.at(2).get<int64_t>(),
                             piece.at(3).get<int64_t>(), piece.at(4).get<int64_t>(),
                             piece.at(5).get<int64_t>()});
    }
    files.push_back(std::move(file));
  }
  return files;
}

Manifest ManifestOf(const json& root) {
  Manifest manifest;
  manifest.info.step = root.at("step");
  manifest.info.tokens = root.at("tokens");
  manifest.info.samples = root.at("samples");
  manifest.info.seed = root.at("seed");
  manifest.info.plan_generation = root.at("plan_generation");
  manifest.info.job = root.at("job");
  manifest.model_config = root.at("model_config");
  manifest.shape_fingerprint = FromHex(root.at("shape_fingerprint"));
  manifest.mask_fingerprint = FromHex(root.at("mask_fingerprint"));
  manifest.workers = root.at("workers");
  for (const json& item : root.at("units")) {
    ManifestUnit unit;
    unit.name = item.at("name");
    unit.block = item.at("block");
    unit.holder_share = item.at("holder_share");
    unit.always_on = item.at("always_on");
    unit.holders = item.at("holders").get<std::vector<int>>();
    manifest.units.push_back(std::move(unit));
  }
  manifest.files = FilesOf(root.at("files"));
  if (root.contains("residuals")) manifest.residuals = FilesOf(root.at("residuals"));
  for (const ManifestFile& file : manifest.files) {
    if (file.unit < 0 || file.unit >= static_cast<int>(manifest.units.size())) {
      throw std::out_of_range(absl::StrCat("file ", file.file, " is of no unit"));
    }
  }
  return manifest;
}

// Of a manifest without its checksum. Objects are sorted by key, so the text is the same whoever writes it.
std::string Checksum(const json& root) {
  const std::string text = root.dump();
  return Hex(Crc32c(text.data(), text.size()));
}

}  // namespace

std::string StepDirectoryName(int64_t step) { return absl::StrFormat("step-%08d", step); }

std::string ToJson(const Manifest& manifest) {
  json units = json::array();
  for (const ManifestUnit& unit : manifest.units) {
    units.push_back({{"name", unit.name},
                     {"block", unit.block},
                     {"holder_share", unit.holder_share},
                     {"always_on", unit.always_on},
                     {"holders", unit.holders}});
  }
  json root = {{"version", kVersion},
               {"step", manifest.info.step},
               {"tokens", manifest.info.tokens},
               {"samples", manifest.info.samples},
               {"seed", manifest.info.seed},
               {"plan_generation", manifest.info.plan_generation},
               {"job", manifest.info.job},
               {"model_config", manifest.model_config},
               {"shape_fingerprint", Hex(manifest.shape_fingerprint)},
               {"mask_fingerprint", Hex(manifest.mask_fingerprint)},
               {"workers", manifest.workers},
               {"units", std::move(units)},
               {"files", ToValue(manifest.files)}};
  if (!manifest.residuals.empty()) root["residuals"] = ToValue(manifest.residuals);
  root["checksum"] = Checksum(root);
  return root.dump(1) + "\n";
}

absl::StatusOr<Manifest> ReadManifest(const std::string& checkpoint) {
  const std::string path = checkpoint + "/manifest.json";
  TESSERA_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path));
  try {
    json root = json::parse(text);
    if (root.at("version").get<int>() != kVersion) {
      return absl::DataLossError(absl::StrCat(path, ": version ", root.at("version").dump(), ", expected ",
                                              kVersion, "; resume it with the release that wrote it"));
    }
    const std::string checksum = root.at("checksum");
    root.erase("checksum");
    if (Checksum(root) != checksum)
      return absl::DataLossError(absl::StrCat(path, ": damaged: checksum differs"));
    return ManifestOf(root);
  } catch (const std::exception& error) {
    return absl::DataLossError(absl::StrCat(path, ": damaged: ", error.what()));
  }
}

std::string ToJson(const std::vector<ManifestFile>& files) { return ToValue(files).dump(); }

absl::StatusOr<std::vector<ManifestFile>> ParseManifestFiles(const std::string& text) {
  try {
    return FilesOf(json::parse(text));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("a peer's list of checkpoint files: ", error.what()));
  }
}

}  // namespace tessera::worker
