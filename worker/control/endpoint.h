// Where the scheduler is, and the credentials to speak to it. Pure but for reading the named files.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tessera::worker {

// "host:port" as it is; "file:<path>": the value of "grpc" in that JSON file, read anew.
absl::StatusOr<std::string> ResolveScheduler(const std::string& scheduler);

// Without surrounding white space. Empty path: empty token.
absl::StatusOr<std::string> ReadToken(const std::string& path);

// Of "127.0.0.1:80", "localhost:80", "[::1]:80".
bool IsLoopback(const std::string& address);

}  // namespace tessera::worker
