#include "services/api/route.h"

#include <set>

#include "gtest/gtest.h"
#include "services/api/dispatch.h"

namespace tessera::services {
namespace {

TEST(Routes, NameCallsThatExist) {
  for (const Route& route : Routes()) EXPECT_NE(NewRequest(route.rpc), nullptr) << route.rpc;
}

TEST(Routes, CoverEveryCallOfThePublicServices) {
  std::set<std::string> routed;
  for (const Route& route : Routes()) routed.insert(route.rpc);
  for (const char* name : {"JobService", "PlanService", "NodeService"}) {
    const auto* service =
        v1::TrainingJob::descriptor()->file()->pool()->FindServiceByName(std::string("tessera.v1.") + name);
    ASSERT_NE(service, nullptr);
    for (int i = 0; i < service->method_count(); ++i) {
      EXPECT_EQ(routed.count(std::string(name) + "." + service->method(i)->name()), 1u)
          << service->method(i)->name();
    }
  }
}

TEST(Routes, PathsFillVariables) {
  const RouteMatch match = MatchRoute("GET", "/v1/namespaces/team%2Da/trainingJobs/tiny/plans/3");
  ASSERT_NE(match.route, nullptr);
  EXPECT_STREQ(match.route->rpc, "PlanService.GetPlan");
  EXPECT_EQ(match.variables, (std::map<std::string, std::string>{
                                 {"namespace", "team-a"}, {"name", "tiny"}, {"generation", "3"}}));
}

TEST(Routes, AVerbIsNoPartOfTheName) {
  EXPECT_STREQ(MatchRoute("POST", "/v1/namespaces/d/trainingJobs/tiny:cancel").route->rpc,
               "JobService.CancelTrainingJob");
  EXPECT_EQ(MatchRoute("POST", "/v1/namespaces/d/trainingJobs/tiny:cancle").route, nullptr);
  EXPECT_TRUE(MatchRoute("POST", "/v1/namespaces/d/trainingJobs/tiny:cancle").allowed.empty());
}

TEST(Routes, AWrongMethodIsToldFromAWrongPath) {
  EXPECT_EQ(MatchRoute("PUT", "/v1/nodes").allowed, (std::vector<std::string>{"GET"}));
  EXPECT_EQ(MatchRoute("PUT", "/v1/namespaces/d/trainingJobs").allowed,
            (std::vector<std::string>{"POST", "GET"}));
  for (const char* path : {"", "/", "/v1", "/v1/nodes/", "//v1/nodes", "/v1/namespaces//trainingJobs"}) {
    const RouteMatch match = MatchRoute("GET", path);
    EXPECT_TRUE(match.route == nullptr && match.allowed.empty()) << path;
  }
}

TEST(PercentDecode, RefusesWhatIsBroken) {
  EXPECT_EQ(PercentDecode("a%20b+c", true), "a b c");
  EXPECT_EQ(PercentDecode("a+c", false), "a+c");
  for (const char* bad : {"%", "%2", "%zz", "%00"}) EXPECT_EQ(PercentDecode(bad, true), std::nullopt) << bad;
}

}  // namespace
}  // namespace tessera::services
