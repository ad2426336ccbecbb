#include "scheduler/store/sqlite_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

class SqliteStoreTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera-sqlite-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    file_ = (folder_ / "jobs.db").string();
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Run(const std::string& sql) {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(file_.c_str(), &db), SQLITE_OK);
    ASSERT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
    sqlite3_close(db);
  }

  std::filesystem::path folder_;
  std::string file_;
};

v1::TrainingJob Job(const std::string& name) {
  v1::TrainingJob job;
  job.set_namespace_("default");
  job.set_name(name);
  return job;
}

TEST_F(SqliteStoreTest, TheFileIsForItsOwnerOnly) {
  ASSERT_OK(OpenSqliteStore(file_));
  struct stat info;
  ASSERT_EQ(::stat(file_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
}

TEST_F(SqliteStoreTest, AFileThatIsNoDatabaseIsNamed) {
  std::ofstream(file_) << std::string(8192, 'x');
  auto store = OpenSqliteStore(file_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(store.status().message(), HasSubstr(file_));
}

TEST_F(SqliteStoreTest, ADamagedFileIsNamed) {
  {
    auto store = OpenSqliteStore(file_);
    ASSERT_OK(store);
    for (int i = 0; i < 200; ++i) ASSERT_OK((*store)->Create(Job(absl::StrCat("j", i)), ""));
  }
  std::fstream file(file_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(3 * 4096, '\xee');
  file.close();
  auto store = OpenSqliteStore(file_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kDataLoss) << store.status();
  EXPECT_THAT(store.status().message(), HasSubstr(file_));
}

TEST_F(SqliteStoreTest, ANewerSchemaIsRefusedAndLeftAlone) {
  ASSERT_OK(OpenSqliteStore(file_));
  Run("PRAGMA user_version=99");
  auto store = OpenSqliteStore(file_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(store.status().message(), HasSubstr("newer version (schema 99"));
  EXPECT_THAT(store.status().message(), HasSubstr(file_));
}

TEST_F(SqliteStoreTest, ADatabaseOfAnotherProgramIsRefused) {
  Run("CREATE TABLE songs(title TEXT)");
  auto store = OpenSqliteStore(file_);
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("another program"));
}

TEST_F(SqliteStoreTest, AMissingFolderIsNamed) {
  auto store = OpenSqliteStore((folder_ / "no" / "jobs.db").string());
  ASSERT_FALSE(store.ok());
  EXPECT_THAT(store.status().message(), HasSubstr("no/jobs.db"));
}

// A writer that reports each job only after Create returned OK, killed in the middle.
TEST_F(SqliteStoreTest, WhatWasAnsweredSurvivesAKilledProcess) {
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto store = OpenSqliteStore(file_);
    for (int i = 0; store.ok(); ++i) {
      if (!(*store)->Create(Job(absl::StrCat("j", i)), absl::StrCat("id", i)).ok()) break;
      if (::write(pipe_fds[1], &i, sizeof i) != sizeof i) break;
    }
    ::_exit(1);
  }
  ::close(pipe_fds[1]);
  int last = -1;
  while (last < 50 && ::read(pipe_fds[0], &last, sizeof last) == sizeof last) {
  }
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  while (::read(pipe_fds[0], &last, sizeof last) == sizeof last) {
  }
  ::close(pipe_fds[0]);

  auto store = OpenSqliteStore(file_);
  ASSERT_OK(store);
  for (int i = 0; i <= last; ++i) {
    EXPECT_OK((*store)->Get({"default", absl::StrCat("j", i)})) << i << " of " << last;
  }
}

TEST_F(SqliteStoreTest, ASecondProcessIsToldThatTheFileIsInUse) {
  auto store = OpenSqliteStore(file_);
  ASSERT_OK(store);
  int pipe_fds[2];
  ASSERT_EQ(::pipe(pipe_fds), 0);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto second = OpenSqliteStore(file_);
    const std::string text = second.status().ToString();
    if (::write(pipe_fds[1], text.data(), text.size()) < 0) ::_exit(2);
    ::_exit(0);
  }
  ::close(pipe_fds[1]);
  std::string text(4096, '\0');
  const ssize_t size = ::read(pipe_fds[0], text.data(), text.size());
  ::close(pipe_fds[0]);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  ASSERT_GT(size, 0);
  EXPECT_THAT(text, HasSubstr("another process uses it"));
  EXPECT_THAT(text, HasSubstr(file_));
}

}  // namespace
}  // namespace tessera::scheduler
