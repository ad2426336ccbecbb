#include "services/api/local_node.h"

#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace tessera::services {
namespace {

class CgroupTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "/cgroup_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = folder_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << "\n";
  }
  CgroupMemory Read() { return ReadCgroupMemory(folder_ / "self", folder_ / "fs"); }

  std::filesystem::path folder_;
};

TEST_F(CgroupTest, TheSmallestLimitAboveTheProcessCounts) {
  Write("self", "0::/user.slice/session");
  Write("fs/user.slice/memory.max", "3000");
  Write("fs/user.slice/memory.current", "1000");
  Write("fs/user.slice/session/memory.max", "max");
  EXPECT_EQ(Read().limit, 3000);
  EXPECT_EQ(Read().used, 1000);
  Write("fs/user.slice/session/memory.max", "2000");
  EXPECT_EQ(Read().limit, 2000);
}

TEST_F(CgroupTest, FilesThatTheKernelKeepsAreNotInUse) {
  Write("self", "0::/");
  Write("fs/memory.max", "5000");
  Write("fs/memory.current", "4000");
  Write("fs/memory.stat", "anon 900\nfile 3000\ninactive_file 2500\nactive_file 500");
  EXPECT_EQ(Read().used, 1500);
}

TEST_F(CgroupTest, AContainerSeesItsOwnGroupAsTheRoot) {
  Write("self", "0::/");
  Write("fs/memory.max", "5000");
  EXPECT_EQ(Read().limit, 5000);
}

TEST_F(CgroupTest, VersionOneIsReadAndItsHugeNumberIsNoLimit) {
  Write("self", "9:cpu,cpuacct:/a\n8:memory:/docker/1");
  Write("fs/memory/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(Read().limit, 0);
  Write("fs/memory/docker/1/memory.limit_in_bytes", "7000");
  EXPECT_EQ(Read().limit, 7000);
}

TEST_F(CgroupTest, WithoutCgroupsThereIsNoLimit) { EXPECT_EQ(Read().limit, 0); }

TEST(PlannableBytes, LeavesATenthButAtLeastHalfAGigabyteAndNeverMoreThanHalf) {
  EXPECT_EQ(PlannableBytes(0), 0);
  EXPECT_EQ(PlannableBytes(100'000'000'000), 90'000'000'000);
  EXPECT_EQ(PlannableBytes(int64_t{2} << 30), (int64_t{2} << 30) - (int64_t{512} << 20));
  EXPECT_EQ(PlannableBytes(int64_t{512} << 20), int64_t{256} << 20);
}

}  // namespace
}  // namespace tessera::services
