#include "scheduler/launch/process_identity.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/numbers.h"
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

bool HasEntries(pid_t pid, const std::vector<std::string>& wanted) {
  std::ifstream file(absl::StrCat("/proc/", pid, "/environ"), std::ios::binary);
  size_t matches = 0;
  for (std::string entry; std::getline(file, entry, '\0');) {
    matches += static_cast<size_t>(std::count(wanted.begin(), wanted.end(), entry));
  }
  return matches >= wanted.size();
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

bool IsHalted(const ProcessIdentity& identity) {
  const auto stat = ReadStat(identity.pid);
  return stat.has_value() && stat->start == identity.start && (stat->state == 'T' || stat->state == 't');
}

std::vector<ProcessIdentity> ProcessesWith(const std::vector<std::string>& environment) {
  std::vector<ProcessIdentity> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
       it.increment(error)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(it->path().filename().string(), &pid)) continue;
    const auto identity = IdentityOf(pid);
    if (identity.has_value() && HasEntries(pid, environment)) found.push_back(*identity);
  }
  return found;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace tessera::scheduler
