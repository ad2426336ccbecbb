// A process is known by its pid, its start and the boot it belongs to: a pid
// alone is given to others later.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::scheduler {

struct ProcessIdentity {
  pid_t pid = 0;
  int64_t start = 0;  // clock ticks since boot, field 22 of /proc/<pid>/stat
};

struct ProcessStat {
  int64_t start = 0;  // as in ProcessIdentity
  bool zombie = false;
  bool halted = false;  // stopped by a signal or a debugger; does nothing until it is continued
};

// nullopt: there is no such process. A zombie counts as there.
std::optional<ProcessStat> StatOf(pid_t pid);
std::optional<ProcessIdentity> IdentityOf(pid_t pid);
// It exists and is no zombie.
bool IsAlive(const ProcessIdentity& identity);
// Processes whose environment has all of these "NAME=value" entries; of other users' only what may be seen.
std::vector<ProcessIdentity> ProcessesWith(const std::vector<std::string>& environment);
// Processes whose environment has a variable of this name, by pid, and its value; likewise.
std::map<pid_t, std::string> ProcessesNaming(const std::string& name);
// Returns when the child's environment can be seen by the two above, which is a moment after it has begun its
// program, or when it has ended; after a second at the latest.
void AwaitEnvironment(pid_t child);
// Of this boot of the machine.
std::string BootId();

}  // namespace tessera::scheduler
