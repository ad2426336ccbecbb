#include "services/cli/plan_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "proto/tessera/v1/job_codec.h"
#include "services/cli/budget_view.h"
#include "services/cli/quantity.h"

namespace tessera::cli {
namespace {

using Lines = std::vector<std::string>;

std::string Bytes(int64_t bytes) { return bytes > 0 ? FormatBytes(bytes) : "-"; }

// Of the limit; what is missing has a minus.
std::string Left(int64_t limit, int64_t needed) {
  if (limit <= 0) return "-";
  return needed <= limit ? FormatBytes(limit - needed) : absl::StrCat("-", FormatBytes(needed - limit));
}

void Append(Lines from, Lines* to) {
  for (auto& line : from) to->push_back(std::move(line));
}

Lines Summary(const v1::Plan& plan, int width, const Style& style) {
  const auto& inputs = plan.inputs();
  Lines lines;
  std::string head = absl::StrCat("plan ", plan.generation(), ": ", inputs.workers(), " workers, ",
                                  spec::EnumName(inputs.granularity()), " ", spec::EnumName(inputs.masking()),
                                  " masks, scheme ", spec::EnumName(inputs.scheme()), ", coverage ",
                                  absl::StrFormat("%.4g", inputs.coverage()), ", seed ", inputs.seed());
  Append(Wrap(head, width, ""), &lines);
  if (!plan.reason().empty()) Append(Wrap(plan.reason(), width, "  "), &lines);
  std::string facts =
      absl::StrCat(FormatCount(static_cast<double>(plan.total_elements())), " parameters, ",
                   FormatCount(static_cast<double>(plan.maskable_elements())), " of them maskable; ",
                   "spectral gap ", absl::StrFormat("%.4f", plan.spectral_gap()), "; ", plan.holder_sets(),
                   plan.holder_sets() == 1 ? " holder set" : " holder sets");
  if (plan.variance_factor() > 0)
    absl::StrAppend(&facts, "; gradient variance x", absl::StrFormat("%.3g", plan.variance_factor()));
  if (plan.total_steps() > 0) absl::StrAppend(&facts, "; ", plan.total_steps(), " steps");
  if (plan.predicted_step_seconds() > 0) {
    absl::StrAppend(&facts, "; about ", absl::StrFormat("%.2f", plan.predicted_step_seconds()),
                    " s per step");
  }
  Append(Wrap(facts, width, ""), &lines);
  if (plan.has_resampling()) {
    const auto& resampling = plan.resampling();
    Append(Wrap(absl::StrCat("masks change every ", resampling.every(), " steps, ", resampling.times(),
                             " times: each time ", FormatPercent(resampling.moved_share()),
                             " of what workers hold of the maskable part moves, ",
                             FormatBytes(resampling.bytes()),
                             " in all; the holders below are those of the first steps"),
                width, ""),
           &lines);
  }
  if (!plan.activation_checkpointing_reason().empty()) {
    Append(Wrap(absl::StrCat("activation checkpointing ", plan.activation_checkpointing_reason()), width, ""),
           &lines);
  }
  if (!plan.dropping().reason().empty()) {
    Append(Wrap(absl::StrCat("gradient dropping: ", plan.dropping().reason()), width, ""), &lines);
  }
  const bool fits = plan.fit() == "fits", unknown = plan.fit().empty() || plan.fit() == "unknown";
  std::string fit = fits      ? "it fits"
                    : unknown ? "whether it fits is not known: the machine's memory is not"
                              : absl::StrCat("it does not fit: ", plan.fit());
  if (!plan.remedies().empty()) {
    absl::StrAppend(&fit, "; any of these makes it fit: ", absl::StrJoin(plan.remedies(), "; "));
  } else if (!fits && plan.nearest_coverage() > 0) {
    absl::StrAppend(&fit, "; the largest coverage that fits is ",
                    absl::StrFormat("%.4g", plan.nearest_coverage()));
  }
  for (auto& line : Wrap(fit, width, "")) {
    lines.push_back(Paint(line, fits ? Ink::kGreen : unknown ? Ink::kYellow : Ink::kRed, style));
  }
  return lines;
}

std::string Seconds(double seconds) { return seconds > 0 ? absl::StrFormat("%.3g s", seconds) : "-"; }

// Columns that stand there only where they say something.
struct Shown {
  explicit Shown(const v1::Plan& plan) {
    for (const auto& worker : plan.workers()) {
      batches |= worker.batch() != plan.workers(0).batch();
      process |= worker.process_bytes() > 0;
      computing |= worker.step_seconds() > 0;
      sending |= worker.communication_seconds() > 0;
    }
  }
  bool batches = false, process = false, computing = false, sending = false;
};

Lines Workers(const v1::Plan& plan, int width, const Style& style) {
  const Shown shown(plan);
  std::vector<Lines> rows;
  for (const auto& worker : plan.workers()) {
    const auto& memory = worker.memory();
    rows.push_back(
        {absl::StrCat("worker ", worker.rank()), FormatPercent(worker.coverage()),
         FormatPercent(worker.parameter_share()), Bytes(memory.parameters()), Bytes(memory.gradients()),
         Bytes(memory.optimizer()), Bytes(memory.buffers()), Bytes(memory.activations()),
         Bytes(memory.transient()), Bytes(memory.peak()),
         Left(worker.memory_limit_bytes() > 0 ? worker.memory_limit_bytes() : plan.memory_limit_bytes(),
              memory.peak()),
         Bytes(worker.traffic_bytes_per_step())});
    if (shown.process) rows.back().push_back(Bytes(worker.process_bytes()));
    if (shown.batches) rows.back().push_back(absl::StrCat(worker.batch()));
    if (shown.computing) rows.back().push_back(Seconds(worker.step_seconds()));
    if (shown.sending) rows.back().push_back(Seconds(worker.communication_seconds()));
  }
  std::vector<Column> columns{{""},
                              {"coverage", true, 3},
                              {"of model", true, 4},
                              {"weights", true, 5},
                              {"gradients", true, 6},
                              {"optimizer", true, 5},
                              {"buffers", true, 8},
                              {"activations", true, 5},
                              {"transient", true, 7},
                              {"peak", true},
                              {"left", true, 2},
                              {"sent/step", true}};
  if (shown.process) columns.push_back({"process", true, 6});
  if (shown.batches) columns.push_back({"batch", true, 1});
  if (shown.computing) columns.push_back({"computing", true, 2});
  if (shown.sending) columns.push_back({"sending", true, 2});
  return RenderTable(columns, rows, width, style);
}

Lines Alternatives(const v1::Plan& plan, int width, const Style& style) {
  if (plan.alternatives().empty()) return {};
  const auto& first = plan.alternatives(0);  // ddp
  const auto beside = [](int64_t bytes, int64_t ddp) {
    return ddp > 0 ? FormatSignedPercent(static_cast<double>(bytes) / static_cast<double>(ddp) - 1) : "-";
  };
  std::vector<Lines> rows;
  for (const auto& other : plan.alternatives()) {
    rows.push_back({absl::StrCat("with ", other.name()), Bytes(other.memory_bytes()),
                    beside(other.memory_bytes(), first.memory_bytes()),
                    Left(plan.memory_limit_bytes(), other.memory_bytes()),
                    Bytes(other.traffic_bytes_per_step()),
                    beside(other.traffic_bytes_per_step(), first.traffic_bytes_per_step())});
  }
  return RenderTable({{""},
                      {"peak", true},
                      {"to ddp", true, 2},
                      {"left", true, 3},
                      {"sent/step", true},
                      {"to ddp", true, 4}},
                     rows, width, style);
}

}  // namespace

std::vector<std::string> RenderMaskMatrix(const v1::Plan& plan, int width, const Style& style) {
  const char* always = style.unicode ? "■" : "#";
  const char* held = style.unicode ? "▣" : "o";
  const char* absent = style.unicode ? "·" : ".";
  const int label = 11;
  const int band = std::max(1, std::min(plan.units_size(), (width - label) / 2));
  Lines lines;
  for (int first = 0; first < plan.units_size(); first += band) {
    const int last = std::min(plan.units_size(), first + band);
    if (plan.units_size() > band) {
      lines.push_back(Paint(absl::StrCat("units ", first, " to ", last - 1), Ink::kDim, style));
    }
    for (const auto& worker : plan.workers()) {
      std::string line = absl::StrFormat("%-*s", label, absl::StrCat("worker ", worker.rank()));
      for (int u = first; u < last; ++u) {
        const auto& unit = plan.units(u);
        const bool holds =
            std::find(unit.holders().begin(), unit.holders().end(), worker.rank()) != unit.holders().end();
        const char* cell = unit.always_on() ? always : holds ? held : absent;
        absl::StrAppend(&line, u == first ? "" : " ",
                        Paint(cell,
                              unit.always_on() ? Ink::kCyan
                              : holds          ? Ink::kGreen
                                               : Ink::kDim,
                              style));
      }
      lines.push_back(Fit(line, width, style));
    }
  }
  if (!lines.empty()) {
    const std::string legend =
        absl::StrCat("units in order; ", always, " always on  ", held, " held  ", absent, " absent");
    lines.push_back(Paint(Fit(legend, width, style), Ink::kDim, style));
  }
  return lines;
}

std::vector<std::string> RenderPlan(const v1::Plan& plan, int width, const Style& style) {
  Lines lines = Summary(plan, width, style);
  lines.push_back("");
  Append(RenderMaskMatrix(plan, width, style), &lines);
  lines.push_back("");
  Append(Workers(plan, width, style), &lines);
  lines.push_back("");
  Append(Alternatives(plan, width, style), &lines);
  if (plan.dropping().kept_size() > 0) {
    lines.push_back("");
    Append(RenderBudgetGroups(plan, width, style), &lines);
  }
  return lines;
}

}  // namespace tessera::cli
