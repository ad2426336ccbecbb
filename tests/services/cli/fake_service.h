// The service's three APIs over a table of jobs, in this process, and a way to run
// `tessera` against it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "services/cli/environment.h"
#include "tessera/v1/api.grpc.pb.h"
#include "tests/services/cli/example_job.h"

namespace tessera::cli {

inline constexpr const char* kToken = "0123456789abcdef";

// Thread-safe. Only namespace "default".
class FakeService final : public v1::JobService::Service {
 public:
  FakeService();
  ~FakeService() override;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Put(const v1::TrainingJob& job);
  void Remove(const std::string& name);
  std::optional<v1::TrainingJob> Find(const std::string& name);
  void SetState(const std::string& name, v1::JobState state, int64_t step = 0);
  std::vector<std::string> calls();  // "Create small", "Suspend small", ...

  // Set before the first call.
  std::function<grpc::Status(const v1::CreateTrainingJobRequest&)> on_create;
  std::function<grpc::Status()> on_watch;  // not OK: the stream ends with this after one state
  std::function<void(const std::string& name)> on_created, on_suspended, on_resumed, on_watched;
  v1::Plan plan = ExamplePlan();  // of all jobs
  bool resume_terminal = false;   // Resume works for FAILED jobs

  grpc::Status CreateTrainingJob(grpc::ServerContext* context, const v1::CreateTrainingJobRequest* request,
                                 v1::CreateTrainingJobResponse* response) override;
  grpc::Status GetTrainingJob(grpc::ServerContext* context, const v1::GetTrainingJobRequest* request,
                              v1::TrainingJob* response) override;
  grpc::Status ListTrainingJobs(grpc::ServerContext* context, const v1::ListTrainingJobsRequest* request,
                                v1::ListTrainingJobsResponse* response) override;
  grpc::Status DeleteTrainingJob(grpc::ServerContext* context, const v1::DeleteTrainingJobRequest* request,
                                 google::protobuf::Empty* response) override;
  grpc::Status CancelTrainingJob(grpc::ServerContext* context, const v1::CancelTrainingJobRequest* request,
                                 v1::TrainingJob* response) override;
  grpc::Status SuspendTrainingJob(grpc::ServerContext* context, const v1::SuspendTrainingJobRequest* request,
                                  v1::TrainingJob* response) override;
  grpc::Status ResumeTrainingJob(grpc::ServerContext* context, const v1::ResumeTrainingJobRequest* request,
                                 v1::TrainingJob* response) override;
  grpc::Status WatchTrainingJob(grpc::ServerContext* context, const v1::WatchTrainingJobRequest* request,
                                grpc::ServerWriter<v1::WatchTrainingJobResponse>* writer) override;
  grpc::Status RecomputeBudgets(grpc::ServerContext* context, const v1::RecomputeBudgetsRequest* request,
                                v1::TrainingJob* response) override;
  grpc::Status GetLogs(grpc::ServerContext* context, const v1::GetLogsRequest* request,
                       v1::GetLogsResponse* response) override;
  grpc::Status ListEvents(grpc::ServerContext* context, const v1::ListEventsRequest* request,
                          v1::ListEventsResponse* response) override;
  grpc::Status ExplainTrainingJob(grpc::ServerContext* context, const v1::ExplainTrainingJobRequest* request,
                                  v1::ExplainTrainingJobResponse* response) override;

 private:
  class Plans;
  class Nodes;
  grpc::Status Note(grpc::ServerContext& context, const std::string& call);
  grpc::Status Lookup(const std::string& name, v1::TrainingJob* job);

  absl::Mutex mutex_;
  std::map<std::string, v1::TrainingJob> jobs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> calls_ ABSL_GUARDED_BY(mutex_);
  int64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  int port_ = 0;
  std::unique_ptr<Plans> plans_;
  std::unique_ptr<Nodes> nodes_;
  std::unique_ptr<grpc::Server> server_;
};

// A run of the program against a FakeService, with a temporary folder of its own.
class CommandTest : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;

  // The exit code; what was written is in out() and err(). --address and --token-file are added.
  int Run(std::vector<std::string> arguments);
  int RunWithoutAddress(std::vector<std::string> arguments);
  std::string out() const { return out_.str(); }
  std::string err() const { return err_.str(); }
  std::string Write(const std::string& name, const std::string& text);  // its path

  FakeService service_;
  std::string folder_;
  std::string token_file_;
  std::string job_file_;  // of a valid job called "small"
  Interrupts interrupts_;
  Environment environment_;
  std::map<std::string, std::string> variables_;
  std::vector<std::string> executed_;  // program and arguments of the last execute or run

 private:
  std::ostringstream out_, err_;
};

// A job called "small" as the service stores it.
v1::TrainingJob StoredJob(v1::JobState state, int64_t step = 0);

}  // namespace tessera::cli
