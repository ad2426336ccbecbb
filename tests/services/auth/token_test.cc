#include "services/auth/token.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"
#include "services/auth/client_token.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

class TokenFile : public testing::Test {
 protected:
  TokenFile() {
    char pattern[] = "/tmp/tessera-token-XXXXXX";
    folder_ = mkdtemp(pattern);
    path_ = folder_ + "/token";
  }
  ~TokenFile() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
  std::string path_;
};

TEST_F(TokenFile, IsMadeOnceWithModeOf0600) {
  const auto first = LoadOrCreateToken(path_);
  ASSERT_OK(first);
  EXPECT_EQ(first->size(), 64u);
  EXPECT_EQ(LoadOrCreateToken(path_).value(), *first);
  struct stat info;
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(TokenFile, ThatOthersCanReadIsRefused) {
  ASSERT_OK(LoadOrCreateToken(path_));
  chmod(path_.c_str(), 0644);
  const auto token = LoadOrCreateToken(path_);
  EXPECT_EQ(token.status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(TokenFile, WithoutATokenIsRefused) {
  std::ofstream(path_) << "short\n";
  chmod(path_.c_str(), 0600);
  EXPECT_EQ(LoadOrCreateToken(path_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(TokenFile, ANewTokenCountsWithoutARestartAndABrokenFileDoesNot) {
  const auto client = ClientToken::Open(path_);
  ASSERT_OK(client);
  const std::string first = LoadOrCreateToken(path_).value();
  absl::Time now = absl::UnixEpoch();
  const auto takes = [&](const std::string& token) {
    now += absl::Seconds(2);
    return (*client)->Check("Bearer " + token, now).ok();
  };
  EXPECT_TRUE(takes(first));
  const std::string second(64, 'b');
  std::ofstream(path_ + ".new") << second << "\n";
  chmod((path_ + ".new").c_str(), 0600);
  std::filesystem::rename(path_ + ".new", path_);
  EXPECT_OK((*client)->Check("Bearer " + first, now)) << "looked at a moment ago";
  EXPECT_TRUE(takes(second));
  EXPECT_FALSE(takes(first));
  chmod(path_.c_str(), 0644);
  EXPECT_TRUE(takes(second)) << "a file that others can read is not used";
  std::filesystem::remove(path_);
  EXPECT_TRUE(takes(second));
  EXPECT_FALSE(std::filesystem::exists(path_)) << "nor is one made";
}

TEST(Bearer, OnlyTheWholeTokenMatches) {
  EXPECT_OK(CheckBearer("Bearer secret", "secret"));
  EXPECT_OK(CheckBearer("bearer  secret", "secret"));
  for (const char* wrong :
       {"", "Bearer", "Bearer ", "Bearer secre", "Bearer secrets", "Basic secret", "secret"}) {
    const auto status = CheckBearer(wrong, "secret");
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << wrong;
    EXPECT_EQ(std::string(status.message()).find("secre"), std::string::npos);
  }
  EXPECT_FALSE(CheckBearer("Bearer x", "").ok());
}

}  // namespace
}  // namespace tessera::services
