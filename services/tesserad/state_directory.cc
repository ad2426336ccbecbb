#include "services/tesserad/state_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"

namespace tessera::services {
namespace {

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

int PortIn(const nlohmann::json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return 0;
  const std::string address = json[key];
  int port = 0;
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return 0;
  return port > 0 && port < 65536 ? port : 0;
}

}  // namespace

absl::StatusOr<StateDirectory> StateDirectory::Open(const std::string& path) {
  std::error_code error;
  const std::string absolute = std::filesystem::absolute(path, error).lexically_normal().string();
  const bool created = std::filesystem::create_directories(absolute, error);
  if (error)
    return absl::FailedPreconditionError(absl::StrCat("cannot create ", absolute, ": ", error.message()));
  if (created) ::chmod(absolute.c_str(), 0700);
  const std::string lock_file = absolute + "/tesserad.lock";
  // Not inherited by workers: they outlive the daemon and must not keep its lock.
  const int lock = ::open(lock_file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", lock_file));
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    const std::vector<std::string> lines = absl::StrSplit(ReadAll(lock_file), '\n');
    return absl::FailedPreconditionError(
        absl::StrCat("another tesserad uses ", absolute, ": process ", lines[0]));
  }
  const std::string pid = absl::StrCat(::getpid(), "\n");
  if (::ftruncate(lock, 0) != 0 ||
      ::pwrite(lock, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size())) {
    absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", lock_file));
    ::close(lock);
    return status;
  }
  return StateDirectory(absolute, lock);
}

StateDirectory::StateDirectory(StateDirectory&& other) noexcept : path_(other.path_), lock_(other.lock_) {
  other.lock_ = -1;
}

StateDirectory::~StateDirectory() {
  if (lock_ >= 0) ::close(lock_);
}

EndpointFile StateDirectory::LastEndpoint() const {
  const auto json = nlohmann::json::parse(ReadAll(endpoint_file()), nullptr, /*allow_exceptions=*/false);
  EndpointFile endpoint;
  endpoint.grpc_port = PortIn(json, "grpc");
  endpoint.rest_port = PortIn(json, "rest");
  return endpoint;
}

absl::Status StateDirectory::WriteEndpoint(const EndpointFile& endpoint) const {
  const nlohmann::ordered_json json = {
      {"grpc", absl::StrCat(endpoint.host, ":", endpoint.grpc_port)},
      {"rest", absl::StrCat("http://", endpoint.host, ":", endpoint.rest_port)},
      {"pid", ::getpid()},
      {"tokenFile", endpoint.token_file},
      {"version", TESSERA_VERSION}};
  const std::string text = json.dump(2) + "\n";
  const std::string temporary = endpoint_file() + ".new";
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", temporary));
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  ::close(fd);
  if (!written || ::rename(temporary.c_str(), endpoint_file().c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", endpoint_file()));
  }
  return absl::OkStatus();
}

}  // namespace tessera::services
