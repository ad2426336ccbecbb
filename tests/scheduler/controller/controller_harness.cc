#include "tests/scheduler/controller/controller_harness.h"

#include <stdlib.h>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "scheduler/store/memory_store.h"
#include "tests/status.h"

namespace tessera::scheduler {

void ScriptedSink::Send(const DownMessage& message) {
  absl::MutexLock lock(&mutex_);
  messages_.push_back(Read(message));
}

void ScriptedSink::Close(const absl::Status& status) {
  absl::MutexLock lock(&mutex_);
  closed_ = true;
  close_status_ = status;
}

v1::Assignment ScriptedSink::AwaitAssignment() {
  absl::MutexLock lock(&mutex_);
  const v1::WorkerDown* found = nullptr;
  const auto there = [&] {
    for (const auto& message : messages_) {
      if (message.has_assignment()) found = &message;
    }
    return found != nullptr;
  };
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) << "no assignment";
  return found == nullptr ? v1::Assignment() : found->assignment();
}

v1::Stop ScriptedSink::AwaitStop() {
  absl::MutexLock lock(&mutex_);
  const v1::WorkerDown* found = nullptr;
  const auto there = [&] {
    for (const auto& message : messages_) {
      if (message.has_stop()) found = &message;
    }
    return found != nullptr;
  };
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) << "no stop";
  return found == nullptr ? v1::Stop() : found->stop();
}

v1::Plan ScriptedSink::AwaitPlan(int64_t generation) {
  absl::MutexLock lock(&mutex_);
  const v1::WorkerDown* found = nullptr;
  const auto there = [&] {
    for (const auto& message : messages_) {
      if (message.has_plan() && message.plan().generation() == generation) found = &message;
    }
    return found != nullptr;
  };
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&there), kPatience)) << "no plan " << generation;
  return found == nullptr ? v1::Plan() : found->plan();
}

bool ScriptedSink::AskedForStatistics() {
  absl::MutexLock lock(&mutex_);
  for (const auto& message : messages_) {
    if (message.has_statistics()) return true;
  }
  return false;
}

absl::Status ScriptedSink::AwaitClose() {
  absl::MutexLock lock(&mutex_);
  EXPECT_TRUE(mutex_.AwaitWithTimeout(absl::Condition(&closed_), kPatience)) << "not closed";
  return close_status_;
}

int ScriptedSink::assignments() {
  absl::MutexLock lock(&mutex_);
  int count = 0;
  for (const auto& message : messages_) count += message.has_assignment() ? 1 : 0;
  return count;
}

void ControllerHarness::SetUp() {
  std::string pattern = (std::filesystem::temp_directory_path() / "tessera-controller-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  folder_ = pattern;
  store_ = MakeMemoryStore();
  options_.state_directory = folder_.string();
  options_.scheduler_address = "127.0.0.1:1";
  options_.node = "n0";
  options_.cores = 4;
  options_.tick = absl::Milliseconds(5);
  options_.clock = [this] {
    ++readings_;
    return absl::Now() + absl::Nanoseconds(skew_nanos_.load());
  };
  RestartController();
}

void ControllerHarness::TearDown() {
  controller_.reset();
  std::filesystem::remove_all(folder_);
}

void ControllerHarness::RestartController() {
  controller_.reset();
  controller_ = MakeController(options_, store_.get(), &launcher_, &describer_, nullptr);
  ASSERT_OK(controller_->Start());
}

v1::TrainingJob ControllerHarness::Job(const std::string& name, int workers) {
  v1::TrainingJob job;
  job.set_namespace_("default");
  job.set_name(name);
  v1::TrainingJobSpec& spec = *job.mutable_spec();
  spec.mutable_model()->set_preset("stack");
  spec.mutable_data()->set_sequence_length(16);
  spec.mutable_workers()->set_count(workers);
  spec.mutable_workers()->set_batch(2);
  spec.mutable_subnetwork()->set_granularity(v1::GRANULARITY_BLOCK);
  spec.mutable_subnetwork()->set_masking(v1::MASKING_FORWARD);
  spec.mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_CYCLIC);
  spec.mutable_subnetwork()->set_coverage(1);
  spec.mutable_subnetwork()->set_min_holders(1);
  spec.mutable_subnetwork()->set_min_gap(0);
  spec.mutable_subnetwork()->set_ends_always_on(true);
  spec.mutable_subnetwork()->set_seed(1);
  spec.mutable_optimizer()->set_name("adamw");
  spec.mutable_schedule()->set_steps(100);
  spec.mutable_schedule()->set_accumulation(1);
  spec.mutable_schedule()->set_seed(1);
  spec.set_precision(v1::PRECISION_FP32);
  spec.mutable_retry()->set_infrastructure(3);
  spec.mutable_retry()->mutable_backoff()->set_nanos(1'000'000);
  spec.mutable_deadlines()->mutable_start()->set_seconds(120);
  spec.mutable_deadlines()->mutable_rendezvous()->set_seconds(120);
  spec.mutable_deadlines()->mutable_first_step()->set_seconds(600);
  spec.mutable_deadlines()->mutable_step()->set_seconds(300);
  spec.mutable_deadlines()->mutable_checkpoint()->set_seconds(600);
  spec.mutable_deadlines()->mutable_drain()->set_seconds(60);
  return job;
}

std::string ControllerHarness::Submit(const v1::TrainingJob& job) {
  auto response = controller_->Create(job, "", false);
  EXPECT_OK(response);
  return response.ok() ? response->training_job().uid() : "";
}

void ControllerHarness::AwaitTrue(const std::function<bool()>& predicate) {
  const absl::Time end = absl::Now() + kPatience;
  while (!predicate()) {
    if (absl::Now() > end) {
      ADD_FAILURE() << "did not come true";
      return;
    }
    absl::SleepFor(absl::Milliseconds(1));  // polls; no order depends on it
  }
}

v1::TrainingJob ControllerHarness::Await(const std::string& name,
                                         const std::function<bool(const v1::TrainingJob&)>& predicate) {
  v1::TrainingJob job;
  AwaitTrue([&] {
    auto record = store_->Get(Key(name));
    if (record.ok()) job = record->job;
    return record.ok() && predicate(job);
  });
  if (::testing::Test::HasFailure()) ADD_FAILURE() << job.status().ShortDebugString();
  return job;
}

v1::TrainingJob ControllerHarness::AwaitState(const std::string& name, v1::JobState state) {
  SCOPED_TRACE(absl::StrCat("waiting for ", v1::JobState_Name(state)));
  return Await(name, [&](const v1::TrainingJob& job) { return job.status().state() == state; });
}

void ControllerHarness::AwaitPasses() {
  const int64_t before = readings_;
  AwaitTrue([&] { return readings_ > before + 100; });
}

void ControllerHarness::Advance(absl::Duration by) { skew_nanos_ += absl::ToInt64Nanoseconds(by); }

v1::WorkerIdentity ControllerHarness::Who(const std::string& uid, int epoch, int rank) {
  v1::WorkerIdentity who;
  who.set_job_uid(uid);
  who.set_epoch(epoch);
  who.set_rank(rank);
  who.set_pid(1000 * epoch + rank);
  who.set_node("n0");
  return who;
}

std::shared_ptr<ScriptedSink> ControllerHarness::Connect(const std::string& uid, int epoch, int rank,
                                                         int64_t step) {
  auto sink = std::make_shared<ScriptedSink>();
  v1::Hello hello;
  *hello.mutable_identity() = Who(uid, epoch, rank);
  hello.set_step(step);
  hello.set_metrics_address(absl::StrCat("127.0.0.1:", 9000 + rank));
  const absl::Status status = controller_->WorkerConnected(hello, sink);
  EXPECT_OK(status);
  return sink;
}

std::vector<std::shared_ptr<ScriptedSink>> ControllerHarness::ConnectAll(const std::string& uid, int epoch,
                                                                         int workers, int64_t step) {
  std::vector<std::shared_ptr<ScriptedSink>> sinks;
  for (int rank = 0; rank < workers; ++rank) sinks.push_back(Connect(uid, epoch, rank, step));
  return sinks;
}

void ControllerHarness::Report(const std::string& uid, int epoch, int rank, int64_t step) {
  v1::WorkerUp up;
  v1::Progress& progress = *up.mutable_progress();
  progress.set_step(step);
  progress.set_loss(5.0 / static_cast<double>(step + 1));
  progress.set_tokens(step * 64);
  progress.set_step_seconds(0.5);
  progress.set_memory_used_bytes(1000 + rank);
  progress.set_memory_peak_bytes(2000 + rank);
  progress.set_traffic_bytes(300);
  controller_->WorkerMessage(Who(uid, epoch, rank), up);
}

void ControllerHarness::Finish(const std::string& uid, int epoch, int rank, v1::WorkerOutcome outcome,
                               const std::string& error) {
  v1::WorkerUp up;
  up.mutable_finished()->set_outcome(outcome);
  up.mutable_finished()->set_error(error);
  controller_->WorkerMessage(Who(uid, epoch, rank), up);
}

std::vector<std::shared_ptr<ScriptedSink>> ControllerHarness::Train(const std::string& name,
                                                                    const std::string& uid, int epoch,
                                                                    int workers, int64_t step) {
  AwaitTrue([&] { return launcher_.Running() >= workers; });
  Await(name, [&](const v1::TrainingJob& job) {
    return job.status().epoch() == epoch && job.status().state() == v1::JOB_STATE_STARTING;
  });
  auto sinks = ConnectAll(uid, epoch, workers);
  for (int rank = 0; rank < workers; ++rank) {
    sinks[static_cast<size_t>(rank)]->AwaitAssignment();
    v1::WorkerUp up;
    up.mutable_phase()->set_phase(v1::WORKER_PHASE_TRAINING);
    controller_->WorkerMessage(Who(uid, epoch, rank), up);
  }
  for (int rank = 0; rank < workers; ++rank) Report(uid, epoch, rank, step);
  AwaitState(name, v1::JOB_STATE_RUNNING);
  return sinks;
}

void ControllerHarness::FinishAll(const std::string& uid, int epoch, v1::WorkerOutcome outcome, int workers) {
  for (int rank = 0; rank < workers; ++rank) Finish(uid, epoch, rank, outcome);
  for (int rank = 0; rank < workers; ++rank) launcher_.Exit(uid, epoch, rank, 0);
}

std::vector<std::string> ControllerHarness::EventReasons(const std::string& name) {
  std::vector<std::string> reasons;
  auto events = store_->Events(Key(name));
  if (events.ok()) {
    for (const auto& event : *events) reasons.push_back(event.reason());
  }
  return reasons;
}

}  // namespace tessera::scheduler
