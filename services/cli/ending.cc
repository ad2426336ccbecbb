#include "services/cli/ending.h"

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "services/cli/display.h"
#include "services/cli/report.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

void Print(const Session& session, const std::vector<std::string>& lines) {
  for (const auto& line : lines) *session.environment.out << line << "\n";
  session.environment.out->flush();
}

// Of the text behind the job's data, as `tessera data prepare` counted it; 0: unknown.
double TokensPerByte(const v1::TrainingJob& job) {
  const fs::path train(job.spec().data().train());
  std::error_code error;
  std::ifstream file((fs::is_directory(train, error) ? train : train.parent_path()) / "dataset.json");
  const auto dataset = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!dataset.is_object()) return 0;
  const auto number = [&dataset](const char* name) {
    const auto field = dataset.find(name);
    return field != dataset.end() && field->is_number() ? field->get<double>() : 0.0;
  };
  const double bytes = number("text_bytes");
  return bytes > 0 ? (number("train_tokens") + number("validation_tokens")) / bytes : 0;
}

}  // namespace

void PrintReport(const Session& session, Client& client, const v1::TrainingJob& job) {
  ReportInputs inputs;
  inputs.job = job;
  inputs.tokens_per_byte = TokensPerByte(job);
  inputs.brief = job.status().state() != v1::JOB_STATE_SUCCEEDED;
  v1::GetPlanRequest request;
  request.set_namespace_(job.namespace_());
  request.set_name(job.name());
  if (auto plan = client.Call(&v1::PlanService::Stub::GetPlan, request); plan.ok())
    inputs.plan = *std::move(plan);
  Print(session, RenderReport(inputs, session.environment.width(), session.style()));
}

void PrintSample(const Session& session, const v1::TrainingJob& job) {
  const std::string& model = job.status().exported_model();
  if (model.empty()) return;
  Print(session, {"", Paint("a sample of what it writes", Ink::kBold, session.style())});
  const std::string worker = FindProgram(session.environment, "tessera-worker");
  if (worker.empty()) {
    session.Say("no sample: tessera-worker is neither beside this program nor in PATH");
    return;
  }
  if (const int exit_code = session.environment.run(worker, {"generate", "--model", model}); exit_code != 0) {
    session.Say(absl::StrCat("no sample: ", worker, " generate --model ", model, " ended with exit code ",
                             exit_code));
  }
}

void PrintSeeAgain(const Session& session, const Client& client, const v1::TrainingJob& job) {
  Print(session, RenderSeeAgain(job, client.endpoint(), session.style()));
}

}  // namespace tessera::cli
