// The service's certificate and key, read again when their files change. Thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "boost/asio/ssl/context.hpp"

namespace tessera::services {

class TlsFiles {
 public:
  // PEM files; the certificate's may go on with those that signed it. InvalidArgument names the file that
  // can't be used; PermissionDenied when others may read the key.
  static absl::StatusOr<std::shared_ptr<TlsFiles>> Open(const std::string& certificate,
                                                        const std::string& key);

  // For a new connection. Files that changed but can't be used are logged, and the last good ones stay.
  std::shared_ptr<boost::asio::ssl::context> Current(absl::Time now);
  const std::string& certificate() const { return certificate_; }
  const std::string& key() const { return key_; }

 private:
  TlsFiles(std::string certificate, std::string key)
      : certificate_(std::move(certificate)), key_(std::move(key)) {}

  const std::string certificate_;
  const std::string key_;
  absl::Mutex mutex_;
  std::shared_ptr<boost::asio::ssl::context> context_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_
      ABSL_GUARDED_BY(mutex_);  // of the files that context_ was made from, or that were refused
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace tessera::services
