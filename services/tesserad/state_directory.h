// The folder a daemon works in: one daemon at a time, 0700, and the file that tells
// clients and workers where it listens.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tessera::services {

struct EndpointFile {
  std::string host = "127.0.0.1";
  int grpc_port = 0;
  int rest_port = 0;
  std::string token_file;
};

class StateDirectory {
 public:
  // Creates and locks it. FailedPrecondition when another daemon has it, with its pid.
  static absl::StatusOr<StateDirectory> Open(const std::string& path);
  StateDirectory(StateDirectory&& other) noexcept;
  StateDirectory& operator=(StateDirectory&&) = delete;
  ~StateDirectory();  // unlocks; the endpoint file stays, for the ports

  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  std::string endpoint_file() const { return File("endpoint.json"); }

  // The ports of the last run; 0 where unknown.
  EndpointFile LastEndpoint() const;
  // Replaces the file as a whole, 0600.
  absl::Status WriteEndpoint(const EndpointFile& endpoint) const;

 private:
  StateDirectory(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  const std::string path_;
  int lock_;
};

}  // namespace tessera::services
