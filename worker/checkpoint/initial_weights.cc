#include "worker/checkpoint/initial_weights.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/checkpoint/safetensors.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::vector<std::unique_ptr<SafetensorsFile>>> OpenAll(const std::string& path) {
  std::vector<std::string> names;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    for (const auto& entry : fs::directory_iterator(path, ignored)) {
      if (entry.path().extension() == ".safetensors") names.push_back(entry.path());
    }
    std::sort(names.begin(), names.end());
  } else {
    names.push_back(path);
  }
  if (names.empty()) return absl::NotFoundError(absl::StrCat(path, ": no *.safetensors in this folder"));
  std::vector<std::unique_ptr<SafetensorsFile>> files;
  for (const std::string& name : names) {
    TESSERA_ASSIGN_OR_RETURN(auto file, SafetensorsFile::Open(name));
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace

absl::Status LoadInitialWeights(const std::string& path, UnitStore* store) {
  const at::NoGradGuard no_grad;
  TESSERA_ASSIGN_OR_RETURN(const auto files, OpenAll(path));
  const plan::ModelShape& shape = store->model().shape();
  for (UnitState& state : store->units()) {
    for (const UnitSlot& slot : state.layout.slots) {
      const plan::Parameter& parameter = shape.parameters[slot.parameter];
      const auto file =
          std::find_if(files.begin(), files.end(), [&](const auto& f) { return f->Has(parameter.name); });
      if (file == files.end())
        return absl::NotFoundError(absl::StrCat(path, ": has no '", parameter.name, "'"));
      TESSERA_ASSIGN_OR_RETURN(const at::Tensor value, (*file)->Read(parameter.name));
      if (value.sizes() != at::IntArrayRef(parameter.dims)) {
        return absl::InvalidArgumentError(
            absl::StrCat(path, ": '", parameter.name, "' has shape [", absl::StrJoin(value.sizes(), ", "),
                         "], the model's has [", absl::StrJoin(parameter.dims, ", "), "]"));
      }
      SlotView(shape, slot, state.parameters).copy_(value);
    }
  }
  return absl::OkStatus();
}

}  // namespace tessera::worker
