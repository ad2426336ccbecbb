#include "scheduler/launch/local_launcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/launch/launch_record.h"
#include "scheduler/launch/process_identity.h"
#include "tests/patience.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

class LocalLauncherTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-launch-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override {
    if (!record_.empty()) Make({})->Stop(record_, true).IgnoreError();
    std::filesystem::remove_all(folder_);
  }
  static std::unique_ptr<Launcher> Make(std::vector<std::string> arguments, std::string program = "/bin/sh") {
    return MakeLocalLauncher({std::move(program), std::move(arguments), "n0", {}});
  }
  static std::unique_ptr<Launcher> Script(const std::string& script) { return Make({"-c", script}); }

  LaunchRequest Request(int world_size, int epoch = 1) {
    LaunchRequest request;
    request.job_name = "j";
    request.job_uid = uid();
    request.epoch = epoch;
    request.world_size = world_size;
    request.run_directory = folder_.string();
    request.scheduler = "127.0.0.1:1";
    request.token_file = "/t";
    request.cpu_threads = 3;
    return request;
  }
  // Of a worker that runs; "" where it has no such variable.
  static std::string EnvironmentOf(const std::string& record, size_t rank, const std::string& name) {
    const auto environment = ProcessesNaming(name);
    const auto found = environment.find(DecodeLaunchRecord(record)->workers.at(rank).pid);
    return found == environment.end() ? "" : found->second;
  }
  // Of this test alone: others that run at the same time would take its workers for strays of theirs.
  std::string uid() const { return folder_.filename().string(); }
  std::string Log(int rank, int epoch = 1) {
    std::ifstream file(folder_ / absl::StrCat("logs/epoch-", epoch, "-rank-", rank, ".log"));
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  // Observes until nothing runs; processes end without being told when this is called.
  static std::vector<ProcessState> UntilEnded(Launcher& launcher, const std::string& record) {
    for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; ::usleep(2000)) {
      auto states = launcher.Observe(record);
      EXPECT_OK(states);
      bool running = false;
      for (const auto& state : *states) running |= state.running;
      if (!running) return *states;
    }
    ADD_FAILURE() << "still running";
    return {};
  }

  std::filesystem::path folder_;
  std::string record_;
};

TEST_F(LocalLauncherTest, WorkersGetTheirIdentityAndThreadsAndNoJobCanOverrideIt) {
  auto launcher = Script(
      "echo $TESSERA_SCHEDULER $TESSERA_JOB $TESSERA_EPOCH $TESSERA_RANK $TESSERA_TOKEN_FILE "
      "$OMP_NUM_THREADS $MKL_NUM_THREADS $MINE; echo err >&2");
  LaunchRequest request = Request(2);
  request.env = {{"MINE", "$(reboot)"}, {"TESSERA_RANK", "77"}, {"MKL_NUM_THREADS", "9"}};
  auto record = launcher->Launch(request);
  ASSERT_OK(record);
  for (const auto& state : UntilEnded(*launcher, *record)) {
    EXPECT_TRUE(state.exit_known);
    EXPECT_EQ(state.exit_code, 0);
    EXPECT_EQ(state.node, "n0");
  }
  EXPECT_EQ(Log(0), absl::StrCat("127.0.0.1:1 ", uid(), " 1 0 /t 3 9 $(reboot)\nerr\n"));
  EXPECT_EQ(Log(1), absl::StrCat("127.0.0.1:1 ", uid(), " 1 1 /t 3 9 $(reboot)\nerr\n"));
}

TEST_F(LocalLauncherTest, ExitCodesAndSignalsAreToldApart) {
  auto launcher = Script("if [ $TESSERA_RANK = 0 ]; then exit 5; else kill -9 $$; fi");
  auto record = launcher->Launch(Request(2));
  ASSERT_OK(record);
  auto states = UntilEnded(*launcher, *record);
  ASSERT_EQ(states.size(), 2u);
  EXPECT_EQ(states[0].exit_code, 5);
  EXPECT_EQ(states[0].signal, 0);
  EXPECT_EQ(states[1].exit_code, 137);
  EXPECT_EQ(states[1].signal, SIGKILL);
  EXPECT_EQ(launcher->Observe(*record)->at(0).exit_code, 5) << "remembered after it was reaped";
}

TEST_F(LocalLauncherTest, LaunchingAnEpochAgainFindsItsWorkers) {
  auto launcher = Make({"1000"}, "/bin/sleep");
  auto record = launcher->Launch(Request(2));
  ASSERT_OK(record);
  record_ = *record;
  auto again = Make({"1000"}, "/bin/sleep")->Launch(Request(2));
  ASSERT_OK(again);
  EXPECT_EQ(*again, *record);
}

TEST_F(LocalLauncherTest, AnotherLauncherFindsAndEndsTheWorkersByTheRecord) {
  auto record = Make({"1000"}, "/bin/sleep")->Launch(Request(2));
  ASSERT_OK(record);
  record_ = *record;
  auto launcher = Make({"1000"}, "/bin/sleep");
  const auto found = launcher->Observe(*record);
  ASSERT_OK(found);
  for (const auto& state : *found) EXPECT_TRUE(state.running);
  ASSERT_OK(launcher->Stop(*record, false));
  for (const auto& state : UntilEnded(*launcher, *record)) EXPECT_EQ(state.signal, SIGTERM);
}

TEST_F(LocalLauncherTest, AWorkerThatStandsInNoRecordIsKilledBeforeItsRankIsStartedAgain) {
  auto lost = Make({"1000"}, "/bin/sleep")->Launch(Request(2));
  ASSERT_OK(lost);
  auto other = Make({"1000"}, "/bin/sleep")->Launch(Request(1, /*epoch=*/2));
  ASSERT_OK(other);
  std::filesystem::remove(folder_ / "logs/epoch-1-processes.json");  // it died before it could write it
  auto launcher = Make({"1000"}, "/bin/sleep");
  auto again = launcher->Launch(Request(2));
  ASSERT_OK(again);
  record_ = *again;
  const auto lost_states = launcher->Observe(*lost);
  const auto states = launcher->Observe(*again);
  for (const auto& state : *lost_states) EXPECT_FALSE(state.running);
  for (const auto& state : *states) EXPECT_TRUE(state.running);
  EXPECT_TRUE(launcher->Observe(*other)->at(0).running) << "of another epoch";
  ASSERT_OK(launcher->KillUnrecorded(uid(), 2));
  UntilEnded(*launcher, *other);
}

TEST_F(LocalLauncherTest, AStoppedWorkerRunsButIsHalted) {
  auto launcher = Make({"1000"}, "/bin/sleep");
  auto record = launcher->Launch(Request(1));
  ASSERT_OK(record);
  record_ = *record;
  auto look = [&] { return launcher->Observe(*record)->at(0); };
  EXPECT_FALSE(look().halted);
  ::kill(static_cast<pid_t>(look().pid), SIGSTOP);
  while (!look().halted) ::usleep(2000);
  EXPECT_TRUE(look().running);
  ASSERT_OK(launcher->Stop(*record, true));
  EXPECT_EQ(UntilEnded(*launcher, *record).at(0).signal, SIGKILL);
}

// As while other threads still end or a core is written: the process table has a zombie, but nobody can
// wait for it and learn how it ended.
TEST_F(LocalLauncherTest, AWorkerWhoseMainThreadEndedFirstIsWaitedForAndItsEndIsKnown) {
  auto launcher = Make({"-c",
                        "import ctypes, threading, time\n"
                        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
                        "print('ready', flush=True)\n"
                        "ctypes.CDLL(None).pthread_exit(None)"},
                       "/usr/bin/python3");
  auto record = launcher->Launch(Request(1));
  ASSERT_OK(record);
  record_ = *record;
  const ProcessIdentity worker = DecodeLaunchRecord(*record)->workers.at(0);
  while (IsAlive(worker)) ::usleep(2000);  // says the process table
  EXPECT_TRUE(launcher->Observe(*record)->at(0).running);
  ::kill(worker.pid, SIGKILL);
  const auto ended = UntilEnded(*launcher, *record);
  EXPECT_TRUE(ended.at(0).exit_known);
  EXPECT_EQ(ended.at(0).signal, SIGKILL);
}

TEST_F(LocalLauncherTest, ARecycledPidIsNeitherRunningNorSignalled) {
  const pid_t bystander = ::fork();
  if (bystander == 0) {
    ::pause();
    ::_exit(0);
  }
  auto identity = IdentityOf(bystander);
  ASSERT_TRUE(identity.has_value());
  LaunchRecord record{"u1", 1, 1, "n0", BootId(), {{bystander, identity->start - 5}}};
  auto launcher = Make({});
  auto states = launcher->Observe(Encode(record));
  ASSERT_OK(states);
  EXPECT_FALSE(states->at(0).running);
  EXPECT_FALSE(states->at(0).exit_known);
  ASSERT_OK(launcher->Stop(Encode(record), true));
  EXPECT_TRUE(IsAlive(*identity));
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
}

TEST_F(LocalLauncherTest, ProcessesOfAnEarlierBootAreGone) {
  auto self = IdentityOf(::getpid());
  LaunchRecord record{"u1", 1, 1, "n0", "another-boot", {*self}};
  EXPECT_FALSE(Make({})->Observe(Encode(record))->at(0).running);
  EXPECT_OK(Make({})->Stop(Encode(record), true));
}

TEST_F(LocalLauncherTest, WhatAWorkerStartedEndsWithIt) {
  auto launcher = Script("sleep 1000 & echo $! > " + (folder_ / "child").string() + "; exit 0");
  auto record = launcher->Launch(Request(1));
  ASSERT_OK(record);
  UntilEnded(*launcher, *record);
  std::ifstream file(folder_ / "child");
  pid_t child = 0;
  ASSERT_TRUE(file >> child);
  for (const absl::Time end = absl::Now() + kPatience; absl::Now() < end; ::usleep(2000)) {
    auto identity = IdentityOf(child);
    if (!identity.has_value() || !IsAlive(*identity)) return;
  }
  ADD_FAILURE() << "the worker's child lives on";
}

TEST_F(LocalLauncherTest, KillingEndsThoseThatIgnoreBeingAsked) {
  auto launcher = Script("trap '' TERM; echo ready; while :; do sleep 0.01; done");
  auto record = launcher->Launch(Request(1));
  ASSERT_OK(record);
  record_ = *record;
  while (Log(0) != "ready\n") ::usleep(2000);
  ASSERT_OK(launcher->Stop(*record, false));
  EXPECT_TRUE(launcher->Observe(*record)->at(0).running);
  ASSERT_OK(launcher->Stop(*record, true));
  EXPECT_EQ(UntilEnded(*launcher, *record).at(0).signal, SIGKILL);
  EXPECT_OK(launcher->Stop(*record, true)) << "gone already";
}

// A folder in the place of a rank's log makes that rank impossible to start.
TEST_F(LocalLauncherTest, AllOrNone) {
  std::filesystem::create_directories(folder_ / "logs/epoch-1-rank-2.log");
  auto launcher = Make({"1000"}, "/bin/sleep");
  auto record = launcher->Launch(Request(3));
  ASSERT_FALSE(record.ok());
  EXPECT_THAT(record.status().message(), HasSubstr("rank-2.log"));
  auto partial = LoadLaunchRecord(folder_.string(), 1);
  ASSERT_OK(partial);
  ASSERT_EQ(partial->workers.size(), 2u);
  for (const auto& worker : partial->workers) EXPECT_FALSE(IsAlive(worker));
}

// Names of their own: other tests' workers are in the same process table.
TEST_F(LocalLauncherTest, NoTwoJobsGetOneGpuAlsoFromALauncherThatKnowsOfNeither) {
  const std::vector<std::string> gpus = {uid() + "-0", uid() + "-1", uid() + "-2"};
  const auto launcher = [&] {
    return MakeLocalLauncher(
        {.worker_program = "/bin/sleep", .arguments = {"1000"}, .node = "n0", .gpus = gpus});
  };
  const auto request = [&](const std::string& job, int workers) {
    LaunchRequest request = Request(workers);
    request.job_uid = uid() + job;
    request.run_directory = (folder_ / job).string();
    request.gpus = 1;
    return request;
  };
  const auto end = [&](const std::string& record) {
    EXPECT_OK(launcher()->Stop(record, /*kill=*/true));
    UntilEnded(*launcher(), record);
  };
  const auto a = launcher()->Launch(request("a", 2));
  ASSERT_OK(a);
  EXPECT_EQ(*launcher()->Launch(request("a", 2)), *a) << "the same workers, and no further GPUs";
  const auto b = launcher()->Launch(request("b", 1));
  ASSERT_OK(b);
  EXPECT_EQ(EnvironmentOf(*a, 0, "TESSERA_GPUS"), gpus[0] + "," + gpus[1]);
  EXPECT_EQ(EnvironmentOf(*a, 1, "CUDA_VISIBLE_DEVICES"), gpus[0] + "," + gpus[1]);
  EXPECT_EQ(EnvironmentOf(*b, 0, "CUDA_VISIBLE_DEVICES"), gpus[2]);
  const absl::Status full = launcher()->Launch(request("c", 1)).status();
  EXPECT_TRUE(absl::IsUnavailable(full)) << full;
  EXPECT_THAT(std::string(full.message()), HasSubstr("1 GPU is needed and 0 of 3 are free; GPU " + gpus[0]));
  end(*a);
  // More workers than GPUs share them all: none of them is left to others.
  EXPECT_TRUE(absl::IsUnavailable(launcher()->Launch(request("c", 4)).status()));
  const auto c = launcher()->Launch(request("c", 1));
  ASSERT_OK(c);
  EXPECT_EQ(EnvironmentOf(*c, 0, "CUDA_VISIBLE_DEVICES"), gpus[0]);
  LaunchRequest on_cpu = request("d", 1);
  on_cpu.gpus = 0;
  const auto d = launcher()->Launch(on_cpu);
  ASSERT_OK(d);
  EXPECT_EQ(EnvironmentOf(*d, 0, "TESSERA_GPUS"), "");
  for (const auto& record : {*b, *c, *d}) end(record);
}

TEST_F(LocalLauncherTest, AMissingWorkerProgramIsNotFound) {
  auto record = Make({}, "/nowhere/tessera-worker")->Launch(Request(1));
  EXPECT_TRUE(absl::IsNotFound(record.status()));
  EXPECT_THAT(record.status().message(), HasSubstr("/nowhere/tessera-worker"));
}

TEST_F(LocalLauncherTest, ARecordOfAnotherKindIsAnError) {
  EXPECT_FALSE(Make({})->Observe("").ok());
  EXPECT_FALSE(Make({})->Observe("{\"launcher\":\"kubernetes\"}").ok());
}

}  // namespace
}  // namespace tessera::scheduler
