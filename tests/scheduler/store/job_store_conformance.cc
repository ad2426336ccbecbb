#include "tests/scheduler/store/job_store_conformance.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "tests/status.h"

namespace tessera::scheduler {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::TrainingJob Job(const std::string& ns, const std::string& name) {
  v1::TrainingJob job;
  job.set_namespace_(ns);
  job.set_name(name);
  job.mutable_spec()->mutable_model()->set_preset("llama-8m");
  (*job.mutable_spec()->mutable_env())["A"] = "1";
  (*job.mutable_spec()->mutable_env())["B"] = "2";
  return job;
}

void JobStoreConformanceTest::SetUp() {
  folder_ = std::filesystem::temp_directory_path() /
            absl::StrCat("tessera-store-", ::getpid(), "-", ::testing::UnitTest::GetInstance()->random_seed(),
                         "-", reinterpret_cast<uintptr_t>(this));
  std::filesystem::create_directories(folder_);
  Open();
}

void JobStoreConformanceTest::TearDown() {
  store_.reset();
  std::filesystem::remove_all(folder_);
}

void JobStoreConformanceTest::Open() {
  store_.reset();
  auto store = GetParam().open((folder_ / "jobs.db").string());
  ASSERT_OK(store);
  store_ = *std::move(store);
}

std::vector<std::string> JobStoreConformanceTest::Names(const std::string& ns, int page_size) {
  std::vector<std::string> names;
  std::string token;
  do {
    auto page = store_->List(ns, page_size, token);
    EXPECT_OK(page);
    if (!page.ok()) break;
    if (page_size > 0) EXPECT_LE(page->jobs.size(), static_cast<size_t>(page_size));
    for (const auto& record : page->jobs) {
      names.push_back(absl::StrCat(record.job.namespace_(), "/", record.job.name()));
    }
    token = page->next_page_token;
  } while (!token.empty());
  return names;
}

TEST_P(JobStoreConformanceTest, WhatWasCreatedIsReadBack) {
  auto created = store_->Create(Job("default", "a"), "");
  ASSERT_OK(created);
  EXPECT_GT(created->revision, 0);
  EXPECT_FALSE(created->job.etag().empty());
  auto read = store_->Get({"default", "a"});
  ASSERT_OK(read);
  EXPECT_EQ(read->job.SerializeAsString().size(), created->job.SerializeAsString().size());
  EXPECT_EQ(read->job.etag(), created->job.etag());
  EXPECT_EQ(read->revision, created->revision);
}

TEST_P(JobStoreConformanceTest, NamesAreUniqueInTheirNamespaceOnly) {
  ASSERT_OK(store_->Create(Job("x", "a"), ""));
  EXPECT_OK(store_->Create(Job("y", "a"), ""));
  auto again = store_->Create(Job("x", "a"), "");
  EXPECT_TRUE(absl::IsAlreadyExists(again.status()));
  EXPECT_THAT(again.status().message(), HasSubstr("'a'"));
}

TEST_P(JobStoreConformanceTest, MissingJobsAreNotFoundByEveryCall) {
  const JobKey key{"default", "ghost"};
  JobRecord record;
  record.job = Job("default", "ghost");
  EXPECT_TRUE(absl::IsNotFound(store_->Get(key).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Update(record).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Delete(key, "")));
  EXPECT_TRUE(absl::IsNotFound(store_->AddPlan(key, {})));
  EXPECT_TRUE(absl::IsNotFound(store_->AddEvent(key, {})));
  EXPECT_TRUE(absl::IsNotFound(store_->Plans(key).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Events(key).status()));
}

TEST_P(JobStoreConformanceTest, UpdateNeedsTheNewestEtagAndChangesIt) {
  auto created = store_->Create(Job("default", "a"), "");
  ASSERT_OK(created);
  JobRecord next = *created;
  next.processes = std::string("p\0q", 3);
  next.notes = "n";
  next.job.mutable_status()->set_step(7);
  auto updated = store_->Update(next);
  ASSERT_OK(updated);
  EXPECT_NE(updated->job.etag(), created->job.etag());
  EXPECT_GT(updated->revision, created->revision);
  EXPECT_TRUE(absl::IsAborted(store_->Update(next).status())) << "stale etag";
  auto read = store_->Get({"default", "a"});
  ASSERT_OK(read);
  EXPECT_EQ(read->processes, std::string("p\0q", 3));
  EXPECT_EQ(read->notes, "n");
  EXPECT_EQ(read->job.status().step(), 7);
}

TEST_P(JobStoreConformanceTest, ListingPagesThroughEverythingInOrder) {
  for (const char* name : {"c", "a", "b"}) ASSERT_OK(store_->Create(Job("x", name), ""));
  ASSERT_OK(store_->Create(Job("w", "z"), ""));
  ASSERT_OK(store_->Create(Job("y", "a"), ""));
  for (int size : {0, 1, 2, 3, 100}) {
    EXPECT_THAT(Names("-", size), ElementsAre("w/z", "x/a", "x/b", "x/c", "y/a")) << size;
    EXPECT_THAT(Names("x", size), ElementsAre("x/a", "x/b", "x/c")) << size;
    EXPECT_THAT(Names("none", size), ElementsAre()) << size;
  }
}

TEST_P(JobStoreConformanceTest, PageTokensStayGoodWhileJobsComeAndGo) {
  for (const char* name : {"a", "b", "d"}) ASSERT_OK(store_->Create(Job("x", name), ""));
  auto first = store_->List("x", 2, "");
  ASSERT_OK(first);
  ASSERT_OK(store_->Delete({"x", "b"}, ""));
  ASSERT_OK(store_->Create(Job("x", "c"), ""));
  auto second = store_->List("x", 2, first->next_page_token);
  ASSERT_OK(second);
  ASSERT_EQ(second->jobs.size(), 2u);
  EXPECT_EQ(second->jobs[0].job.name(), "c");
}

TEST_P(JobStoreConformanceTest, DamagedAndForeignPageTokensAreRefused) {
  for (const char* name : {"a", "b"}) ASSERT_OK(store_->Create(Job("x", name), ""));
  auto page = store_->List("x", 1, "");
  ASSERT_OK(page);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->List("x", 1, "nonsense").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->List("y", 1, page->next_page_token).status()));
}

TEST_P(JobStoreConformanceTest, ARequestIdGivesTheFirstAnswerAgain) {
  auto first = store_->Create(Job("default", "a"), "id-1");
  ASSERT_OK(first);
  JobRecord moved = *first;
  moved.job.mutable_status()->set_step(9);
  ASSERT_OK(store_->Update(moved));
  v1::TrainingJob same = Job("default", "a");
  same.set_uid("another-uid");  // given by the scheduler, no part of what was asked
  auto again = store_->Create(same, "id-1");
  ASSERT_OK(again);
  EXPECT_EQ(again->revision, first->revision);
  EXPECT_EQ(again->job.status().step(), 0);
  EXPECT_EQ(Names("-", 0).size(), 1u);
}

TEST_P(JobStoreConformanceTest, ARequestIdIsRefusedForAnotherBody) {
  ASSERT_OK(store_->Create(Job("default", "a"), "id-1"));
  v1::TrainingJob other = Job("default", "a");
  other.mutable_spec()->set_priority(3);
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Create(other, "id-1").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store_->Create(Job("default", "b"), "id-1").status()));
  EXPECT_OK(store_->Create(Job("elsewhere", "b"), "id-1")) << "ids are scoped by namespace";
}

TEST_P(JobStoreConformanceTest, AFailedCreationDoesNotBurnItsRequestId) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  EXPECT_TRUE(absl::IsAlreadyExists(store_->Create(Job("default", "a"), "id-1").status()));
  EXPECT_OK(store_->Create(Job("default", "b"), "id-1"));
}

TEST_P(JobStoreConformanceTest, DeletionTakesPlansAndEventsAlongAndChecksTheEtag) {
  auto created = store_->Create(Job("default", "a"), "");
  ASSERT_OK(created);
  const JobKey key{"default", "a"};
  ASSERT_OK(store_->AddEvent(key, {}));
  EXPECT_TRUE(absl::IsAborted(store_->Delete(key, "stale")));
  ASSERT_OK(store_->Delete(key, created->job.etag()));
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  EXPECT_TRUE(store_->Events(key)->empty());
}

TEST_P(JobStoreConformanceTest, EventsAndPlansAreOrderedBoundedAndApart) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  ASSERT_OK(store_->Create(Job("default", "b"), ""));
  const JobKey key{"default", "a"};
  for (int i = 0; i < kMaxEventsPerJob + 5; ++i) {
    v1::Event event;
    event.set_message(absl::StrCat(i));
    ASSERT_OK(store_->AddEvent(key, event));
  }
  for (int i = 0; i < kMaxPlansPerJob + 5; ++i) {
    v1::Plan plan;
    plan.set_generation(i);
    ASSERT_OK(store_->AddPlan(key, plan));
  }
  auto events = store_->Events(key);
  ASSERT_OK(events);
  ASSERT_EQ(events->size(), static_cast<size_t>(kMaxEventsPerJob));
  EXPECT_EQ(events->front().message(), "5");
  for (size_t i = 1; i < events->size(); ++i) EXPECT_GT((*events)[i].revision(), (*events)[i - 1].revision());
  auto plans = store_->Plans(key);
  ASSERT_OK(plans);
  ASSERT_EQ(plans->size(), static_cast<size_t>(kMaxPlansPerJob));
  EXPECT_EQ(plans->back().generation(), kMaxPlansPerJob + 4);
  EXPECT_TRUE(store_->Events({"default", "b"})->empty());
}

TEST_P(JobStoreConformanceTest, OfManyConcurrentWritersOneWinsPerEtag) {
  ASSERT_OK(store_->Create(Job("default", "a"), ""));
  constexpr int kThreads = 4, kWins = 25;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int wins = 0; wins < kWins;) {
        auto record = store_->Get({"default", "a"});
        ASSERT_OK(record);
        record->job.mutable_status()->set_step(record->job.status().step() + 1);
        auto updated = store_->Update(*record);
        if (updated.ok())
          ++wins;
        else
          ASSERT_TRUE(absl::IsAborted(updated.status())) << updated.status();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(store_->Get({"default", "a"})->job.status().step(), kThreads * kWins);
}

TEST_P(JobStoreConformanceTest, ADurableStoreFindsEverythingAgain) {
  if (!GetParam().durable) GTEST_SKIP() << "forgets by design";
  auto created = store_->Create(Job("default", "a"), "id-1");
  ASSERT_OK(created);
  ASSERT_OK(store_->AddEvent({"default", "a"}, {}));
  Open();
  auto read = store_->Get({"default", "a"});
  ASSERT_OK(read);
  EXPECT_EQ(read->job.etag(), created->job.etag());
  EXPECT_EQ(store_->Events({"default", "a"})->size(), 1u);
  EXPECT_EQ(store_->Create(Job("default", "a"), "id-1")->revision, created->revision);
  auto updated = store_->Update(*read);
  ASSERT_OK(updated);
  EXPECT_GT(updated->revision, created->revision) << "revisions go on";
}

}  // namespace tessera::scheduler
