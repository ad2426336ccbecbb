#include "scheduler/store/store_encoding.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace tessera::scheduler {
namespace {

constexpr char kSeparator = '\x1f';  // in no namespace or name
constexpr char kVersion[] = "p1";

}  // namespace

std::string EncodePageToken(const std::string& ns, const JobKey& last) {
  const char sep[] = {kSeparator, 0};
  return absl::WebSafeBase64Escape(absl::StrCat(kVersion, sep, ns, sep, last.ns, sep, last.name));
}

absl::StatusOr<std::optional<JobKey>> DecodePageToken(const std::string& ns, const std::string& token) {
  if (token.empty()) return std::optional<JobKey>();
  std::string text;
  std::vector<std::string> parts;
  if (absl::WebSafeBase64Unescape(token, &text)) parts = absl::StrSplit(text, kSeparator);
  if (parts.size() != 4 || parts[0] != kVersion) {
    return absl::InvalidArgumentError("page_token is not one that a list call returned");
  }
  if (parts[1] != ns) {
    return absl::InvalidArgumentError(
        absl::StrCat("page_token belongs to a listing of namespace '", parts[1], "'"));
  }
  return std::optional<JobKey>(JobKey{parts[2], parts[3]});
}

std::string EtagOf(int64_t revision) { return absl::StrCat("r", revision); }

std::string CreationFingerprint(const v1::TrainingJob& job) {
  v1::TrainingJob essence;
  essence.set_name(job.name());
  essence.set_namespace_(job.namespace_());
  *essence.mutable_spec() = job.spec();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);  // maps in one order
    essence.SerializeToCodedStream(&coded);
  }
  return bytes;
}

JobKey KeyOf(const v1::TrainingJob& job) { return {job.namespace_(), job.name()}; }

absl::Status NoSuchJob(const JobKey& key) {
  return absl::NotFoundError(absl::StrCat("no training job '", key.name, "' in namespace '", key.ns, "'"));
}

absl::Status JobExists(const JobKey& key) {
  return absl::AlreadyExistsError(
      absl::StrCat("a training job '", key.name, "' exists already in namespace '", key.ns, "'"));
}

absl::Status StaleEtag(const JobKey& key) {
  return absl::AbortedError(absl::StrCat("training job '", key.name, "' in namespace '", key.ns,
                                         "' was changed since it was read; read it again"));
}

absl::Status RequestIdReused(const std::string& request_id) {
  absl::Status status = absl::InvalidArgumentError(
      absl::StrCat("request_id '", request_id, "' was used before for another training job"));
  status.SetPayload(kRequestIdReusedPayload, absl::Cord(request_id));
  return status;
}

}  // namespace tessera::scheduler
