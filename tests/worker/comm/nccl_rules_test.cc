#include "worker/comm/nccl_rules.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/plan/communicator_limit.h"
#include "tests/status.h"

namespace tessera::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(NcclRulesTest, AGroupIsTheWorldWithoutTheOthers) {
  EXPECT_THAT(ExcludedRanks(5, {1, 3}), ElementsAre(0, 2, 4));
  EXPECT_THAT(ExcludedRanks(3, {0, 1, 2}), IsEmpty());
  EXPECT_THAT(ExcludedRanks(2, {1}), ElementsAre(0));
}

TEST(NcclRulesTest, TwoRanksOnOneDeviceAreNamedWithARemedy) {
  const std::vector<std::string> devices = {"a/01:00", "a/02:00", "b/01:00", "a/02:00"};
  EXPECT_OK(CheckDistinctDevices(absl::MakeConstSpan(devices).subspan(0, 3)))
      << "equal buses of two machines are two devices";
  const absl::Status status = CheckDistinctDevices(devices);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ranks 1 and 3 use one GPU, a/02:00"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("spec.backend to gloo"));
}

TEST(NcclRulesTest, CommunicatorsAreLimited) {
  EXPECT_OK(CheckGroupCount(31, 32));
  EXPECT_TRUE(absl::IsResourceExhausted(CheckGroupCount(32, 32)));
}

TEST(NcclRulesTest, TypesHaveNcclsNumbers) {
  EXPECT_EQ(*NcclTypeOf(at::kFloat), 7);
  EXPECT_EQ(*NcclTypeOf(at::kBFloat16), 9);
  EXPECT_EQ(*NcclTypeOf(at::kLong), 4);
  EXPECT_EQ(*NcclTypeOf(at::kBool), 1);
  EXPECT_TRUE(absl::IsInvalidArgument(NcclTypeOf(at::kComplexFloat).status()));
}

TEST(NcclRulesTest, ErrorsBecomeWhatTheControllerTellsApart) {
  EXPECT_OK(StatusOfNccl(0, "x", ""));
  EXPECT_OK(StatusOfNccl(7, "x", "")) << "in progress";
  for (const int lost : {2, 6, 8}) EXPECT_TRUE(absl::IsUnavailable(StatusOfNccl(lost, "x", ""))) << lost;
  for (const int ours : {1, 3, 4, 5, 77}) EXPECT_TRUE(absl::IsInternal(StatusOfNccl(ours, "x", ""))) << ours;
  EXPECT_TRUE(absl::IsResourceExhausted(StatusOfNccl(1, "x", "Cuda failure 2 'out of memory'")));
  EXPECT_EQ(StatusOfNccl(6, "all-reduce in group {0,1}", "peer closed\nat net.cc").message(),
            "all-reduce in group {0,1} failed: NCCL remote error: peer closed");
}

TEST(NcclRulesTest, TrafficIsTheRings) {
  EXPECT_EQ(NcclTraffic::AllReduce(1200, 3), 1600);
  EXPECT_EQ(NcclTraffic::ReduceScatter(1200, 3), 800);
  EXPECT_EQ(NcclTraffic::AllGather(400, 3), 800);
  EXPECT_EQ(NcclTraffic::Broadcast(1200, 3), 800);
}

// What plans are checked for when a job is submitted is what a worker makes.
TEST(NcclRulesTest, ThePlansLimitOfCommunicatorsIsTheWorkers) {
  EXPECT_EQ(NcclOptions().most_groups, plan::kMostNcclCommunicators);
}

}  // namespace
}  // namespace tessera::worker
