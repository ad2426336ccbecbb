// Callers that show a token of Kubernetes: TokenReview says who they are, SubjectAccessReview whether they
// may. Workers are known by the pod that their token is bound to.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "scheduler/kube/api_client.h"
#include "tessera/v1/worker.pb.h"

namespace tessera::services {

// What a call needs: a verb on a resource of the group tessera.dev. Reports of nodes are a resource of their
// own, `nodereports`, so that agents need no more.
struct NeededAccess {
  std::string verb;
  std::string resource;
};
NeededAccess AccessFor(const std::string& rpc);

// Thread-safe; blocks while it asks. Answers are kept for a minute, refusals for ten seconds, under the
// token's SHA-256.
class TokenReviewer {
 public:
  // Tokens must be made for `audience`. `client` outlives it, and should be nobody else's: strangers make it
  // ask.
  TokenReviewer(scheduler::ApiClient* client, std::string ns, std::string audience,
                std::function<absl::Time()> clock = absl::Now);

  // Unauthenticated: not a token of this cluster for this audience. PermissionDenied names who may not do
  // what. Unavailable: the API server can't be asked. The user's name.
  absl::StatusOr<std::string> Check(const std::string& token, const std::string& rpc);

  // Whether the token is that of a pod which runs this worker as `account`, while the pod is there. Rank -1:
  // any of its job and epoch. Errors as of Check.
  absl::Status CheckWorker(const std::string& token, const std::string& account,
                           const v1::WorkerIdentity& worker);

 private:
  struct Answer {
    absl::Time until;
    absl::Status status;
    nlohmann::json user;
  };
  using Answers = std::map<std::string, Answer>;

  absl::StatusOr<nlohmann::json> UserOf(const std::string& token, const std::string& digest);
  absl::StatusOr<nlohmann::json> AskForUser(const std::string& token);
  absl::Status AskForAccess(const nlohmann::json& user, const NeededAccess& access);
  const Answer* Find(Answers* answers, const std::string& key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Keep(Answers* answers, const std::string& key, const absl::Status& status, nlohmann::json user);

  scheduler::ApiClient* const client_;
  const std::string ns_;
  const std::string audience_;
  const std::function<absl::Time()> clock_;
  absl::Mutex mutex_;
  Answers users_ ABSL_GUARDED_BY(mutex_);     // by the token's digest
  Answers accesses_ ABSL_GUARDED_BY(mutex_);  // by that, verb and resource
};

}  // namespace tessera::services
