// The document, the console's files, masks and etags at the HTTP door.
#include "services/openapi/openapi.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/api/route.h"
#include "tests/services/http_client.h"
#include "tests/services/job_builder.h"
#include "tests/status.h"

namespace tessera::services {
namespace {

using nlohmann::json;

void AddJob(Doors* doors, const std::string& name) {
  v1::CreateTrainingJobRequest request;
  *request.mutable_training_job() = SmallJob(name);
  ASSERT_OK(doors->api.jobs.Create(request));
}

TEST(OpenApi, HasEveryRouteOnceWithADescribedAnswer) {
  const auto document = OpenApi("1");
  size_t operations = 0;
  std::set<std::string> ids;
  for (const auto& [path, item] : document["paths"].items()) {
    for (const auto& [method, operation] : item.items()) {
      ++operations;
      EXPECT_TRUE(ids.insert(operation["operationId"].get<std::string>()).second) << path;
      EXPECT_TRUE(operation["responses"].contains("200")) << path;
    }
  }
  EXPECT_EQ(operations, Routes().size() + PlainRoutes().size());
}

TEST(OpenApi, EveryReferenceLeadsSomewhere) {
  const auto document = OpenApi("1");
  const std::string text = document.dump();
  size_t references = 0;
  for (size_t at = 0; (at = text.find("\"$ref\":\"#", at)) != std::string::npos; ++at, ++references) {
    const size_t begin = at + 9;
    const std::string pointer = text.substr(begin, text.find('"', begin) - begin);
    EXPECT_TRUE(document.contains(nlohmann::ordered_json::json_pointer(pointer))) << pointer;
  }
  EXPECT_GT(references, 100u);
}

TEST(OpenApi, FieldsAreDescribedByTheProtosComments) {
  const auto job = OpenApi("1")["components"]["schemas"]["TrainingJob"]["properties"];
  EXPECT_EQ(job["uid"]["readOnly"], true);
  EXPECT_NE(job["name"]["description"].get<std::string>().find("RFC 1123"), std::string::npos);
}

TEST(RestConsole, IsServedWithoutATokenUnderAStrictPolicyAndHoldsNoScriptOfItsOwn) {
  const Doors doors;
  const HttpAnswer page = Http(doors, "GET", "/", "", "", "");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_EQ(page.headers.at("content-security-policy").find("default-src 'none'"), 0u);
  EXPECT_EQ(page.headers.at("content-security-policy").find("unsafe"), std::string::npos);
  EXPECT_EQ(page.body.find("style=\""), std::string::npos);
  EXPECT_EQ(page.body.find("http"), std::string::npos) << "no other site";
  for (size_t at = 0; (at = page.body.find("/console/", at)) != std::string::npos; ++at) {
    const std::string path = page.body.substr(at, page.body.find('"', at) - at);
    EXPECT_EQ(Http(doors, "GET", path, "", "", "").status, 200) << path;
  }
  EXPECT_EQ(Http(doors, "GET", "/console/none.js", "", "", "").status, 401);
  EXPECT_EQ(Http(doors, "GET", "/console/../token", "", "", "").status, 401);
}

TEST(RestMasks, ListAndGetTakeFiltersAndMasks) {
  Doors doors;
  AddJob(&doors, "one");
  AddJob(&doors, "two");
  const auto list =
      json::parse(Http(doors, "GET",
                       "/v1/namespaces/-/trainingJobs?readMask=name,spec.model.preset&filter=name%3D%22t*%22")
                      .body);
  EXPECT_EQ(list,
            (json{{"trainingJobs", {{{"name", "two"}, {"spec", {{"model", {{"preset", "llama-8m"}}}}}}}}}));
  const HttpAnswer wrong = Http(doors, "GET", "/v1/namespaces/default/trainingJobs/one?readMask=nme");
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(json::parse(wrong.body)["errors"][0]["path"], "readMask");
}

TEST(RestEtags, OfAnAnswerAreTakenBackByIfMatch) {
  Doors doors;
  AddJob(&doors, "one");
  const std::string path = "/v1/namespaces/default/trainingJobs/one";
  const std::string etag = Http(doors, "GET", path).headers.at("etag");
  const std::string headers = "Content-Type: application/json\r\nIf-Match: " + etag + "\r\n";
  EXPECT_EQ(Http(doors, "PATCH", path, R"({"spec":{"priority":4}})", headers).status, 200);
  const HttpAnswer stale = Http(doors, "PATCH", path, R"({"spec":{"priority":5}})", headers);
  EXPECT_EQ(stale.status, 409);
  EXPECT_EQ(json::parse(stale.body)["code"], "ABORTED");
  EXPECT_EQ(Http(doors, "DELETE", path, "", "If-Match: " + etag + "\r\n").status, 409);
  EXPECT_EQ(Http(doors, "DELETE", path, "", "If-Match: *\r\n").status, 200);
}

TEST(RestRateLimit, ManyCallsOfOneClientAreToldToWait) {
  RestOptions options;
  options.rate_limit = std::make_shared<RateLimit>(0.75);  // three calls, and one more each 1.3 s
  Doors doors(options);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Http(doors, "GET", "/v1/nodes").status, 200);
  HttpAnswer refused;
  for (int i = 0; i < 1000 && refused.status != 429; ++i) refused = Http(doors, "GET", "/v1/nodes");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("retry-after"), "1");
  EXPECT_EQ(Http(doors, "GET", "/healthz").status, 200) << "probes are not counted";
}

}  // namespace
}  // namespace tessera::services
