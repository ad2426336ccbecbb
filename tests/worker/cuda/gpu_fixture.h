// For tests that need GPUs: labelled `gpu`, listed everywhere, and skipped with a reason where there are too
// few.
#pragma once

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/status.h"
#include "worker/device/gpu.h"

namespace tessera::worker {

class GpuTest : public testing::Test {
 protected:
  // Devices that a test needs; call first.
  void Need(int devices) {
    const auto opened = OpenGpuPlugin();
    if (!opened.ok()) GTEST_SKIP() << opened.status().message();
    const auto inventory = (*opened)->Inventory();
    if (!inventory.ok()) GTEST_SKIP() << inventory.status().message();
    if (static_cast<int>(inventory->devices.size()) < devices) {
      GTEST_SKIP() << "needs " << devices << " GPUs, there are " << inventory->devices.size();
    }
    inventory_ = *inventory;
    gpu_ = *opened;
    ASSERT_OK(gpu_->Use(0));
  }

  GpuInventory inventory_;
  Gpu* gpu_ = nullptr;
};

#define TESSERA_NEEDS_GPUS(count) \
  Need(count);                    \
  if (IsSkipped() || HasFatalFailure()) return

}  // namespace tessera::worker
