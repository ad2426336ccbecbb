#include "services/openapi/custom_resource.h"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tessera/v1/job.pb.h"

namespace tessera::services {
namespace {

using Json = nlohmann::ordered_json;

const Json& Schema() {
  static const Json definition = TrainingJobDefinition();
  return definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
}

TEST(TrainingJobDefinition, IsWhatTheChartInstalls) {
  const std::string text = TrainingJobDefinition().dump(1) + "\n";
  if (std::getenv("TESSERA_UPDATE_GOLDENS") != nullptr) std::ofstream(TESSERA_DEFINITION) << text;
  std::stringstream file;
  file << std::ifstream(TESSERA_DEFINITION).rdbuf();
  EXPECT_EQ(file.str(), text) << "TESSERA_UPDATE_GOLDENS=1 writes it anew";
}

TEST(TrainingJobDefinition, HasEveryFieldOfTheProto) {
  const auto* spec = v1::TrainingJobSpec::descriptor();
  for (int i = 0; i < spec->field_count(); ++i) {
    EXPECT_TRUE(Schema()["properties"]["spec"]["properties"].contains(spec->field(i)->json_name()))
        << spec->field(i)->name();
  }
}

// What Kubernetes calls structural: one type everywhere, and nothing that refers, excludes or is unknown to
// it.
void ExpectStructural(const Json& schema, const std::string& path) {
  ASSERT_TRUE(schema.is_object()) << path;
  EXPECT_TRUE(schema.contains("x-kubernetes-int-or-string") || schema["type"].is_string()) << path;
  for (const char* key : {"$ref", "readOnly", "contentEncoding"}) EXPECT_FALSE(schema.contains(key)) << path;
  EXPECT_FALSE(schema.contains("properties") && schema.contains("additionalProperties")) << path;
  if (schema.contains("items")) ExpectStructural(schema["items"], path + "[]");
  if (schema.contains("additionalProperties")) ExpectStructural(schema["additionalProperties"], path + "{}");
  if (!schema.contains("properties")) return;
  for (const auto& [name, property] : schema["properties"].items()) {
    ExpectStructural(property, absl::StrCat(path, ".", name));
  }
}

TEST(TrainingJobDefinition, IsStructural) { ExpectStructural(Schema(), ""); }

TEST(TrainingJobDefinition, GuardsWhatCantBeChangedAndNothingElse) {
  const std::string rules = Schema()["x-kubernetes-validations"].dump();
  for (const char* fixed : {"model", "data", "workers", "subnetwork", "optimizer", "schedule", "env"}) {
    EXPECT_THAT(rules, ::testing::HasSubstr(absl::StrCat("spec.", fixed, " can't be changed")));
  }
  for (const char* free : {"priority", "suspend", "ttlAfterFinished", "retry", "deadlines", "queue"}) {
    EXPECT_THAT(rules, ::testing::Not(::testing::HasSubstr(absl::StrCat("spec.", free, " "))));
  }
}

}  // namespace
}  // namespace tessera::services
