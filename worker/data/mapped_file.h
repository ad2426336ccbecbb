// A file mapped read-only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace tessera::worker {

class MappedFile {
 public:
  // NotFound, PermissionDenied or Unavailable with the path.
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  const std::string& path() const { return path_; }
  std::span<const uint8_t> bytes() const { return {static_cast<const uint8_t*>(data_), size_}; }
  // Takes what was read, and what the system mapped around it, out of this process's resident memory; it
  // stays in the system's cache, and may be read again. Without it a long run is resident with all its data.
  void Release() const;

 private:
  MappedFile(std::string path, void* data, size_t size) : path_(std::move(path)), data_(data), size_(size) {}
  const std::string path_;
  void* data_;
  size_t size_;
};

}  // namespace tessera::worker
