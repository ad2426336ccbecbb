// What a job that asks for GPUs gets, or is told, without any GPU.
#include "worker/device/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/status.h"

namespace tessera::worker {
namespace {

using ::testing::HasSubstr;

v1::TrainingJobSpec Job(int workers, v1::Backend backend) {
  v1::TrainingJobSpec spec;
  spec.mutable_workers()->set_count(workers);
  spec.mutable_resources()->set_gpus(1);
  spec.set_backend(backend);
  return spec;
}

GpuInventory Machine(int devices) {
  GpuInventory inventory;
  for (int i = 0; i < devices; ++i)
    inventory.devices.push_back({.index = i, .model = "a GPU", .capability = 90});
  return inventory;
}

TEST(GpuChoiceTest, AutoIsNcclWithAGpuForEachWorker) {
  for (const v1::Backend backend : {v1::BACKEND_AUTO, v1::BACKEND_NCCL}) {
    EXPECT_OK(CheckGpus(Job(2, backend), Machine(2)));
    for (int rank = 0; rank < 2; ++rank) {
      const auto choice = ChooseGpu(Job(2, backend), Machine(2), rank);
      ASSERT_OK(choice);
      EXPECT_EQ(choice->device, rank);
      EXPECT_EQ(choice->carrier, Carrier::kNccl);
    }
  }
}

TEST(GpuChoiceTest, AloneNothingIsSent) {
  const auto choice = ChooseGpu(Job(1, v1::BACKEND_NCCL), Machine(1), 0);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->carrier, Carrier::kNone);
}

TEST(GpuChoiceTest, TwoRanksOnOneGpuAreRefusedBeforehandWithWhatWouldDo) {
  const absl::Status status = CheckGpus(Job(3, v1::BACKEND_AUTO), Machine(2));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.workers.count: 3"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("at most 2 workers, or spec.backend gloo"));
}

TEST(GpuChoiceTest, GlooLetsWorkersShareGpus) {
  EXPECT_OK(CheckGpus(Job(3, v1::BACKEND_GLOO), Machine(2)));
  const auto choice = ChooseGpu(Job(3, v1::BACKEND_GLOO), Machine(2), 2);
  ASSERT_OK(choice);
  EXPECT_EQ(choice->device, 0);
  EXPECT_EQ(choice->carrier, Carrier::kGlooOverHost);
}

// A pod sees its own GPU alone.
TEST(GpuChoiceTest, AWorkerThatSeesOneGpuTakesItWhateverItsRank) {
  EXPECT_EQ(ChooseGpu(Job(8, v1::BACKEND_NCCL), Machine(1), 5)->device, 0);
}

TEST(GpuChoiceTest, ADeviceThatTheKernelsAreNotCompiledForIsNamed) {
  auto machine = Machine(2);
  machine.devices[1].capability = 75;
  const absl::Status status = CheckGpus(Job(1, v1::BACKEND_AUTO), machine);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("GPU 1 (a GPU) has compute capability 7.5, and 8.0"));
}

TEST(GpuChoiceTest, ADeviceIsCalledByTheMachinesNumber) {
  EXPECT_EQ(DeviceName(1, "2,5"), "cuda:5");
  EXPECT_EQ(DeviceName(1, nullptr), "cuda:1");
  EXPECT_EQ(DeviceName(1, "2"), "cuda:1");
}

TEST(GpuChoiceTest, WithoutAGpuTheReasonAndTheRemedyAreTold) {
  const absl::Status status =
      CheckGpus(Job(1, v1::BACKEND_AUTO), absl::FailedPreconditionError("no GPU can be used: no driver"));
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_EQ(
      status.message(),
      "spec.resources.gpus: 1 asked for, but no GPU can be used: no driver; use 0, and workers train on the "
      "CPU");
}

TEST(GpuPluginTest, AMissingPluginIsNamed) {
  const absl::Status status = OpenGpuPlugin("/nowhere/libtessera_cuda.so").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("/nowhere/libtessera_cuda.so"));
}

TEST(GpuPluginTest, ALibraryOfAnotherVersionIsRefused) {
  const absl::Status status = OpenGpuPlugin("libm.so.6").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("of another version"));
}

}  // namespace
}  // namespace tessera::worker
