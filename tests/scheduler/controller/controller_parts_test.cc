#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "scheduler/controller/checkpoint_finder.h"
#include "scheduler/controller/controller_notes.h"
#include "scheduler/controller/live_job.h"
#include "scheduler/controller/plan_maker.h"
#include "scheduler/controller/proto_time.h"
#include "scheduler/controller/worker_tokens.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

class ControllerPartsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-parts-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(ControllerPartsTest, NotesSurviveStorage) {
  ControllerNotes notes;
  notes.failures = {1, 2, 3, 4};
  notes.failure = "worker said \xff\xfe";
  notes.queued_at = absl::FromUnixMicros(1234567);
  notes.planned = notes.delete_when_done = notes.first_step_counted = true;
  notes.outcomes = {1, 0, 3};
  notes.workers = 3;
  notes.grow_to = 4;
  const ControllerNotes read = DecodeNotes(Encode(notes));
  EXPECT_EQ(read.failures, notes.failures);
  EXPECT_EQ(read.queued_at, notes.queued_at);
  EXPECT_EQ(read.retry_at, absl::InfinitePast());
  EXPECT_EQ(read.stopping_since, absl::InfiniteFuture());
  EXPECT_TRUE(read.planned && read.delete_when_done && read.first_step_counted);
  EXPECT_EQ(read.outcomes, notes.outcomes);
  EXPECT_EQ(read.workers, 3);
  EXPECT_EQ(read.grow_to, 4);
  EXPECT_EQ(DecodeNotes("nonsense").usable_bytes, 0);
}

TEST_F(ControllerPartsTest, TheNewestCompleteCheckpointIsFound) {
  EXPECT_FALSE(NewestCheckpoint((folder_ / "none").string()).has_value());
  EXPECT_FALSE(NewestCheckpoint(folder_.string()).has_value());
  for (const char* name : {"step-9", "step-00000010", "step-00000011.tmp", "step-x", "other"}) {
    std::filesystem::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "manifest.json") << "{}";
  }
  std::filesystem::create_directories(folder_ / "step-00000012");  // no manifest
  auto found = NewestCheckpoint(folder_.string());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->step, 10);
  EXPECT_EQ(found->path, (folder_ / "step-00000010").string());
}

TEST_F(ControllerPartsTest, TokensAreRandomKeptAndPrivate) {
  const std::string run = folder_.string();
  EXPECT_FALSE(ReadWorkerToken(run, 1).ok());
  ASSERT_OK(EnsureWorkerToken(run, 1));
  ASSERT_OK(EnsureWorkerToken(run, 2));
  const std::string first = *ReadWorkerToken(run, 1);
  EXPECT_NE(first, *ReadWorkerToken(run, 2));
  ASSERT_OK(EnsureWorkerToken(run, 1));
  EXPECT_EQ(*ReadWorkerToken(run, 1), first);
  struct stat info;
  ASSERT_EQ(::stat(WorkerTokenPath(run, 1).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  RemoveWorkerToken(run, 1);
  EXPECT_FALSE(ReadWorkerToken(run, 1).ok());
  EXPECT_FALSE(EnsureWorkerToken((folder_ / "no").string(), 1).ok());
}

TEST_F(ControllerPartsTest, TimesSurviveTheirMessages) {
  google::protobuf::Timestamp timestamp;
  const absl::Time time = absl::FromUnixNanos(1'700'000'000'123'456'789);
  SetTime(time, &timestamp);
  EXPECT_EQ(FromProto(timestamp), time);
  google::protobuf::Duration duration;
  SetDuration(absl::Milliseconds(-2500), &duration);
  EXPECT_EQ(FromProto(duration), absl::Milliseconds(-2500));
}

// A group that is told to stop is given time for a checkpoint if any worker trains, and a restarted scheduler
// decides before workers have come back.
TEST_F(ControllerPartsTest, WhetherAdoptedWorkersTrainIsKnownBeforeTheySayIt) {
  JobRecord record;
  record.job.mutable_spec()->mutable_workers()->set_count(2);
  record.job.mutable_status()->add_workers()->set_step(5);
  record.job.mutable_status()->add_workers()->set_rank(1);
  record.processes = "{}";
  const LiveJob live = Adopt(record, v1::Plan(), absl::UnixEpoch());
  EXPECT_EQ(live.workers[0].seen.phase, job::Phase::kTraining);
  EXPECT_EQ(live.workers[1].seen.phase, job::Phase::kNone);
}

// 40 workers, each of which shares a unit with every other one.
TEST(PlanMakerTest, MoreNcclCommunicatorsThanAWorkerMakesAreRefusedBeforeAnythingStarts) {
  v1::TrainingJobSpec spec;
  spec.mutable_resources()->set_gpus(1);
  v1::Plan plan;
  for (int a = 0; a < 40; ++a) {
    plan.add_workers()->set_rank(a);
    for (int b = a + 1; b < 40; ++b) {
      v1::PlanUnit* const unit = plan.add_units();
      unit->add_holders(a);
      unit->add_holders(b);
    }
  }
  const absl::Status status = CheckCommunicators(spec, plan);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("in 39 sets of holders"));
  spec.set_backend(v1::BACKEND_GLOO);
  EXPECT_OK(CheckCommunicators(spec, plan)) << "Gloo has no memory of a GPU to take";
  spec.set_backend(v1::BACKEND_NCCL);
  plan.clear_units();
  for (int b = 1; b < 20; ++b) {
    v1::PlanUnit* const unit = plan.add_units();
    unit->add_holders(0);
    unit->add_holders(b);
  }
  EXPECT_OK(CheckCommunicators(spec, plan));
  spec.set_sharding(v1::SHARDING_FSDP);
  EXPECT_FALSE(CheckCommunicators(spec, plan).ok()) << "weights have communicators of their own: 19 * 2 + 1";
}

}  // namespace
}  // namespace tessera::scheduler
