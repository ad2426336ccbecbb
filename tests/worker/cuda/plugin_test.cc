// The plug-in itself, which opens on machines without a GPU as well.
#include <ATen/Context.h>
#include <gtest/gtest.h>

#include "tests/status.h"
#include "worker/device/gpu.h"

namespace tessera::worker {
namespace {

TEST(CudaPluginTest, ItOpensAndTellsDevicesOrWhyThereAreNone) {
  const auto gpu = OpenGpuPlugin();
  ASSERT_OK(gpu);
  const auto inventory = (*gpu)->Inventory();
  EXPECT_EQ(at::hasCUDA(), inventory.ok()) << "LibTorch, asked after the plug-in was opened, agrees";
  if (inventory.ok()) {
    EXPECT_GE(inventory->nccl, 22700) << "groups are shrunk from the world's communicator";
    EXPECT_FALSE(inventory->devices.empty());
    return;
  }
  EXPECT_TRUE(absl::IsFailedPrecondition(inventory.status())) << inventory.status();
  EXPECT_NE(inventory.status().message().find("no GPU can be used"), std::string::npos) << inventory.status();
  EXPECT_TRUE(absl::IsInvalidArgument((*gpu)->Use(0)));
}

}  // namespace
}  // namespace tessera::worker
