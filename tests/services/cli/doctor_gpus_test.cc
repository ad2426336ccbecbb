#include "services/cli/doctor_gpus.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tessera::cli {
namespace {

using testing::HasSubstr;

std::vector<v1::DeviceProfile> TwoDevices() {
  std::vector<v1::DeviceProfile> devices(2);
  for (int i = 0; i < 2; ++i) {
    devices[i].set_name("cuda:" + std::to_string(i));
    devices[i].set_driver("580.1.2");
  }
  devices[0].set_model("Example GPU");
  devices[0].set_total_bytes(80'000'000'000);
  devices[0].set_free_bytes(79'000'000'000);
  devices[0].set_pcie_generation(5);
  devices[0].set_pcie_lanes(16);
  devices[0].set_nvlinks(18);
  devices[0].add_peers("cuda:1");
  return devices;
}

TEST(DoctorGpus, WithoutADriverWorkersTrainOnTheCpu) {
  const auto findings = GpuFindings(absl::NotFoundError("no libnvidia-ml.so.1"), "");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].health, Health::kGood);
  EXPECT_THAT(findings[0].found, HasSubstr("none; jobs with spec.resources.gpus are refused"));
}

TEST(DoctorGpus, ABrokenDriverIsSomethingToMend) {
  const auto findings = GpuFindings(absl::FailedPreconditionError("NVML does not start: error 9"), "");
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].health, Health::kNote);
  EXPECT_THAT(findings[0].found, HasSubstr("error 9"));
  EXPECT_THAT(findings[0].advice, HasSubstr("mend the driver"));
}

TEST(DoctorGpus, DevicesLinksVersionsAndWhatWillBeUsedAreShown) {
  const auto findings = GpuFindings(
      TwoDevices(),
      R"({"driver": 13010, "runtime": 13020, "nccl": 23007, "devices": [{"index": 0}, {"index": 1}]})");
  ASSERT_EQ(findings.size(), 4u);
  EXPECT_EQ(findings[0].found, "580.1.2");
  EXPECT_THAT(findings[1].found, HasSubstr("Example GPU, 74.5 GiB, 73.6 GiB free"));
  EXPECT_THAT(findings[1].found, HasSubstr("PCIe 5 x16, 18 NVLinks, reaches cuda:1"));
  EXPECT_EQ(findings[2].found, "can't be read");
  EXPECT_EQ(
      findings[3].found,
      "up to 2 workers of a job with spec.resources.gpus 1, NCCL 2.30.7, CUDA 13.2, driver for CUDA 13.1");
}

TEST(DoctorGpus, AWorkerWithoutThePluginSaysSo) {
  const auto findings =
      GpuFindings(TwoDevices(), R"({"error": "the CUDA plug-in can't be opened: no file"})");
  EXPECT_EQ(findings.back().health, Health::kNote);
  EXPECT_THAT(findings.back().found, HasSubstr("none: the CUDA plug-in can't be opened"));
  EXPECT_THAT(findings.back().advice, HasSubstr("./dev build cuda"));
  EXPECT_EQ(GpuFindings(TwoDevices(), "").back().found, "tessera-worker does not say which GPUs it can use");
}

}  // namespace
}  // namespace tessera::cli
