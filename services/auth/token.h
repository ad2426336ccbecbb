// Bearer tokens. Thread-safe: nothing here has state.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tessera::services {

// Reads the token at `path`, or makes one of 32 random bytes in hex when there is no
// file, in a folder that exists. The file is 0600. PermissionDenied when others may
// read it; DataLoss when it holds no token. Errors name the file, never the token.
absl::StatusOr<std::string> LoadOrCreateToken(const std::string& path);

// In a time that depends on the lengths alone.
bool ConstantTimeEquals(std::string_view a, std::string_view b);

// Whether an Authorization header ("Bearer <token>", scheme in any case) carries
// `expected`. Unauthenticated says what is wrong. An empty `expected` never matches.
absl::Status CheckBearer(std::string_view authorization, std::string_view expected);

// Who else than the service may say that the bearer of `token` may call `rpc` ("JobService.GetTrainingJob",
// or the name of a plain route; "" for what is not there). Unauthenticated, PermissionDenied with what is not
// allowed, Unavailable while it can't be asked. Blocks; any thread.
using TokenReview = std::function<absl::Status(const std::string& token, const std::string& rpc)>;

// CheckBearer, and `review` (may be empty) for a token that is not `expected`.
absl::Status CheckCaller(std::string_view authorization, std::string_view expected, const TokenReview& review,
                         const std::string& rpc);

// The token in an Authorization header; empty when it has none.
std::string_view BearerToken(std::string_view authorization);

}  // namespace tessera::services
