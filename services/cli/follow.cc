#include "services/cli/follow.h"

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/cli/daemon_process.h"
#include "services/cli/display.h"
#include "services/cli/job_watch.h"
#include "services/cli/screen.h"

namespace tessera::cli {
namespace {

class Follower {
 public:
  Follower(Session& session, Client* client, const std::string& name, const FollowOptions& options)
      : session_(session),
        client_(client),
        name_(name),
        options_(options),
        live_(session.environment.terminal && !session.Structured()),
        screen_(session.environment.out),
        interrupts_before_(session.environment.interrupts->count()),
        waiting_for_resume_(options.was_suspended) {}

  FollowResult Run();

 private:
  void Watch() {
    watch_ = std::make_unique<JobWatch>(client_, session_.ns, name_, session_.environment.interrupts);
  }
  void Show(const v1::TrainingJob& job);
  void Draw(bool last);
  void Say(const std::string& line);
  std::optional<int> HandleInterrupts();
  std::optional<int> Reconnect(const absl::Status& lost);
  bool Settled();
  FollowResult Leave(int exit_code, bool ended) { return {exit_code, job_, ended}; }

  Session& session_;
  Client* client_;
  const std::string name_;
  const FollowOptions options_;
  const bool live_;  // a display that is drawn over, not lines
  Screen screen_;
  ProgressLog log_;
  std::unique_ptr<JobWatch> watch_;
  v1::TrainingJob job_;
  const int interrupts_before_;
  int interrupts_seen_ = 0;
  bool waiting_for_resume_;
  bool stopping_ = false;
  absl::Time lost_since_ = absl::InfiniteFuture();
  absl::Duration backoff_ = absl::Milliseconds(100);
  absl::Time drawn_ = absl::InfinitePast();
};

// A line beside the display: above it on a terminal.
void Follower::Say(const std::string& line) {
  if (live_) screen_.Draw({}, session_.environment.height());
  session_.Say(line);
  drawn_ = absl::InfinitePast();
}

void Follower::Draw(bool last) {
  if (!live_ || job_.name().empty()) return;
  const absl::Time now = absl::Now();
  if (!last && now - drawn_ < options_.redraw) return;
  std::string hint;
  if (!last) {
    if (stopping_) {
      hint = "writing a checkpoint and stopping; Ctrl-C again leaves at once";
    } else if (options_.suspend_on_interrupt) {
      hint = "Ctrl-C writes a checkpoint and stops";
    } else {
      hint = "Ctrl-C stops watching; the job goes on";
    }
  }
  screen_.Draw(RenderProgress(job_, now, hint, session_.environment.width(), session_.style()),
               session_.environment.height());
  drawn_ = now;
  if (last) screen_.Keep();
}

void Follower::Show(const v1::TrainingJob& job) {
  job_ = job;
  if (job.status().state() != v1::JOB_STATE_SUSPENDED) waiting_for_resume_ = false;
  if (live_) return;
  std::ostream& out = session_.Structured() ? *session_.environment.err : *session_.environment.out;
  for (const auto& line : log_.Update(job, absl::Now())) out << name_ << "  " << line << "\n" << std::flush;
}

bool Follower::Settled() {
  const v1::JobState state = job_.status().state();
  return IsTerminal(state) || (state == v1::JOB_STATE_SUSPENDED && !waiting_for_resume_);
}

// The exit code when it is time to leave.
std::optional<int> Follower::HandleInterrupts() {
  const int count = session_.environment.interrupts->count() - interrupts_before_;
  if (count == interrupts_seen_) return std::nullopt;
  const bool leave = !options_.suspend_on_interrupt || count > 1;
  interrupts_seen_ = count;
  if (leave) {
    Draw(/*last=*/true);
    session_.Say(absl::StrCat(stopping_ ? "left; the job is still stopping" : "left; the job goes on",
                              ". Look at it: tessera get ", name_, ", tessera watch ", name_));
    return kInterrupted;
  }
  v1::SuspendTrainingJobRequest request;
  request.set_namespace_(session_.ns);
  request.set_name(name_);
  const auto suspended = client_->Call(&v1::JobService::Stub::SuspendTrainingJob, request, absl::Seconds(5));
  if (!suspended.ok()) {
    Say(absl::StrCat("the job could not be stopped: ", suspended.status().message(),
                     ". Ctrl-C again leaves"));
    return std::nullopt;
  }
  stopping_ = true;
  waiting_for_resume_ = false;
  Say("stopping after a checkpoint; Ctrl-C again leaves at once");
  return std::nullopt;
}

// One attempt, after a pause. The exit code when it is of no use to go on.
std::optional<int> Follower::Reconnect(const absl::Status& lost) {
  if (absl::IsNotFound(lost)) {
    Draw(/*last=*/true);
    session_.Say(absl::StrCat("the job ", name_, " is gone: ", lost.message()));
    return kFailed;
  }
  const absl::Time now = absl::Now();
  if (lost_since_ == absl::InfiniteFuture()) {
    lost_since_ = now;
    if (!lost.ok())
      Say(absl::StrCat("connection lost (", lost.message(), "); the job goes on; reconnecting"));
  }
  const bool refused = absl::IsUnauthenticated(lost) || absl::IsPermissionDenied(lost);
  if (now - lost_since_ > options_.patience || (refused && !session_.local())) {
    Draw(/*last=*/true);
    return session_.Fail(lost);
  }
  watch_.reset();
  session_.environment.interrupts->Wait(backoff_);
  backoff_ = std::min(backoff_ * 2, absl::Seconds(5));
  const bool restart = options_.restart_daemon && session_.local();
  const absl::StatusOr<Client*> again = restart ? session_.ConnectOrStart() : session_.Connect();
  if (again.ok()) {
    client_ = *again;
    Watch();
  } else if (restart) {
    Draw(/*last=*/true);
    return session_.Fail(again.status());
  }
  return std::nullopt;
}

FollowResult Follower::Run() {
  session_.environment.catch_interrupts();
  Watch();
  absl::Status lost;
  while (true) {
    JobWatch::News news;
    if (watch_ != nullptr) news = watch_->Take();
    for (const auto& job : news.jobs) Show(job);
    if (!news.jobs.empty()) {
      lost_since_ = absl::InfiniteFuture();
      backoff_ = absl::Milliseconds(100);
    }
    if (!job_.name().empty() && Settled()) {
      Draw(/*last=*/true);
      return Leave(cli::ExitCodeOf(job_.status().state()), /*ended=*/true);
    }
    if (news.deleted) {
      Draw(/*last=*/true);
      session_.Say(absl::StrCat("the job ", name_, " was deleted"));
      return Leave(kFailed, /*ended=*/false);
    }
    if (const auto exit_code = HandleInterrupts()) return Leave(*exit_code, /*ended=*/false);
    if (news.ended) lost = *news.ended;
    if (news.ended || watch_ == nullptr) {
      if (const auto exit_code = Reconnect(lost)) return Leave(*exit_code, /*ended=*/false);
      continue;
    }
    Draw(/*last=*/false);
    session_.environment.interrupts->Wait(live_ ? options_.redraw : absl::Seconds(1));
  }
}

}  // namespace

FollowResult Follow(Session& session, Client* client, const std::string& name, const FollowOptions& options) {
  return Follower(session, client, name, options).Run();
}

}  // namespace tessera::cli
