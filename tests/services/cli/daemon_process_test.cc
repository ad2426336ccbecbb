#include "services/cli/daemon_process.h"

#include <unistd.h>

#include <filesystem>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "services/cli/exit_code.h"
#include "tests/services/cli/fake_service.h"
#include "tests/status.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

// The daemon is a script called tesserad; where it comes up, it points at the fake service.
class Daemon : public CommandTest {
 protected:
  void Install(const std::string& body) {
    const std::string path = Write("tesserad", "#!/bin/sh\n" + body);
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  void InstallWorking() {
    Install(absl::StrCat("trap 'kill $child; exit 0' TERM\n", "printf '{\"grpc\":\"", service_.address(),
                         "\",\"rest\":\"http://127.0.0.1:1\",\"tokenFile\":\"", token_file_,
                         "\",\"pid\":%d}' $$ > \"$2/endpoint.tmp\"\n",
                         "mv \"$2/endpoint.tmp\" \"$2/endpoint.json\"\n", "sleep 60 & child=$!\nwait\n"));
  }
};

TEST_F(Daemon, StartsOnceAndStops) {
  InstallWorking();
  EXPECT_EQ(RunWithoutAddress({"daemon", "status"}), kUnreachable);
  ASSERT_EQ(RunWithoutAddress({"daemon", "start"}), kSucceeded) << err();
  EXPECT_THAT(out(), HasSubstr("was started"));
  EXPECT_EQ(RunWithoutAddress({"daemon", "start"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("runs already"));
  EXPECT_EQ(RunWithoutAddress({"daemon", "status"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr(service_.address()));
  EXPECT_EQ(RunWithoutAddress({"daemon", "status", "-o", "json"}), kSucceeded);
  const auto status = nlohmann::json::parse(out());
  EXPECT_EQ(status["grpc"], service_.address());
  EXPECT_EQ(status["running"], true);
  EXPECT_EQ(status["jobs"]["active"], 0);
  EXPECT_EQ(RunWithoutAddress({"list"}), kSucceeded);  // found by the state directory
  EXPECT_EQ(RunWithoutAddress({"daemon", "stop"}), kSucceeded) << err();
  EXPECT_EQ(RunWithoutAddress({"daemon", "status", "-o", "json"}), kUnreachable);
  EXPECT_EQ(nlohmann::json::parse(out())["running"], false);
  EXPECT_EQ(RunWithoutAddress({"daemon", "stop", "-o", "json"}), kSucceeded);
  EXPECT_EQ(nlohmann::json::parse(out())["stopped"], false);
  EXPECT_EQ(RunWithoutAddress({"list"}), kUnreachable);  // the stale endpoint is not believed
}

TEST_F(Daemon, TrainStartsItAndItOutlivesTheProgram) {
  InstallWorking();
  service_.on_watched = [this](const std::string& name) {
    service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
  };
  EXPECT_EQ(RunWithoutAddress({"train", job_file_, "--no-sample"}), kSucceeded) << err();
  EXPECT_THAT(err(), HasSubstr("started the daemon"));
  EXPECT_EQ(RunWithoutAddress({"daemon", "status"}), kSucceeded);
  EXPECT_EQ(RunWithoutAddress({"daemon", "stop"}), kSucceeded);
}

TEST_F(Daemon, TrainStartsItAgainWhenItDied) {
  InstallWorking();
  std::atomic<int> streams = 0;
  service_.on_watched = [&](const std::string& name) {
    if (++streams == 1) {
      EXPECT_OK(StopDaemon(folder_ + "/state", absl::Seconds(20)));
    } else {
      service_.SetState(name, v1::JOB_STATE_SUCCEEDED, 100);
    }
  };
  service_.on_watch = [&] {
    return streams == 1 ? grpc::Status(grpc::StatusCode::UNAVAILABLE, "connection reset") : grpc::Status::OK;
  };
  EXPECT_EQ(RunWithoutAddress({"train", job_file_, "--no-sample"}), kSucceeded) << err();
  EXPECT_EQ(streams, 2);
  EXPECT_THAT(err(), HasSubstr("connection lost"));
  EXPECT_EQ(RunWithoutAddress({"daemon", "stop"}), kSucceeded);
}

TEST_F(Daemon, ItHoldsNeitherTheLocksNorTheFolderOfWhoStartedIt) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);  // not close-on-exec, as a build's lock
  const absl::Cleanup close_pipe = [&] {
    close(fds[0]);
    close(fds[1]);
  };
  Install("ls /proc/$$/fd | sort -n | tail -n 1 >&2; pwd >&2; exit 3\n");
  EXPECT_EQ(RunWithoutAddress({"daemon", "start"}), kUnreachable);
  const std::vector<std::string> lines = LastLines(folder_ + "/state/tesserad.log", 2);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LE(std::stoi(lines[0]), 10) << "the shell's own script";
  EXPECT_EQ(lines[1], std::filesystem::canonical(folder_).string() + "/state");
}

TEST_F(Daemon, OneThatDoesNotComeUpShowsItsLastWords) {
  Install("echo 'port 8080 is taken' >&2\nexit 3\n");
  EXPECT_EQ(RunWithoutAddress({"daemon", "start"}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr("ended with exit code 3"));
  EXPECT_THAT(err(), HasSubstr("port 8080 is taken"));
  EXPECT_THAT(err(), HasSubstr("/state/tesserad.log"));
}

TEST_F(Daemon, AMissingProgramIsNamed) {
  EXPECT_EQ(RunWithoutAddress({"train", job_file_}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr("tesserad is neither beside this program nor in PATH"));
}

}  // namespace
}  // namespace tessera::cli
