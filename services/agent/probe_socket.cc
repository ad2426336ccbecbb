#include "services/agent/probe_socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <memory>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace tessera::agent {
namespace {

constexpr size_t kChunk = 64 << 10;

absl::Status Broken(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK) {
    return absl::DeadlineExceededError(absl::StrCat(what, ": the peer is silent"));
  }
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::error_code(errno, std::generic_category()).message()));
}

}  // namespace

ProbeSocket::~ProbeSocket() {
  if (fd_ >= 0) ::close(fd_);
}

absl::StatusOr<ProbeSocket> ProbeSocket::Connect(const std::string& address, absl::Duration timeout) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("address: '", address, "'; must be host:port"));
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
      error != 0) {
    return absl::UnavailableError(absl::StrCat(address, ": ", ::gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> all(found, ::freeaddrinfo);
  absl::Status status = absl::UnavailableError(absl::StrCat(address, ": no address"));
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    ProbeSocket socket(::socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (socket.fd() < 0) continue;
    TESSERA_RETURN_IF_ERROR(socket.SetTimeout(timeout));  // Linux: of connecting, too
    if (::connect(socket.fd(), at->ai_addr, at->ai_addrlen) == 0) return socket;
    status = Broken(address.c_str());
  }
  return status;
}

absl::Status ProbeSocket::SetTimeout(absl::Duration timeout) {
  const timeval limit = absl::ToTimeval(timeout);
  const int on = 1;
  if (::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
      ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0 ||
      ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0) {
    return Broken("socket options");
  }
  return absl::OkStatus();
}

absl::Status ProbeSocket::SendAll(const void* data, size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = ::send(fd_, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return Broken("send");
    at += sent;
    bytes -= static_cast<size_t>(sent);
  }
  return absl::OkStatus();
}

absl::Status ProbeSocket::ReceiveAll(void* data, size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = ::recv(fd_, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) return absl::UnavailableError("receive: the peer closed the connection");
    if (got < 0) return Broken("receive");
    at += got;
    bytes -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status ProbeSocket::SendNumber(uint64_t number) {
  std::array<unsigned char, 8> bytes;
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<unsigned char>(number >> (56 - 8 * i));
  return SendAll(bytes.data(), bytes.size());
}

absl::StatusOr<uint64_t> ProbeSocket::ReceiveNumber() {
  std::array<unsigned char, 8> bytes;
  TESSERA_RETURN_IF_ERROR(ReceiveAll(bytes.data(), bytes.size()));
  uint64_t number = 0;
  for (unsigned char byte : bytes) number = number << 8 | byte;
  return number;
}

absl::Status ProbeSocket::SendBurst(int64_t bytes) {
  const std::vector<char> chunk(kChunk, 't');
  while (bytes > 0) {
    const auto now = static_cast<size_t>(std::min<int64_t>(bytes, kChunk));
    TESSERA_RETURN_IF_ERROR(SendAll(chunk.data(), now));
    bytes -= static_cast<int64_t>(now);
  }
  return absl::OkStatus();
}

absl::StatusOr<absl::Duration> ProbeSocket::ReceiveBurst(int64_t bytes) {
  std::vector<char> chunk(kChunk);
  const auto receive = [&](int64_t count) -> absl::Status {
    while (count > 0) {
      const auto now = static_cast<size_t>(std::min<int64_t>(count, kChunk));
      TESSERA_RETURN_IF_ERROR(ReceiveAll(chunk.data(), now));
      count -= static_cast<int64_t>(now);
    }
    return absl::OkStatus();
  };
  TESSERA_RETURN_IF_ERROR(receive(bytes / 4));
  const auto start = std::chrono::steady_clock::now();
  TESSERA_RETURN_IF_ERROR(receive(bytes - bytes / 4));
  return absl::FromChrono(std::chrono::steady_clock::now() - start);
}

}  // namespace tessera::agent
