// Small whole files, and large texts (plain, gzip or dictzip) line by line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::worker {

absl::StatusOr<std::string> ReadTextFile(const std::string& path);
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// Decompresses gzip on the way; any other file is read as it is. Memory stays bounded.
class TextReader {
 public:
  // A name that ends in .jsonl or .jsonl.gz: JSON objects, one a line, whose field "text" is read.
  static absl::StatusOr<std::unique_ptr<TextReader>> Open(const std::string& path);
  virtual ~TextReader() = default;
  // The next line with its newline, or at most 64 KiB of a longer one; empty at the end. DataLoss:
  // the file is damaged or cut short, or a line is no JSON object with a text: its number is named.
  virtual absl::StatusOr<std::string_view> NextLine() = 0;
};

}  // namespace tessera::worker
