// The Kubernetes API server, as far as the scheduler needs it. Objects are JSON.
//
// Errors: NotFound 404, AlreadyExists and Aborted (a conflict) 409, OutOfRange 410, InvalidArgument 400 and
// 422, Unauthenticated 401, PermissionDenied 403, Unavailable for the rest and for a server that can't be
// reached.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json_fwd.hpp"
#include "scheduler/kube/kube_config.h"

namespace tessera::scheduler {

// Thread-safe. Paths begin with /api or /apis and may have a query.
class ApiClient {
 public:
  virtual ~ApiClient() = default;
  virtual absl::StatusOr<nlohmann::json> Get(const std::string& path) = 0;
  virtual absl::StatusOr<nlohmann::json> Create(const std::string& path, const nlohmann::json& object) = 0;
  // RFC 7396. With metadata.resourceVersion in it: Aborted if the object is another one by now.
  virtual absl::StatusOr<nlohmann::json> MergePatch(const std::string& path, const nlohmann::json& patch) = 0;
  // Server-side apply as field manager "tesserad", which takes the fields from others.
  virtual absl::StatusOr<nlohmann::json> Apply(const std::string& path, const nlohmann::json& object) = 0;
  // What the object owns goes in the background. `uid`, if not empty: only if the object has it. A pod that
  // is deleted at once is gone from the server even where its node is silent.
  enum class Grace { kItsOwn, kNone };
  virtual absl::Status Delete(const std::string& path, const std::string& uid, Grace grace) = 0;
  // Calls back with each {type, object} until it returns false (OK), the server ends the watch (OK), or
  // something fails; asks for bookmarks. OutOfRange: list again. Returns within a second of `stop`.
  virtual absl::Status Watch(const std::string& path, const std::string& resource_version,
                             const std::function<bool(const nlohmann::json&)>& event,
                             const std::function<bool()>& stop) = 0;
  // An answer of text that goes on, like a pod's log, in pieces as they come; ends as Watch does.
  virtual absl::Status Follow(const std::string& path, const std::function<bool(std::string_view)>& take,
                              const std::function<bool()>& stop) = 0;
};

// HTTPS with a verified server; a rate of 50 requests a second after bursts of 100. Reads are repeated
// with back-off when the server can't be reached, all requests when it asks for that (Retry-After).
absl::StatusOr<std::unique_ptr<ApiClient>> MakeApiClient(const KubeConfig& config);

// Of an object's metadata; "" where it is not there.
std::string NameOf(const nlohmann::json& object);
std::string ResourceVersionOf(const nlohmann::json& object);

// All items of a collection, page by page, and the collection's resourceVersion.
struct ObjectList {
  std::vector<nlohmann::json> items;
  std::string resource_version;
};
absl::StatusOr<ObjectList> ListAll(ApiClient& client, const std::string& path, int page_size = 500);

// "a=b,c" -> "a%3Db%2Cc"
std::string QueryEscape(const std::string& text);

// The status of an answer. `body` is a metav1.Status, or anything.
absl::Status StatusOfAnswer(int http_status, const std::string& body);

}  // namespace tessera::scheduler
