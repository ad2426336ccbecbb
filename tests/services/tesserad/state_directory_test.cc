#include "services/tesserad/state_directory.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/status.h"

namespace tessera::services {
namespace {

class StateDirectoryTest : public testing::Test {
 protected:
  StateDirectoryTest() {
    char pattern[] = "/tmp/tessera-state-XXXXXX";
    root_ = mkdtemp(pattern);
    path_ = root_ + "/a/b";
  }
  ~StateDirectoryTest() override { std::filesystem::remove_all(root_); }
  std::string root_;
  std::string path_;
};

TEST_F(StateDirectoryTest, IsUsedByOneDaemonWhichIsNamed) {
  const auto first = StateDirectory::Open(path_);
  ASSERT_OK(first);
  const auto second = StateDirectory::Open(path_);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(second.status().message()),
              testing::EndsWith(": process " + std::to_string(getpid())));
}

TEST_F(StateDirectoryTest, IsFreeAgainAfterwards) {
  { ASSERT_OK(StateDirectory::Open(path_)); }
  EXPECT_OK(StateDirectory::Open(path_));
}

TEST_F(StateDirectoryTest, IsPrivate) {
  ASSERT_OK(StateDirectory::Open(path_));
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

TEST_F(StateDirectoryTest, RemembersThePorts) {
  const auto state = StateDirectory::Open(path_);
  ASSERT_OK(state);
  EXPECT_EQ(state->LastEndpoint().grpc_port, 0);
  ASSERT_OK(state->WriteEndpoint({"127.0.0.1", 1234, 5678, "/t"}));
  EXPECT_EQ(state->LastEndpoint().grpc_port, 1234);
  EXPECT_EQ(state->LastEndpoint().rest_port, 5678);
  const auto json = nlohmann::json::parse(std::ifstream(state->endpoint_file()));
  EXPECT_EQ(json["grpc"], "127.0.0.1:1234");
  EXPECT_EQ(json["rest"], "http://127.0.0.1:5678");
  EXPECT_EQ(json["pid"], getpid());
  EXPECT_EQ(json["tokenFile"], "/t");
  struct stat info;
  ASSERT_EQ(stat(state->endpoint_file().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  std::ofstream(state->endpoint_file()) << "{ broken";
  EXPECT_EQ(state->LastEndpoint().grpc_port, 0);
}

}  // namespace
}  // namespace tessera::services
