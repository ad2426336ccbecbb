#include "worker/data/shard_writer.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"

namespace tessera::worker {

ShardWriter::ShardWriter(std::string folder, std::string kind, const ShardFormat& format,
                         int64_t shard_tokens)
    : folder_(std::move(folder)), kind_(std::move(kind)), format_(format), shard_tokens_(shard_tokens) {}

ShardWriter::~ShardWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

absl::Status ShardWriter::Error(const char* what) const {
  const std::string message = absl::StrCat("cannot ", what, " ", path_, ": ", std::strerror(errno));
  return errno == ENOSPC ? absl::ResourceExhaustedError(message) : absl::UnavailableError(message);
}

absl::Status ShardWriter::Begin() {
  path_ = absl::StrFormat("%s/%s-%05d.bin", folder_, kind_, shards_);
  file_ = std::fopen(path_.c_str(), "wb");
  if (file_ == nullptr) return Error("create");
  const uint8_t header[kShardHeaderBytes] = {};  // filled in by End, which knows the count
  if (std::fwrite(header, 1, sizeof(header), file_) != sizeof(header)) return Error("write");
  ++shards_;
  in_shard_ = 0;
  return absl::OkStatus();
}

absl::Status ShardWriter::End() {
  const int32_t words[3] = {format_.magic, format_.version, static_cast<int32_t>(in_shard_)};
  if (std::fseek(file_, 0, SEEK_SET) != 0 || std::fwrite(words, 1, sizeof(words), file_) != sizeof(words) ||
      std::fflush(file_) != 0 || fsync(fileno(file_)) != 0) {
    return Error("write");
  }
  if (std::fclose(std::exchange(file_, nullptr)) != 0) return Error("close");
  return absl::OkStatus();
}

absl::Status ShardWriter::Append(std::span<const int32_t> tokens) {
  while (!tokens.empty()) {
    if (file_ == nullptr) TESSERA_RETURN_IF_ERROR(Begin());
    const auto part =
        tokens.first(std::min<size_t>(tokens.size(), static_cast<size_t>(shard_tokens_ - in_shard_)));
    const size_t width = static_cast<size_t>(format_.bytes_per_token);
    bytes_.resize(part.size() * width);
    // Little-endian: the low bytes of an id come first in memory.
    for (size_t i = 0; i < part.size(); ++i) std::memcpy(&bytes_[i * width], &part[i], width);
    if (std::fwrite(bytes_.data(), 1, bytes_.size(), file_) != bytes_.size()) return Error("write");
    in_shard_ += static_cast<int64_t>(part.size());
    tokens_ += static_cast<int64_t>(part.size());
    tokens = tokens.subspan(part.size());
    if (in_shard_ == shard_tokens_) TESSERA_RETURN_IF_ERROR(End());
  }
  return absl::OkStatus();
}

absl::Status ShardWriter::Finish() { return file_ == nullptr ? absl::OkStatus() : End(); }

}  // namespace tessera::worker
