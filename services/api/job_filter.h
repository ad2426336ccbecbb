// Which jobs a List answers with: a filter in the language of AIP-160.
//
//   status.state = running AND (spec.priority > 0 OR name = "llama-*")
//   NOT status.restarts = 0      create_time > "2026-01-01T00:00:00Z"      status.retry_time:*
//
// AND may be left out; OR binds tighter than AND. Operators: = != < <= > >= and `:` ("contains", and
// with `*` "is set"). Fields are paths of TrainingJob in either spelling. A string is compared as a whole;
// a `*` at either end stands for anything.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tessera/v1/job.pb.h"

namespace tessera::services {

// Immutable; thread-safe.
class JobFilter {
 public:
  static constexpr size_t kMaxLength = 2048;

  // InvalidArgument with a violation of "filter". "" matches every job.
  static absl::StatusOr<JobFilter> Parse(std::string_view text);
  bool Matches(const v1::TrainingJob& job) const;

  struct Node;

 private:
  explicit JobFilter(std::shared_ptr<const Node> root) : root_(std::move(root)) {}
  std::shared_ptr<const Node> root_;  // null: everything
};

}  // namespace tessera::services
