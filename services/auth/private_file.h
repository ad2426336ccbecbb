// Who may read a file that holds a secret.
#pragma once

#include <sys/stat.h>

namespace tessera::services {

// Whether only the caller can read a file of this kind: nobody but its owner; or its owner is root and
// `caller`'s group may read it and no more, which is what Kubernetes makes of a Secret for a process that is
// not root.
inline bool IsPrivate(const struct stat& info, uid_t caller) {
  if ((info.st_mode & 077) == 0) return true;
  return info.st_uid == 0 && caller != 0 && (info.st_mode & 037) == 0;
}

}  // namespace tessera::services
