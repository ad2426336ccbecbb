#include "gtest/gtest.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/api.h"
#include "tests/services/fake_controller.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

class JobHandlersTest : public testing::Test {
 protected:
  v1::CreateTrainingJobRequest Request(const std::string& name) {
    v1::CreateTrainingJobRequest request;
    request.set_namespace_("default");
    *request.mutable_training_job() = SmallJob(name);
    return request;
  }
  std::unique_ptr<scheduler::JobStore> store_ = scheduler::MakeMemoryStore();
  FakeController controller_{store_.get()};
  Api api_{&controller_, store_.get(), {.max_watches = 2}};
};

TEST_F(JobHandlersTest, CreateStoresTheResolvedJob) {
  const auto response = api_.jobs.Create(Request("tiny"));
  ASSERT_OK(response);
  v1::GetTrainingJobRequest get;
  get.set_name("tiny");
  const auto job = api_.jobs.Get(get);
  ASSERT_OK(job);
  EXPECT_EQ(job->spec().workers().count(), 4);
  EXPECT_EQ(job->namespace_(), "default");
}

TEST_F(JobHandlersTest, ANamelessJobGetsTheModelsName) {
  const auto first = api_.jobs.Create(Request(""));
  const auto second = api_.jobs.Create(Request(""));
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(first->training_job().name().substr(0, 9), "llama-8m-");
  EXPECT_NE(first->training_job().name(), second->training_job().name());
}

TEST_F(JobHandlersTest, ARepeatedRequestGetsTheFirstAnswerEvenWithoutAName) {
  auto request = Request("");
  request.set_request_id("abc");
  const auto first = api_.jobs.Create(request);
  const auto second = api_.jobs.Create(request);
  ASSERT_TRUE(first.ok() && second.ok()) << second.status();
  EXPECT_EQ(first->training_job().name(), second->training_job().name());
  request.mutable_training_job()->mutable_spec()->mutable_schedule()->set_steps(7);
  EXPECT_EQ(api_.jobs.Create(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobHandlersTest, EveryFaultOfARequestIsReported) {
  auto request = Request("Bad_Name");
  request.mutable_training_job()->set_namespace_("other");
  request.mutable_training_job()->mutable_spec()->mutable_workers()->set_batch(0);
  const auto violations = spec::ViolationsFrom(api_.jobs.Create(request).status());
  ASSERT_EQ(violations.size(), 3u);
  EXPECT_EQ(violations[0].path, "namespace");
  EXPECT_EQ(violations[1].path, "name");
  EXPECT_EQ(violations[2].path, "spec.workers.batch");
}

TEST_F(JobHandlersTest, WhatAClientSaysOfOutputFieldsIsDropped) {
  auto request = Request("tiny");
  request.mutable_training_job()->set_uid("mine");
  request.mutable_training_job()->mutable_status()->set_run_directory("/etc");
  const auto response = api_.jobs.Create(request);
  EXPECT_EQ(response->training_job().uid(), "uid-tiny");
  EXPECT_EQ(response->training_job().status().run_directory(), "");
}

TEST_F(JobHandlersTest, SecretsInTheEnvironmentAreNotReadBackAndTheirMarkIsNotStored) {
  auto request = Request("tiny");
  (*request.mutable_training_job()->mutable_spec()->mutable_env())["TOKEN"] = "secret";
  const auto created = api_.jobs.Create(request);
  ASSERT_OK(created);
  EXPECT_EQ(created->training_job().spec().env().at("TOKEN"), "***");
  EXPECT_EQ(store_->Get({"default", "tiny"})->job.spec().env().at("TOKEN"), "secret");
  v1::GetTrainingJobRequest get;
  get.set_name("tiny");
  const auto shown = api_.jobs.Get(get);
  EXPECT_EQ(shown->spec().env().at("TOKEN"), "***");
  EXPECT_EQ(api_.jobs.List({})->training_jobs(0).spec().env().at("TOKEN"), "***");
  v1::WatchTrainingJobRequest watch;
  watch.set_name("tiny");
  EXPECT_EQ((*api_.jobs.Watch(watch, [] {}))->Take()->message().training_job().spec().env().at("TOKEN"),
            "***");
  auto again = Request("other");
  *again.mutable_training_job()->mutable_spec() = shown->spec();
  const auto violations = spec::ViolationsFrom(api_.jobs.Create(again).status());
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(violations[0].path, "spec.env.TOKEN");
}

TEST_F(JobHandlersTest, AJobWhoseCallerHasGoneIsNotStored) {
  EXPECT_TRUE(absl::IsCancelled(api_.jobs.Create(Request("tiny"), [] { return true; }).status()));
  EXPECT_TRUE(absl::IsNotFound(store_->Get({"default", "tiny"}).status()));
}

TEST_F(JobHandlersTest, EventsComeInPages) {
  ASSERT_OK(api_.jobs.Create(Request("tiny")));
  for (int64_t i = 1; i <= 5; ++i) {
    v1::Event event;
    event.set_revision(i * 10);
    event.set_reason("R" + std::to_string(i));
    ASSERT_OK(store_->AddEvent({"default", "tiny"}, event));
  }
  v1::ListEventsRequest request;
  request.set_name("tiny");
  request.set_page_size(2);
  std::string seen;
  do {
    const auto page = api_.jobs.ListEvents(request);
    ASSERT_OK(page);
    for (const auto& event : page->events()) seen += event.reason();
    seen += "|";
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  EXPECT_EQ(seen, "R1R2|R3R4|R5|");
  request.set_page_token("zzz");
  EXPECT_EQ(api_.jobs.ListEvents(request).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(JobHandlersTest, WatchesAreBounded) {
  ASSERT_OK(api_.jobs.Create(Request("tiny")));
  v1::WatchTrainingJobRequest request;
  request.set_name("tiny");
  auto first = api_.jobs.Watch(request, [] {});
  auto second = api_.jobs.Watch(request, [] {});
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ(api_.jobs.Watch(request, [] {}).status().code(), absl::StatusCode::kResourceExhausted);
  (*first)->Close();
  (*first)->Close();  // gives one place back, not two
  EXPECT_OK(api_.jobs.Watch(request, [] {}));
  request.set_name("other");
  EXPECT_EQ(api_.jobs.Watch(request, [] {}).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(api_.jobs.Watch(request, [] {}).status().code(),
            absl::StatusCode::kNotFound);  // and takes no place
}

TEST_F(JobHandlersTest, ASlowWatcherKeepsTheNewestUpdates) {
  ASSERT_OK(api_.jobs.Create(Request("tiny")));
  v1::WatchTrainingJobRequest request;
  request.set_name("tiny");
  auto watch = api_.jobs.Watch(request, [] {});
  ASSERT_OK(watch);
  for (int step = 1; step <= 200; ++step) {
    ASSERT_OK(controller_.Change({"default", "tiny"},
                                 [&](v1::TrainingJob* job) { job->mutable_status()->set_step(step); }));
  }
  int64_t last = 0;
  int taken = 0;
  while (auto update = (*watch)->Take()) {
    EXPECT_GT(update->message().training_job().status().step(), last);
    last = update->message().training_job().status().step();
    ++taken;
  }
  EXPECT_EQ(last, 200);
  EXPECT_EQ(taken, static_cast<int>(WatchStream::kMaxQueued));
}

}  // namespace
}  // namespace tessera::services
