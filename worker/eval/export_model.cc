#include "worker/eval/export_model.h"

#include <torch/types.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/checkpoint/safetensors.h"
#include "worker/data/text_file.h"
#include "worker/data/tokenizer.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

absl::Status FileError(const std::string& what, const std::error_code& error) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", error.message()));
}

absl::Status WriteWeights(const Model& model, const ExportSource& source, const std::string& path) {
  const at::NoGradGuard no_grad;
  const plan::ModelShape& shape = model.shape();
  std::vector<SafetensorsWriter::Entry> entries;
  for (const plan::Parameter& p : shape.parameters) entries.push_back({p.name, at::kFloat, p.dims});
  for (const plan::Buffer& b : shape.buffers) entries.push_back({b.name, at::kFloat, b.dims});
  // transformers asks for this key.
  TESSERA_ASSIGN_OR_RETURN(const auto writer,
                           SafetensorsWriter::Create(path, std::move(entries), {{"format", "pt"}}));
  for (size_t i = 0; i < shape.parameters.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(at::Tensor tensor, source.parameter(static_cast<int>(i)));
    const int block = shape.parameters[i].block;
    if (block != plan::kNoBlock && source.scale) {
      const std::vector<int> outputs = model.BranchOutputs(block);
      const double scale = source.scale(block);
      const bool output = std::find(outputs.begin(), outputs.end(), static_cast<int>(i)) != outputs.end();
      if (output && scale != 1) tensor = tensor * scale;
    }
    TESSERA_RETURN_IF_ERROR(writer->Append(tensor));
  }
  for (size_t i = 0; i < shape.buffers.size(); ++i) {
    TESSERA_ASSIGN_OR_RETURN(const at::Tensor tensor,
                             source.parameter(static_cast<int>(shape.parameters.size() + i)));
    TESSERA_RETURN_IF_ERROR(writer->Append(tensor));
  }
  return writer->Finish();
}

absl::Status Fill(const Model& model, const ExportSource& source, const std::string& folder) {
  TESSERA_RETURN_IF_ERROR(WriteWeights(model, source, folder + "/model.safetensors"));
  auto config = nlohmann::ordered_json::parse(model.HuggingFaceConfig());
  if (!source.tokenizer.empty()) {
    TESSERA_ASSIGN_OR_RETURN(const auto tokenizer, OpenTokenizer(source.tokenizer));
    // Without them transformers takes 1 and 2, which are bytes in a byte-level vocabulary.
    if (tokenizer->begin_token() >= 0) config["bos_token_id"] = tokenizer->begin_token();
    if (tokenizer->end_token() >= 0) config["eos_token_id"] = tokenizer->end_token();
    TESSERA_RETURN_IF_ERROR(tokenizer->Save(folder));
  }
  return WriteTextFile(folder + "/config.json", config.dump(2) + "\n");
}

}  // namespace

absl::Status ExportModel(const Model& model, const ExportSource& source, const std::string& folder,
                         bool overwrite) {
  std::error_code error;
  std::string target = fs::absolute(folder).lexically_normal();
  while (target.size() > 1 && target.back() == '/') target.pop_back();
  const bool there = fs::exists(target, error) && !fs::is_empty(target, error);
  if (there && !overwrite)
    return absl::AlreadyExistsError(
        absl::StrCat(target, " is there and not empty; --overwrite replaces a model"));
  if (there && !fs::exists(target + "/config.json", error)) {
    return absl::AlreadyExistsError(absl::StrCat(target, " holds something that is no exported model"));
  }
  const std::string word = absl::StrCat(absl::Hex(std::random_device()(), absl::kZeroPad8));
  const std::string partial = absl::StrCat(target, ".partial-", word);
  const std::string old = absl::StrCat(target, ".old-", word);
  fs::create_directories(partial, error);
  if (error) return FileError("cannot create " + partial, error);
  absl::Status status = Fill(model, source, partial);
  if (status.ok() && there) {
    fs::rename(target, old, error);
    if (error) status = FileError("cannot move " + target, error);
  }
  if (status.ok()) {
    fs::rename(partial, target, error);
    if (error) status = FileError("cannot rename to " + target, error);
  }
  std::error_code ignored;
  fs::remove_all(status.ok() ? old : partial, ignored);
  return status;
}

}  // namespace tessera::worker
