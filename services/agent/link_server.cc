#include "services/agent/link_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "services/agent/probe_socket.h"

namespace tessera::agent {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(30);  // with a silent peer
constexpr uint64_t kMostPings = 10'000;

absl::Status Answer(ProbeSocket& socket, char command, uint64_t number) {
  if (command == 'P' && number <= kMostPings) {
    for (uint64_t i = 0; i < number; ++i) {
      TESSERA_ASSIGN_OR_RETURN(const uint64_t ping, socket.ReceiveNumber());
      TESSERA_RETURN_IF_ERROR(socket.SendNumber(ping));
    }
    return absl::OkStatus();
  }
  const auto bytes = static_cast<int64_t>(std::min<uint64_t>(number, kMostBurstBytes + 1));
  if (bytes > kMostBurstBytes || (command != 'S' && command != 'R')) {
    return absl::InvalidArgumentError("not the language of link probes");
  }
  if (command == 'R') return socket.SendBurst(bytes);
  TESSERA_ASSIGN_OR_RETURN(const absl::Duration took, socket.ReceiveBurst(bytes));
  return socket.SendNumber(static_cast<uint64_t>(absl::ToInt64Nanoseconds(took)));
}

absl::Status Failed(const std::string& what) {
  return absl::UnavailableError(
      absl::StrCat(what, ": ", std::error_code(errno, std::generic_category()).message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<LinkServer>> LinkServer::Start(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  if (port < 0 || port > 65535 || ::inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", host, ":", port, "' is no IPv4 address with a port from 0 to 65535"));
  }
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return Failed("socket");
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  socklen_t size = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener, kMostProbes) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    absl::Status status = Failed(absl::StrCat("listen on ", host, ":", port));
    ::close(listener);
    return status;
  }
  auto server = std::unique_ptr<LinkServer>(new LinkServer(listener, ntohs(address.sin_port)));
  server->thread_ = std::thread([raw = server.get()] { raw->Accept(); });
  return server;
}

LinkServer::~LinkServer() {
  stopping_ = true;
  ::shutdown(listener_, SHUT_RDWR);  // wakes the accepting thread
  thread_.join();
  std::vector<std::thread> probes;
  {
    absl::MutexLock lock(&mutex_);
    for (int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    probes = std::move(probes_);
  }
  for (std::thread& probe : probes) probe.join();
  ::close(listener_);
}

void LinkServer::Accept() {
  while (!stopping_) {
    pollfd waiting{.fd = listener_, .events = POLLIN, .revents = 0};
    if (::poll(&waiting, 1, -1) < 0 && errno != EINTR) return;
    const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket < 0) continue;
    absl::MutexLock lock(&mutex_);
    if (stopping_ || sockets_.size() >= kMostProbes) {
      ::close(socket);
      continue;
    }
    if (sockets_.empty()) {  // none of them runs any more
      for (std::thread& probe : probes_) probe.join();
      probes_.clear();
    }
    sockets_.push_back(socket);
    probes_.emplace_back([this, socket] { Serve(socket); });
  }
}

void LinkServer::Serve(int fd) {
  {
    ProbeSocket socket(::dup(fd));
    absl::Status status = socket.SetTimeout(kPatience);
    while (status.ok()) {
      char command = 0;
      status = socket.ReceiveAll(&command, 1);
      if (!status.ok()) break;
      const absl::StatusOr<uint64_t> number = socket.ReceiveNumber();
      status = number.ok() ? Answer(socket, command, *number) : number.status();
    }
  }
  absl::MutexLock lock(&mutex_);
  ::shutdown(fd, SHUT_RDWR);
  ::close(fd);
  std::erase(sockets_, fd);
}

}  // namespace tessera::agent
