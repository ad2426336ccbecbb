#include "services/auth/token.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "services/auth/private_file.h"

namespace tessera::services {
namespace {

constexpr size_t kTokenBytes = 32;

absl::Status FileError(const std::string& path, const char* doing) {
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot ", doing, " the token file ", path));
}

absl::StatusOr<std::string> ReadToken(int fd, const std::string& path) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return FileError(path, "look at");
  if (!IsPrivate(info, ::geteuid())) {
    return absl::PermissionDeniedError(
        absl::StrCat("token file ", path, " can be read by others; chmod 600 it"));
  }
  char buffer[4096];
  const ssize_t length = ::read(fd, buffer, sizeof buffer);
  if (length < 0) return FileError(path, "read");
  std::string token(absl::StripAsciiWhitespace(absl::string_view(buffer, static_cast<size_t>(length))));
  if (token.size() < kTokenBytes) {
    return absl::DataLossError(
        absl::StrCat("token file ", path, " holds no token; remove it to get a new one"));
  }
  return token;
}

}  // namespace

absl::StatusOr<std::string> LoadOrCreateToken(const std::string& path) {
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    auto token = ReadToken(fd, path);
    ::close(fd);
    return token;
  }
  if (errno != ENOENT) return FileError(path, "open");
  unsigned char random[kTokenBytes];
  if (RAND_bytes(random, sizeof random) != 1) return absl::InternalError("no randomness for a token");
  std::string token =
      absl::BytesToHexString(absl::string_view(reinterpret_cast<const char*>(random), sizeof random));
  // Complete under another name first: a reader sees the whole token or no file.
  const std::string temporary = absl::StrCat(path, ".", ::getpid());
  fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return FileError(path, "create");
  const std::string line = token + "\n";
  const bool written =
      ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && ::fsync(fd) == 0;
  ::close(fd);
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) {
    absl::Status status = FileError(path, "write");
    ::unlink(temporary.c_str());
    return status;
  }
  return token;
}

bool ConstantTimeEquals(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view BearerToken(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() <= kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    if (absl::ascii_tolower(authorization[i]) != kScheme[i]) return {};
  }
  authorization.remove_prefix(kScheme.size());
  while (!authorization.empty() && authorization.front() == ' ') authorization.remove_prefix(1);
  return authorization;
}

absl::Status CheckBearer(std::string_view authorization, std::string_view expected) {
  const std::string_view token = BearerToken(authorization);
  if (token.empty()) {
    return absl::UnauthenticatedError(
        "no token: send `Authorization: Bearer <token>`; it stands in the service's token file");
  }
  if (expected.empty() || !ConstantTimeEquals(token, expected))
    return absl::UnauthenticatedError("the token is wrong");
  return absl::OkStatus();
}

}  // namespace tessera::services
