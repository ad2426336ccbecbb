// What is said of a job when it has ended. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "services/cli/endpoint.h"
#include "services/cli/table.h"
#include "tessera/v1/plan.pb.h"

namespace tessera::cli {

struct ReportInputs {
  v1::TrainingJob job;
  std::optional<v1::Plan> plan;  // the newest
  double tokens_per_byte = 0;    // of the text, to show losses as bits per byte; 0: unknown
  bool brief = false;            // state and places only, of a job that did not succeed
};

std::vector<std::string> RenderReport(const ReportInputs& inputs, int width, const Style& style);

// "see it again": tessera get, a curl line, the metrics. Lines are made to be pasted and
// are not cut.
std::vector<std::string> RenderSeeAgain(const v1::TrainingJob& job, const Endpoint& endpoint,
                                        const Style& style);

}  // namespace tessera::cli
