#include "worker/eval/communicator_memory.h"

#include <gtest/gtest.h>

namespace tessera::worker {
namespace {

TEST(CommunicatorMemory, IsThatOfAFewThreadsAndBuffers) {
  const int64_t bytes = MeasureCommunicator();
  EXPECT_GT(bytes, 0) << "two ranks could not meet in this process";
  EXPECT_LT(bytes, int64_t{16} << 20);
}

}  // namespace
}  // namespace tessera::worker
