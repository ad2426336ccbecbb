#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "proto/tessera/v1/job_codec.h"
#include "tests/services/http_client.h"
#include "tests/services/job_builder.h"

namespace tessera::services {
namespace {

using nlohmann::json;
constexpr char kJobs[] = "/v1/namespaces/default/trainingJobs";

// A problem document with `status`, or a complaint.
json ProblemOf(const HttpAnswer& answer, int status) {
  EXPECT_EQ(answer.status, status) << answer.body;
  EXPECT_EQ(answer.headers.at("content-type"), "application/problem+json");
  const json problem = json::parse(answer.body);
  EXPECT_EQ(problem["status"], status);
  EXPECT_FALSE(problem["detail"].get<std::string>().empty());
  return problem;
}

TEST(RestProblems, EverythingButHealthWantsTheToken) {
  const Doors doors;
  for (const char* path : {"/metrics", "/v1/prometheusTargets", "/v1/nodes", kJobs, "/nowhere"}) {
    EXPECT_EQ(ProblemOf(Http(doors, "GET", path, "", "", ""), 401)["code"], "UNAUTHENTICATED") << path;
    const HttpAnswer wrong = Http(doors, "GET", path, "", "", "worker-token-of-epoch-1");
    EXPECT_EQ(wrong.status, 401);
    EXPECT_EQ(wrong.headers.at("www-authenticate"), "Bearer realm=\"tessera\"");
  }
  for (const char* path : {"/healthz", "/readyz"})
    EXPECT_EQ(Http(doors, "GET", path, "", "", "").status, 200);
  EXPECT_EQ(Http(doors, "GET", "/metrics").body, "# metrics\n");
  EXPECT_EQ(Http(doors, "GET", "/v1/prometheusTargets").body, "[]\n");
}

TEST(RestProblems, FieldFaultsAreOneEntryEach) {
  const Doors doors;
  const json problem = ProblemOf(Http(doors, "POST", kJobs, "spec:\n  workres: 1\n  precision: fp8\n",
                                      "Content-Type: application/yaml\r\n"),
                                 400);
  ASSERT_EQ(problem["errors"].size(), 2u);
  EXPECT_EQ(problem["errors"][0], (json{{"path", "spec.workres"},
                                        {"message", "is not a field"},
                                        {"remedy", "did you mean workers?"},
                                        {"line", 2}}));
  EXPECT_EQ(problem["errors"][1]["value"], "fp8");
}

TEST(RestProblems, WrongPathsMethodsTypesAndParameters) {
  const Doors doors;
  ProblemOf(Http(doors, "GET", "/v1/nowhere"), 404);
  ProblemOf(Http(doors, "GET", std::string(kJobs) + "/absent"), 404);
  EXPECT_EQ(Http(doors, "PUT", kJobs).headers.at("allow"), "POST, GET");
  ProblemOf(Http(doors, "PUT", kJobs), 405);
  ProblemOf(Http(doors, "POST", kJobs, "a=b", "Content-Type: application/x-www-form-urlencoded\r\n"), 415);
  ProblemOf(Http(doors, "GET", kJobs, "{}"), 400);
  EXPECT_EQ(ProblemOf(Http(doors, "GET", std::string(kJobs) + "?pageSise=3"), 400)["errors"][0]["path"],
            "pageSise");
  ProblemOf(Http(doors, "GET", std::string(kJobs) + "?pageSize=x"), 400);
  ProblemOf(Http(doors, "GET", std::string(kJobs) + "?pageSize=1&page_size=2"), 400);
  ProblemOf(Http(doors, "GET", std::string(kJobs) + "?namespace=other"), 400);
  ProblemOf(Http(doors, "GET", std::string(kJobs) + "?pageSize=%zz"), 400);
  ProblemOf(Http(doors, "GET", std::string(kJobs) + "/tiny/plans/x"), 400);
}

TEST(RestProblems, WhatIsNotHttpIsAnsweredAndClosed) {
  const Doors doors;
  HttpClient client(doors.rest->port());
  client.Send("hello\r\n\r\n");
  ProblemOf(client.Read(), 400);
  EXPECT_TRUE(client.AtEnd());
}

TEST(RestCreate, ValidateOnlyStoresNothing) {
  const Doors doors;
  const std::string job = spec::ToJson(SmallJob("tiny"));
  const HttpAnswer answer = Http(doors, "POST", std::string(kJobs) + "?validateOnly", job);
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(json::parse(answer.body)["plan"]["generation"], 1);
  EXPECT_EQ(Http(doors, "GET", std::string(kJobs) + "/tiny").status, 404);
}

TEST(RestCreate, AnIdempotencyKeyIsForOneJob) {
  const Doors doors;
  const std::string headers = "Content-Type: application/json\r\nIdempotency-Key: k1\r\n";
  const HttpAnswer first = Http(doors, "POST", kJobs, spec::ToJson(SmallJob("tiny")), headers);
  const HttpAnswer again = Http(doors, "POST", kJobs, spec::ToJson(SmallJob("tiny")), headers);
  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(again.body, first.body);
  const json problem = ProblemOf(Http(doors, "POST", kJobs, spec::ToJson(SmallJob("other")), headers), 422);
  EXPECT_EQ(problem["reason"], "REQUEST_ID_REUSED");
  ProblemOf(Http(doors, "POST", kJobs, spec::ToJson(SmallJob("tiny"))), 409);
}

}  // namespace
}  // namespace tessera::services
