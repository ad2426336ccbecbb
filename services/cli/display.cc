#include "services/cli/display.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

double Done(const v1::TrainingJobStatus& status) {
  return status.total_steps() > 0
             ? static_cast<double>(status.step()) / static_cast<double>(status.total_steps())
             : 0.0;
}

std::string Eta(const v1::TrainingJobStatus& status) {
  return status.has_eta() ? FormatClock(ToDuration(status.eta())) : "-";
}

std::string Elapsed(const v1::TrainingJob& job, absl::Time now) {
  if (!job.status().has_start_time()) return "";
  const absl::Time end = job.status().has_end_time() ? ToTime(job.status().end_time()) : now;
  return FormatClock(std::max(absl::ZeroDuration(), end - ToTime(job.status().start_time())));
}

std::string HeadLine(const v1::TrainingJob& job, absl::Time now, const Style& style) {
  const auto& status = job.status();
  std::string line = absl::StrCat(Paint(job.name(), Ink::kBold, style), "  ",
                                  Paint(StateName(status.state()), StateInk(status.state()), style));
  if (status.cancel_requested()) absl::StrAppend(&line, " (cancelling)");
  if (status.plan_generation() > 0) absl::StrAppend(&line, "  plan ", status.plan_generation());
  if (status.restarts() > 0) absl::StrAppend(&line, "  restarts ", status.restarts());
  if (const std::string elapsed = Elapsed(job, now); !elapsed.empty()) {
    absl::StrAppend(&line, "  elapsed ", elapsed);
  }
  return line;
}

std::string BarLine(const v1::TrainingJobStatus& status, int width, const Style& style) {
  const std::string right = absl::StrCat(" ", absl::StrFormat("%3.0f %%", Done(status) * 100), "  step ",
                                         status.step(), "/", status.total_steps(), "  ETA ", Eta(status));
  const int bar = std::min(40, width - DisplayWidth(right));
  if (bar < 6) return std::string(absl::StripLeadingAsciiWhitespace(right));
  return Paint(Bar(Done(status), bar, style), StateInk(status.state()), style) + right;
}

std::string NumbersLine(const v1::TrainingJobStatus& status) {
  std::vector<std::string> parts = {absl::StrCat("loss ", FormatLoss(status.loss()))};
  if (status.validation_loss() != 0) {
    std::string part = absl::StrCat("validation ", FormatLoss(status.validation_loss()));
    if (status.initial_validation_loss() != 0) {
      absl::StrAppend(&part, " (untrained ", FormatLoss(status.initial_validation_loss()), ")");
    }
    if (status.validation_tokens() != 0)
      absl::StrAppend(&part, " over ", status.validation_tokens(), " tokens");
    parts.push_back(part);
  }
  if (status.validation_accuracy() != 0) {
    parts.push_back(absl::StrFormat("accuracy %.1f %%", 100 * status.validation_accuracy()));
  }
  if (status.tokens_per_second() > 0) {
    parts.push_back(absl::StrCat(FormatCount(status.tokens_per_second()), " tokens/s"));
  }
  if (status.step_seconds() > 0) parts.push_back(absl::StrFormat("%.2f s/step", status.step_seconds()));
  if (status.learning_rate() > 0) parts.push_back(absl::StrFormat("lr %.2e", status.learning_rate()));
  return absl::StrJoin(parts, "  ");
}

std::string BytesOrDash(int64_t bytes) { return bytes > 0 ? FormatBytes(bytes) : "-"; }

std::vector<std::string> WorkerLines(const v1::TrainingJobStatus& status, int width, const Style& style) {
  const std::vector<Column> columns = {
      {"rank", true},      {"worker"},        {"step", true, 5},      {"coverage", true, 3},
      {"memory", true, 1}, {"peak", true, 2}, {"predicted", true, 1}, {"sent/step", true, 4},
      {"planned", true, 6}};
  std::vector<std::vector<std::string>> rows;
  for (const auto& worker : status.workers()) {
    const bool bad = worker.state() == "Failed" || worker.state() == "Lost";
    rows.push_back(
        {absl::StrCat(worker.rank()),
         Paint(worker.state().empty() ? "-" : worker.state(), bad ? Ink::kRed : Ink::kPlain, style),
         absl::StrCat(worker.step()), FormatPercent(worker.coverage()),
         BytesOrDash(worker.memory_used_bytes()), BytesOrDash(worker.memory_peak_bytes()),
         BytesOrDash(worker.memory_predicted_bytes()), BytesOrDash(worker.traffic_bytes_per_step()),
         BytesOrDash(worker.traffic_predicted_bytes_per_step())});
  }
  if (rows.empty()) return {};
  return RenderTable(columns, rows, width, style);
}

std::string Named(const std::string& reason, const std::string& message) {
  if (reason.empty()) return message;
  return message.empty() ? reason : absl::StrCat(reason, ": ", message);
}

}  // namespace

std::string StateName(v1::JobState state) {
  return std::string(absl::StripPrefix(v1::JobState_Name(state), "JOB_STATE_"));
}

Ink StateInk(v1::JobState state) {
  switch (state) {
    case v1::JOB_STATE_RUNNING:
    case v1::JOB_STATE_WARMUP:
    case v1::JOB_STATE_SUCCEEDED:
      return Ink::kGreen;
    case v1::JOB_STATE_FAILED:
      return Ink::kRed;
    case v1::JOB_STATE_DEGRADED:
    case v1::JOB_STATE_SUSPENDED:
    case v1::JOB_STATE_CANCELLED:
      return Ink::kYellow;
    default:
      return Ink::kCyan;
  }
}

bool IsTerminal(v1::JobState state) {
  return state == v1::JOB_STATE_SUCCEEDED || state == v1::JOB_STATE_FAILED ||
         state == v1::JOB_STATE_CANCELLED;
}

std::vector<std::string> RenderProgress(const v1::TrainingJob& job, absl::Time now, const std::string& hint,
                                        int width, const Style& style) {
  const auto& status = job.status();
  std::vector<std::string> lines = {HeadLine(job, now, style)};
  if (status.total_steps() > 0) {
    lines.push_back(BarLine(status, width, style));
    lines.push_back(NumbersLine(status));
  }
  const bool moving = status.state() == v1::JOB_STATE_RUNNING || status.state() == v1::JOB_STATE_WARMUP;
  if (const std::string why = Named(status.reason(), status.message()); !moving && !why.empty()) {
    lines.push_back(why);
  }
  for (auto& line : WorkerLines(status, width, style)) lines.push_back(std::move(line));
  for (const auto& worker : status.workers()) {
    if (worker.last_error().empty()) continue;
    lines.push_back(Paint(absl::StrCat("rank ", worker.rank(), ": ", worker.last_error()), Ink::kRed, style));
  }
  for (const auto& notice : status.notices()) {
    lines.push_back(Paint(absl::StrCat("note: ", notice), Ink::kYellow, style));
  }
  if (!hint.empty()) lines.push_back(Paint(hint, Ink::kDim, style));
  for (auto& line : lines) {
    // An error text may hold several lines; here each takes one.
    std::replace(line.begin(), line.end(), '\n', ' ');
    line = Fit(line, width, style);
  }
  return lines;
}

std::string ProgressLog::ProgressLine(const v1::TrainingJob& job) const {
  const auto& status = job.status();
  int64_t peak = 0, predicted = 0, sent = 0;
  for (const auto& worker : status.workers()) {
    peak = std::max(peak, worker.memory_peak_bytes());
    predicted = std::max(predicted, worker.memory_predicted_bytes());
    sent = std::max(sent, worker.traffic_bytes_per_step());
  }
  std::string line = absl::StrCat("step ", status.step(), "/", status.total_steps(), " (",
                                  FormatPercent(Done(status)), ")  loss ", FormatLoss(status.loss()));
  if (status.tokens_per_second() > 0) {
    absl::StrAppend(&line, "  ", FormatCount(status.tokens_per_second()), " tokens/s");
  }
  if (peak > 0) {
    absl::StrAppend(&line, "  peak memory ", FormatBytes(peak));
    if (predicted > 0) absl::StrAppend(&line, " of ", FormatBytes(predicted), " predicted");
  }
  if (sent > 0) absl::StrAppend(&line, "  sent/step ", FormatBytes(sent));
  absl::StrAppend(&line, "  ETA ", Eta(status));
  return line;
}

namespace {

// The state that all workers are in; empty when they differ.
std::string SharedState(const v1::TrainingJobStatus& status) {
  if (status.workers().empty()) return "";
  const std::string& state = status.workers(0).state();
  const bool all = std::all_of(status.workers().begin(), status.workers().end(),
                               [&](const auto& worker) { return worker.state() == state; });
  return all ? state : "";
}

}  // namespace

std::vector<std::string> ProgressLog::Update(const v1::TrainingJob& job, absl::Time now) {
  const auto& status = job.status();
  static const v1::TrainingJobStatus kNone;
  const v1::TrainingJobStatus& before = last_ ? *last_ : kNone;
  std::vector<std::string> lines;
  if (status.state() != before.state()) {
    const std::string why = Named(status.reason(), status.message());
    lines.push_back(absl::StrCat("state ", StateName(status.state()), why.empty() ? "" : "  ", why));
  }
  if (status.restarts() > before.restarts()) lines.push_back(absl::StrCat("restarts ", status.restarts()));
  for (int i = before.notices_size(); i < status.notices_size(); ++i) {
    lines.push_back(absl::StrCat("note: ", status.notices(i)));
  }
  // Ranks pass through their phases almost together: one line when all have arrived.
  if (const std::string shared = SharedState(status); !shared.empty() && shared != last_shared_) {
    lines.push_back(absl::StrCat(status.workers_size(), " workers ", shared));
    last_shared_ = shared;
  }
  for (const auto& worker : status.workers()) {
    const auto same = std::find_if(before.workers().begin(), before.workers().end(),
                                   [&](const auto& other) { return other.rank() == worker.rank(); });
    const bool known = same != before.workers().end();
    const bool trouble = worker.state() == "Failed" || worker.state() == "Lost";
    if (trouble && (!known || same->state() != worker.state())) {
      lines.push_back(absl::StrCat("rank ", worker.rank(), " ", worker.state()));
    }
    if (!worker.last_error().empty() && (!known || same->last_error() != worker.last_error())) {
      lines.push_back(absl::StrCat("rank ", worker.rank(), " error: ", worker.last_error()));
    }
  }
  if (status.validation_loss() != 0 && status.validation_loss() != before.validation_loss()) {
    lines.push_back(
        absl::StrCat("step ", status.step(), "  validation loss ", FormatLoss(status.validation_loss())));
  }
  const int twentieth = static_cast<int>(Done(status) * 20);
  const bool due = now - last_progress_ >= interval_ || twentieth > last_twentieth_;
  if (status.total_steps() > 0 && status.step() > 0 && status.step() != last_step_ && due) {
    lines.push_back(ProgressLine(job));
    last_progress_ = now;
    last_step_ = status.step();
    last_twentieth_ = twentieth;
  }
  last_ = status;
  for (auto& line : lines) std::replace(line.begin(), line.end(), '\n', ' ');
  return lines;
}

}  // namespace tessera::cli
