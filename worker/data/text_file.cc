#include "worker/data/text_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::worker {
namespace {

constexpr size_t kLongestLine = 64 << 10;
constexpr unsigned kBuffer = 1 << 20;

absl::Status FileError(const char* what, const std::string& path) {
  const std::string message = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno));
  if (errno == ENOENT) return absl::NotFoundError(message);
  if (errno == ENOSPC) return absl::ResourceExhaustedError(message);
  return errno == EACCES ? absl::PermissionDeniedError(message) : absl::UnavailableError(message);
}

// zlib's own gz functions read plain files as they are, and dictzip as gzip with an extra header field.
class ZlibReader final : public TextReader {
 public:
  ZlibReader(std::string path, gzFile file) : path_(std::move(path)), file_(file), line_(kLongestLine + 1) {}
  ~ZlibReader() override { gzclose(file_); }

  absl::StatusOr<std::string_view> NextLine() override {
    size_t size = 0;
    while (size < kLongestLine) {
      if (next_ == end_) {
        const int got = gzread(file_, buffer_.data(), kBuffer);
        int code = Z_OK;
        const char* message = gzerror(file_, &code);
        // A gzip that ends early is only reported by the error code: gzread returns what there was.
        if (got < 0 || code == Z_BUF_ERROR) {
          return absl::DataLossError(
              absl::StrCat(path_, ": ", code == Z_ERRNO ? std::strerror(errno) : message));
        }
        if (got == 0) break;
        next_ = buffer_.data();
        end_ = next_ + got;
      }
      const size_t room = std::min(kLongestLine - size, static_cast<size_t>(end_ - next_));
      const char* newline = static_cast<const char*>(std::memchr(next_, '\n', room));
      const size_t count = newline == nullptr ? room : static_cast<size_t>(newline - next_) + 1;
      std::memcpy(line_.data() + size, next_, count);
      next_ += count;
      size += count;
      if (newline != nullptr) break;
    }
    return std::string_view(line_.data(), size);
  }

 private:
  const std::string path_;
  gzFile file_;
  std::vector<char> buffer_ = std::vector<char>(kBuffer);
  std::vector<char> line_;
  const char* next_ = nullptr;
  const char* end_ = nullptr;
};

// The texts of JSON lines, each ended by a newline.
class JsonLinesReader final : public TextReader {
 public:
  JsonLinesReader(std::string path, std::unique_ptr<TextReader> lines)
      : path_(std::move(path)), lines_(std::move(lines)) {}

  absl::StatusOr<std::string_view> NextLine() override {
    std::string line;
    do {  // a long line comes in parts
      TESSERA_ASSIGN_OR_RETURN(const std::string_view part, lines_->NextLine());
      if (part.empty()) break;
      line.append(part);
    } while (line.back() != '\n');
    ++number_;
    if (line.empty()) return std::string_view();
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object() || !json.contains("text") || !json["text"].is_string()) {
      return absl::DataLossError(
          absl::StrCat(path_, ": line ", number_, " is no JSON object with a field \"text\""));
    }
    text_ = json["text"].get<std::string>() + "\n";
    return text_;
  }

 private:
  const std::string path_;
  const std::unique_ptr<TextReader> lines_;
  std::string text_;
  int64_t number_ = 0;
};

// By what it begins with: as text its bytes would be trained on without a complaint.
bool IsParquet(const std::string& path) {
  constexpr std::string_view kMagic = "PAR1";
  char head[kMagic.size()] = {};
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  const size_t got = std::fread(head, 1, sizeof(head), file);
  std::fclose(file);
  return std::string_view(head, got) == kMagic;
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return FileError("open", path);
  std::string text;
  char buffer[1 << 16];
  for (size_t got; (got = std::fread(buffer, 1, sizeof(buffer), file)) > 0;) text.append(buffer, got);
  const bool failed = std::ferror(file) != 0;
  std::fclose(file);
  if (failed) return FileError("read", path);
  return text;
}

absl::Status WriteTextFile(const std::string& path, std::string_view text) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return FileError("create", path);
  const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = std::fclose(file) == 0;
  return written && closed ? absl::OkStatus() : FileError("write", path);
}

absl::StatusOr<std::unique_ptr<TextReader>> TextReader::Open(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder, not a text"));
  }
  if (IsParquet(path)) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " is a Parquet file, which is not read here; make JSON lines of it first, for example by python3 -c "
        "\"import pandas; pandas.read_parquet('",
        path,
        "')[['text']].to_json('texts.jsonl', "
        "orient='records', lines=True)\", and give texts.jsonl"));
  }
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return FileError("open", path);
  gzbuffer(file, kBuffer);
  auto reader = std::make_unique<ZlibReader>(path, file);
  if (!absl::EndsWith(path, ".jsonl") && !absl::EndsWith(path, ".jsonl.gz")) return reader;
  return std::make_unique<JsonLinesReader>(path, std::move(reader));
}

}  // namespace tessera::worker
