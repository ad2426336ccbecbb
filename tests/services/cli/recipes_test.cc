// The job files that are shipped are valid, and the reference tells the truth.
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "proto/tessera/v1/defaults.h"
#include "proto/tessera/v1/job_codec.h"
#include "proto/tessera/v1/validate.h"
#include "services/cli/job_file.h"
#include "tests/status.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::string Read(const fs::path& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(Recipes, EachIsValid) {
  int count = 0;
  for (const auto& entry : fs::directory_iterator(TESSERA_RECIPES)) {
    SCOPED_TRACE(entry.path().string());
    ++count;
    absl::StatusOr<v1::TrainingJob> job = LoadJobFile(entry.path(), {.working_directory = "/cwd"});
    ASSERT_OK(job);
    EXPECT_EQ(job->name(), entry.path().stem().string());
    spec::ApplyDefaults(&*job);
    for (const auto& violation : spec::Validate(*job)) ADD_FAILURE() << spec::ToLine(violation);
  }
  EXPECT_GE(count, 3);
}

// Fails for each value of `stated` that `actual` does not have.
void ExpectStated(const Json& stated, const Json& actual, const std::string& path) {
  if (stated.is_object()) {
    for (const auto& [key, value] : stated.items()) {
      ExpectStated(value, actual.is_object() && actual.contains(key) ? actual[key] : Json(),
                   absl::StrCat(path, ".", key));
    }
  } else if (stated.is_number()) {
    ASSERT_TRUE(actual.is_number()) << path;
    EXPECT_DOUBLE_EQ(stated.get<double>(), actual.get<double>()) << path;
  } else {
    EXPECT_EQ(stated, actual) << path;
  }
}

TEST(Recipes, TheReferenceStatesTheDefaults) {
  const auto reference = spec::ParseJob(Read(fs::path(TESSERA_RECIPES) / "reference.yaml"));
  ASSERT_OK(reference);
  v1::TrainingJob plain;  // what has no default
  plain.set_name("reference");
  *plain.mutable_spec()->mutable_model() = reference->spec().model();
  plain.mutable_spec()->mutable_data()->set_train(reference->spec().data().train());
  plain.mutable_spec()->mutable_data()->set_validation(reference->spec().data().validation());
  plain.mutable_spec()->mutable_schedule()->set_steps(reference->spec().schedule().steps());
  spec::ApplyDefaults(&plain);
  ExpectStated(spec::ToJsonValue(*reference), spec::ToJsonValue(plain), "");
}

void CollectFieldNames(const google::protobuf::Descriptor* message, std::set<std::string>* names) {
  for (int i = 0; i < message->field_count(); ++i) {
    const auto* field = message->field(i);
    names->insert(field->json_name());
    if (field->is_map() || field->message_type() == nullptr) continue;
    if (field->message_type()->full_name().rfind("tessera.", 0) == 0)
      CollectFieldNames(field->message_type(), names);
  }
}

TEST(Recipes, TheReferenceNamesEveryField) {
  const std::string text = Read(fs::path(TESSERA_RECIPES) / "reference.yaml");
  std::set<std::string> names;
  CollectFieldNames(v1::TrainingJobSpec::descriptor(), &names);
  for (const auto& name : names) EXPECT_NE(text.find(name + ":"), std::string::npos) << name;
}

}  // namespace
}  // namespace tessera::cli
