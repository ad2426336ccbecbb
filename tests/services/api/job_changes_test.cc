// Masks, updates and lists with filters, at the handlers.
#include "google/protobuf/util/field_mask_util.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/api.h"
#include "services/api/update_job.h"
#include "tests/services/fake_controller.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

class JobChanges : public testing::Test {
 protected:
  JobChanges() {
    for (int i = 0; i < 25; ++i) {
      v1::CreateTrainingJobRequest request;
      *request.mutable_training_job() = SmallJob("job-" + std::string(1, static_cast<char>('a' + i)));
      request.mutable_training_job()->mutable_spec()->set_priority(i % 5);
      EXPECT_OK(api_.jobs.Create(request));
    }
  }
  std::unique_ptr<scheduler::JobStore> store_ = scheduler::MakeMemoryStore();
  FakeController controller_{store_.get()};
  Api api_{&controller_, store_.get(), {}};
};

TEST_F(JobChanges, PagesOfAFilteredListJoinToWhatMatches) {
  for (const int size : {1, 2, 3, 5, 7}) {
    v1::ListTrainingJobsRequest request;
    request.set_filter("spec.priority = 2 OR spec.priority = 4");
    request.set_page_size(size);
    request.mutable_read_mask()->add_paths("name");
    std::vector<std::string> names;
    do {
      const auto page = api_.jobs.List(request);
      ASSERT_OK(page);
      ASSERT_LE(page->training_jobs_size(), size);
      for (const auto& job : page->training_jobs()) {
        names.push_back(job.name());
        EXPECT_FALSE(job.has_spec());
      }
      request.set_page_token(page->next_page_token());
    } while (!request.page_token().empty());
    EXPECT_EQ(names, (std::vector<std::string>{"job-c", "job-e", "job-h", "job-j", "job-m", "job-o", "job-r",
                                               "job-t", "job-w", "job-y"}));
  }
}

TEST_F(JobChanges, ATokenOfAnotherFilterIsRefused) {
  v1::ListTrainingJobsRequest request;
  request.set_filter("spec.priority = 2");
  request.set_page_size(1);
  request.set_page_token(api_.jobs.List(request)->next_page_token());
  EXPECT_OK(api_.jobs.List(request));
  request.set_filter("spec.priority = 3");
  EXPECT_EQ(spec::ViolationsFrom(api_.jobs.List(request).status()).at(0).path, "pageToken");
}

TEST_F(JobChanges, AReadMaskLeavesWhatItNamesInEitherSpelling) {
  v1::GetTrainingJobRequest request;
  request.set_name("job-a");
  for (const char* path : {"spec.data", "createTime", "status.totalSteps"})
    request.mutable_read_mask()->add_paths(path);
  const auto job = api_.jobs.Get(request);
  ASSERT_OK(job);
  EXPECT_EQ(job->name(), "");
  EXPECT_EQ(job->spec().data().train(), "/data");
  EXPECT_FALSE(job->spec().has_model());
  request.mutable_read_mask()->add_paths("spec.modell");
  EXPECT_EQ(spec::ViolationsFrom(api_.jobs.Get(request).status()).at(0).path, "readMask");
  request.clear_read_mask();
  request.mutable_read_mask()->add_paths("*");
  EXPECT_EQ(api_.jobs.Get(request)->name(), "job-a");
}

TEST_F(JobChanges, AnUpdateChangesWhatItsMaskNamesAndNothingElse) {
  v1::UpdateTrainingJobRequest request;
  request.set_name("job-b");
  request.mutable_training_job()->mutable_spec()->set_priority(9);
  request.mutable_training_job()->mutable_spec()->mutable_retry()->set_infrastructure(7);
  request.mutable_update_mask()->add_paths("spec.priority");
  const v1::TrainingJob before = *api_.jobs.Get([] {
    v1::GetTrainingJobRequest get;
    get.set_name("job-b");
    return get;
  }());
  auto after = api_.jobs.Update(request);
  ASSERT_OK(after);
  EXPECT_EQ(after->spec().priority(), 9);
  EXPECT_EQ(after->spec().retry().infrastructure(), before.spec().retry().infrastructure());
  EXPECT_EQ(after->spec().schedule().SerializeAsString(), before.spec().schedule().SerializeAsString());
  request.clear_update_mask();  // all that is set
  after = api_.jobs.Update(request);
  ASSERT_OK(after);
  EXPECT_EQ(after->spec().retry().infrastructure(), 7);
  EXPECT_EQ(after->spec().retry().backoff().seconds(), before.spec().retry().backoff().seconds());
  request.set_etag(before.etag());
  EXPECT_EQ(api_.jobs.Update(request).status().code(), absl::StatusCode::kAborted);
}

TEST_F(JobChanges, WhatCannotBeChangedIsNamedWithEveryFault) {
  v1::UpdateTrainingJobRequest request;
  request.set_name("job-b");
  EXPECT_EQ(api_.jobs.Update(request).status().code(), absl::StatusCode::kInvalidArgument);
  request.mutable_training_job()->mutable_spec()->mutable_workers()->set_count(3);
  request.mutable_training_job()->mutable_spec()->mutable_model()->set_preset("llama-1m");
  request.mutable_training_job()->mutable_spec()->mutable_retry()->set_infrastructure(-2);
  std::vector<std::string> paths;
  for (const auto& violation : spec::ViolationsFrom(api_.jobs.Update(request).status()))
    paths.push_back(violation.path);
  EXPECT_EQ(paths, (std::vector<std::string>{"spec.model.preset", "spec.workers.count",
                                             "spec.retry.infrastructure"}));
}

TEST_F(JobChanges, AResizeIsCheckedLikeASubmission) {
  v1::ResizeTrainingJobRequest request;
  request.set_name("job-b");
  EXPECT_EQ(spec::ViolationsFrom(api_.jobs.Resize(request).status()).at(0).path, "workers");
  request.set_workers(6);
  EXPECT_EQ(api_.jobs.Resize(request)->spec().workers().count(), 6);
}

}  // namespace
}  // namespace tessera::services
