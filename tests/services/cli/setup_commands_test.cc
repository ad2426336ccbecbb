// What comes before the first job: contexts, certificates, a job file, the state of the machine.
#include <filesystem>
#include <fstream>
#include <sstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/validate.h"
#include "services/auth/certificates.h"
#include "services/cli/contexts.h"
#include "services/cli/init_template.h"
#include "services/cli/job_file.h"
#include "tests/status.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Setup : public testing::Test {
 protected:
  Setup() {
    char pattern[] = "/tmp/tessera-setup-XXXXXX";
    folder_ = mkdtemp(pattern);
  }
  ~Setup() override { fs::remove_all(folder_); }
  std::string Read(const std::string& name) {
    std::stringstream text;
    text << std::ifstream(folder_ + "/" + name).rdbuf();
    return text.str();
  }
  Variables Environment(std::map<std::string, std::string> values = {}) {
    values["XDG_CONFIG_HOME"] = folder_;
    return [values](const std::string& name) -> std::optional<std::string> {
      const auto found = values.find(name);
      return found == values.end() ? std::nullopt : std::optional(found->second);
    };
  }
  std::string folder_;
};

TEST_F(Setup, TheJobFileOfInitIsValid) {
  for (const char* preset : {"llama-1m", "llama-8m", "llama-124m"}) {
    const std::string path = folder_ + "/job.yaml";
    std::ofstream(path) << InitTemplate("first-run", preset);
    absl::StatusOr<v1::TrainingJob> job = LoadJobFile(path, {.working_directory = folder_});
    ASSERT_OK(job);
    EXPECT_EQ(job->name(), "first-run");
    EXPECT_EQ(job->spec().model().preset(), preset);
    job->set_namespace_("default");
    spec::ApplyDefaults(&*job);
    EXPECT_TRUE(spec::Validate(*job).empty());
  }
}

TEST_F(Setup, OptionsComeBeforeTheEnvironmentBeforeTheContext) {
  Contexts contexts;
  contexts.current = "lab";
  contexts.by_name["lab"] = {"https://lab:1", "/lab.token", "/lab.pem"};
  contexts.by_name["home"] = {"https://home:1", "", ""};
  ASSERT_OK(WriteContexts(ContextsPath(Environment()), contexts));
  const auto address = [&](const std::string& name, const Variables& variables,
                           const std::string& option = "") {
    ConnectionOptions options;
    options.address = option;
    const absl::Status status = ApplyContext(name, variables, &options);
    return status.ok() ? options.address + options.ca_file : std::string(status.message());
  };
  EXPECT_EQ(address("", Environment()), "https://lab:1/lab.pem");
  EXPECT_EQ(address("home", Environment()), "https://home:1");
  EXPECT_EQ(address("local", Environment()), "");
  EXPECT_EQ(address("", Environment({{"TESSERA_CONTEXT", "home"}})), "https://home:1");
  EXPECT_EQ(address("", Environment({{"TESSERA_ADDRESS", "x"}})), "")
      << "the environment's, which is read later";
  EXPECT_EQ(address("", Environment(), "https://own:1"), "https://own:1");
  EXPECT_THAT(address("none", Environment()), HasSubstr("there is no context 'none'"));
  std::ofstream(ContextsPath(Environment())) << "{";
  EXPECT_THAT(address("", Environment()), HasSubstr("can't be read"));
}

TEST_F(Setup, CertificatesOfOneAuthorityAreIssuedAgainAndKeysAreSecret) {
  const auto first = services::IssueCertificates(folder_, {"lab", "10.0.0.7", "::1"}, absl::Now());
  ASSERT_OK(first);
  EXPECT_TRUE(first->new_authority);
  const std::string authority = Read("ca.pem");
  const std::string certificate = Read("server.pem");
  for (const char* key : {"ca.key", "server.key"}) {
    EXPECT_EQ(fs::status(folder_ + "/" + key).permissions(), fs::perms::owner_read | fs::perms::owner_write)
        << key;
  }
  const auto second = services::IssueCertificates(folder_, {"lab"}, absl::Now());
  ASSERT_OK(second);
  EXPECT_FALSE(second->new_authority);
  EXPECT_EQ(Read("ca.pem"), authority);
  EXPECT_NE(Read("server.pem"), certificate);
  EXPECT_FALSE(services::IssueCertificates(folder_, {"a b"}, absl::Now()).ok());
  EXPECT_FALSE(services::IssueCertificates(folder_, {"DNS:x,IP:y"}, absl::Now()).ok());
  fs::remove(folder_ + "/ca.key");
  EXPECT_THAT(std::string(services::IssueCertificates(folder_, {"lab"}, absl::Now()).status().message()),
              HasSubstr("ca.key can't be read"));
}

}  // namespace
}  // namespace tessera::cli
