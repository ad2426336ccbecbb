#include "scheduler/kube/kube_config.h"

#include <gmock/gmock.h>

#include <fstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;

std::string Config(const std::string& cluster, const std::string& user) {
  return absl::StrCat(
      "current-context: b\n"
      "contexts: [{name: a, context: {cluster: x, user: x}}, {name: b, context: {cluster: c, user: u, "
      "namespace: train}}]\n"
      "clusters: [{name: c, cluster: {",
      cluster, "}}]\nusers: [{name: u, user: {", user, "}}]\n");
}

TEST(KubeConfig, TakesServerNamespaceAndCertificatesOfTheCurrentContext) {
  const auto config =
      ParseKubeConfig(Config(absl::StrCat("server: \"https://10.0.0.1:6443\", certificate-authority-data: ",
                                          absl::Base64Escape("CA")),
                             absl::StrCat("client-certificate-data: ", absl::Base64Escape("CERT"),
                                          ", client-key-data: ", absl::Base64Escape("KEY"))),
                      "/");
  ASSERT_OK(config);
  EXPECT_EQ(config->host, "10.0.0.1");
  EXPECT_EQ(config->port, "6443");
  EXPECT_EQ(config->ns, "train");
  EXPECT_EQ(config->ca_pem, "CA");
  EXPECT_EQ(config->client_certificate_pem, "CERT");
  EXPECT_EQ(config->client_key_pem, "KEY");
}

TEST(KubeConfig, ReadsARotatedTokenAgain) {
  const std::string folder = ::testing::TempDir();
  std::ofstream(folder + "/kube-token") << "one\n";
  const auto config = ParseKubeConfig(Config("server: \"https://k\"", "tokenFile: kube-token"), folder);
  ASSERT_OK(config);
  EXPECT_EQ(config->port, "443");
  EXPECT_EQ(*CurrentToken(*config), "one");
  std::ofstream(folder + "/kube-token") << "two\n";
  EXPECT_EQ(*CurrentToken(*config), "two");
}

TEST(KubeConfig, RefusesWhatWouldSendCredentialsUnprotected) {
  EXPECT_THAT(ParseKubeConfig(Config("server: \"http://k\"", "token: t"), "/").status().message(),
              HasSubstr("is not https"));
  EXPECT_THAT(
      ParseKubeConfig(Config("server: \"https://k\", insecure-skip-tls-verify: true", "token: t"), "/")
          .status()
          .message(),
      HasSubstr("certificate-authority"));
}

TEST(KubeConfig, RefusesProgramsThatMakeCredentials) {
  EXPECT_THAT(
      ParseKubeConfig(Config("server: \"https://k\"", "exec: {command: aws}"), "/").status().message(),
      HasSubstr("use a token or a certificate"));
}

TEST(KubeConfig, SaysWhichContextIsMissing) {
  EXPECT_THAT(ParseKubeConfig("current-context: gone", "/").status().message(), HasSubstr("'gone'"));
}

}  // namespace
}  // namespace tessera::scheduler
