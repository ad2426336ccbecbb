#include "services/api/create_job.h"

#include <random>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/validate.h"

namespace tessera::services {
namespace {

constexpr size_t kMaxRequestId = 128;

std::string MakeName(const v1::TrainingJob& job, const std::string& request_id) {
  std::string stem;
  for (const char c : job.spec().model().preset().substr(0, 40)) {
    stem += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '-';
  }
  while (!stem.empty() && stem.front() == '-') stem.erase(0, 1);
  if (stem.empty()) stem = "job";
  uint64_t bits = 0xcbf29ce484222325u;  // FNV-1a: the same in every process
  if (request_id.empty()) {
    bits = (uint64_t{std::random_device{}()} << 32) | std::random_device{}();
  } else {
    for (const char c : request_id) bits = (bits ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  }
  constexpr absl::string_view kLetters = "bcdfghjklmnpqrstvwxz2456789";
  std::string suffix;
  for (int i = 0; i < 6; ++i, bits /= kLetters.size()) suffix += kLetters[bits % kLetters.size()];
  return absl::StrCat(stem, "-", suffix);
}

// What reads a path knows no schemes.
void DropFileScheme(std::string* path) {
  if (absl::StartsWith(*path, "file:///")) path->erase(0, std::string("file://").size());
}

void DropFileSchemes(v1::TrainingJobSpec* spec) {
  for (std::string* path :
       {spec->mutable_model()->mutable_config_path(), spec->mutable_model()->mutable_initial_weights(),
        spec->mutable_data()->mutable_train(), spec->mutable_data()->mutable_validation(),
        spec->mutable_data()->mutable_tokenizer(), spec->mutable_checkpoint()->mutable_uri()}) {
    DropFileScheme(path);
  }
}

}  // namespace

absl::StatusOr<v1::TrainingJob> ResolveJob(const v1::CreateTrainingJobRequest& request) {
  std::vector<spec::Violation> violations;
  v1::TrainingJob job = request.training_job();
  job.clear_uid();
  job.clear_etag();
  job.clear_status();
  job.clear_create_time();
  if (!request.namespace_().empty()) {
    if (!job.namespace_().empty() && job.namespace_() != request.namespace_()) {
      violations.push_back(
          {.path = "namespace",
           .value = absl::StrCat("\"", job.namespace_(), "\""),
           .message = absl::StrCat("differs from the request's namespace, ", request.namespace_()),
           .remedy = "leave it out or make them equal"});
    }
    job.set_namespace_(request.namespace_());
  }
  if (request.request_id().size() > kMaxRequestId) {
    violations.push_back({.path = "requestId",
                          .value = absl::StrCat(request.request_id().size(), " characters"),
                          .message = absl::StrCat("must have at most ", kMaxRequestId, " characters")});
  }
  if (job.name().empty()) job.set_name(MakeName(job, request.request_id()));
  spec::ApplyDefaults(&job);
  for (spec::Violation& violation : spec::Validate(job)) violations.push_back(std::move(violation));
  if (!violations.empty()) return spec::MakeInvalid(violations);
  DropFileSchemes(job.mutable_spec());
  return job;
}

}  // namespace tessera::services
