#include "scheduler/launch/worker_describer.h"

#include <google/protobuf/util/json_util.h>
#include <openssl/sha.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <stop_token>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/launch/worker_program.h"

namespace tessera::scheduler {
namespace {

constexpr int kExitInvalid = 3;

// Size and time of a file or folder, so that a changed one is not taken for the old one.
std::string Stamp(const std::string& path) {
  struct stat info;
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return absl::StrCat(path, "|none");
  return absl::StrCat(path, "|", info.st_size, "|", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec);
}

// Of all that a file, folder or glob stands for, and of what lies beside it: tokenizer and description.
std::string Stamps(const std::string& pattern) {
  std::error_code error;
  std::filesystem::path folder(pattern);
  if (pattern.empty()) return "";
  if (!std::filesystem::is_directory(folder, error)) folder = folder.parent_path();
  std::vector<std::string> stamps;
  for (std::filesystem::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    stamps.push_back(Stamp(it->path().string()));
  }
  std::sort(stamps.begin(), stamps.end());
  return absl::StrCat(pattern, "\n", absl::StrJoin(stamps, "\n"));
}

// Everything of the job that a model's shape and measured activations depend on.
std::string CacheKey(const std::string& program, const v1::TrainingJobSpec& spec) {
  v1::TrainingJobSpec essence;
  *essence.mutable_model() = spec.model();
  *essence.mutable_data() = spec.data();
  essence.mutable_workers()->set_batch(spec.workers().batch());
  essence.set_precision(spec.precision());
  essence.set_activation_checkpointing(spec.activation_checkpointing());
  if (spec.resources().gpus() > 0) {  // the process is another one, and devices were looked for
    essence.mutable_resources()->set_gpus(spec.resources().gpus());
    essence.mutable_workers()->set_count(spec.workers().count());
    essence.set_backend(spec.backend());
  }
  const std::string text =
      absl::StrCat(Stamp(program), "\n", Stamp(spec.model().config_path()), "\n", Stamps(spec.data().train()),
                   "\n", Stamps(spec.data().validation()), "\n", Stamps(spec.data().tokenizer()), "\n",
                   essence.SerializeAsString());
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
  return absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(digest), sizeof digest));
}

absl::StatusCode CodeNamed(absl::string_view name) {
  for (int i = 1; i <= 16; ++i) {
    const auto code = static_cast<absl::StatusCode>(i);
    if (absl::StatusCodeToString(code) == name) return code;
  }
  return absl::StatusCode::kOk;
}

absl::Status ErrorOf(const ProcessOutput& output) {
  std::string line;
  for (absl::string_view part : absl::StrSplit(output.err, '\n')) {
    if (!absl::StripAsciiWhitespace(part).empty()) line = std::string(absl::StripAsciiWhitespace(part));
  }
  const size_t colon = line.find(": ");
  if (colon != std::string::npos) {
    const absl::StatusCode code = CodeNamed(line.substr(0, colon));
    // What is not found is named by the job; the job itself is there.
    if (code == absl::StatusCode::kNotFound) return absl::InvalidArgumentError(line.substr(colon + 2));
    if (code != absl::StatusCode::kOk) return absl::Status(code, line.substr(colon + 2));
  }
  if (output.exit_code == kExitInvalid) return absl::InvalidArgumentError(line);
  return absl::InternalError(absl::StrCat("describing the model failed with exit code ", output.exit_code,
                                          line.empty() ? "" : ": ", line));
}

class WorkerDescriber : public ModelDescriber {
 public:
  explicit WorkerDescriber(const WorkerDescriberOptions& options) : options_(options) {}

  absl::StatusOr<v1::ModelShape> Describe(const v1::TrainingJobSpec& spec) override {
    TESSERA_ASSIGN_OR_RETURN(const std::string program, FindWorkerProgram(options_.worker_program));
    std::string cached;
    if (!options_.cache_directory.empty()) {
      cached = absl::StrCat(options_.cache_directory, "/", CacheKey(program, spec), ".pb");
      v1::ModelShape shape;
      if (std::ifstream file(cached, std::ios::binary); file && shape.ParseFromIstream(&file)) return shape;
    }
    TESSERA_ASSIGN_OR_RETURN(v1::ModelShape shape, Ask(program, spec));
    if (!cached.empty()) Keep(cached, shape);
    return shape;
  }
  void Stop() override { stop_.request_stop(); }

 private:
  absl::StatusOr<v1::ModelShape> Ask(const std::string& program, const v1::TrainingJobSpec& spec) {
    std::string input;
    if (!google::protobuf::util::MessageToJsonString(spec, &input).ok()) {
      return absl::InternalError("the job's spec has no JSON form");
    }
    ProcessRequest process;
    process.arguments = {program};
    process.arguments.insert(process.arguments.end(), options_.arguments.begin(), options_.arguments.end());
    process.env["OMP_NUM_THREADS"] = process.env["MKL_NUM_THREADS"] = "1";
    TESSERA_ASSIGN_OR_RETURN(const ProcessOutput output,
                             RunToEnd(process, input, options_.timeout, stop_.get_token()));
    if (output.exit_code != 0) return ErrorOf(output);
    v1::ModelShape shape;
    google::protobuf::util::JsonParseOptions lenient;
    lenient.ignore_unknown_fields = true;  // of a newer worker
    const auto parsed = google::protobuf::util::JsonStringToMessage(output.out, &shape, lenient);
    if (!parsed.ok() || shape.parameters_size() == 0) {
      return absl::InternalError(
          absl::StrCat("'", program, " describe' did not print a model shape: ", parsed.ToString()));
    }
    return shape;
  }

  // A cache that can't be written costs time only.
  static void Keep(const std::string& path, const v1::ModelShape& shape) {
    std::error_code error;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
    const std::string next = absl::StrCat(path, ".", absl::Hex(std::random_device()(), absl::kZeroPad8));
    {
      std::ofstream file(next, std::ios::binary | std::ios::trunc);
      if (!shape.SerializeToOstream(&file) || !file.flush())
        error = std::make_error_code(std::errc::io_error);
    }
    if (!error) std::filesystem::rename(next, path, error);
    if (error) spdlog::warn("event=shape_not_cached path={} error={}", path, error.message());
  }

  const WorkerDescriberOptions options_;
  std::stop_source stop_;
};

}  // namespace

std::unique_ptr<ModelDescriber> MakeWorkerDescriber(const WorkerDescriberOptions& options) {
  return std::make_unique<WorkerDescriber>(options);
}

}  // namespace tessera::scheduler
