#include "services/kubernetes/job_links.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace tessera::services {

using Json = nlohmann::json;

absl::StatusOr<std::unique_ptr<JobLinks>> JobLinks::Open(const std::string& file) {
  std::unique_ptr<JobLinks> links(new JobLinks(file));
  std::error_code error;
  if (!std::filesystem::exists(file, error)) return links;
  std::ifstream stream(file);
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::DataLossError(
        absl::StrCat(file,
                     " is damaged; without it all jobs would get custom resources anew. "
                     "Remove it if that is wanted"));
  }
  absl::MutexLock lock(&links->mutex_);
  for (const auto& [job_uid, link] : json.items()) {
    links->links_[job_uid] = {link.value("name", ""), link.value("object", "")};
  }
  return links;
}

std::optional<JobLinks::Link> JobLinks::Of(const std::string& job_uid) const {
  absl::MutexLock lock(&mutex_);
  const auto it = links_.find(job_uid);
  return it == links_.end() ? std::nullopt : std::make_optional(it->second);
}

std::string JobLinks::OwnerOf(const std::string& job_uid, const std::string& name) const {
  absl::MutexLock lock(&mutex_);
  if (const auto link = links_.find(job_uid); link != links_.end()) return link->second.object_uid;
  const auto expected = expected_.find(name);
  return expected == expected_.end() ? "" : expected->second;
}

void JobLinks::Expect(const std::string& name, const std::string& object_uid) {
  absl::MutexLock lock(&mutex_);
  expected_[name] = object_uid;
}

void JobLinks::ExpectNoMore(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  expected_.erase(name);
}

std::string JobLinks::JobOf(const std::string& object_uid) const {
  absl::MutexLock lock(&mutex_);
  for (const auto& [job_uid, link] : links_) {
    if (link.object_uid == object_uid) return job_uid;
  }
  return "";
}

absl::Status JobLinks::Set(const std::string& job_uid, const Link& link) {
  absl::MutexLock lock(&mutex_);
  links_[job_uid] = link;
  return Write();
}

absl::Status JobLinks::Erase(const std::string& job_uid) {
  absl::MutexLock lock(&mutex_);
  return links_.erase(job_uid) == 0 ? absl::OkStatus() : Write();
}

absl::Status JobLinks::EraseOthers(const std::string& name, const std::string& object_uid) {
  absl::MutexLock lock(&mutex_);
  const size_t erased = std::erase_if(links_, [&](const auto& entry) {
    return entry.second.name == name && entry.second.object_uid != object_uid;
  });
  return erased == 0 ? absl::OkStatus() : Write();
}

absl::Status JobLinks::Write() {
  Json json = Json::object();
  for (const auto& [job_uid, link] : links_)
    json[job_uid] = {{"name", link.name}, {"object", link.object_uid}};
  const std::string text = json.dump() + "\n", temporary = file_ + ".new";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", temporary));
  const bool written =
      ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(file) == 0;
  const int error = errno;
  ::close(file);
  if (!written) return absl::ErrnoToStatus(error, absl::StrCat("cannot write ", temporary));
  if (std::rename(temporary.c_str(), file_.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot replace ", file_));
}

}  // namespace tessera::services
