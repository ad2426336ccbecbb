// The clients' token, read again when its file changes: a new one needs no restart. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace tessera::services {

class ClientToken {
 public:
  // That of a file; errors of LoadOrCreateToken.
  static absl::StatusOr<std::shared_ptr<ClientToken>> Open(const std::string& path);
  explicit ClientToken(std::string token) : token_(std::move(token)) {}  // of no file: never another

  // CheckBearer with the token that is in the file now, looked at once a second. A file that is gone, or that
  // can't be used, is logged, and the last good token stays.
  absl::Status Check(std::string_view authorization, absl::Time now);

 private:
  void LookAgain(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::string path_;  // empty: of no file
  absl::Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_ ABSL_GUARDED_BY(mutex_);  // of the file that token_ was read from, or that was refused
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Who else than the service may say that the bearer of `token` may call `rpc` ("JobService.GetTrainingJob",
// or the name of a plain route; "" for what is not there), and the bearer's name. Unauthenticated,
// PermissionDenied with what is not allowed, Unavailable while it can't be asked. Blocks; any thread.
using TokenReview =
    std::function<absl::StatusOr<std::string>(const std::string& token, const std::string& rpc)>;

// Of whoever shows the service's own token, as all its clients do.
inline constexpr char kTokenHolder[] = "token-holder";

// ClientToken::Check, and `review` (may be empty) for a token that is not the service's own. The caller's
// name.
absl::StatusOr<std::string> CheckCaller(std::string_view authorization, ClientToken* token,
                                        const TokenReview& review, const std::string& rpc);

}  // namespace tessera::services
