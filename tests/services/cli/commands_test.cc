#include <filesystem>

#include "gmock/gmock.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/violation.h"
#include "services/cli/exit_code.h"
#include "services/cli/program.h"
#include "services/grpc/status.h"
#include "tests/services/cli/budgeted_plan.h"
#include "tests/services/cli/fake_service.h"
#include "tests/status.h"

namespace tessera::cli {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class Commands : public CommandTest {};

TEST_F(Commands, EveryCommandHasHelpWithAnExample) {
  for (const char* command :
       {"train",  "submit",      "validate",   "plan",    "get",    "list",  "watch",   "explain",
        "cancel", "suspend",     "resume",     "resize",  "update", "retry", "delete",  "logs",
        "events", "checkpoints", "nodes",      "links",   "daemon", "data",  "context", "certs",
        "init",   "doctor",      "completion", "version", "budgets"}) {
    EXPECT_EQ(RunWithoutAddress({command, "--help"}), kSucceeded) << command;
    EXPECT_THAT(out(), HasSubstr("Example")) << command;
  }
  EXPECT_EQ(RunWithoutAddress({"--help"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("3 cancelled"));
}

// Words as a shell makes them of a line, up to a comment or the next command.
std::vector<std::string> ShellWords(const std::string& line) {
  std::vector<std::string> words;
  char quote = '\0';
  bool open = false;
  for (const char c : line) {
    if (quote == '\0' && (c == '#' || c == '&' || c == '>' || c == '|')) break;
    if (c == quote) {
      quote = '\0';
    } else if (quote == '\0' && (c == '\'' || c == '"')) {
      quote = c;
      if (!open) words.emplace_back();
      open = true;
    } else if (quote == '\0' && c == ' ') {
      open = false;
    } else {
      if (!open) words.emplace_back();
      open = true;
      words.back() += c;
    }
  }
  return words;
}

TEST_F(Commands, EveryExampleOfAHelpIsACommandLine) {
  const std::vector<std::string> examples = HelpExamples(environment_);
  EXPECT_GT(examples.size(), 30u);
  for (const std::string& example : examples) {
    std::string line = example.substr(0, example.find("   "));  // what follows explains it
    EXPECT_TRUE(IsCommandLine(ShellWords(line), environment_)) << example;
  }
  EXPECT_FALSE(IsCommandLine({"frobnicate"}, environment_));
}

TEST_F(Commands, WrongArgumentsExitWithTwo) {
  EXPECT_EQ(RunWithoutAddress({}), kUsage);
  EXPECT_EQ(RunWithoutAddress({"frobnicate"}), kUsage);
  EXPECT_EQ(RunWithoutAddress({"get"}), kUsage);
  EXPECT_EQ(RunWithoutAddress({"list", "-o", "xml"}), kUsage);
  EXPECT_EQ(RunWithoutAddress({"validate", "none.yaml"}), kUsage);
  EXPECT_EQ(RunWithoutAddress({"train", job_file_, "--steps", "many"}), kUsage);
}

TEST_F(Commands, SayWhatIsWrongWithAWordOrANumber) {
  EXPECT_EQ(RunWithoutAddress({"lst"}), kUsage);
  EXPECT_EQ(err(), "tessera has no command 'lst'; did you mean list?\n");
  EXPECT_EQ(RunWithoutAddress({"-n", "lab", "frobnicate"}), kUsage);
  EXPECT_EQ(err(), "tessera has no command 'frobnicate'; see 'tessera --help'\n");
  EXPECT_EQ(RunWithoutAddress({"daemon", "statsu"}), kUsage);
  EXPECT_EQ(err(), "tessera daemon has no command 'statsu'; did you mean status?\n");
  for (const char* workers : {"-3", "0", "1.5", "many"}) {
    EXPECT_EQ(RunWithoutAddress({"resize", "small", workers}), kUsage);
    EXPECT_THAT(err(), HasSubstr(std::string("'") + workers + "' is not a whole number from 1"));
  }
  EXPECT_EQ(RunWithoutAddress({"init", "llama-1m"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("--preset llama-1m"));
}

TEST_F(Commands, ValidateNeedsNoService) {
  EXPECT_EQ(RunWithoutAddress({"validate", job_file_, "-o", "yaml", "--workers", "2"}), kSucceeded) << err();
  const auto job = spec::ParseJob(out());
  ASSERT_OK(job);
  EXPECT_EQ(job->name(), "small");
  EXPECT_EQ(job->spec().workers().count(), 2);
  EXPECT_EQ(job->spec().optimizer().name(), "adamw");
}

TEST_F(Commands, AnInvalidJobShowsEveryFaultAndIsNotSent) {
  EXPECT_EQ(
      Run({"submit", job_file_, "--set", "spec.subnetwork.coverage=1.5", "--set", "spec.workers.batch=0"}),
      kUsage);
  EXPECT_THAT(err(), HasSubstr("2 faults"));
  EXPECT_THAT(err(), HasSubstr("spec.subnetwork.coverage"));
  EXPECT_THAT(err(), HasSubstr("spec.workers.batch"));
  EXPECT_TRUE(service_.calls().empty());
}

TEST_F(Commands, FaultsThatTheServiceFindsAreShownToo) {
  service_.on_create = [](const v1::CreateTrainingJobRequest&) {
    spec::Violation violation;
    violation.path = "spec.data.train";
    violation.value = "/data/train.bin";
    violation.message = "does not exist";
    violation.remedy = "make it with tessera data prepare";
    return services::ToGrpcStatus(spec::MakeInvalid({violation}));
  };
  EXPECT_EQ(Run({"submit", job_file_}), kUsage);
  EXPECT_THAT(err(), HasSubstr("1 fault)"));
  EXPECT_THAT(err(), HasSubstr("spec.data.train: does not exist"));
  EXPECT_THAT(err(), HasSubstr("/data/train.bin"));
  EXPECT_THAT(err(), HasSubstr("make it with tessera data prepare"));
}

TEST_F(Commands, SubmitGetListAndDelete) {
  EXPECT_EQ(Run({"submit", job_file_, "-o", "name"}), kSucceeded) << err();
  EXPECT_EQ(out(), "small\n");
  EXPECT_EQ(Run({"submit", job_file_, "--name", "other"}), kSucceeded);
  EXPECT_EQ(out(), "other QUEUED\n");
  EXPECT_EQ(Run({"get", "small"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("small  QUEUED"));
  EXPECT_EQ(Run({"get", "small", "-o", "json"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("\"state\": \"queued\""));
  EXPECT_EQ(Run({"list", "-o", "name"}), kSucceeded);  // over two pages
  EXPECT_EQ(out(), "other\nsmall\n");
  EXPECT_EQ(Run({"list"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("QUEUED"));
  EXPECT_EQ(Run({"delete", "small"}), kSucceeded);
  EXPECT_EQ(out(), "small deleted\n");
  EXPECT_EQ(Run({"get", "small"}), kFailed);
  EXPECT_THAT(err(), HasSubstr("there is no job small"));
  EXPECT_EQ(Run({"delete", "other", "-o", "json"}), kSucceeded);
  EXPECT_EQ(nlohmann::json::parse(out()),
            (nlohmann::json{{"namespace", "default"}, {"name", "other"}, {"deleted", true}}));
}

TEST_F(Commands, PlanStoresNothing) {
  EXPECT_EQ(Run({"plan", job_file_}), kSucceeded) << err();
  EXPECT_THAT(out(), HasSubstr("worker 0   # o . #"));
  EXPECT_THAT(out(), HasSubstr("with ddp"));
  EXPECT_FALSE(service_.Find("small").has_value());
}

TEST_F(Commands, PlanOfAPresetNeedsNeitherServiceNorData) {
  const std::string worker = Write("tessera-worker", R"(#!/bin/sh
cat > /dev/null
cat <<'END'
{"model": "stack", "vocabSize": "16", "parameters": [
  {"name": "embedding", "dims": ["16", "8"], "block": -1},
  {"name": "a", "dims": ["8", "8"], "block": 0}, {"name": "b", "dims": ["8", "8"], "block": 1},
  {"name": "c", "dims": ["8", "8"], "block": 2}, {"name": "d", "dims": ["8", "8"], "block": 3}],
 "blocks": [{"name": "a", "maskable": true, "flopsPerToken": 1}, {"name": "b", "maskable": true, "flopsPerToken": 1},
            {"name": "c", "maskable": true, "flopsPerToken": 1}, {"name": "d", "maskable": true, "flopsPerToken": 1}],
 "activations": {"batch": "2", "sequenceLength": "4", "kinds": [{"savedBytes": "512"}], "baseSavedBytes": "256"}}
END
)");
  std::filesystem::permissions(worker, std::filesystem::perms::owner_all);
  const std::vector<std::string> arguments = {
      "plan", "--preset",          "llama-1m", "--workers",       "2",   "--coverage", "0.5", "--batch",
      "2",    "--sequence-length", "4",        "--device-memory", "1MiB"};
  EXPECT_EQ(RunWithoutAddress(arguments), kSucceeded) << err();
  EXPECT_THAT(out(), HasSubstr("it fits"));
  for (const char* regime : {"ddp", "fsdp", "fsdp+ac", "b-sdp", "n-sdp", "b-sdp+fsdp+ac"}) {
    EXPECT_THAT(out(), HasSubstr(std::string("with ") + regime + " "));
  }
  std::vector<std::string> set = arguments;
  set.insert(set.end(), {"--set", "spec.subnetwork.minHolders=2"});
  EXPECT_EQ(RunWithoutAddress(set), kUsage)
      << "two workers with half of the units each cannot hold them twice";
  EXPECT_THAT(err(), HasSubstr("2 are needed"));
  std::vector<std::string> tight = arguments;
  std::replace(tight.begin(), tight.end(), std::string("1MiB"), std::string("6KiB"));
  EXPECT_EQ(RunWithoutAddress(tight), kSucceeded) << "a plan that does not fit is an answer";
  EXPECT_THAT(out(), HasSubstr("it does not fit"));
  std::replace(tight.begin(), tight.end(), std::string("6KiB"), std::string("zero"));
  EXPECT_EQ(RunWithoutAddress(tight), kUsage);
  EXPECT_THAT(err(), HasSubstr("--device-memory"));
  EXPECT_EQ(RunWithoutAddress({"plan"}), kUsage);
  EXPECT_EQ(RunWithoutAddress({"plan", job_file_, "--preset", "llama-1m"}), kUsage);
}

TEST_F(Commands, LifecycleCommandsReachTheService) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING));
  EXPECT_EQ(Run({"suspend", "small"}), kSucceeded);
  EXPECT_EQ(Run({"cancel", "small"}), kSucceeded);
  EXPECT_EQ(out(), "small CANCELLED\n");
  EXPECT_EQ(Run({"resume", "small"}), kFailed);
  EXPECT_THAT(err(), HasSubstr("only a suspended job"));
}

TEST_F(Commands, BudgetsAreShownAndChangedOnlyWhenAsked) {
  v1::TrainingJob job = StoredJob(v1::JOB_STATE_RUNNING);
  v1::DensityLimit& limit = *job.mutable_spec()->mutable_dropping()->add_layer_limits();
  limit.set_pattern("model.embed*");
  limit.set_max(0.1);
  service_.Put(job);
  service_.plan = BudgetedPlan();
  EXPECT_EQ(Run({"budgets", "small"}), kSucceeded) << err();
  EXPECT_THAT(out(), HasSubstr("model.layers.1.mlp.up_proj.weight"));
  EXPECT_THAT(out(), HasSubstr("limit model.embed*=:0.1\n"));
  EXPECT_EQ(Run({"budgets", "small", "--plan", "4"}), kSucceeded) << err();
  EXPECT_THAT(out(), HasSubstr("plan 4: 30 %"));
  EXPECT_EQ(Run({"budgets", "small", "-o", "json"}), kSucceeded) << err();
  EXPECT_THAT(out(), HasSubstr("\"model.norm.weight\""));
  EXPECT_THAT(service_.calls(), Not(Contains(HasSubstr("Recompute"))));
  EXPECT_EQ(Run({"budgets", "small", "--recompute"}), kSucceeded) << err();
  EXPECT_EQ(service_.calls().back(), "RecomputeBudgets small");
  EXPECT_EQ(Run({"budgets", "small", "--limit", "model.norm*=0.5:"}), kSucceeded) << err();
  EXPECT_EQ(service_.calls().back(), "RecomputeBudgets small model.norm* 0.5 0");
  EXPECT_EQ(Run({"budgets", "small", "--of", "2"}), kSucceeded) << err();
  EXPECT_EQ(service_.calls().back(), "RecomputeBudgets small of 2");
  EXPECT_EQ(Run({"budgets", "small", "--of", "2", "--recompute"}), kUsage);
  EXPECT_EQ(Run({"budgets", "small", "--limit", "model.norm*"}), kUsage);
}

TEST_F(Commands, LogsEventsNodesAndExplain) {
  service_.Put(StoredJob(v1::JOB_STATE_RUNNING));
  EXPECT_EQ(Run({"logs", "small", "--rank", "2", "-f"}), kSucceeded);
  EXPECT_EQ(out(), "first line\nsecond line\n");
  EXPECT_THAT(service_.calls(), Contains("Logs small 2"));
  EXPECT_EQ(Run({"events", "small"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("rank 2 was killed by signal 9"));
  EXPECT_EQ(Run({"nodes"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("8.00 GiB"));
  EXPECT_EQ(Run({"links", "here"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("9.54 MiB/s"));
  EXPECT_THAT(out(), HasSubstr("1.5 ms"));
  EXPECT_THAT(out(), HasSubstr("(stale)"));
  EXPECT_EQ(Run({"links", "--measure"}), kSucceeded);
  EXPECT_THAT(service_.calls(), Contains("ProfileNodes "));
  EXPECT_EQ(Run({"explain", "small"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("- needs 4 GiB"));
}

TEST_F(Commands, ForProgramsStandardOutputIsOneValueAlone) {
  service_.Put(StoredJob(v1::JOB_STATE_SUCCEEDED));
  EXPECT_EQ(Run({"watch", "small", "-o", "json"}), kSucceeded) << err();
  EXPECT_EQ(nlohmann::json::parse(out())["status"]["state"], "succeeded");
  EXPECT_EQ(Run({"logs", "small", "-o", "json"}), kSucceeded) << err();
  EXPECT_EQ(nlohmann::json::parse(out())["text"], "first line\nsecond line\n");
  EXPECT_EQ(Run({"logs", "small", "-f", "-o", "json"}), kUsage);
  const std::string file = Write("first.yaml", "");
  EXPECT_EQ(RunWithoutAddress({"init", file, "--force", "-o", "json"}), kSucceeded) << err();
  EXPECT_EQ(nlohmann::json::parse(out())["preset"], "llama-8m");
  EXPECT_EQ(RunWithoutAddress({"-o", "yaml", "export", "./folder"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("'export' has no -o yaml"));
}

TEST_F(Commands, TheTokenFileIsNamedWhenItIsMissingEmptyOrWrong) {
  std::filesystem::remove(token_file_);
  EXPECT_EQ(Run({"list"}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr(token_file_ + " does not exist"));
  Write("token", "");
  EXPECT_EQ(Run({"list"}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr(token_file_));
  Write("token", "somebody else's\n");
  EXPECT_EQ(Run({"list"}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr("refuses the token in " + token_file_));
  EXPECT_THAT(err(), Not(HasSubstr("somebody")));
}

TEST_F(Commands, WithoutATokenTheOptionIsNamed) {
  EXPECT_EQ(RunWithoutAddress({"--address", service_.address(), "list"}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr("--token-file"));
}

TEST_F(Commands, AnUnreachableServiceExitsWithFive) {
  EXPECT_EQ(RunWithoutAddress({"--address", "127.0.0.1:1", "--token-file", token_file_, "list"}),
            kUnreachable);
  EXPECT_THAT(err(), HasSubstr("no answer from the service at 127.0.0.1:1"));
  EXPECT_EQ(RunWithoutAddress({"list"}), kUnreachable);
  EXPECT_THAT(err(), HasSubstr("no daemon runs on this machine"));
}

TEST_F(Commands, ATokenIsNotSentInTheClearToAnotherMachine) {
  EXPECT_EQ(RunWithoutAddress({"--address", "192.0.2.1:50051", "--token-file", token_file_, "list"}), kUsage);
  EXPECT_THAT(err(), HasSubstr("https://192.0.2.1:50051"));
}

TEST_F(Commands, TheEnvironmentNamesTheServiceToo) {
  variables_["TESSERA_ADDRESS"] = service_.address();
  variables_["TESSERA_TOKEN_FILE"] = token_file_;
  EXPECT_EQ(RunWithoutAddress({"list"}), kSucceeded) << err();
}

class Completion : public Commands, public testing::WithParamInterface<const char*> {};

TEST_P(Completion, IsAScriptThatTheShellRuns) {
  const std::string shell = GetParam();
  EXPECT_EQ(RunWithoutAddress({"completion", shell}), kSucceeded);
  // NOLINTBEGIN(bugprone-command-processor): what a shell makes of it is the claim
  if (std::system(("command -v " + shell + " >/dev/null").c_str()) != 0) GTEST_SKIP() << "no " << shell;
  // As bash calls it, and as bashcompinit does in zsh: with the options of sh, then those of completion.
  const std::string script =
      Write("completion", (shell == "zsh" ? "autoload -Uz compinit; compinit -u -D\n" : "") + out() +
                              (shell == "zsh" ? "emulate sh; setopt kshglob noshglob braceexpand\n" : "") +
                              "COMP_WORDS=(tessera daemon st); COMP_CWORD=2; _tessera\n"
                              "[[ \"${COMPREPLY[*]}\" == 'start stop status'* ]] || exit 1\n"
                              "COMP_WORDS=(tessera --state-dir x ch); COMP_CWORD=3; _tessera\n"
                              "[[ \"${COMPREPLY[*]}\" == *checkpoints* ]] && [ -n \"$PATH\" ]\n");
  EXPECT_EQ(std::system((shell + (shell == "zsh" ? " -f " : " --norc ") + script).c_str()), 0);
  // NOLINTEND(bugprone-command-processor)
}

INSTANTIATE_TEST_SUITE_P(Shells, Completion, testing::Values("bash", "zsh"),
                         [](const auto& shell) { return std::string(shell.param); });

TEST_F(Commands, VersionIsPrinted) {
  EXPECT_EQ(RunWithoutAddress({"version"}), kSucceeded);
  EXPECT_THAT(out(), HasSubstr("tessera 0."));
  EXPECT_EQ(RunWithoutAddress({"version", "-o", "json"}), kSucceeded);
  EXPECT_THAT(std::string(nlohmann::json::parse(out())["version"]), testing::StartsWith("0."));
}

}  // namespace
}  // namespace tessera::cli
