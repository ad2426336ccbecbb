// Files that are there whole after a crash or not at all, on POSIX file systems.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "worker/checkpoint/crc32c.h"

namespace tessera::worker {

// Errors name path and cause: NotFound, PermissionDenied, otherwise FailedPrecondition, never
// Unavailable or ResourceExhausted, which stand for peers and memory. ENOSPC says what to do.
absl::Status FileError(const std::string& what, const std::string& path, int error);

absl::StatusOr<std::string> ReadWholeFile(const std::string& path);
absl::StatusOr<FileDigest> Digest(const std::string& path);
// Written and flushed.
absl::Status WriteDurably(const std::string& path, const std::string& text);
absl::Status SyncDirectory(const std::string& path);
// Puts folder `made` in the place of `path`, at no time without a whole one there if there was one, and
// flushes their parent; what was there is removed. Both lie in one folder.
absl::Status PutInPlace(const std::string& made, const std::string& path);

}  // namespace tessera::worker
