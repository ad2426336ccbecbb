#include "services/kubernetes/job_links.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "tests/status.h"

namespace tessera::services {
namespace {

class Links : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = ::testing::TempDir() + "/tessera-links-XXXXXX";
    ASSERT_NE(::mkdtemp(folder_.data()), nullptr);
    file_ = folder_ + "/links.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string folder_, file_;  // of this test alone: others run beside it
};

TEST_F(Links, OutliveTheProcess) {
  {
    auto links = *JobLinks::Open(file_);
    ASSERT_OK(links->Set("job-1", {"a", "object-1"}));
    ASSERT_OK(links->Set("job-2", {"b", "object-2"}));
    ASSERT_OK(links->Erase("job-2"));
  }
  const auto links = *JobLinks::Open(file_);
  ASSERT_TRUE(links->Of("job-1").has_value());
  EXPECT_EQ(links->Of("job-1")->object_uid, "object-1");
  EXPECT_EQ(links->JobOf("object-1"), "job-1");
  EXPECT_FALSE(links->Of("job-2").has_value());
  EXPECT_EQ(links->JobOf("object-2"), "");
}

TEST_F(Links, AJobThatIsBeingMadeHasItsOwnerAlready) {
  auto links = *JobLinks::Open(file_);
  EXPECT_EQ(links->OwnerOf("job", "a"), "");
  links->Expect("a", "object");
  EXPECT_EQ(links->OwnerOf("job", "a"), "object");
  links->ExpectNoMore("a");
  EXPECT_EQ(links->OwnerOf("job", "a"), "");
  ASSERT_OK(links->Set("job", {"a", "object"}));
  EXPECT_EQ(links->OwnerOf("job", "a"), "object");
}

TEST_F(Links, OfEarlierJobsOfANameGo) {
  auto links = *JobLinks::Open(file_);
  ASSERT_OK(links->Set("job-1", {"a", "object-1"}));
  ASSERT_OK(links->Set("job-2", {"a", "object-2"}));
  ASSERT_OK(links->Set("job-3", {"b", "object-3"}));
  ASSERT_OK(links->EraseOthers("a", "object-2"));
  EXPECT_FALSE(links->Of("job-1").has_value());
  EXPECT_TRUE(links->Of("job-2").has_value());
  EXPECT_TRUE(links->Of("job-3").has_value());
}

TEST_F(Links, OfADamagedFileAreNotTakenAsNone) {
  std::ofstream(file_) << "{\"job";
  EXPECT_TRUE(absl::IsDataLoss(JobLinks::Open(file_).status()));
}

TEST_F(Links, ThatCanNotBeWrittenAreAnError) {
  auto links = *JobLinks::Open("/proc/none/links.json");
  EXPECT_FALSE(links->Set("job", {"a", "object"}).ok());
}

}  // namespace
}  // namespace tessera::services
