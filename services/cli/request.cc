#include "services/cli/request.h"

#include <atomic>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"

namespace tessera::cli {
namespace {

std::string RandomId() {
  std::random_device device;
  return absl::StrFormat("cli-%08x%08x%08x", device(), device(), device());
}

// Describing a model starts a worker program and measures it.
constexpr absl::Duration kCreateTimeout = absl::Minutes(3);
constexpr absl::Duration kDeleteTimeout = absl::Minutes(2);

v1::CreateTrainingJobRequest RequestFor(const v1::TrainingJob& job, bool validate_only) {
  v1::CreateTrainingJobRequest request;
  request.set_namespace_(job.namespace_());
  *request.mutable_training_job() = job;
  request.set_request_id(RandomId());
  request.set_validate_only(validate_only);
  return request;
}

// The service may have stored the job before it saw that its caller left.
void CancelIfStored(Client& client, const v1::TrainingJob& job, Interrupts* interrupts) {
  v1::CancelTrainingJobRequest request;
  request.set_namespace_(job.namespace_());
  request.set_name(job.name());
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto cancelled = client.Call(&v1::JobService::Stub::CancelTrainingJob, request);
    if (!absl::IsNotFound(cancelled.status())) return;
    interrupts->Wait(absl::Milliseconds(200));
  }
}

}  // namespace

absl::StatusOr<v1::TrainingJob> GetJob(Client& client, const std::string& ns, const std::string& name) {
  v1::GetTrainingJobRequest request;
  request.set_namespace_(ns);
  request.set_name(name);
  return client.Call(&v1::JobService::Stub::GetTrainingJob, request);
}

absl::StatusOr<v1::CreateTrainingJobResponse> CreateJob(Client& client, const v1::TrainingJob& job,
                                                        bool validate_only) {
  const v1::CreateTrainingJobRequest request = RequestFor(job, validate_only);
  auto created = client.Call(&v1::JobService::Stub::CreateTrainingJob, request, kCreateTimeout);
  if (absl::IsUnavailable(created.status())) {
    created = client.Call(&v1::JobService::Stub::CreateTrainingJob, request, kCreateTimeout);
  }
  return created;
}

absl::StatusOr<v1::CreateTrainingJobResponse> CreateJobUnlessInterrupted(Client& client,
                                                                         const v1::TrainingJob& job,
                                                                         Interrupts* interrupts) {
  const int before = interrupts->count();
  const v1::CreateTrainingJobRequest request = RequestFor(job, /*validate_only=*/false);
  absl::Status status = absl::UnavailableError("");
  v1::CreateTrainingJobResponse response;
  for (int attempt = 0; attempt < 2 && absl::IsUnavailable(status); ++attempt) {
    grpc::ClientContext context;
    client.Prepare(&context);
    context.set_deadline(absl::ToChronoTime(absl::Now() + kCreateTimeout));
    std::atomic<bool> answered = false;
    std::thread call([&] {
      const grpc::Status answer = client.jobs().CreateTrainingJob(&context, request, &response);
      status = answer.ok() ? absl::OkStatus() : client.FromGrpc(answer);
      answered = true;
      interrupts->Notify();
    });
    while (!answered) {
      interrupts->Wait(absl::Seconds(1));
      if (interrupts->count() > before) context.TryCancel();
    }
    call.join();
    if (interrupts->count() > before) break;
  }
  if (interrupts->count() > before && (status.ok() || absl::IsCancelled(status))) {
    CancelIfStored(client, job, interrupts);
    return absl::CancelledError("interrupted; the job was not started");
  }
  if (!status.ok()) return status;
  return response;
}

absl::StatusOr<v1::TrainingJob> ResumeJob(Client& client, const v1::TrainingJob& job) {
  v1::ResumeTrainingJobRequest request;
  request.set_namespace_(job.namespace_());
  request.set_name(job.name());
  return client.Call(&v1::JobService::Stub::ResumeTrainingJob, request);
}

absl::Status DeleteJobAndWait(const Session& session, Client& client, const v1::TrainingJob& job) {
  v1::DeleteTrainingJobRequest request;
  request.set_namespace_(job.namespace_());
  request.set_name(job.name());
  const auto deleted = client.Call(&v1::JobService::Stub::DeleteTrainingJob, request, kDeleteTimeout);
  if (!deleted.ok() && !absl::IsNotFound(deleted.status())) return deleted.status();
  Interrupts& interrupts = *session.environment.interrupts;
  for (const absl::Time deadline = absl::Now() + kDeleteTimeout; absl::Now() < deadline;) {
    const absl::StatusOr<v1::TrainingJob> again = GetJob(client, job.namespace_(), job.name());
    if (absl::IsNotFound(again.status())) return absl::OkStatus();
    TESSERA_RETURN_IF_ERROR(again.status());
    if (again->uid() != job.uid()) return absl::OkStatus();
    interrupts.Wait(absl::Milliseconds(200));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("the old job ", job.name(), " is still being deleted; try again"));
}

}  // namespace tessera::cli
