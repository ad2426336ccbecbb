#include "services/kubernetes/token_review.h"

#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "scheduler/launch/kubernetes_objects.h"

namespace tessera::services {
namespace {

using Json = nlohmann::json;

constexpr absl::Duration kKeep = absl::Minutes(1);
constexpr absl::Duration kKeepRefusal = absl::Seconds(10);
constexpr size_t kMostAnswers = 4096;
constexpr char kGroup[] = "tessera.dev";
const Json::json_pointer kPodOfToken("/extra/authentication.kubernetes.io~1pod-name");

// Of the form that the API server makes: nobody is asked about anything else.
bool MayBeToken(const std::string& token) {
  constexpr size_t kLongest = 16384;
  return !token.empty() && token.size() <= kLongest && std::all_of(token.begin(), token.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '-' || c == '_';
  });
}

std::string DigestOf(const std::string& token) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(), digest);
  return {reinterpret_cast<const char*>(digest), sizeof digest};
}

absl::Status CannotAsk(const char* what, const absl::Status& why) {
  return absl::UnavailableError(absl::StrCat("the API server does not answer a ", what, ": ", why.message()));
}

}  // namespace

NeededAccess AccessFor(const std::string& rpc) {
  const std::string name = rpc.substr(rpc.find('.') == std::string::npos ? 0 : rpc.find('.') + 1);
  if (name == "ReportNode") return {"create", "nodereports"};
  std::string verb = "update";
  if (absl::StartsWith(name, "Create")) verb = "create";
  if (absl::StartsWith(name, "Delete")) verb = "delete";
  if (absl::StartsWith(name, "Watch")) verb = "watch";
  if (absl::StartsWith(name, "Get") || absl::StartsWith(name, "Explain")) verb = "get";
  if (absl::StartsWith(name, "List"))
    verb = name == "ListTrainingJobs" || name == "ListNodes" ? "list" : "get";
  // Plain routes are all read, and so is what is not there.
  if (!absl::StrContains(rpc, '.')) verb = "list";
  return {verb, "trainingjobs"};
}

TokenReviewer::TokenReviewer(scheduler::ApiClient* client, std::string ns, std::string audience,
                             std::function<absl::Time()> clock)
    : client_(client), ns_(std::move(ns)), audience_(std::move(audience)), clock_(std::move(clock)) {}

absl::StatusOr<std::string> TokenReviewer::Check(const std::string& token, const std::string& rpc) {
  if (!MayBeToken(token)) return absl::UnauthenticatedError("the token is wrong");
  const std::string digest = DigestOf(token);
  TESSERA_ASSIGN_OR_RETURN(const Json user, UserOf(token, digest));
  std::string name = user.value("username", "");
  const NeededAccess access = AccessFor(rpc);
  const std::string key = absl::StrCat(digest, access.verb, "/", access.resource);
  {
    absl::MutexLock lock(&mutex_);
    if (const Answer* answer = Find(&accesses_, key)) {
      TESSERA_RETURN_IF_ERROR(answer->status);
      return name;
    }
  }
  const absl::Status status = AskForAccess(user, access);
  if (!absl::IsUnavailable(status)) Keep(&accesses_, key, status, nullptr);
  TESSERA_RETURN_IF_ERROR(status);
  return name;
}

absl::Status TokenReviewer::CheckWorker(const std::string& token, const std::string& account,
                                        const v1::WorkerIdentity& worker) {
  if (!MayBeToken(token)) return absl::UnauthenticatedError("the token is wrong");
  TESSERA_ASSIGN_OR_RETURN(const Json user, UserOf(token, DigestOf(token)));
  const std::string name = user.value("username", "");
  const Json pods = user.value(kPodOfToken, Json::array());
  if (name != absl::StrCat("system:serviceaccount:", ns_, ":", account) || pods.size() != 1) {
    return absl::PermissionDeniedError(
        absl::StrCat(name, " is no worker: the token is bound to no pod of service account '", account,
                     "' in namespace ", ns_));
  }
  const std::string pod = pods[0].get<std::string>();
  if (!scheduler::IsPodOfWorker(pod, worker.job_uid(), worker.epoch(), worker.rank())) {
    return absl::PermissionDeniedError(absl::StrCat("pod ", pod, " does not run rank ", worker.rank(),
                                                    " of epoch ", worker.epoch(), " of job ",
                                                    worker.job_uid()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Json> TokenReviewer::UserOf(const std::string& token, const std::string& digest) {
  {
    absl::MutexLock lock(&mutex_);
    if (const Answer* answer = Find(&users_, digest)) {
      if (!answer->status.ok()) return answer->status;
      return answer->user;
    }
  }
  absl::StatusOr<Json> user = AskForUser(token);
  if (!absl::IsUnavailable(user.status())) Keep(&users_, digest, user.status(), user.ok() ? *user : Json());
  return user;
}

absl::StatusOr<Json> TokenReviewer::AskForUser(const std::string& token) {
  const auto review = client_->Create("/apis/authentication.k8s.io/v1/tokenreviews",
                                      {{"apiVersion", "authentication.k8s.io/v1"},
                                       {"kind", "TokenReview"},
                                       {"spec", {{"token", token}, {"audiences", {audience_}}}}});
  if (!review.ok()) return CannotAsk("TokenReview", review.status());
  const Json status = review->value("status", Json::object());
  const Json audiences = status.value("audiences", Json::array());
  // An authenticator that knows no audiences names none.
  const bool meant = std::find(audiences.begin(), audiences.end(), Json(audience_)) != audiences.end();
  if (!status.value("authenticated", false) || !meant) {
    return absl::UnauthenticatedError(
        absl::StrCat("the token is neither the service's nor one of this cluster for audience '", audience_,
                     "'; `kubectl create token ACCOUNT --audience ", audience_, "` makes one"));
  }
  return status.value("user", Json::object());
}

absl::Status TokenReviewer::AskForAccess(const Json& user, const NeededAccess& access) {
  Json spec = {
      {"user", user.value("username", "")},
      {"uid", user.value("uid", "")},
      {"groups", user.value("groups", Json::array())},
      {"resourceAttributes",
       {{"namespace", ns_}, {"verb", access.verb}, {"group", kGroup}, {"resource", access.resource}}}};
  if (user.contains("extra")) spec["extra"] = user["extra"];
  const auto review = client_->Create("/apis/authorization.k8s.io/v1/subjectaccessreviews",
                                      {{"apiVersion", "authorization.k8s.io/v1"},
                                       {"kind", "SubjectAccessReview"},
                                       {"spec", std::move(spec)}});
  if (!review.ok()) return CannotAsk("SubjectAccessReview", review.status());
  if (review->value("/status/allowed"_json_pointer, false)) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(user.value("username", ""), " may not ", access.verb, " ",
                                                  access.resource, ".", kGroup, " in namespace ", ns_));
}

const TokenReviewer::Answer* TokenReviewer::Find(Answers* answers, const std::string& key) {
  const auto it = answers->find(key);
  return it == answers->end() || it->second.until <= clock_() ? nullptr : &it->second;
}

void TokenReviewer::Keep(Answers* answers, const std::string& key, const absl::Status& status, Json user) {
  absl::MutexLock lock(&mutex_);
  const absl::Time now = clock_();
  if (answers->size() >= kMostAnswers) {
    std::erase_if(*answers, [&](const auto& entry) { return entry.second.until <= now; });
  }
  if (answers->size() >= kMostAnswers) answers->clear();
  (*answers)[key] = {now + (status.ok() ? kKeep : kKeepRefusal), status, std::move(user)};
}

}  // namespace tessera::services
