#include "scheduler/launch/process_identity.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"

namespace tessera::scheduler {
namespace {

// Empty for a zombie.
std::string EnvironmentFile(pid_t pid) { return absl::StrCat("/proc/", pid, "/environ"); }

template <typename Visit>
void ForEachProcess(const Visit& visit) {
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc", error), end; !error && it != end;
       it.increment(error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(it->path().filename().string(), &pid)) visit(pid);
  }
}

bool HasEntries(pid_t pid, const std::vector<std::string>& wanted) {
  std::ifstream file(EnvironmentFile(pid), std::ios::binary);
  size_t matches = 0;
  for (std::string entry; std::getline(file, entry, '\0');) {
    matches += static_cast<size_t>(std::count(wanted.begin(), wanted.end(), entry));
  }
  return matches >= wanted.size();
}

}  // namespace

// Asked for every worker several times a second: plain reads into a buffer on the stack.
std::optional<ProcessStat> StatOf(pid_t pid) {
  const int file = ::open(absl::StrCat("/proc/", pid, "/stat").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return std::nullopt;
  std::array<char, 1024> buffer;  // the longest line is about 600 bytes, and the kernel gives it in one read
  const ssize_t size = ::read(file, buffer.data(), buffer.size());
  ::close(file);
  if (size <= 0) return std::nullopt;
  const absl::string_view line(buffer.data(), static_cast<size_t>(size));
  // The name in parentheses may hold anything, also parentheses and spaces.
  const size_t name_end = line.rfind(") ");
  if (name_end == absl::string_view::npos) return std::nullopt;
  size_t at = name_end + 2;  // field 3, the state
  ProcessStat stat;
  const char state = at < line.size() ? line[at] : '?';
  stat.zombie = state == 'Z' || state == 'X';
  stat.halted = state == 'T' || state == 't';
  for (int field = 3; field < 22 && at != 0; ++field) at = line.find(' ', at) + 1;
  if (at == 0 || !absl::SimpleAtoi(line.substr(at, line.find(' ', at) - at), &stat.start))
    return std::nullopt;
  return stat;
}

std::optional<ProcessIdentity> IdentityOf(pid_t pid) {
  const auto stat = StatOf(pid);
  if (!stat.has_value()) return std::nullopt;
  return ProcessIdentity{pid, stat->start};
}

bool IsAlive(const ProcessIdentity& identity) {
  const auto stat = StatOf(identity.pid);
  return stat.has_value() && stat->start == identity.start && !stat->zombie;
}

std::vector<ProcessIdentity> ProcessesWith(const std::vector<std::string>& environment) {
  std::vector<ProcessIdentity> found;
  ForEachProcess([&](pid_t pid) {
    const auto identity = IdentityOf(pid);
    if (identity.has_value() && HasEntries(pid, environment)) found.push_back(*identity);
  });
  return found;
}

std::map<pid_t, std::string> ProcessesNaming(const std::string& name) {
  std::map<pid_t, std::string> found;
  ForEachProcess([&](pid_t pid) {
    std::ifstream file(EnvironmentFile(pid), std::ios::binary);
    for (std::string entry; std::getline(file, entry, '\0');) {
      if (absl::StartsWith(entry, name + "=")) found.try_emplace(pid, entry.substr(name.size() + 1));
    }
  });
  return found;
}

void AwaitEnvironment(pid_t child) {
  for (const absl::Time end = absl::Now() + absl::Seconds(1); absl::Now() < end;
       absl::SleepFor(absl::Microseconds(100))) {
    const auto stat = StatOf(child);
    if (!stat.has_value() || stat->zombie) return;
    if (std::ifstream(EnvironmentFile(child), std::ios::binary).peek() != std::ifstream::traits_type::eof())
      return;
  }
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace tessera::scheduler
