// A process is known by its pid, its start and the boot it belongs to: a pid
// alone is given to others later.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::scheduler {

struct ProcessIdentity {
  pid_t pid = 0;
  int64_t start = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat
};

// nullopt: there is no such process. A zombie counts as there.
std::optional<ProcessIdentity> IdentityOf(pid_t pid);
// It exists and is no zombie.
bool IsAlive(const ProcessIdentity& identity);
// Of this boot of the machine.
std::string BootId();

}  // namespace tessera::scheduler
