#include <glob.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "worker/data/image_source.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> Matches(const std::string& pattern) {
  std::vector<std::string> paths;
  glob_t found;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Names under which the data sets are published.
std::vector<std::string> KnownNames(DataPart part) {
  if (part == DataPart::kTraining) return {"data_batch_*.bin", "train*.bin", "train*images*idx3*"};
  return {"test_batch.bin", "test*.bin", "t10k*images*idx3*", "test*images*idx3*"};
}

// Where the folders of the classes lie.
std::string ClassesFolder(const std::string& folder, DataPart part) {
  std::error_code ignored;
  for (const char* name : part == DataPart::kTraining
                              ? std::vector<const char*>{"train"}
                              : std::vector<const char*>{"validation", "val", "test"}) {
    if (fs::is_directory(folder + "/" + name, ignored)) return folder + "/" + name;
  }
  return folder;
}

bool IsIdx(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  char magic[4] = {};
  file.read(magic, sizeof(magic));
  return magic[0] == 0 && magic[1] == 0 && magic[2] == 8 && absl::StrContains(path, "images");
}

}  // namespace

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImages(const std::string& pattern, DataPart part,
                                                        int64_t size) {
  std::error_code error;
  std::vector<std::string> paths;
  if (!fs::is_directory(pattern, error)) {
    paths = Matches(pattern);
    if (paths.empty()) return absl::NotFoundError(absl::StrCat("no file of images matches ", pattern));
  } else {
    for (const std::string& name : KnownNames(part)) {
      if (paths = Matches(absl::StrCat(pattern, "/", name)); !paths.empty()) break;
    }
    if (paths.empty()) {
      auto folder = OpenImageFolder(ClassesFolder(pattern, part), size);
      if (!absl::IsNotFound(folder.status())) return folder;
      return absl::NotFoundError(absl::StrCat("the folder ", pattern, " holds none of ",
                                              absl::StrJoin(KnownNames(part), ", "), "; ",
                                              folder.status().message()));
    }
  }
  if (!IsIdx(paths[0])) return OpenCifarRecords(paths);
  if (paths.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(pattern, " matches ", paths.size(), " IDX files (",
                                                   absl::StrJoin(paths, ", "), "); one is read"));
  }
  return OpenIdxFile(paths[0]);
}

}  // namespace tessera::worker
