// Two workers under a fake scheduler, from environment to exit code.
#include "worker/training_run.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "scheduler/wire/plan_wire.h"
#include "tests/status.h"
#include "tests/worker/control/fake_scheduler.h"
#include "worker/checkpoint/manifest.h"
#include "worker/models/model.h"

namespace tessera::worker {
namespace {

class TrainingRunTest : public testing::Test {
 protected:
  TrainingRunTest() {
    std::string name = testing::TempDir() + "/tessera-run-XXXXXX";
    directory_ = ::mkdtemp(name.data());
    WriteShard();
    v1::TrainingJobSpec* spec = scheduler_.assignment.mutable_spec();
    spec->mutable_model()->set_preset("llama-1m");
    spec->mutable_data()->set_train(directory_ + "/train.bin");
    spec->mutable_data()->set_validation(directory_ + "/train.bin");
    spec->mutable_data()->set_sequence_length(32);
    spec->mutable_workers()->set_count(2);
    spec->mutable_workers()->set_batch(2);
    spec->mutable_subnetwork()->set_scheme(v1::MASK_SCHEME_CYCLIC);
    spec->mutable_subnetwork()->set_granularity(v1::GRANULARITY_BLOCK);
    spec->mutable_subnetwork()->set_masking(v1::MASKING_FORWARD);
    spec->mutable_subnetwork()->set_coverage(0.5);
    spec->mutable_subnetwork()->set_min_holders(1);
    spec->mutable_subnetwork()->set_ends_always_on(true);
    spec->mutable_subnetwork()->set_seed(1);
    spec->mutable_optimizer()->set_learning_rate(1e-3);
    spec->mutable_optimizer()->set_beta1(0.9);
    spec->mutable_optimizer()->set_beta2(0.95);
    spec->mutable_optimizer()->set_epsilon(1e-8);
    spec->mutable_optimizer()->set_clip_norm(1);
    spec->mutable_schedule()->set_steps(6);
    spec->mutable_schedule()->set_accumulation(1);
    spec->mutable_schedule()->set_seed(1);
    spec->mutable_schedule()->set_final_learning_rate_ratio(0.1);
    spec->mutable_evaluation()->set_tokens(128);
    spec->mutable_checkpoint()->set_keep(2);
    spec->mutable_checkpoint()->set_export_hugging_face(true);
    scheduler_.assignment.set_job_name("job");
    scheduler_.assignment.set_epoch(3);
    scheduler_.assignment.set_world_size(2);
    scheduler_.assignment.set_run_directory(directory_);
    scheduler_.assignment.set_checkpoint_directory(directory_ + "/checkpoints");
    ModelConfig config;
    config.preset = "llama-1m";
    const auto model = MakeModel(config);
    const auto plan = wire::PlanJob((*model)->shape(), *spec, {});
    EXPECT_OK(plan);
    *scheduler_.assignment.mutable_plan() = *plan;
  }
  ~TrainingRunTest() override { std::filesystem::remove_all(directory_); }

  void WriteShard() {
    constexpr int kTokens = 8000;
    int32_t header[256] = {20261129, 1, kTokens};
    std::string bytes(reinterpret_cast<const char*>(header), sizeof(header));
    for (int i = 0; i < kTokens; ++i) bytes.push_back(static_cast<char>('a' + i % 7));
    std::ofstream(directory_ + "/train.bin", std::ios::binary) << bytes;
  }

  LaunchEnvironment Environment(int rank) {
    LaunchEnvironment environment;
    environment.scheduler = scheduler_.address();
    environment.epoch = 3;
    environment.rank = rank;
    environment.confirmation = confirmation_;
    return environment;
  }

  std::vector<ExitCode> RunWorkers() {
    std::vector<ExitCode> codes(2, kExitUsage);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 2; ++rank) {
      threads.emplace_back([&, rank] {
        TrainerSignals signals;
        codes[rank] = RunUnderLauncher(Environment(rank), &signals);
      });
    }
    for (auto& thread : threads) thread.join();
    return codes;
  }

  v1::Finished FinishedOf(int index) {
    std::vector<v1::Finished> all;
    for (const v1::WorkerUp& up : scheduler_.received()) {
      if (up.has_finished()) all.push_back(up.finished());
    }
    return index < static_cast<int>(all.size()) ? all[index] : v1::Finished();
  }

  std::string directory_;
  absl::Duration confirmation_ = LaunchEnvironment().confirmation;
  FakeScheduler scheduler_;
};

TEST_F(TrainingRunTest, TrainsToTheEndAndLeavesEverythingBehind) {
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitCompleted, kExitCompleted}));
  EXPECT_EQ(FinishedOf(0).outcome(), v1::WORKER_OUTCOME_COMPLETED) << FinishedOf(0).error();
  const std::string checkpoint = directory_ + "/checkpoints/step-00000006";
  EXPECT_EQ(ListCheckpoints(directory_ + "/checkpoints"), (std::vector<std::string>{checkpoint}));
  for (const char* file : {"model.safetensors", "config.json"}) {
    EXPECT_TRUE(std::filesystem::exists(directory_ + "/model/" + file)) << file;
  }
  std::vector<double> validation;
  std::map<v1::WorkerPhase, int> phases;
  for (const v1::WorkerUp& up : scheduler_.received()) {
    if (up.has_phase()) ++phases[up.phase().phase()];
    if (!up.has_progress()) continue;
    if (up.progress().has_validation_loss()) validation.push_back(up.progress().validation_loss());
    EXPECT_GE(up.progress().memory_peak_bytes(), 0);
  }
  ASSERT_EQ(validation.size(), 4u);  // both ranks, before and after
  EXPECT_LT(validation.back(), validation.front());
  for (const auto phase :
       {v1::WORKER_PHASE_RENDEZVOUS, v1::WORKER_PHASE_LOADING, v1::WORKER_PHASE_TRAINING,
        v1::WORKER_PHASE_EVALUATING, v1::WORKER_PHASE_CHECKPOINTING, v1::WORKER_PHASE_EXPORTING}) {
    EXPECT_GT(phases[phase], 0) << v1::WorkerPhase_Name(phase);
  }
  std::ifstream log(directory_ + "/metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(log, line);) ++lines;
  EXPECT_EQ(lines, 6 + 2);
}

// On a real model; the sums themselves are tested in tests/worker/train/regimes_test.cc.
TEST_F(TrainingRunTest, RegimesOfTheJobAreTrainedAndSendWhatThePlanSays) {
  v1::TrainingJobSpec* spec = scheduler_.assignment.mutable_spec();
  spec->mutable_subnetwork()->set_masking(v1::MASKING_BACKWARD);
  spec->mutable_subnetwork()->set_absent_weights(v1::ABSENT_WEIGHTS_STREAMED);
  spec->set_activation_checkpointing(v1::ACTIVATION_CHECKPOINTING_ALWAYS);
  spec->set_gradient_precision(v1::PRECISION_BF16);
  spec->mutable_optimizer()->set_name("sgd");
  spec->mutable_optimizer()->set_momentum(0.9);
  spec->mutable_optimizer()->set_learning_rate(0.1);
  const auto model = MakeModel({.preset = "llama-1m"});
  const auto plan = wire::PlanJob((*model)->shape(), *spec, {});
  ASSERT_OK(plan);
  *scheduler_.assignment.mutable_plan() = *plan;
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitCompleted, kExitCompleted})) << FinishedOf(0).error();
  std::vector<double> validation;
  for (const v1::WorkerUp& up : scheduler_.received()) {
    if (!up.has_progress()) continue;
    if (up.progress().has_validation_loss()) validation.push_back(up.progress().validation_loss());
    if (up.progress().traffic_bytes() == 0) continue;
    // The plan leaves the small records of a step out.
    EXPECT_NEAR(static_cast<double>(up.progress().traffic_bytes()) /
                    static_cast<double>(plan->workers(0).traffic_bytes_per_step()),
                1, 0.02);
  }
  ASSERT_EQ(validation.size(), 4u);  // both ranks, before and after
  EXPECT_LT(validation.back(), validation.front());
}

TEST_F(TrainingRunTest, AStopOrderEndsWithACheckpointAndItsOwnExitCode) {
  scheduler_.assignment.mutable_plan()->set_total_steps(100000);
  scheduler_.after_hello.emplace_back().mutable_stop()->set_checkpoint(true);
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitStopped, kExitStopped}));
  EXPECT_EQ(ListCheckpoints(directory_ + "/checkpoints").size(), 1u);
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/model"));
}

TEST_F(TrainingRunTest, AnotherModelThanTheSchedulersIsRefusedBeforeTheFirstStep) {
  scheduler_.assignment.mutable_plan()->set_mask_fingerprint(1);
  const auto codes = RunWorkers();
  EXPECT_EQ(codes[0], codes[1]);
  EXPECT_NE(codes[0], kExitCompleted);
  EXPECT_NE(FinishedOf(0).error().find("fingerprint"), std::string::npos) << FinishedOf(0).error();
}

TEST_F(TrainingRunTest, PeersOfAFailedWorkerNoticeBeforeTheSchedulerDoes) {
  // Rank 1 fails while rank 0 waits for it, and its end is not confirmed before rank 0's comes.
  scheduler_.adapt = [](v1::Assignment& assignment) {
    if (assignment.rank() == 1) assignment.mutable_spec()->mutable_model()->set_initial_weights("/nowhere");
  };
  scheduler_.hold_until_other_ends = v1::WORKER_OUTCOME_INVALID;
  // Longer than a slow machine needs, shorter than the rendezvous's and the collectives' own time-outs.
  confirmation_ = absl::Seconds(90);
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitPeerLost, kExitInvalid}));
  // A worker that kept its connections until its end is confirmed would have given that up first.
  EXPECT_FALSE(scheduler_.held_stream_ended);
}

TEST_F(TrainingRunTest, AFencedWorkerStopsWithoutACheckpoint) {
  scheduler_.assignment.mutable_plan()->set_total_steps(100000);
  scheduler_.after_hello.emplace_back().mutable_stop()->set_reason("another epoch has begun");
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitStopped, kExitStopped}));
  EXPECT_TRUE(ListCheckpoints(directory_ + "/checkpoints").empty());
}

TEST_F(TrainingRunTest, AFailingDiskIsNoLostPeer) {
  // Fails to open as a failing disk does, for root too: neither missing nor forbidden.
  const std::string loop = directory_ + "/loop.bin";
  std::filesystem::create_symlink(loop, loop);
  scheduler_.assignment.mutable_spec()->mutable_data()->set_train(loop);
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitApplication, kExitApplication}));
  EXPECT_EQ(FinishedOf(0).outcome(), v1::WORKER_OUTCOME_APPLICATION);
  EXPECT_NE(FinishedOf(0).error().find(loop), std::string::npos) << FinishedOf(0).error();
}

TEST_F(TrainingRunTest, MissingDataIsInvalidAndNamed) {
  scheduler_.assignment.mutable_spec()->mutable_data()->set_train(directory_ + "/nothing.bin");
  EXPECT_EQ(RunWorkers(), (std::vector<ExitCode>{kExitInvalid, kExitInvalid}));
  EXPECT_NE(FinishedOf(0).error().find("nothing.bin"), std::string::npos) << FinishedOf(0).error();
}

TEST(LaunchEnvironmentTest, MissingOrWrongVariablesAreNamed) {
  std::map<std::string, std::string> values{
      {"TESSERA_SCHEDULER", "h:1"}, {"TESSERA_JOB", "u"}, {"TESSERA_EPOCH", "1"}};
  const Variable variable = [&](const char* name) -> const char* {
    const auto it = values.find(name);
    return it == values.end() ? nullptr : it->second.c_str();
  };
  EXPECT_NE(ReadLaunchEnvironment(variable).status().message().find("TESSERA_RANK"), std::string::npos);
  values["TESSERA_RANK"] = "x";
  EXPECT_NE(ReadLaunchEnvironment(variable).status().message().find("'x'"), std::string::npos);
  values["TESSERA_RANK"] = "2";
  EXPECT_EQ(ReadLaunchEnvironment(variable)->rank, 2);
}

}  // namespace
}  // namespace tessera::worker
