#include "worker/data/prepare.h"

#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/data/shard_writer.h"
#include "worker/data/text_file.h"
#include "worker/data/tokenizer.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBlockBytes = 64 << 10;
constexpr int64_t kTrainingBytes = 16 << 20;  // of text that bpe learns from, evenly spread
constexpr uintmax_t kReadBytes = 64 << 20;    // up to these an input is read to be recognised
constexpr char kDatasetFile[] = "dataset.json";

absl::Status Check(const PrepareOptions& options) {
  if (options.inputs.empty()) return absl::InvalidArgumentError("--input: name at least one text");
  if (options.output.empty()) return absl::InvalidArgumentError("--out: name a folder");
  if (options.tokenizer != "byte" && options.tokenizer != "bpe") {
    return absl::InvalidArgumentError(
        absl::StrCat("--tokenizer: '", options.tokenizer, "' is neither byte nor bpe"));
  }
  if (options.tokenizer == "bpe" && options.vocab_size < 300) {
    return absl::InvalidArgumentError(absl::StrCat("--vocab-size: ", options.vocab_size,
                                                   "; bytes and special tokens take 259, give at least 300"));
  }
  if (!(options.validation_fraction >= 0 && options.validation_fraction <= 0.5)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--validation-fraction: ", options.validation_fraction, " is outside [0, 0.5]"));
  }
  if (options.shard_tokens < 1 || options.shard_tokens > kLargestShard) {
    return absl::InvalidArgumentError(
        absl::StrCat("--shard-tokens: ", options.shard_tokens, " is outside [1, ", kLargestShard, "]"));
  }
  return absl::OkStatus();
}

// All inputs as one sequence of lines.
class InputLines {
 public:
  explicit InputLines(const std::vector<std::string>& paths) : paths_(paths) {}

  // Empty at the end.
  absl::StatusOr<std::string_view> Next() {
    while (true) {
      if (reader_ == nullptr) {
        if (next_ == paths_.size()) return std::string_view();
        TESSERA_ASSIGN_OR_RETURN(reader_, TextReader::Open(paths_[next_++]));
        started_file_ = true;
      }
      TESSERA_ASSIGN_OR_RETURN(const std::string_view line, reader_->NextLine());
      if (!line.empty()) return line;
      reader_.reset();
    }
  }
  // True once after an input other than the first was opened.
  bool TakeDocumentStart() { return std::exchange(started_file_, false) && next_ > 1; }

 private:
  const std::vector<std::string>& paths_;
  size_t next_ = 0;
  bool started_file_ = false;
  std::unique_ptr<TextReader> reader_;
};

// Passes on share values only when they moved by half a percent.
class Meter {
 public:
  Meter(const PrepareProgress& progress, std::string phase, int64_t total)
      : progress_(progress), phase_(std::move(phase)), total_(std::max<int64_t>(total, 1)) {}
  void Add(int64_t bytes) {
    done_ += bytes;
    const int64_t now = done_ * 200 / total_;
    if (now == told_ || !progress_) return;
    told_ = now;
    progress_(phase_, static_cast<double>(done_) / static_cast<double>(total_));
  }

 private:
  const PrepareProgress& progress_;
  const std::string phase_;
  const int64_t total_;
  int64_t done_ = 0, told_ = -1;
};

absl::StatusOr<int64_t> CountBytes(const PrepareOptions& options) {
  InputLines lines(options.inputs);
  int64_t total = 0;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const std::string_view line, lines.Next());
    if (line.empty()) return total;
    total += static_cast<int64_t>(line.size());
  }
}

absl::StatusOr<std::unique_ptr<Tokenizer>> LearnTokenizer(const PrepareOptions& options, int64_t total,
                                                          const PrepareProgress& progress) {
  InputLines lines(options.inputs);
  Meter meter(progress, "reading text to learn from", total);
  absl::Status status;
  const double share =
      std::min(1.0, static_cast<double>(kTrainingBytes) / static_cast<double>(std::max<int64_t>(total, 1)));
  double owed = 0;  // bytes that should have been taken so far
  auto tokenizer = TrainBpeTokenizer(
      [&](std::string* out) {
        while (true) {
          auto line = lines.Next();
          if (!line.ok()) status = line.status();
          if (!line.ok() || line->empty()) return false;
          meter.Add(static_cast<int64_t>(line->size()));
          owed += share * static_cast<double>(line->size());
          std::string_view text = *line;
          if (text.ends_with('\n')) text.remove_suffix(1);
          if (owed < static_cast<double>(line->size()) * 0.5 || text.empty()) continue;
          owed -= static_cast<double>(line->size());
          out->assign(text);
          return true;
        }
      },
      options.vocab_size);
  if (!status.ok()) return status;
  return tokenizer;
}

// Which blocks are validation, and how long a block is.
struct Split {
  int64_t block_bytes = kBlockBytes;
  int64_t every = 0;  // 0: none

  static Split Of(double fraction, int64_t total) {
    Split split;
    if (fraction <= 0) return split;
    split.every = std::max<int64_t>(2, std::llround(1 / fraction));
    // A short text still gets a few blocks of validation.
    split.block_bytes = std::clamp<int64_t>(total / (split.every * 4), 1, kBlockBytes);
    return split;
  }
  bool IsValidation(int64_t block) const { return every > 0 && block % every == every / 2; }
};

absl::Status Encode(const PrepareOptions& options, int64_t total, const Tokenizer& tokenizer,
                    ShardWriter& train, ShardWriter& validation, const PrepareProgress& progress) {
  const Split split = Split::Of(options.validation_fraction, total);
  InputLines lines(options.inputs);
  Meter meter(progress, "encoding", total);
  int64_t position = 0, block = 0, block_start = 0;
  while (true) {
    TESSERA_ASSIGN_OR_RETURN(const std::string_view line, lines.Next());
    if (line.empty()) break;
    if (position - block_start >= split.block_bytes) {
      ++block;
      block_start = position;
    }
    ShardWriter& writer = split.IsValidation(block) ? validation : train;
    // A byte shard holds bytes only: its documents follow one another as they are.
    if (lines.TakeDocumentStart() && tokenizer.kind() != "byte") {
      const int32_t end = tokenizer.end_token();
      TESSERA_RETURN_IF_ERROR(writer.Append({&end, 1}));
    }
    TESSERA_RETURN_IF_ERROR(writer.Append(tokenizer.Encode(line)));
    position += static_cast<int64_t>(line.size());
    meter.Add(static_cast<int64_t>(line.size()));
  }
  TESSERA_RETURN_IF_ERROR(train.Finish());
  return validation.Finish();
}

// A small text is known by its content: Kubernetes writes that of a ConfigMap anew for each pod. A large one
// by when it changed, for reading it takes as long as preparing it.
absl::StatusOr<nlohmann::ordered_json> Identity(const std::string& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return absl::NotFoundError(absl::StrCat("--input: ", path, ": ", error.message()));
  nlohmann::ordered_json input = {{"path", fs::absolute(path).string()}, {"bytes", size}};
  if (size > kReadBytes) {
    input["changed"] = fs::last_write_time(path, error).time_since_epoch().count();
    return input;
  }
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (text.size() != size) return absl::UnavailableError(absl::StrCat("--input: ", path, " can't be read"));
  input["crc32"] = ::crc32(0, reinterpret_cast<const Bytef*>(text.data()), static_cast<uInt>(text.size()));
  return input;
}

// What the dataset is made from: equal recipes give equal datasets.
absl::StatusOr<nlohmann::ordered_json> Recipe(const PrepareOptions& options) {
  nlohmann::ordered_json inputs = nlohmann::ordered_json::array();
  for (const std::string& path : options.inputs) {
    TESSERA_ASSIGN_OR_RETURN(nlohmann::ordered_json input, Identity(path));
    inputs.push_back(std::move(input));
  }
  nlohmann::ordered_json recipe = {{"inputs", inputs},
                                   {"tokenizer", options.tokenizer},
                                   {"validation_fraction", options.validation_fraction},
                                   {"shard_tokens", options.shard_tokens}};
  if (options.tokenizer == "bpe") recipe["vocab_size"] = options.vocab_size;
  return recipe;
}

// Set when the folder holds this very dataset; AlreadyExists when it holds anything else.
absl::StatusOr<PrepareReport> LookAtOutput(const std::string& output, const nlohmann::ordered_json& recipe) {
  PrepareReport report;
  std::error_code error;
  if (!fs::exists(output, error) || (fs::is_directory(output, error) && fs::is_empty(output, error)))
    return report;
  const auto text = ReadTextFile(absl::StrCat(output, "/", kDatasetFile));
  const auto manifest = text.ok() ? nlohmann::ordered_json::parse(*text, nullptr, /*allow_exceptions=*/false)
                                  : nlohmann::ordered_json();
  if (!manifest.is_object() || manifest.value("recipe", nlohmann::ordered_json()) != recipe) {
    return absl::AlreadyExistsError(absl::StrCat(output,
                                                 manifest.is_object()
                                                     ? " holds a dataset made from other inputs or options"
                                                     : " exists and is no dataset",
                                                 "; name another folder or remove this one"));
  }
  report.already_there = true;
  report.text_bytes = manifest.value("text_bytes", int64_t{0});
  report.train_tokens = manifest.value("train_tokens", int64_t{0});
  report.validation_tokens = manifest.value("validation_tokens", int64_t{0});
  report.vocab_size = manifest.value("vocab_size", int64_t{0});
  return report;
}

absl::StatusOr<PrepareReport> Fill(const PrepareOptions& options, const nlohmann::ordered_json& recipe,
                                   const std::string& folder, const PrepareProgress& progress) {
  PrepareReport report;
  TESSERA_ASSIGN_OR_RETURN(report.text_bytes, CountBytes(options));
  if (report.text_bytes == 0) return absl::InvalidArgumentError("--input: the texts are empty");
  std::unique_ptr<Tokenizer> tokenizer = MakeByteTokenizer();
  if (options.tokenizer == "bpe") {
    TESSERA_ASSIGN_OR_RETURN(tokenizer, LearnTokenizer(options, report.text_bytes, progress));
  }
  report.vocab_size = tokenizer->vocab_size();
  const ShardFormat& format = options.tokenizer == "byte"                     ? kByteShard
                              : report.vocab_size <= kGpt2Shard.max_token + 1 ? kGpt2Shard
                                                                              : kLlama3Shard;
  ShardWriter train(folder, "train", format, options.shard_tokens);
  ShardWriter validation(folder, "validation", format, options.shard_tokens);
  TESSERA_RETURN_IF_ERROR(Encode(options, report.text_bytes, *tokenizer, train, validation, progress));
  report.train_tokens = train.tokens();
  report.validation_tokens = validation.tokens();
  TESSERA_RETURN_IF_ERROR(tokenizer->Save(folder));
  const nlohmann::ordered_json manifest = {{"format", "tessera-tokens"},
                                           {"version", 1},
                                           {"recipe", recipe},
                                           {"text_bytes", report.text_bytes},
                                           {"train_tokens", report.train_tokens},
                                           {"validation_tokens", report.validation_tokens},
                                           {"vocab_size", report.vocab_size}};
  TESSERA_RETURN_IF_ERROR(WriteTextFile(absl::StrCat(folder, "/", kDatasetFile), manifest.dump(2) + "\n"));
  return report;
}

}  // namespace

absl::StatusOr<PrepareReport> PrepareTokens(const PrepareOptions& options, const PrepareProgress& progress) {
  TESSERA_RETURN_IF_ERROR(Check(options));
  TESSERA_ASSIGN_OR_RETURN(const auto recipe, Recipe(options));
  TESSERA_ASSIGN_OR_RETURN(const PrepareReport there, LookAtOutput(options.output, recipe));
  if (there.already_there) return there;

  std::string output = fs::absolute(options.output).lexically_normal();
  while (output.size() > 1 && output.back() == '/') output.pop_back();
  const std::string partial =
      absl::StrCat(output, ".partial-", absl::Hex(std::random_device()(), absl::kZeroPad8));
  std::error_code error;
  fs::create_directories(partial, error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot create ", partial, ": ", error.message()));
  auto report = Fill(options, recipe, partial, progress);
  if (report.ok()) {
    fs::rename(partial, output, error);  // replaces an empty folder, never a full one
    if (error) {
      report = absl::UnavailableError(absl::StrCat("cannot rename to ", output, ": ", error.message()));
      // Another process, or pod, may have prepared the same meanwhile.
      const auto others = LookAtOutput(options.output, recipe);
      if (others.ok() && others->already_there) report = others;
    }
  }
  std::error_code ignored;
  if (!report.ok() || report->already_there) fs::remove_all(partial, ignored);
  return report;
}

}  // namespace tessera::worker
