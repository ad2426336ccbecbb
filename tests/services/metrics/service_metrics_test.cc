#include "services/metrics/service_metrics.h"

#include <set>

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "scheduler/store/memory_store.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

using testing::HasSubstr;
using testing::Not;

class ServiceMetricsTest : public testing::Test {
 protected:
  scheduler::JobRecord AddJob(const std::string& name, v1::JobState state) {
    v1::TrainingJob job = SmallJob(name);
    job.set_namespace_("default");
    job.mutable_status()->set_state(state);
    job.mutable_status()->set_loss(2.5);
    job.mutable_status()->set_tokens(4096);
    v1::WorkerStatus* worker = job.mutable_status()->add_workers();
    worker->set_rank(3);
    worker->set_step(7);
    worker->set_memory_used_bytes(1000);
    worker->set_memory_peak_bytes(1100);
    worker->set_memory_predicted_bytes(1000);
    worker->set_traffic_bytes_per_step(100);
    return *store_->Create(job, "");
  }
  std::unique_ptr<scheduler::JobStore> store_ = scheduler::MakeMemoryStore();
  ServiceMetrics metrics_{store_.get(), "1.2.3"};
};

TEST_F(ServiceMetricsTest, SeriesOfARunningJobAppearAndThoseOfAFinishedOneVanish) {
  scheduler::JobRecord record = AddJob("tiny", v1::JOB_STATE_RUNNING);
  const std::string labels = "namespace=\"default\",job=\"tiny\",rank=\"3\"";
  std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("tessera_worker_step{" + labels + "} 7"));
  EXPECT_THAT(text, HasSubstr("tessera_worker_loss{" + labels + "} 2.5"));
  EXPECT_THAT(text, HasSubstr("tessera_worker_tokens_total{" + labels + "} 4096"));
  EXPECT_THAT(text, HasSubstr("tessera_worker_memory_bytes{" + labels + ",kind=\"allocated\"} 1000"));
  EXPECT_THAT(text, HasSubstr("tessera_worker_sync_bytes_total{" + labels + "} 700"));
  EXPECT_THAT(text, HasSubstr("tessera_jobs{state=\"running\"} 1"));
  record.job.mutable_status()->set_state(v1::JOB_STATE_SUCCEEDED);
  ASSERT_OK(store_->Update(record));
  text = metrics_.Text();
  EXPECT_THAT(text, Not(HasSubstr("tessera_worker_")));
  EXPECT_THAT(text, HasSubstr("tessera_jobs{state=\"running\"} 0"));
  EXPECT_THAT(text, HasSubstr("tessera_jobs{state=\"succeeded\"} 1"));
}

TEST_F(ServiceMetricsTest, NamesAreTheContractWithDashboards) {
  AddJob("tiny", v1::JOB_STATE_RUNNING);
  metrics_.WorkerFailed("infrastructure");
  metrics_.RequestDone("rest", "JobService.CreateTrainingJob", absl::StatusCode::kOk, absl::Milliseconds(3));
  std::set<std::string> names;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(metrics_.Text(), '\n'))) {
    if (line.rfind("# TYPE ", 0) == 0) names.insert(line.substr(7));
  }
  EXPECT_EQ(names,
            (std::set<std::string>{
                "tessera_api_request_duration_seconds histogram", "tessera_build_info gauge",
                "tessera_job_queue_wait_seconds histogram", "tessera_job_submissions_total counter",
                "tessera_job_time_to_first_step_seconds histogram", "tessera_jobs gauge",
                "tessera_plan_apply_lag_seconds histogram", "tessera_plan_seconds histogram",
                "tessera_worker_compute_duration_seconds gauge", "tessera_worker_failures_total counter",
                // Not the worker's own histogram tessera_worker_step_duration_seconds.
                "tessera_worker_last_step_duration_seconds gauge", "tessera_worker_loss gauge",
                "tessera_worker_mask_coverage_ratio gauge", "tessera_worker_memory_bytes gauge",
                "tessera_worker_memory_prediction_error_ratio gauge", "tessera_worker_plan_generation gauge",
                "tessera_worker_plan_generation_skew gauge", "tessera_worker_step gauge",
                "tessera_worker_sync_bytes_total counter", "tessera_worker_tokens_total counter"}));
}

TEST_F(ServiceMetricsTest, NodesAndLinksHaveSeriesWhileTheyAreKnown) {
  const auto registry = std::make_shared<scheduler::NodeRegistry>();
  const ServiceMetrics metrics(store_.get(), "1.2.3", registry);
  const absl::Time now = absl::Now();
  v1::ReportNodeRequest report;
  report.mutable_node()->set_name("a");
  v1::DeviceProfile& device = *report.mutable_node()->add_devices();
  device.set_name("cpu");
  device.set_total_bytes(1000);
  device.set_free_bytes(400);
  ASSERT_OK(registry->Report(report, now));
  report.mutable_node()->set_name("b");
  v1::LinkProfile& link = *report.add_links();
  link.set_peer("a");
  link.set_round_trip_seconds(0.25);
  link.set_bandwidth_bytes_per_second(1024);
  ASSERT_OK(registry->Report(report, now));
  const std::string text = metrics.Text();
  EXPECT_THAT(text,
              HasSubstr("tessera_node_device_memory_bytes{node=\"a\",device=\"cpu\",kind=\"total\"} 1000"));
  EXPECT_THAT(text,
              HasSubstr("tessera_node_device_memory_bytes{node=\"a\",device=\"cpu\",kind=\"free\"} 400"));
  EXPECT_THAT(text, HasSubstr("tessera_link_rtt_seconds{node=\"b\",peer=\"a\"} 0.25"));
  EXPECT_THAT(text, HasSubstr("tessera_link_bandwidth_bytes_per_second{node=\"b\",peer=\"a\"} 1024"));
  // Unknown is missing, not zero.
  EXPECT_THAT(text, Not(HasSubstr("largest_block")));
  EXPECT_THAT(text, Not(HasSubstr("fragmentation")));
  EXPECT_THAT(text, Not(HasSubstr("node=\"a\",peer=\"b\"")));
}

TEST_F(ServiceMetricsTest, CallsAreTimedByProtocolMethodAndCode) {
  metrics_.RequestDone("grpc", "JobService.CreateTrainingJob", absl::StatusCode::kInvalidArgument,
                       absl::Milliseconds(3));
  const std::string text = metrics_.Text();
  EXPECT_THAT(text, HasSubstr("tessera_job_submissions_total{result=\"INVALID_ARGUMENT\"} 1"));
  EXPECT_THAT(text, HasSubstr("tessera_build_info{version=\"1.2.3\"} 1"));
  EXPECT_THAT(
      text,
      HasSubstr("tessera_api_request_duration_seconds_count{code=\"INVALID_ARGUMENT\",method=\"JobService."
                "CreateTrainingJob\",protocol=\"grpc\"} 1"));
}

}  // namespace
}  // namespace tessera::services
