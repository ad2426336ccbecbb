// A checkpoint that is written while something goes wrong at each of its file operations in turn.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "tests/status.h"
#include "tests/worker/checkpoint/file_calls.h"
#include "tests/worker/train/training_rig.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/profile/memory_counter.h"

namespace tessera::worker {
namespace {

namespace fs = std::filesystem;

class CheckpointFaults : public testing::Test {
 protected:
  CheckpointFaults() {
    std::string name = testing::TempDir() + "/tessera-faults-XXXXXX";
    directory_ = fs::canonical(::mkdtemp(name.data()));
  }
  ~CheckpointFaults() override { fs::remove_all(directory_); }

  // Everything in the store is `value`, which tells one checkpoint from another.
  std::unique_ptr<UnitStore> Store(double value) {
    auto store = *UnitStore::Create(rig_.model, plan_, 0);
    for (GroupState& state : store->held()) {
      state.parameters.fill_(value);
      for (at::Tensor& moment : state.moments) moment.fill_(value);
    }
    return store;
  }

  absl::Status Write(int64_t step, double value, const Retention& retention = {.keep = 1}) {
    const auto world = MakeLoopbackWorld();
    CheckpointInfo info;
    info.step = step;
    const auto store = Store(value);
    return WriteCheckpoint(directory_, info, *store, world->all(), retention).status();
  }

  // The value of the newest checkpoint, which must be whole; -1: there is none.
  double NewestValue() {
    const std::vector<std::string> all = ListCheckpoints(directory_);
    if (all.empty()) return -1;
    const auto store = Store(0);
    const auto loaded = LoadCheckpoint(all.back(), store.get());
    EXPECT_OK(loaded);
    const double value = store->held()[0].parameters[0].item<double>();
    for (const GroupState& state : store->held()) {
      for (const at::Tensor& tensor : {state.parameters, state.moments[0], state.moments[1]}) {
        EXPECT_TRUE(at::all(tensor == value).item<bool>()) << "a mixture";
      }
    }
    return value;
  }

  void StartOver() {
    StopWatching();
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    ASSERT_OK(Write(4, 1));
  }

  TrainingRig rig_;
  plan::MaskPlan plan_ = rig_.Plan();
  std::string directory_;
};

TEST_F(CheckpointFaults, EverythingIsFlushedBeforeItIsPutInPlace) {
  StartOver();
  WatchFileCalls(directory_);
  ASSERT_OK(Write(8, 2));
  std::vector<std::string> unflushed;
  bool renamed = false, synced_after = false;
  for (const std::string& call : StopWatching()) {
    const std::string path = call.substr(call.find(' ') + 1);
    if (absl::StartsWith(call, "write ")) unflushed.push_back(path);
    if (absl::StartsWith(call, "create ")) unflushed.push_back(fs::path(path).parent_path());
    if (absl::StartsWith(call, "fsync ")) std::erase(unflushed, path);
    if (absl::StartsWith(call, "unlink ")) EXPECT_TRUE(synced_after) << "removed too early: " << call;
    if (renamed && call == "fsync " + directory_) synced_after = true;
    if (absl::StartsWith(call, "rename ")) {
      renamed = true;
      EXPECT_THAT(unflushed, testing::IsEmpty());
    }
  }
  EXPECT_TRUE(renamed && synced_after);
}

// Killed instead of each call in turn, when a new checkpoint is written and when one of the same step is
// replaced.
TEST_F(CheckpointFaults, KilledAtAnyFileOperationLeavesTheOldOrTheNewOne) {
  for (const int64_t step : {8, 4}) {
    bool killed = true;
    int survived_new = 0, at = 0;
    for (; killed; ++at) {
      ASSERT_NO_FATAL_FAILURE(StartOver());
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        WatchFileCalls(directory_, FileFault::kExit, at);
        ::_exit(Write(step, 2).ok() ? 0 : 1);
      }
      int status = 0;
      ASSERT_EQ(::waitpid(child, &status, 0), child);
      ASSERT_TRUE(WIFEXITED(status));
      killed = WEXITSTATUS(status) == 77;
      ASSERT_TRUE(killed || WEXITSTATUS(status) == 0);
      const double value = NewestValue();
      EXPECT_TRUE(value == 1 || value == 2) << "at " << at;
      survived_new += value == 2 ? 1 : 0;
      ASSERT_OK(Write(12, 3)) << "what is left over is no obstacle";
      EXPECT_EQ(NewestValue(), 3);
      for (const auto& entry : fs::directory_iterator(directory_))
        EXPECT_NE(entry.path().extension(), ".tmp");
    }
    EXPECT_GT(at, 30) << "calls were missed";
    EXPECT_GE(survived_new, 2);
  }
}

TEST_F(CheckpointFaults, AnErrorOfAnyFileOperationIsNamedAndLosesNothing) {
  for (const auto& [error, all_later] : {std::pair(EIO, false), {ENOSPC, true}}) {
    int failures_before_rename = 0;
    for (int at = 0;; ++at) {
      ASSERT_NO_FATAL_FAILURE(StartOver());
      WatchFileCalls(directory_, FileFault::kError, at, error, all_later);
      const absl::Status status = Write(8, 2);
      const size_t calls = StopWatching().size();
      const double value = NewestValue();
      // An error after the new one is in its place, of the folder's flush, leaves the new one.
      EXPECT_TRUE(status.ok() ? value == 2 : value == 1 || value == 2) << "at " << at << ": " << status;
      failures_before_rename += !status.ok() && value == 1 ? 1 : 0;
      if (!status.ok()) {
        EXPECT_NE(status.message().find(directory_), std::string::npos) << status;
        EXPECT_FALSE(absl::IsUnavailable(status) || absl::IsResourceExhausted(status)) << status;
        if (error == ENOSPC) {
          EXPECT_NE(status.message().find("free some space"), std::string::npos) << status;
        }
      }
      if (calls <= static_cast<size_t>(at)) break;
    }
    EXPECT_GT(failures_before_rename, 20);
  }
}

TEST_F(CheckpointFaults, WritingAndLoadingTakeNoCopyOfTheStates) {
  InstallMemoryCounter();
  rig_.model = ToyModel(150);
  plan_ = rig_.Plan();
  const auto store = Store(1);
  int64_t states = 0;
  for (const GroupState& state : store->held()) states += 3 * state.parameters.numel() * 4;
  const auto world = MakeLoopbackWorld();
  CheckpointInfo info;
  info.step = 4;
  ResetPeakTensorBytes();
  const int64_t before = LiveTensorBytes();
  ASSERT_OK(WriteCheckpoint(directory_, info, *store, world->all(), {}));
  // What remains is the list of files that ranks tell each other.
  EXPECT_LT(PeakTensorBytes() - before, states / 8) << "states: " << states;
  ResetPeakTensorBytes();
  ASSERT_OK(LoadCheckpoint(directory_ + "/step-00000004", store.get()));
  EXPECT_LT(PeakTensorBytes() - before, states / 8);
}

TEST_F(CheckpointFaults, AFolderThatCantBeReadIsNamed) {
  ASSERT_NO_FATAL_FAILURE(StartOver());
  if (::geteuid() == 0) {
    // Permissions do not stop root: another way not to be a folder.
    fs::rename(directory_ + "/step-00000004", directory_ + "/aside");
    std::ofstream(directory_ + "/step-00000004") << "no folder";
  } else {
    ::chmod((directory_ + "/step-00000004").c_str(), 0);
  }
  const auto store = Store(0);
  const absl::Status status = LoadCheckpoint(directory_ + "/step-00000004", store.get()).status();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find(directory_ + "/step-00000004/manifest.json"), std::string::npos) << status;
  if (::geteuid() != 0) ::chmod((directory_ + "/step-00000004").c_str(), 0755);
}

}  // namespace
}  // namespace tessera::worker
