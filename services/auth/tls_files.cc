#include "services/auth/tls_files.h"

#include <openssl/ssl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/auth/file_stamp.h"
#include "services/auth/private_file.h"
#include "spdlog/spdlog.h"

namespace tessera::services {
namespace {

namespace ssl = boost::asio::ssl;

constexpr absl::Duration kLookAgain = absl::Seconds(1);

absl::StatusOr<std::shared_ptr<ssl::context>> Load(const std::string& certificate, const std::string& key) {
  struct stat info;
  if (::stat(key.c_str(), &info) == 0 && !IsPrivate(info, ::geteuid())) {
    return absl::PermissionDeniedError(absl::StrCat("the key ", key, " can be read by others; chmod 600 it"));
  }
  auto context = std::make_shared<ssl::context>(ssl::context::tls_server);
  context->set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                       ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1);
  boost::system::error_code error;
  context->use_certificate_chain_file(certificate, error);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("the certificate ", certificate, " can't be used: ", error.message()));
  }
  context->use_private_key_file(key, ssl::context::pem, error);
  if (error)
    return absl::InvalidArgumentError(absl::StrCat("the key ", key, " can't be used: ", error.message()));
  if (SSL_CTX_check_private_key(context->native_handle()) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("the key ", key, " is not that of ", certificate));
  }
  return context;
}

}  // namespace

absl::StatusOr<std::shared_ptr<TlsFiles>> TlsFiles::Open(const std::string& certificate,
                                                         const std::string& key) {
  auto files = absl::WrapUnique(new TlsFiles(certificate, key));
  auto context = Load(certificate, key);
  if (!context.ok()) return context.status();
  {
    absl::MutexLock lock(&files->mutex_);
    files->context_ = *std::move(context);
    files->stamp_ = absl::StrCat(StampOf(certificate), "/", StampOf(key));
    files->looked_at_ = absl::Now();
  }
  return std::shared_ptr<TlsFiles>(std::move(files));
}

std::shared_ptr<ssl::context> TlsFiles::Current(absl::Time now) {
  absl::MutexLock lock(&mutex_);
  if (now - looked_at_ < kLookAgain) return context_;
  looked_at_ = now;
  std::string stamp = absl::StrCat(StampOf(certificate_), "/", StampOf(key_));
  if (stamp == stamp_) return context_;
  stamp_ = std::move(stamp);
  if (auto context = Load(certificate_, key_); context.ok()) {
    context_ = *std::move(context);
    spdlog::info("event=certificate_changed file={}", certificate_);
  } else {
    spdlog::error("event=certificate_refused error=\"{}\"", std::string(context.status().message()));
  }
  return context_;
}

}  // namespace tessera::services
