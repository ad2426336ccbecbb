// A controller over a memory store and a fake launcher, and workers that do what
// the test says.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "scheduler/controller/controller.h"
#include "tests/patience.h"
#include "tests/scheduler/launch/fake_describer.h"
#include "tests/scheduler/launch/fake_launcher.h"

namespace tessera::scheduler {

// The scheduler's end of a scripted worker's stream.
class ScriptedSink : public WorkerSink {
 public:
  void Send(const DownMessage& message) override;
  void Close(const absl::Status& status) override;
  v1::Assignment AwaitAssignment();
  v1::Stop AwaitStop();
  v1::Plan AwaitPlan(int64_t generation);  // sent by itself, not in an assignment
  bool AskedForStatistics();
  absl::Status AwaitClose();
  int assignments();

 private:
  absl::Mutex mutex_;
  std::vector<v1::WorkerDown> messages_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status close_status_ ABSL_GUARDED_BY(mutex_);
};

class ControllerHarness : public ::testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // A new controller over the same store, processes and files, as after kill -9.
  void RestartController();
  void StopController() { controller_.reset(); }

  // Valid, resolved: 2 workers, 100 steps, first back-off 1 ms.
  static v1::TrainingJob Job(const std::string& name, int workers = 2);
  // Submits it and returns its uid.
  std::string Submit(const v1::TrainingJob& job);
  static JobKey Key(const std::string& name) { return {"default", name}; }

  // The stored job, once it satisfies the predicate.
  v1::TrainingJob Await(const std::string& name,
                        const std::function<bool(const v1::TrainingJob&)>& predicate);
  v1::TrainingJob AwaitState(const std::string& name, v1::JobState state);
  void AwaitTrue(const std::function<bool()>& predicate);
  void Advance(absl::Duration by);  // the controller's clock
  void AwaitPasses();               // the controller has looked at everything since

  // The acts of workers of an epoch.
  static v1::WorkerIdentity Who(const std::string& uid, int epoch, int rank);
  std::shared_ptr<ScriptedSink> Connect(const std::string& uid, int epoch, int rank, int64_t step = 0);
  std::vector<std::shared_ptr<ScriptedSink>> ConnectAll(const std::string& uid, int epoch, int workers = 2,
                                                        int64_t step = 0);
  void Report(const std::string& uid, int epoch, int rank, int64_t step);
  void Finish(const std::string& uid, int epoch, int rank, v1::WorkerOutcome outcome,
              const std::string& error = "");
  // Connects all, meets, and makes one step: RUNNING.
  std::vector<std::shared_ptr<ScriptedSink>> Train(const std::string& name, const std::string& uid, int epoch,
                                                   int workers = 2, int64_t step = 1);
  // All finish with the outcome and exit.
  void FinishAll(const std::string& uid, int epoch, v1::WorkerOutcome outcome, int workers = 2);

  std::vector<std::string> EventReasons(const std::string& name);

  std::filesystem::path folder_;
  std::unique_ptr<JobStore> store_;
  FakeLauncher launcher_;
  FakeDescriber describer_;
  ControllerOptions options_;
  std::atomic<int64_t> skew_nanos_{0};
  std::atomic<int64_t> readings_{0};  // of the clock: each pass takes some, and less than ten for a job
  std::unique_ptr<Controller> controller_;
};

}  // namespace tessera::scheduler
