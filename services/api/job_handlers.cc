#include <algorithm>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "proto/tessera/v1/validate.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/api.h"
#include "services/api/create_job.h"
#include "services/api/explain.h"
#include "services/api/job_logs.h"
#include "services/api/reason.h"

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

// Events are numbered by revision; a token is the last one seen.
std::string EventToken(int64_t revision) { return absl::WebSafeBase64Escape(absl::StrCat("e", revision)); }

absl::StatusOr<int64_t> EventAfter(const std::string& token) {
  if (token.empty()) return 0;
  std::string text;
  int64_t revision = 0;
  if (!absl::WebSafeBase64Unescape(token, &text) || text.empty() || text[0] != 'e' ||
      !absl::SimpleAtoi(text.substr(1), &revision)) {
    return spec::MakeInvalid({{.path = "pageToken",
                               .message = "is not a token of this service",
                               .remedy = "use nextPageToken of the page before, unchanged"}});
  }
  return revision;
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
  if (++creations_ > max_creations_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(max_creations_, " jobs are being planned already; try again in a few seconds"));
  }
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
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobRecord record, store_->Get(key));
  return Shown(std::move(record.job));
}

absl::StatusOr<v1::ListTrainingJobsResponse> JobHandlers::List(const v1::ListTrainingJobsRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const int size, PageSize(request.page_size()));
  const std::string ns = request.namespace_().empty() ? "default" : request.namespace_();
  TESSERA_ASSIGN_OR_RETURN(scheduler::JobPage page, store_->List(ns, size, request.page_token()));
  v1::ListTrainingJobsResponse response;
  for (scheduler::JobRecord& record : page.jobs)
    *response.add_training_jobs() = *Shown(std::move(record.job));
  response.set_next_page_token(page.next_page_token);
  return response;
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

absl::StatusOr<v1::ExplainTrainingJobResponse> JobHandlers::Explain(
    const v1::ExplainTrainingJobRequest& request) {
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobKey key, KeyFrom(request.namespace_(), request.name()));
  TESSERA_ASSIGN_OR_RETURN(const scheduler::JobRecord record, store_->Get(key));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::Plan> plans, store_->Plans(key));
  TESSERA_ASSIGN_OR_RETURN(const std::vector<v1::Event> events, store_->Events(key));
  return ExplainJob(record.job, plans, events);
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
