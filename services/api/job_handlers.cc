#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/validate.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/api.h"
#include "services/api/create_job.h"
#include "services/api/explain.h"
#include "services/api/field_mask.h"
#include "services/api/job_filter.h"
#include "services/api/job_logs.h"
#include "services/api/job_records.h"
#include "services/api/reason.h"
#include "services/api/update_job.h"

namespace tessera::services {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1000;

absl::StatusOr<int> PageSize(int asked) {
  if (asked < 0) {
    return spec::MakeInvalid(
        {{.path = "pageSize", .value = absl::StrCat(asked), .message = "must not be negative"}});
  }
  return asked == 0 ? kDefaultPage : std::min(asked, kMaxPage);
}

absl::Status WrongToken(const std::string& or_else) {
  return spec::MakeInvalid(
      {{.path = "pageToken",
        .message = absl::StrCat("is not a token of this service", or_else.empty() ? "" : ", ", or_else),
        .remedy = "use nextPageToken of the page before, unchanged"}});
}

absl::Status TooManyPlans(int most) {
  return absl::ResourceExhaustedError(
      absl::StrCat(most, " jobs are being planned already; try again in a few seconds"));
}

// Events are numbered by revision; a token is the last one seen.
std::string EventToken(int64_t revision) { return absl::WebSafeBase64Escape(absl::StrCat("e", revision)); }

absl::StatusOr<int64_t> EventAfter(const std::string& token) {
  if (token.empty()) return 0;
  std::string text;
  int64_t revision = 0;
  if (!absl::WebSafeBase64Unescape(token, &text) || text.empty() || text[0] != 'e' ||
      !absl::SimpleAtoi(text.substr(1), &revision)) {
    return WrongToken("");
  }
  return revision;
}

// A token of a filtered list is for that filter alone.
std::string FilterMark(const std::string& filter) {
  uint32_t hash = 0x811c9dc5u;  // FNV-1a: tokens outlive the process
  for (const char c : filter) hash = (hash ^ static_cast<unsigned char>(c)) * 0x01000193u;
  return absl::StrCat(absl::Hex(hash, absl::kZeroPad8), ".");
}

// As callers see it.
absl::StatusOr<v1::TrainingJob> Shown(absl::StatusOr<v1::TrainingJob> job) {
  if (job.ok()) spec::HideEnvironment(&*job);
  return job;
}

}  // namespace

absl::StatusOr<scheduler::JobKey> KeyFrom(const std::string& ns, const std::string& name) {
  if (name.empty())
    return spec::MakeInvalid({{.path = "name", .message = "is missing", .remedy = "name the job"}});
  return scheduler::JobKey{ns.empty() ? "default" : ns, name};
}

JobHandlers::JobHandlers(scheduler::Controller* controller, scheduler::JobStore* store, int max_watches,
                         int max_creations)
    : controller_(controller),
      store_(store),
      slots_(std::make_shared<WatchSlots>(max_watches)),
      max_creations_(max_creations) {}

absl::StatusOr<v1::CreateTrainingJobResponse> JobHandlers::Create(
    const v1::CreateTrainingJobRequest& request) {
  return Create(request, nullptr);
}

absl::StatusOr<v1::CreateTrainingJobResponse> JobHandlers::Create(const v1::CreateTrainingJobRequest& request,
                                                                  const std::function<bool()>& caller_gone) {
  TESSERA_ASSIGN_OR_RETURN(const v1::TrainingJob job, ResolveJob(request));
  const auto leave = absl::MakeCleanup([this] { --creations_; });
  if (++creations_ > max_creations_) return TooManyPlans(max_creations_);
  auto response = controller_->Create(job, request.request_id(), request.validate_only(), caller_gone);
  if (response.status().GetPayload(scheduler::kRequestIdReusedPayload).has_value()) {
    absl::Status status = response.status();
    SetReason(&status, kReasonRequestIdReused);
    return status;
  }
  if (response.ok()) spec::HideEnvironment(response->mutable_training_job());
  return response;
}

absl::StatusOr<v1::TrainingJob> JobHandlers::Get(const v1::GetTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  google::protobuf::FieldMask mask = request.read_mask();
  TESSERA_RETURN_IF_ERROR(ResolveMask(v1::TrainingJob::descriptor(), "readMask", &mask));
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobRecord record, store_->Get(key));
  ApplyReadMask(mask, &record.job);
  return Shown(std::move(record.job));
}

absl::StatusOr<v1::ListTrainingJobsResponse> JobHandlers::List(const v1::ListTrainingJobsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  TESSERA_ASSIGN_OR_RETURN(const JobFilter filter, JobFilter::Parse(request.filter()));
  google::protobuf::FieldMask mask = request.read_mask();
  TESSERA_RETURN_IF_ERROR(ResolveMask(v1::TrainingJob::descriptor(), "readMask", &mask));
  const std::string ns = request.namespace_().empty() ? "default" : request.namespace_();
  const std::string mark = request.filter().empty() ? "" : FilterMark(request.filter());
  absl::string_view token = request.page_token();
  if (!token.empty() && !absl::ConsumePrefix(&token, mark)) return WrongToken("or the filter is another one");
  v1::ListTrainingJobsResponse response;
  std::string next(token);
  do {  // pages of what is stored, until one of what matches is full
    const int left = size - response.training_jobs_size();
    TESSERA_ASSIGN_OR_RETURN(scheduler::JobPage page, store_->List(ns, left, next));
    for (scheduler::JobRecord& record : page.jobs) {
      if (!filter.Matches(record.job)) continue;
      ApplyReadMask(mask, &record.job);
      *response.add_training_jobs() = *Shown(std::move(record.job));
    }
    next = page.next_page_token;
  } while (!next.empty() && response.training_jobs_size() < size);
  if (!next.empty()) response.set_next_page_token(absl::StrCat(mark, next));
  return response;
}

absl::StatusOr<v1::TrainingJob> JobHandlers::Update(const v1::UpdateTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_RETURN_IF_ERROR(store_->Get(key).status());  // who names no job hears of that first
  TESSERA_ASSIGN_OR_RETURN(const google::protobuf::FieldMask paths, UpdatePaths(request));
  return Shown(controller_->Update(key, request.etag(), [&](v1::TrainingJobSpec* spec) {
    ApplyUpdate(paths, request.training_job(), spec);
  }));
}

absl::StatusOr<v1::TrainingJob> JobHandlers::Resize(const v1::ResizeTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobRecord record, store_->Get(key));
  v1::WorkersSpec& workers = *record.job.mutable_spec()->mutable_workers();
  workers.set_count(request.workers());
  workers.set_min(request.workers());
  workers.set_max(request.workers());
  std::vector<spec::Violation> violations = spec::Validate(record.job);
  for (spec::Violation& violation : violations) {
    if (violation.path == "spec.workers.count") violation.path = "workers";
  }
  TESSERA_RETURN_IF_ERROR(spec::MakeInvalid(violations));
  const auto leave = absl::MakeCleanup([this] { --creations_; });
  if (++creations_ > max_creations_) return TooManyPlans(max_creations_);
  return Shown(controller_->Resize(key, request.etag(), request.workers()));
}

absl::StatusOr<v1::TrainingJob> JobHandlers::RecomputeBudgets(const v1::RecomputeBudgetsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobRecord record, store_->Get(key));
  if (request.budgets_of() < 0) {
    return spec::MakeInvalid({{.path = "budgetsOf",
                               .value = absl::StrCat(request.budgets_of()),
                               .message = "must not be negative",
                               .remedy = "give a generation, or leave it out"}});
  }
  if (request.budgets_of() != 0 && request.layer_limits_size() > 0) {
    return spec::MakeInvalid({{.path = "layerLimits",
                               .message = "are for budgets that are computed, and budgetsOf names others",
                               .remedy = "give one of the two"}});
  }
  if (request.layer_limits_size() > 0) {
    *record.job.mutable_spec()->mutable_dropping()->mutable_layer_limits() = request.layer_limits();
    std::vector<spec::Violation> violations;
    for (spec::Violation& violation : spec::Validate(record.job)) {
      if (violation.path.rfind("spec.dropping.layerLimits", 0) == 0)
        violations.push_back(std::move(violation));
    }
    TESSERA_RETURN_IF_ERROR(spec::MakeInvalid(violations));
  }
  scheduler::BudgetRequest budgets;
  budgets.layer_limits.assign(request.layer_limits().begin(), request.layer_limits().end());
  budgets.budgets_of = request.budgets_of();
  budgets.etag = request.etag();
  return Shown(controller_->RecomputeBudgets(key, budgets));
}

absl::StatusOr<google::protobuf::Empty> JobHandlers::Delete(const v1::DeleteTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_RETURN_IF_ERROR(controller_->Delete(key, request.etag()));
  return google::protobuf::Empty();
}

absl::StatusOr<v1::TrainingJob> JobHandlers::Cancel(const v1::CancelTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  return Shown(controller_->Cancel(key));
}

absl::StatusOr<v1::TrainingJob> JobHandlers::Suspend(const v1::SuspendTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  return Shown(controller_->Suspend(key));
}

absl::StatusOr<v1::TrainingJob> JobHandlers::Resume(const v1::ResumeTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  return Shown(controller_->Resume(key));
}

absl::StatusOr<v1::ListEventsResponse> JobHandlers::ListEvents(const v1::ListEventsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  TESSERA_ASSIGN_OR_RETURN(const int64_t after, EventAfter(request.page_token()));
  TESSERA_ASSIGN_OR_RETURN(std::vector<v1::Event> events, store_->Events(key));
  v1::ListEventsResponse response;
  for (v1::Event& event : events) {
    if (event.revision() <= after && after > 0) continue;
    if (response.events_size() == size) {
      response.set_next_page_token(EventToken(response.events(size - 1).revision()));
      break;
    }
    *response.add_events() = std::move(event);
  }
  return response;
}

absl::StatusOr<v1::GetLogsResponse> JobHandlers::GetLogs(const v1::GetLogsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  return ReadLogs(record.job, request);
}

absl::StatusOr<v1::GetMetricsResponse> JobHandlers::GetMetrics(const v1::GetMetricsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  return ReadMetrics(record.job, request);
}

absl::StatusOr<v1::ListCheckpointsResponse> JobHandlers::ListCheckpoints(
    const v1::ListCheckpointsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  return FindJobCheckpoints(record.job);
}

absl::StatusOr<v1::ExplainTrainingJobResponse> JobHandlers::Explain(
    const v1::ExplainTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::Plan> plans, store_->Plans(key));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, store_->Events(key));
  std::vector<v1::TrainingJob> others;
  std::string next;
  while (record.job.status().state() ==
         v1::JOB_STATE_QUEUED) {  // by pages: writers wait for one, not for all
    TESSERA_ASSIGN_OR_RETURN(scheduler::JobPage page, store_->List("-", kMaxPage, next));
    for (scheduler::JobRecord& other : page.jobs) {
      if (!IsTerminal(other.job.status().state())) others.push_back(std::move(other.job));
    }
    next = page.next_page_token;
    if (next.empty()) break;
  }
  return ExplainJob(record.job, plans, events, others);
}

absl::StatusOr<std::shared_ptr<WatchStream>> JobHandlers::Watch(const v1::WatchTrainingJobRequest& request,
                                                                std::function<void()> ready) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  if (request.from_revision() < 0) {
    return spec::MakeInvalid({{.path = "fromRevision",
                               .value = absl::StrCat(request.from_revision()),
                               .message = "must not be negative"}});
  }
  return WatchStream::Open(controller_, key, request.from_revision(), slots_, std::move(ready));
}

}  // namespace tessera::services
