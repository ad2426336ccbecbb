#include "scheduler/controller/run_directory.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"

namespace tessera::scheduler {
namespace {

namespace fs = std::filesystem;

std::string Mark(const std::string& run_directory) { return run_directory + "/deleted"; }

}  // namespace

absl::Status MarkDeleted(const std::string& run_directory) {
  std::error_code error;
  if (!fs::is_directory(run_directory, error)) return absl::OkStatus();
  // A full disk has room for an empty file, or there would be no way to free it.
  if (!std::ofstream(Mark(run_directory))) {
    return absl::FailedPreconditionError(absl::StrCat("cannot write in ", run_directory));
  }
  return absl::OkStatus();
}

void UnmarkDeleted(const std::string& run_directory) {
  std::error_code ignored;
  fs::remove(Mark(run_directory), ignored);
}

void RemoveRunDirectory(const std::string& run_directory) {
  std::error_code error;
  fs::remove_all(run_directory, error);
  if (error) spdlog::error("event=files_left path={} error=\"{}\"", run_directory, error.message());
}

void FinishDeletions(const std::string& jobs_directory,
                     const std::function<bool(const std::string& uid)>& exists) {
  std::vector<std::string> marked;
  std::error_code error;
  for (fs::directory_iterator it(jobs_directory, error), end; !error && it != end; it.increment(error)) {
    std::error_code missing;
    if (fs::exists(Mark(it->path().string()), missing)) marked.push_back(it->path().string());
  }
  for (const std::string& path : marked) {
    if (exists(fs::path(path).filename().string())) {
      UnmarkDeleted(path);
    } else {
      RemoveRunDirectory(path);
    }
  }
}

std::vector<std::string> FoldersRead(const v1::TrainingJobSpec& spec) {
  std::set<std::string> folders;
  for (const std::string* path :
       {&spec.model().config_path(), &spec.model().initial_weights(), &spec.data().train(),
        &spec.data().validation(), &spec.data().tokenizer(), &spec.checkpoint().resume_from()}) {
    if (path->empty()) continue;
    const size_t wildcard = path->find_first_of("*?[");
    const std::filesystem::path plain(path->substr(0, wildcard));
    std::error_code ignored;
    const bool folder = wildcard == std::string::npos && std::filesystem::is_directory(plain, ignored);
    folders.insert((folder ? plain : plain.parent_path()).lexically_normal().string());
  }
  return {folders.begin(), folders.end()};
}

}  // namespace tessera::scheduler
