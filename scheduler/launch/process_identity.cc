#include "scheduler/launch/process_identity.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace tessera::scheduler {
namespace {

struct Stat {
  char state = '?';
  int64_t start = 0;
};

std::optional<Stat> ReadStat(pid_t pid) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/stat"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The name in parentheses may hold anything, also parentheses and spaces.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(name_end + 1));
  Stat stat;
  fields >> stat.state;  // field 3
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  if (!(fields >> stat.start)) return std::nullopt;
  return stat;
}

}  // namespace

std::optional<ProcessIdentity> IdentityOf(pid_t pid) {
  const auto stat = ReadStat(pid);
  if (!stat.has_value()) return std::nullopt;
  return ProcessIdentity{pid, stat->start};
}

bool IsAlive(const ProcessIdentity& identity) {
  const auto stat = ReadStat(identity.pid);
  return stat.has_value() && stat->start == identity.start && stat->state != 'Z' && stat->state != 'X';
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace tessera::scheduler
