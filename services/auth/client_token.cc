#include "services/auth/client_token.h"

#include <utility>

#include "absl/time/clock.h"
#include "services/auth/file_stamp.h"
#include "services/auth/token.h"
#include "spdlog/spdlog.h"

namespace tessera::services {
namespace {

constexpr absl::Duration kLookAgain = absl::Seconds(1);

}  // namespace

absl::StatusOr<std::shared_ptr<ClientToken>> ClientToken::Open(const std::string& path) {
  std::string stamp = StampOf(path);
  absl::StatusOr<std::string> token = LoadOrCreateToken(path);
  if (!token.ok()) return token.status();
  auto opened = std::make_shared<ClientToken>(*std::move(token));
  opened->path_ = path;
  absl::MutexLock lock(&opened->mutex_);
  opened->stamp_ = std::move(stamp);  // "missing" if it was made just now: it is read once more
  return opened;
}

void ClientToken::LookAgain(absl::Time now) {
  if (path_.empty() || now - looked_at_ < kLookAgain) return;
  looked_at_ = now;
  std::string stamp = StampOf(path_);
  if (stamp == stamp_) return;
  stamp_ = std::move(stamp);
  absl::StatusOr<std::string> token = absl::NotFoundError("the token file " + path_ + " is gone");
  if (stamp_ != "missing") token = LoadOrCreateToken(path_);
  if (!token.ok()) {
    spdlog::error("event=token_refused error=\"{}\"", std::string(token.status().message()));
  } else if (*token != token_) {
    token_ = *std::move(token);
    spdlog::info("event=token_changed file={}", path_);
  }
}

absl::Status ClientToken::Check(std::string_view authorization, absl::Time now) {
  absl::MutexLock lock(&mutex_);
  LookAgain(now);
  return CheckBearer(authorization, token_);
}

absl::StatusOr<std::string> CheckCaller(std::string_view authorization, ClientToken* token,
                                        const TokenReview& review, const std::string& rpc) {
  absl::Status status = token->Check(authorization, absl::Now());
  const std::string_view shown = BearerToken(authorization);
  if (status.ok()) return kTokenHolder;
  if (review == nullptr || shown.empty()) return status;
  return review(std::string(shown), rpc);
}

}  // namespace tessera::services
