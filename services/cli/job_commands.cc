// tessera get, list, watch, explain.
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "services/cli/commands.h"
#include "services/cli/display.h"
#include "services/cli/ending.h"
#include "services/cli/follow.h"
#include "services/cli/named_command.h"
#include "services/cli/plan_view.h"
#include "services/cli/quantity.h"
#include "services/cli/request.h"

namespace tessera::cli {
namespace {

// "4", or "2/4" of an elastic job that runs with fewer than it asks for.
std::string WorkersText(const v1::TrainingJob& job) {
  const int asked = job.spec().workers().count(), has = job.status().workers_size();
  return has == 0 || has == asked ? absl::StrCat(asked) : absl::StrCat(has, "/", asked);
}

void Print(const Session& session, const std::vector<std::string>& lines) {
  for (const auto& line : lines) *session.environment.out << line << "\n";
  session.environment.out->flush();
}

int Get(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const absl::StatusOr<v1::TrainingJob> job = GetJob(**client, session.ns, name);
  if (!job.ok()) return session.Fail(job.status());
  if (session.PrintMessage(*job)) return kSucceeded;
  const v1::JobState state = job->status().state();
  if (IsTerminal(state) || state == v1::JOB_STATE_SUSPENDED) {
    PrintReport(session, **client, *job);
  } else {
    Print(session, RenderProgress(*job, absl::Now(), "", session.environment.width(), session.style()));
  }
  return kSucceeded;
}

// All pages.
absl::StatusOr<v1::ListTrainingJobsResponse> ListAll(Client& client, const std::string& ns,
                                                     const std::string& filter) {
  v1::ListTrainingJobsResponse all;
  v1::ListTrainingJobsRequest request;
  request.set_namespace_(ns);
  request.set_filter(filter);
  do {
    auto page = client.Call(&v1::JobService::Stub::ListTrainingJobs, request);
    if (!page.ok()) return page.status();
    for (auto& job : *page->mutable_training_jobs()) *all.add_training_jobs() = std::move(job);
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  return all;
}

int List(Session& session, bool all_namespaces, const std::string& filter) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const auto jobs = ListAll(**client, all_namespaces ? "-" : session.ns, filter);
  if (!jobs.ok()) return session.Fail(jobs.status());
  if (session.PrintMessage(*jobs)) return kSucceeded;
  if (session.output == "name") {
    for (const auto& job : jobs->training_jobs()) *session.environment.out << job.name() << "\n";
    return kSucceeded;
  }
  if (jobs->training_jobs().empty()) {
    session.Say("no jobs");
    return kSucceeded;
  }
  std::vector<std::vector<std::string>> rows;
  for (const auto& job : jobs->training_jobs()) {
    const auto& status = job.status();
    rows.push_back({job.namespace_(), job.name(),
                    Paint(StateName(status.state()), StateInk(status.state()), session.style()),
                    absl::StrCat(status.step(), "/", status.total_steps()), FormatLoss(status.loss()),
                    FormatLoss(status.validation_loss()), WorkersText(job),
                    job.has_create_time() ? FormatClock(absl::Now() - ToTime(job.create_time())) : "-"});
  }
  Print(session, RenderTable({{"namespace", false, 4},
                              {"name"},
                              {"state"},
                              {"step", true},
                              {"loss", true, 2},
                              {"validation", true, 3},
                              {"workers", true, 5},
                              {"age", true, 1}},
                             rows, session.environment.width(), session.style()));
  return kSucceeded;
}

int Watch(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  const FollowResult result = Follow(session, *client, name, {});
  if (!result.ended || session.PrintMessage(result.job)) return result.exit_code;
  if (const absl::StatusOr<Client*> again = session.Connect(); again.ok())
    PrintReport(session, **again, result.job);
  return result.exit_code;
}

int Explain(Session& session, const std::string& name) {
  const absl::StatusOr<Client*> client = session.Connect();
  if (!client.ok()) return session.Fail(client.status());
  v1::ExplainTrainingJobRequest request;
  request.set_namespace_(session.ns);
  request.set_name(name);
  const auto explained = (*client)->Call(&v1::JobService::Stub::ExplainTrainingJob, request);
  if (!explained.ok()) return session.Fail(explained.status());
  if (session.PrintMessage(*explained)) return kSucceeded;
  const int width = session.environment.width();
  Print(session, Wrap(explained->summary(), width, ""));
  for (const auto& reason : explained->reasons()) Print(session, Wrap("- " + reason, width, "  "));
  if (explained->has_plan()) {
    Print(session, {""});
    Print(session, RenderPlan(explained->plan(), width, session.style()));
  }
  return kSucceeded;
}

}  // namespace

void AddJobCommands(CLI::App& app, Session& session) {
  AddNamedCommand(app, session, "get", "Show a job", "Example:\n  tessera get quickstart -o yaml\n", Get);
  CLI::App* list = app.add_subcommand("list", "List jobs");
  auto all = std::make_shared<bool>(false);
  list->add_flag("-A,--all-namespaces", *all, "Of all namespaces");
  auto filter = std::make_shared<std::string>();
  list->add_option("--filter", *filter, "Those that match, in the language of AIP-160");
  list->footer("Example:\n  tessera list -A --filter 'status.state = running AND spec.priority > 0'\n");
  list->callback([&session, all, filter] {
    session.action = [&session, all, filter] { return List(session, *all, *filter); };
  });
  AddNamedCommand(app, session, "watch", "Follow a job until it ends; exits like train",
                  "Ctrl-C stops watching; the job goes on.\n\nExample:\n  tessera watch quickstart\n", Watch);
  AddNamedCommand(app, session, "explain", "Say why a job waits, or why its plan is what it is",
                  "Example:\n  tessera explain quickstart\n", Explain);
}

}  // namespace tessera::cli
