#include "services/api/nvml.h"

#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

using testing::HasSubstr;

class Nvml : public testing::Test {
 protected:
  void TearDown() override { ::unsetenv("FAKE_NVML"); }
};

TEST_F(Nvml, DevicesHaveNameModelAndMemory) {
  const auto devices = ProfileNvidiaDevices(TESSERA_FAKE_NVML);
  ASSERT_OK(devices);
  ASSERT_EQ(devices->size(), 3u);
  EXPECT_EQ((*devices)[1].name(), "cuda:1");
  EXPECT_EQ((*devices)[1].model(), "Fake GPU 2");
  EXPECT_EQ((*devices)[1].total_bytes(), 160'000'000'000);
  EXPECT_EQ((*devices)[1].free_bytes(), 80'000'000'000);
  EXPECT_EQ((*devices)[1].reserved_bytes(), 600'000'000);
  EXPECT_EQ((*devices)[0].largest_block_bytes(), 0) << "only an allocator knows it";
}

TEST_F(Nvml, DevicesHaveADriverABusLinksAndPeers) {
  const auto devices = ProfileNvidiaDevices(TESSERA_FAKE_NVML);
  ASSERT_OK(devices);
  const v1::DeviceProfile& first = devices->front();
  EXPECT_EQ(first.driver(), "580.1.2");
  EXPECT_EQ(first.bus_id(), "00000000:01:00.0");
  EXPECT_EQ(first.pcie_generation(), 5);
  EXPECT_EQ(first.pcie_lanes(), 16);
  EXPECT_EQ(first.nvlinks(), 4) << "of eight links half are active, and further ones are not there";
  EXPECT_THAT(first.peers(), testing::ElementsAre("cuda:1"));
  EXPECT_THAT((*devices)[1].peers(), testing::IsEmpty());
}

TEST_F(Nvml, ADeviceThatMayNotBeReadIsThereAndUnknown) {
  const auto devices = ProfileNvidiaDevices(TESSERA_FAKE_NVML);
  ASSERT_OK(devices);
  EXPECT_EQ((*devices)[2].name(), "cuda:2");
  EXPECT_EQ((*devices)[2].total_bytes(), 0);
}

TEST_F(Nvml, JobsMayHaveTheDevicesThatTheDriverLetsUseAndTheSchedulerIsLeft) {
  const auto devices = ProfileNvidiaDevices(TESSERA_FAKE_NVML);
  ASSERT_OK(devices);
  v1::NodeProfile node;
  node.add_devices()->set_name("cpu");
  for (const v1::DeviceProfile& device : *devices) *node.add_devices() = device;
  const auto visible = [&](const char* variable) { return VisibleGpus(node, variable); };
  EXPECT_THAT(visible(nullptr), testing::ElementsAre("0", "1")) << "the third may not be used";
  EXPECT_THAT(visible("1"), testing::ElementsAre("1"));
  EXPECT_THAT(visible(" 1, 0,1"), testing::ElementsAre("1", "0"));
  EXPECT_THAT(visible("1,7,0"), testing::ElementsAre("1")) << "CUDA stops at what is not there";
  EXPECT_THAT(visible("GPU-8932f937,0"), testing::ElementsAre("GPU-8932f937", "0"));
  EXPECT_THAT(visible(""), testing::IsEmpty());
  EXPECT_THAT(visible("-1"), testing::IsEmpty());
  EXPECT_THAT(VisibleGpus({}, "0"), testing::IsEmpty());
  v1::NodeProfile later;  // the first device may not be used
  v1::DeviceProfile* second = later.add_devices();
  second->set_name("cuda:1");
  second->set_model("second");
  EXPECT_THAT(VisibleGpus(later, "1"), testing::ElementsAre("1"));
  EXPECT_THAT(VisibleGpus(later, "0"), testing::IsEmpty());
}

TEST_F(Nvml, AnOldDriverTellsTotalAndFree) {
  ::setenv("FAKE_NVML", "old", 1);
  const auto devices = ProfileNvidiaDevices(TESSERA_FAKE_NVML);
  ASSERT_OK(devices);
  EXPECT_EQ((*devices)[0].free_bytes(), 40'000'000'000);
  EXPECT_EQ((*devices)[0].reserved_bytes(), 0);
}

TEST_F(Nvml, WhatIsMissingOrBrokenIsSaid) {
  EXPECT_EQ(ProfileNvidiaDevices("/nowhere/libnvidia-ml.so.1").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ProfileNvidiaDevices("libc.so.6").status().code(), absl::StatusCode::kFailedPrecondition);
  ::setenv("FAKE_NVML", "broken", 1);
  const auto broken = ProfileNvidiaDevices(TESSERA_FAKE_NVML);
  EXPECT_EQ(broken.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(broken.status().message()), HasSubstr("error 9"));
}

}  // namespace
}  // namespace tessera::services
