// A blocking TCP socket with time limits, for link probes.
//
// The probe's language, every number 8 bytes in network order:
//   'P' n          n pings follow: each 8 bytes that come back
//   'S' n          n bytes follow; then the nanoseconds from a quarter of them to the last come back
//   'R' n          n bytes come back
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tessera::agent {

class ProbeSocket {
 public:
  explicit ProbeSocket(int fd) : fd_(fd) {}
  ProbeSocket(ProbeSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ProbeSocket& operator=(ProbeSocket&&) = delete;
  ~ProbeSocket();

  static absl::StatusOr<ProbeSocket> Connect(const std::string& address, absl::Duration timeout);

  int fd() const { return fd_; }
  absl::Status SetTimeout(absl::Duration timeout);
  absl::Status SendAll(const void* data, size_t bytes);
  absl::Status ReceiveAll(void* data, size_t bytes);
  absl::Status SendNumber(uint64_t number);
  absl::StatusOr<uint64_t> ReceiveNumber();
  absl::Status SendBurst(int64_t bytes);  // of any content
  // Time from a quarter of `bytes` to the last of them: the first quarter fills the queues on the way.
  absl::StatusOr<absl::Duration> ReceiveBurst(int64_t bytes);

 private:
  int fd_;
};

}  // namespace tessera::agent
