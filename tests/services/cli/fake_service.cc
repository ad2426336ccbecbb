#include "tests/services/cli/fake_service.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "proto/tessera/v1/defaults.h"
#include "services/cli/program.h"

namespace tessera::cli {

namespace fs = std::filesystem;

class FakeService::Plans final : public v1::PlanService::Service {
 public:
  explicit Plans(FakeService* service) : service_(service) {}
  grpc::Status GetPlan(grpc::ServerContext*, const v1::GetPlanRequest* request, v1::Plan* response) override {
    *response = service_->plan;
    if (request->generation() > 0) response->set_generation(request->generation());
    return grpc::Status::OK;
  }

 private:
  FakeService* const service_;
};

class FakeService::Nodes final : public v1::NodeService::Service {
 public:
  explicit Nodes(FakeService* service) : service_(service) {}
  grpc::Status ListNodes(grpc::ServerContext*, const v1::ListNodesRequest*,
                         v1::ListNodesResponse* response) override {
    auto* node = response->add_nodes();
    node->set_name("here");
    auto* device = node->add_devices();
    device->set_name("cpu");
    device->set_total_bytes(8 * 1024 * kMiB);
    return grpc::Status::OK;
  }
  grpc::Status ListLinks(grpc::ServerContext*, const v1::ListLinksRequest*,
                         v1::ListLinksResponse* response) override {
    auto* link = response->add_links();
    link->set_node("here");
    link->set_peer("there");
    link->set_round_trip_seconds(0.0015);
    link->set_bandwidth_bytes_per_second(1e7);
    link->mutable_age()->set_seconds(3600);
    link->set_stale(true);
    return grpc::Status::OK;
  }
  grpc::Status ProfileNodes(grpc::ServerContext* context, const v1::ProfileNodesRequest* request,
                            v1::ListNodesResponse* response) override {
    if (auto status = service_->Note(*context, "ProfileNodes " + request->node()); !status.ok())
      return status;
    return ListNodes(context, nullptr, response);
  }

 private:
  FakeService* const service_;
};

FakeService::FakeService() : plans_(std::make_unique<Plans>(this)), nodes_(std::make_unique<Nodes>(this)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
  builder.RegisterService(this);
  builder.RegisterService(plans_.get());
  builder.RegisterService(nodes_.get());
  server_ = builder.BuildAndStart();
}

FakeService::~FakeService() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  server_->Shutdown();
}

void FakeService::Put(const v1::TrainingJob& job) {
  absl::MutexLock lock(&mutex_);
  jobs_[job.name()] = job;
  ++revision_;
}

void FakeService::Remove(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  jobs_.erase(name);
  ++revision_;
}

std::optional<v1::TrainingJob> FakeService::Find(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(name);
  return found == jobs_.end() ? std::nullopt : std::optional(found->second);
}

void FakeService::SetState(const std::string& name, v1::JobState state, int64_t step) {
  absl::MutexLock lock(&mutex_);
  auto* status = jobs_[name].mutable_status();
  status->set_state(state);
  if (step > 0) status->set_step(step);
  ++revision_;
}

std::vector<std::string> FakeService::calls() {
  absl::MutexLock lock(&mutex_);
  return calls_;
}

grpc::Status FakeService::Note(grpc::ServerContext& context, const std::string& call) {
  const auto& metadata = context.client_metadata();
  const auto token = metadata.find("authorization");
  if (token == metadata.end() || token->second != absl::StrCat("Bearer ", kToken)) {
    return grpc::Status(grpc::StatusCode::UNAUTHENTICATED, "wrong token");
  }
  absl::MutexLock lock(&mutex_);
  calls_.push_back(call);
  return grpc::Status::OK;
}

grpc::Status FakeService::Lookup(const std::string& name, v1::TrainingJob* job) {
  const auto found = Find(name);
  if (!found) return grpc::Status(grpc::StatusCode::NOT_FOUND, absl::StrCat("there is no job ", name));
  *job = *found;
  return grpc::Status::OK;
}

grpc::Status FakeService::CreateTrainingJob(grpc::ServerContext* context,
                                            const v1::CreateTrainingJobRequest* request,
                                            v1::CreateTrainingJobResponse* response) {
  v1::TrainingJob job = request->training_job();
  if (auto status = Note(*context, absl::StrCat("Create ", job.name())); !status.ok()) return status;
  if (on_create) {
    if (auto status = on_create(*request); !status.ok()) return status;
  }
  spec::ApplyDefaults(&job);
  job.mutable_status()->set_state(v1::JOB_STATE_QUEUED);
  *response->mutable_training_job() = job;
  for (int rank = 0; rank < job.spec().workers().count(); ++rank)
    response->mutable_training_job()->mutable_status()->add_workers()->set_rank(rank);
  if (request->validate_only()) {
    *response->mutable_plan() = ExamplePlan();
    return grpc::Status::OK;
  }
  if (Find(job.name())) return grpc::Status(grpc::StatusCode::ALREADY_EXISTS, "the name is taken");
  Put(job);
  if (on_created) on_created(job.name());
  return grpc::Status::OK;
}

grpc::Status FakeService::RecomputeBudgets(grpc::ServerContext* context,
                                           const v1::RecomputeBudgetsRequest* request,
                                           v1::TrainingJob* response) {
  std::string call = absl::StrCat("RecomputeBudgets ", request->name());
  if (request->budgets_of() > 0) absl::StrAppend(&call, " of ", request->budgets_of());
  for (const v1::DensityLimit& limit : request->layer_limits())
    absl::StrAppend(&call, " ", limit.pattern(), " ", limit.min(), " ", limit.max());
  if (auto status = Note(*context, call); !status.ok()) return status;
  return Lookup(request->name(), response);
}

grpc::Status FakeService::GetTrainingJob(grpc::ServerContext* context,
                                         const v1::GetTrainingJobRequest* request,
                                         v1::TrainingJob* response) {
  if (auto status = Note(*context, absl::StrCat("Get ", request->name())); !status.ok()) return status;
  return Lookup(request->name(), response);
}

grpc::Status FakeService::ListTrainingJobs(grpc::ServerContext* context,
                                           const v1::ListTrainingJobsRequest* request,
                                           v1::ListTrainingJobsResponse* response) {
  if (auto status = Note(*context, "List"); !status.ok()) return status;
  absl::MutexLock lock(&mutex_);
  // Pages of one.
  auto next = request->page_token().empty() ? jobs_.begin() : jobs_.find(request->page_token());
  if (next == jobs_.end()) return grpc::Status::OK;
  *response->add_training_jobs() = next->second;
  if (++next != jobs_.end()) response->set_next_page_token(next->first);
  return grpc::Status::OK;
}

grpc::Status FakeService::DeleteTrainingJob(grpc::ServerContext* context,
                                            const v1::DeleteTrainingJobRequest* request,
                                            google::protobuf::Empty*) {
  if (auto status = Note(*context, absl::StrCat("Delete ", request->name())); !status.ok()) return status;
  v1::TrainingJob job;
  if (auto status = Lookup(request->name(), &job); !status.ok()) return status;
  Remove(request->name());
  return grpc::Status::OK;
}

grpc::Status FakeService::CancelTrainingJob(grpc::ServerContext* context,
                                            const v1::CancelTrainingJobRequest* request,
                                            v1::TrainingJob* response) {
  if (auto status = Note(*context, absl::StrCat("Cancel ", request->name())); !status.ok()) return status;
  if (auto status = Lookup(request->name(), response); !status.ok()) return status;
  SetState(request->name(), v1::JOB_STATE_CANCELLED);
  return Lookup(request->name(), response);
}

grpc::Status FakeService::SuspendTrainingJob(grpc::ServerContext* context,
                                             const v1::SuspendTrainingJobRequest* request,
                                             v1::TrainingJob* response) {
  if (auto status = Note(*context, absl::StrCat("Suspend ", request->name())); !status.ok()) return status;
  if (auto status = Lookup(request->name(), response); !status.ok()) return status;
  if (on_suspended) on_suspended(request->name());
  return grpc::Status::OK;
}

grpc::Status FakeService::ResumeTrainingJob(grpc::ServerContext* context,
                                            const v1::ResumeTrainingJobRequest* request,
                                            v1::TrainingJob* response) {
  if (auto status = Note(*context, absl::StrCat("Resume ", request->name())); !status.ok()) return status;
  if (auto status = Lookup(request->name(), response); !status.ok()) return status;
  if (response->status().state() != v1::JOB_STATE_SUSPENDED && !resume_terminal) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "only a suspended job can be resumed");
  }
  if (on_resumed) on_resumed(request->name());
  return grpc::Status::OK;
}

grpc::Status FakeService::WatchTrainingJob(grpc::ServerContext* context,
                                           const v1::WatchTrainingJobRequest* request,
                                           grpc::ServerWriter<v1::WatchTrainingJobResponse>* writer) {
  if (auto status = Note(*context, absl::StrCat("Watch ", request->name())); !status.ok()) return status;
  int64_t sent = -1;
  bool first = true;
  while (!context->IsCancelled()) {
    v1::WatchTrainingJobResponse response;
    {
      absl::MutexLock lock(&mutex_);
      const auto changed = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || revision_ != sent;
      };
      // A cancelled stream is noticed by the next round.
      mutex_.AwaitWithTimeout(absl::Condition(&changed), absl::Milliseconds(20));
      if (stopping_) return grpc::Status(grpc::StatusCode::UNAVAILABLE, "shutting down");
      if (revision_ == sent) continue;
      sent = revision_;
      const auto found = jobs_.find(request->name());
      if (found == jobs_.end()) {
        if (first) return grpc::Status(grpc::StatusCode::NOT_FOUND, "there is no such job");
        response.set_deleted(true);
      } else {
        *response.mutable_training_job() = found->second;
      }
      response.set_revision(sent);
    }
    writer->Write(response);
    if (first && on_watched) on_watched(request->name());
    first = false;
    if (on_watch) {
      if (auto status = on_watch(); !status.ok()) return status;
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeService::GetLogs(grpc::ServerContext* context, const v1::GetLogsRequest* request,
                                  v1::GetLogsResponse* response) {
  if (auto status = Note(*context, absl::StrCat("Logs ", request->name(), " ", request->rank()));
      !status.ok()) {
    return status;
  }
  static constexpr absl::string_view kText = "first line\nsecond line\n";
  // Two pieces, and then nothing.
  const size_t offset = static_cast<size_t>(request->offset());
  response->set_text(std::string(kText.substr(offset, 11)));
  response->set_next_offset(static_cast<int64_t>(std::min(kText.size(), offset + 11)));
  response->set_complete(offset >= kText.size());
  return grpc::Status::OK;
}

grpc::Status FakeService::ListEvents(grpc::ServerContext* context, const v1::ListEventsRequest* request,
                                     v1::ListEventsResponse* response) {
  if (auto status = Note(*context, absl::StrCat("Events ", request->name())); !status.ok()) return status;
  auto* event = response->add_events();
  event->set_type("Warning");
  event->set_reason("WorkerLost");
  event->set_message("rank 2 was killed by signal 9");
  return grpc::Status::OK;
}

grpc::Status FakeService::ExplainTrainingJob(grpc::ServerContext* context,
                                             const v1::ExplainTrainingJobRequest* request,
                                             v1::ExplainTrainingJobResponse* response) {
  if (auto status = Note(*context, absl::StrCat("Explain ", request->name())); !status.ok()) return status;
  response->set_summary("it waits for memory");
  response->add_reasons("needs 4 GiB, 1 GiB is free");
  *response->mutable_plan() = ExamplePlan();
  return grpc::Status::OK;
}

v1::TrainingJob StoredJob(v1::JobState state, int64_t step) {
  v1::TrainingJob job;
  job.set_name("small");
  job.set_uid("uid-1");
  job.mutable_spec()->mutable_model()->set_preset("llama-1m");
  job.mutable_spec()->mutable_data()->set_train("/data/train.bin");
  job.mutable_spec()->mutable_schedule()->set_steps(100);
  spec::ApplyDefaults(&job);
  job.mutable_status()->set_state(state);
  job.mutable_status()->set_step(step);
  job.mutable_status()->set_total_steps(100);
  return job;
}

void CommandTest::SetUp() {
  std::string pattern = testing::TempDir() + "/cli_XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  folder_ = fs::canonical(pattern).string();
  token_file_ = Write("token", absl::StrCat(kToken, "\n"));
  job_file_ = Write(
      "small.yaml",
      "spec:\n  model: {preset: llama-1m}\n  data: {train: /data/train.bin}\n  schedule: {steps: 100}\n");
  environment_.out = &out_;
  environment_.err = &err_;
  environment_.style = kAscii;
  environment_.width = [] { return 120; };
  environment_.height = [] { return 40; };
  environment_.variable = [this](const std::string& name) -> std::optional<std::string> {
    const auto found = variables_.find(name);
    return found == variables_.end() ? std::nullopt : std::optional(found->second);
  };
  environment_.program_directory = folder_;
  environment_.working_directory = folder_;
  environment_.interrupts = &interrupts_;
  environment_.execute = [this](const std::string& path, const std::vector<std::string>& arguments) {
    executed_ = {path};
    executed_.insert(executed_.end(), arguments.begin(), arguments.end());
    return 0;
  };
  environment_.run = environment_.execute;
}

void CommandTest::TearDown() { fs::remove_all(folder_); }

int CommandTest::Run(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"--address", service_.address(), "--token-file", token_file_});
  return RunWithoutAddress(std::move(arguments));
}

int CommandTest::RunWithoutAddress(std::vector<std::string> arguments) {
  out_.str("");
  err_.str("");
  arguments.insert(arguments.begin(), {"--state-dir", folder_ + "/state"});
  return RunTessera(arguments, environment_);
}

std::string CommandTest::Write(const std::string& name, const std::string& text) {
  const std::string path = folder_ + "/" + name;
  std::ofstream(path) << text;
  return path;
}

}  // namespace tessera::cli
