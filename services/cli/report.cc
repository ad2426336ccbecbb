#include "services/cli/report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "services/cli/display.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

using Lines = std::vector<std::string>;

std::string Bytes(int64_t bytes) { return bytes > 0 ? FormatBytes(bytes) : "-"; }

std::string Headline(const v1::TrainingJob& job, const Style& style) {
  const auto& status = job.status();
  std::string line = absl::StrCat(Paint(job.name(), Ink::kBold, style), " ",
                                  Paint(StateName(status.state()), StateInk(status.state()), style));
  if (status.has_start_time() && status.has_end_time()) {
    absl::StrAppend(&line, " in ", FormatClock(ToTime(status.end_time()) - ToTime(status.start_time())));
  }
  absl::StrAppend(&line, ", step ", status.step(), " of ", status.total_steps());
  if (status.tokens() > 0)
    absl::StrAppend(&line, ", ", FormatCount(static_cast<double>(status.tokens())), " tokens");
  if (status.restarts() > 0) absl::StrAppend(&line, ", ", status.restarts(), " restarts");
  return line;
}

void AddQuality(const ReportInputs& inputs, int width, const Style& style, Lines* lines) {
  const double loss = inputs.job.status().validation_loss(),
               before = inputs.job.status().initial_validation_loss();
  if (loss == 0) return;
  const auto row = [&](const char* name, double trained, double untrained) {
    return Lines{name, absl::StrFormat("%.4f", trained),
                 before == 0 ? "-" : absl::StrFormat("%.4f", untrained)};
  };
  std::vector<Lines> rows = {row("validation loss", loss, before),
                             row("perplexity", std::exp(loss), std::exp(before))};
  if (inputs.tokens_per_byte > 0) {
    const double bits = inputs.tokens_per_byte / std::log(2.0);
    rows.push_back(row("bits per byte", loss * bits, before * bits));
  }
  lines->push_back("");
  for (auto& line : RenderTable({{""}, {"assembled model", true}, {"untrained", true}}, rows, width, style)) {
    lines->push_back(std::move(line));
  }
}

const v1::PlanAlternative* FindAlternative(const ReportInputs& inputs, const std::string& name) {
  if (!inputs.plan) return nullptr;
  for (const auto& alternative : inputs.plan->alternatives()) {
    if (alternative.name() == name) return &alternative;
  }
  return nullptr;
}

void AddWorkers(const ReportInputs& inputs, int width, const Style& style, Lines* lines) {
  const auto& workers = inputs.job.status().workers();
  if (workers.empty()) return;
  std::vector<Lines> rows;
  int64_t most_memory = 0, most_traffic = 0;
  for (const auto& worker : workers) {
    most_memory = std::max(most_memory, worker.memory_peak_bytes());
    most_traffic = std::max(most_traffic, worker.traffic_bytes_per_step());
    rows.push_back(
        {absl::StrCat("worker ", worker.rank()), FormatPercent(worker.coverage()),
         Bytes(worker.memory_predicted_bytes()), Bytes(worker.memory_peak_bytes()),
         FormatDeviation(worker.memory_peak_bytes(), worker.memory_predicted_bytes()),
         Bytes(worker.traffic_predicted_bytes_per_step()), Bytes(worker.traffic_bytes_per_step()),
         FormatDeviation(worker.traffic_bytes_per_step(), worker.traffic_predicted_bytes_per_step()),
         Bytes(worker.resident_bytes())});
  }
  if (inputs.plan) {
    for (const auto& alternative : inputs.plan->alternatives()) {
      if (alternative.name() != "ddp" && alternative.name() != "fsdp") continue;
      rows.push_back({absl::StrCat("with ", alternative.name()), FormatPercent(1),
                      Bytes(alternative.memory_bytes()), "", "", Bytes(alternative.traffic_bytes_per_step()),
                      "", "", ""});
    }
  }
  lines->push_back("");
  const std::vector<Column> columns = {{""},
                                       {"coverage", true, 3},
                                       {"memory planned", true},
                                       {"measured", true},
                                       {"off by", true, 2},
                                       {"sent/step planned", true, 1},
                                       {"measured", true, 1},
                                       {"off by", true, 2},
                                       {"resident", true, 4}};
  for (auto& line : RenderTable(columns, rows, width, style)) lines->push_back(std::move(line));
  const v1::PlanAlternative* ddp = FindAlternative(inputs, "ddp");
  if (ddp != nullptr && ddp->memory_bytes() > 0 && most_memory > 0) {
    std::string line =
        absl::StrCat("the largest worker took ",
                     FormatPercent(static_cast<double>(most_memory) / ddp->memory_bytes()), " of the memory");
    if (ddp->traffic_bytes_per_step() > 0 && most_traffic > 0) {
      absl::StrAppend(&line, " and sent ",
                      FormatPercent(static_cast<double>(most_traffic) / ddp->traffic_bytes_per_step()),
                      " of the bytes");
    }
    absl::StrAppend(&line, " that plain data parallelism would need");
    for (auto& wrapped : Wrap(line, width, "")) lines->push_back(std::move(wrapped));
  }
}

void AddPlaces(const v1::TrainingJob& job, const Style& style, Lines* lines) {
  const auto& status = job.status();
  const std::string& run = status.run_directory();
  const std::vector<std::pair<std::string, std::string>> places = {
      {"checkpoint", status.checkpoint()},
      {"Hugging Face", status.exported_model()},
      {"JSONL", run.empty() ? "" : run + "/metrics.jsonl"},
      {"TensorBoard", run.empty() ? "" : run + "/tensorboard"},
      {"logs", run.empty() ? "" : run + "/logs"}};
  lines->push_back("");
  for (const auto& [name, place] : places) {
    if (place.empty()) continue;
    lines->push_back(absl::StrCat(Paint(absl::StrFormat("%-13s", name), Ink::kDim, style), place));
  }
}

}  // namespace

std::vector<std::string> RenderReport(const ReportInputs& inputs, int width, const Style& style) {
  const auto& status = inputs.job.status();
  Lines lines = {"", Headline(inputs.job, style)};
  if (status.state() != v1::JOB_STATE_SUCCEEDED) {
    for (auto& line :
         Wrap(absl::StrCat(status.reason(), status.reason().empty() ? "" : ": ", status.message()), width,
              "  ")) {
      lines.push_back(std::move(line));
    }
    for (const auto& worker : status.workers()) {
      if (worker.last_error().empty()) continue;
      for (auto& line : Wrap(absl::StrCat("rank ", worker.rank(), ": ", worker.last_error()), width, "  ")) {
        lines.push_back(Paint(line, Ink::kRed, style));
      }
    }
  }
  for (const auto& notice : status.notices()) {
    for (auto& line : Wrap(absl::StrCat("note: ", notice), width, "")) lines.push_back(std::move(line));
  }
  if (!inputs.brief) {
    AddQuality(inputs, width, style, &lines);
    AddWorkers(inputs, width, style, &lines);
  }
  AddPlaces(inputs.job, style, &lines);
  return lines;
}

std::vector<std::string> RenderSeeAgain(const v1::TrainingJob& job, const Endpoint& endpoint,
                                        const Style& style) {
  Lines lines = {"", Paint("see it again", Ink::kBold, style), absl::StrCat("  tessera get ", job.name())};
  if (!endpoint.rest.empty()) {
    const std::string ns = job.namespace_().empty() ? "default" : job.namespace_();
    const std::string token = endpoint.token_file.empty() ? ""
                                                          : absl::StrCat("-H \"Authorization: Bearer $(cat '",
                                                                         endpoint.token_file, "')\" ");
    lines.push_back(
        absl::StrCat("  curl ", token, endpoint.rest, "/v1/namespaces/", ns, "/trainingJobs/", job.name()));
    lines.push_back(absl::StrCat("  curl ", token, endpoint.rest, "/metrics"));
  }
  return lines;
}

}  // namespace tessera::cli
