#include "services/cli/doctor.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timex.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "scheduler/launch/child_process.h"
#include "services/api/local_node.h"
#include "services/api/nvml.h"
#include "services/cli/daemon_process.h"
#include "services/cli/doctor_gpus.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLittleMemory = int64_t{1} << 30;
constexpr int64_t kLittleDisk = int64_t{2} << 30;

Finding Program(const Environment& environment, const std::string& name) {
  const std::string path = FindProgram(environment, name);
  if (!path.empty()) return {name, Health::kGood, path, ""};
  return {name, Health::kBad, "not found", "put it beside tessera or into PATH; ./dev build makes all three"};
}

void Memory(std::vector<Finding>* findings) {
  const v1::NodeProfile node = services::ProfileLocalNode();
  const v1::DeviceProfile& cpu = node.devices(0);
  const bool one = cpu.cores() < 2;
  findings->push_back({"cores", one ? Health::kNote : Health::kGood, absl::StrCat(cpu.cores()),
                       one ? "workers share the one core; steps take as long as all of them together" : ""});
  const int64_t usable = services::PlannableBytes(cpu.total_bytes());
  const std::string found = absl::StrCat(FormatBytes(cpu.total_bytes()), ", ", FormatBytes(cpu.free_bytes()),
                                         " free, ", FormatBytes(usable), " for jobs");
  if (usable < kLittleMemory) {
    findings->push_back(
        {"memory", Health::kBad, found,
         "raise the machine's or its control group's memory, or use few workers of a small model"});
  } else if (cpu.free_bytes() < usable / 2) {
    findings->push_back({"memory", Health::kNote, found,
                         "other programs hold much of it; end them, or start tesserad with --memory-limit"});
  } else {
    findings->push_back({"memory", Health::kGood, found, ""});
  }
}

Finding Disk(const std::string& directory) {
  fs::path path = directory;
  std::error_code error;
  while (!fs::exists(path, error) && path.has_relative_path()) path = path.parent_path();
  const fs::space_info space = fs::space(path, error);
  if (error) return {"disk", Health::kNote, absl::StrCat(path.string(), ": ", error.message()), ""};
  const auto free = static_cast<int64_t>(space.available);
  return {"disk", free < kLittleDisk ? Health::kNote : Health::kGood,
          absl::StrCat(FormatBytes(free), " free for ", directory),
          free < kLittleDisk
              ? "checkpoints take 12 bytes per parameter each; make room or set spec.checkpoint.uri"
              : ""};
}

Finding StateFolder(const std::string& directory) {
  struct stat info;
  if (::stat(directory.c_str(), &info) != 0)
    return {"state", Health::kGood, absl::StrCat(directory, " will be made"), ""};
  if (::access(directory.c_str(), W_OK | X_OK) != 0)
    return {"state", Health::kBad, absl::StrCat(directory, " can't be written"),
            "choose another one with --state-dir"};
  if ((info.st_mode & 077) != 0)
    return {"state", Health::kNote, absl::StrCat(directory, " can be read by others"),
            absl::StrCat("chmod 700 ", directory)};
  return {"state", Health::kGood, directory, ""};
}

Finding Daemon(const std::string& directory) {
  const auto client = ConnectToDaemon(directory);
  if (client.ok())
    return {"daemon", Health::kGood, absl::StrCat("runs, process ", (*client)->endpoint().pid), ""};
  if (absl::IsNotFound(client.status()))
    return {"daemon", Health::kGood, "does not run; train and submit start it", ""};
  return {"daemon", Health::kNote, std::string(client.status().message()),
          "tessera daemon stop, then tessera daemon start"};
}

Finding Ports() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool good = socket >= 0 &&
                    ::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                    ::listen(socket, 1) == 0;
  if (socket >= 0) ::close(socket);
  return {"ports", good ? Health::kGood : Health::kBad,
          good ? "loopback ports can be opened" : "no port of 127.0.0.1 can be opened",
          good ? "" : "look at the container's network and at security policies"};
}

Finding OpenFiles() {
  rlimit limit = {};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const bool few = limit.rlim_cur < 1024;
  return {"open files", few ? Health::kNote : Health::kGood, absl::StrCat(limit.rlim_cur),
          few ? "raise the limit: ulimit -n 4096" : ""};
}

Finding Clock() {
  timex state = {};
  const bool synchronised = ::adjtimex(&state) != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
  return {"clock", synchronised ? Health::kGood : Health::kNote,
          synchronised ? "synchronised" : "not known to be synchronised",
          synchronised ? "" : "matters for TLS and for several machines: run chrony or systemd-timesyncd"};
}

// Workers tell each other where they are by the host's name.
Finding HostName() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  addrinfo* found = nullptr;
  const int error = ::getaddrinfo(name, nullptr, nullptr, &found);
  if (found != nullptr) ::freeaddrinfo(found);
  if (error == 0) return {"network", Health::kGood, absl::StrCat("host name ", name, " has an address"), ""};
  return {"network", Health::kNote, absl::StrCat("host name ", name, ": ", ::gai_strerror(error)),
          absl::StrCat("add a line `127.0.1.1 ", name, "` to /etc/hosts")};
}

// The driver is asked first: a machine without GPUs need not load the worker's libraries.
std::vector<Finding> Gpus(const Environment& environment) {
  const auto devices = services::ProfileNvidiaDevices();
  std::string answer;
  if (devices.ok() && !devices->empty()) {
    const std::string worker = FindProgram(environment, "tessera-worker");
    absl::StatusOr<scheduler::ProcessOutput> output = absl::NotFoundError("tessera-worker");
    if (!worker.empty()) output = scheduler::RunToEnd({{worker, "gpus"}, {}}, "", absl::Seconds(60));
    if (output.ok() && output->exit_code == 0) answer = output->out;
  }
  return GpuFindings(devices, answer);
}

}  // namespace

std::vector<Finding> ExamineMachine(const Environment& environment, const std::string& state_directory) {
  std::vector<Finding> findings = {Program(environment, "tesserad"), Program(environment, "tessera-worker")};
  Memory(&findings);
  for (Finding finding : {Disk(state_directory), StateFolder(state_directory), Daemon(state_directory),
                          Ports(), OpenFiles(), Clock(), HostName()}) {
    findings.push_back(std::move(finding));
  }
  for (Finding& finding : Gpus(environment)) findings.push_back(std::move(finding));
  return findings;
}

}  // namespace tessera::cli
