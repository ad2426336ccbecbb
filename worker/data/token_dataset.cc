#include "worker/data/token_dataset.h"

#include <torch/types.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>

#include <glob.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "worker/data/mapped_file.h"
#include "worker/data/shard_format.h"

namespace tessera::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "shards are mapped as they are");

struct Shard {
  std::unique_ptr<MappedFile> file;
  int64_t first = 0;  // index of its first token in the whole set
  int64_t count = 0;
};

class ShardedTokens final : public TokenDataset {
 public:
  ShardedTokens(std::vector<Shard> shards, const ShardFormat& format)
      : shards_(std::move(shards)), format_(format) {}

  int64_t tokens() const override { return shards_.back().first + shards_.back().count; }
  int64_t max_token() const override { return format_.max_token; }
  // The last target of a sample is the token after its last input: one more is needed.
  int64_t samples(int64_t length) const override { return length < 1 ? 0 : (tokens() - 1) / length; }

  Batch Read(const std::vector<int64_t>& indices, int64_t length) const override {
    const int64_t rows = static_cast<int64_t>(indices.size());
    Batch batch{at::empty({rows, length}, at::kLong), at::empty({rows, length}, at::kLong), rows * length};
    int64_t* tokens = batch.inputs.mutable_data_ptr<int64_t>();
    int64_t* targets = batch.targets.mutable_data_ptr<int64_t>();
    std::vector<int64_t> window(length + 1);
    for (int64_t row = 0; row < rows; ++row) {
      TESSERA_CHECK(indices[row] >= 0 && indices[row] < samples(length));
      Copy(indices[row] * length, length + 1, window.data());
      std::copy_n(window.data(), length, tokens + row * length);
      std::copy_n(window.data() + 1, length, targets + row * length);
    }
    return batch;
  }

  absl::Status CheckTokens(int64_t vocab_size) const override {
    if (vocab_size > format_.max_token) return absl::OkStatus();
    constexpr int64_t kPart = 1 << 16;
    std::vector<int64_t> part(kPart);
    for (const Shard& shard : shards_) {
      for (int64_t start = 0; start < shard.count; start += kPart) {
        const int64_t count = std::min(kPart, shard.count - start);
        Copy(shard.first + start, count, part.data());
        const auto end = part.begin() + count;
        const auto bad = std::find_if(part.begin(), end, [&](int64_t id) { return id >= vocab_size; });
        if (bad == end) continue;
        const int64_t position = start + (bad - part.begin());
        return absl::OutOfRangeError(absl::StrCat(shard.file->path(), ": token ", *bad, " at offset ",
                                                  kShardHeaderBytes + position * format_.bytes_per_token,
                                                  "; the vocabulary has ", vocab_size));
      }
    }
    return absl::OkStatus();
  }

 private:
  // Tokens [start, start + count) of the whole set; may cross shards.
  void Copy(int64_t start, int64_t count, int64_t* out) const {
    auto shard = std::upper_bound(shards_.begin(), shards_.end(), start,
                                  [](int64_t position, const Shard& s) { return position < s.first; });
    --shard;
    while (count > 0) {
      const int64_t offset = start - shard->first, here = std::min(count, shard->count - offset);
      const uint8_t* data = shard->file->bytes().data() + kShardHeaderBytes;
      switch (format_.bytes_per_token) {
        case 1:
          std::copy_n(data + offset, here, out);
          break;
        case 2:
          std::copy_n(reinterpret_cast<const uint16_t*>(data) + offset, here, out);
          break;
        default:
          std::copy_n(reinterpret_cast<const uint32_t*>(data) + offset, here, out);
          break;
      }
      shard->file->Release();
      start += here;
      out += here;
      count -= here;
      ++shard;
    }
  }

  const std::vector<Shard> shards_;
  const ShardFormat format_;
};

class TokenSamples final : public Dataset {
 public:
  TokenSamples(std::unique_ptr<TokenDataset> tokens, int64_t length)
      : tokens_(std::move(tokens)), length_(length) {}

  int64_t samples() const override { return tokens_->samples(length_); }

  absl::Status Check(const ModelInput& input) const override {
    if (input.task != Task::kNextToken) {
      return absl::InvalidArgumentError("token shards train models that predict the next token");
    }
    const absl::Status status = tokens_->CheckTokens(input.vocab_size);
    return status.ok() ? status : absl::InvalidArgumentError(status.message());
  }

  absl::StatusOr<Batch> Read(std::span<const Sample> samples) const override {
    std::vector<int64_t> indices;
    for (const Sample& sample : samples) indices.push_back(sample.index);
    return tokens_->Read(indices, length_);
  }

 private:
  const std::unique_ptr<TokenDataset> tokens_;
  const int64_t length_;
};

// Of the names in a folder, a few and how many more.
std::string Some(std::vector<std::string> names) {
  constexpr size_t kShown = 5;
  if (names.empty()) return "it is empty";
  std::sort(names.begin(), names.end());
  const size_t more = names.size() > kShown ? names.size() - kShown : 0;
  names.resize(names.size() - more);
  return absl::StrCat("it holds ", absl::StrJoin(names, ", "),
                      more > 0 ? absl::StrCat(" and ", more, " more") : "");
}

absl::StatusOr<std::vector<std::string>> ShardsInFolder(const std::string& folder, DataPart part) {
  std::vector<std::string> names, paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    names.push_back(entry.path().filename());
  }
  if (error) return absl::UnavailableError(absl::StrCat("cannot list ", folder, ": ", error.message()));
  const bool prepared = std::find(names.begin(), names.end(), "dataset.json") != names.end();
  const std::string prefix = !prepared ? "" : part == DataPart::kTraining ? "train-" : "validation-";
  for (const std::string& name : names) {
    if (absl::StartsWith(name, prefix) && absl::EndsWith(name, ".bin")) {
      paths.push_back(std::filesystem::path(folder) / name);
    }
  }
  if (!paths.empty()) return paths;
  return absl::NotFoundError(
      absl::StrCat("no ", prefix, "*.bin in the folder ", folder, "; ", Some(std::move(names))));
}

absl::StatusOr<std::vector<std::string>> Expand(const std::string& pattern, DataPart part) {
  std::vector<std::string> paths;
  std::error_code error;
  if (std::filesystem::is_directory(pattern, error)) {
    TESSERA_ASSIGN_OR_RETURN(paths, ShardsInFolder(pattern, part));
  } else {
    glob_t found;
    if (glob(pattern.c_str(), 0, nullptr, &found) == 0)
      paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
    globfree(&found);
    if (paths.empty()) return absl::NotFoundError(absl::StrCat("no token shard matches ", pattern));
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Checks the header; the shard's `first` is left to the caller.
absl::StatusOr<Shard> OpenShard(const std::string& path, const ShardFormat** format) {
  TESSERA_ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  const auto bytes = file->bytes();
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size < kShardHeaderBytes) {
    return absl::DataLossError(
        absl::StrCat(path, ": ", size, " bytes, a token shard's header alone has ", kShardHeaderBytes));
  }
  int32_t header[3];
  std::memcpy(header, bytes.data(), sizeof(header));
  const ShardFormat* known = nullptr;
  for (const ShardFormat& candidate : kShardFormats) {
    if (candidate.magic == header[0]) known = &candidate;
  }
  if (known == nullptr) {
    return absl::DataLossError(absl::StrCat(path, ": magic ", header[0], " is none of ", kGpt2Shard.magic,
                                            " (GPT-2), ", kLlama3Shard.magic, " (Llama 3), ",
                                            kByteShard.magic, " (bytes); is it a token shard?"));
  }
  if (header[1] != known->version) {
    return absl::DataLossError(absl::StrCat(path, ": version ", header[1], " of magic ", header[0],
                                            "; read is version ", known->version));
  }
  const int64_t count = header[2], expected = kShardHeaderBytes + count * known->bytes_per_token;
  if (count < 0 || size != expected) {
    return absl::DataLossError(absl::StrCat(path, ": says it holds ", count, " tokens, so ", expected,
                                            " bytes are expected, ", size, " found"));
  }
  *format = known;
  return Shard{std::move(file), 0, count};
}

}  // namespace

absl::StatusOr<std::unique_ptr<TokenDataset>> OpenTokenDataset(const std::string& pattern, DataPart part) {
  TESSERA_ASSIGN_OR_RETURN(const std::vector<std::string> paths, Expand(pattern, part));
  std::vector<Shard> shards;
  const ShardFormat* format = nullptr;
  int64_t total = 0;
  for (const std::string& path : paths) {
    const ShardFormat* own = nullptr;
    TESSERA_ASSIGN_OR_RETURN(Shard shard, OpenShard(path, &own));
    if (format != nullptr && own != format) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": magic ", own->magic, ", but ", paths[0],
                                                     " has ", format->magic, "; one dataset has one format"));
    }
    format = own;
    if (shard.count == 0) continue;
    shard.first = total;
    total += shard.count;
    shards.push_back(std::move(shard));
  }
  if (shards.empty()) return absl::InvalidArgumentError(absl::StrCat(pattern, ": its shards hold no tokens"));
  return std::make_unique<ShardedTokens>(std::move(shards), *format);
}

absl::StatusOr<std::unique_ptr<Dataset>> MakeTokenSamples(std::unique_ptr<TokenDataset> tokens,
                                                          int64_t length) {
  if (tokens->samples(length) < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokens->tokens(), " tokens do not make one sample of data.sequence_length = ", length));
  }
  return std::make_unique<TokenSamples>(std::move(tokens), length);
}

}  // namespace tessera::worker
