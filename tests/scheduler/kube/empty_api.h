// An API server that has nothing: what a test's own server does not care for.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "scheduler/kube/api_client.h"

namespace tessera::scheduler {

class EmptyApi : public ApiClient {
 public:
  using Json = nlohmann::json;

  absl::StatusOr<Json> Get(const std::string&) override { return absl::NotFoundError(""); }
  absl::StatusOr<Json> Create(const std::string&, const Json&) override { return absl::NotFoundError(""); }
  absl::StatusOr<Json> Apply(const std::string&, const Json&) override { return absl::NotFoundError(""); }
  absl::StatusOr<Json> MergePatch(const std::string&, const Json&) override {
    return absl::NotFoundError("");
  }
  absl::Status Delete(const std::string&, const std::string&, Grace) override {
    return absl::NotFoundError("");
  }
  absl::Status Watch(const std::string&, const std::string&, const std::function<bool(const Json&)>&,
                     const std::function<bool()>&) override {
    return absl::NotFoundError("");
  }
  absl::Status Follow(const std::string&, const std::function<bool(std::string_view)>&,
                      const std::function<bool()>&) override {
    return absl::NotFoundError("");
  }
};

}  // namespace tessera::scheduler
