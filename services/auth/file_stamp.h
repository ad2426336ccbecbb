// Whether a file is still the one that was read.
#pragma once

#include <sys/stat.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace tessera::services {

// Another one for another file under the name, and for one that was written since, of another length or time.
inline std::string StampOf(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return "missing";
  return absl::StrCat(info.st_ino, ":", info.st_size, ":", info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec,
                      ":", info.st_mode);
}

}  // namespace tessera::services
