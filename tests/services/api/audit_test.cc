#include "services/api/audit.h"

#include "gtest/gtest.h"
#include "services/api/route.h"
#include "tessera/v1/api.pb.h"
#include "tests/services/job_builder.h"

namespace tessera::services {
namespace {

TEST(Audit, CoversEveryRouteThatIsNoGetAndNoQuestion) {
  for (const Route& route : Routes()) {
    const std::string rpc = route.rpc;
    // Agents report every few seconds what they measured: that changes nothing anybody asked for.
    const bool asks = std::string(route.method) == "GET" || rpc == "JobService.ExplainTrainingJob" ||
                      rpc == "NodeService.ReportNode";
    EXPECT_EQ(IsMutating(rpc), !asks) << rpc;
  }
}

TEST(Audit, NamesWhatWasAskedAndNothingElseOfTheRequest) {
  v1::CreateTrainingJobRequest request;
  *request.mutable_training_job() = SmallJob("tiny");
  (*request.mutable_training_job()->mutable_spec()->mutable_env())["KEY"] = "secret";
  request.set_namespace_("lab");
  EXPECT_EQ(AuditLine("rest", "JobService.CreateTrainingJob", request, "system:serviceaccount:lab:ci",
                      "10.0.0.7", absl::OkStatus()),
            "event=audit protocol=rest method=JobService.CreateTrainingJob job=lab/tiny "
            "user=system:serviceaccount:lab:ci peer=10.0.0.7 code=OK");
  v1::CancelTrainingJobRequest cancel;
  cancel.set_name("x\nevent=forged " + std::string(200, 'y'));
  const std::string line = AuditLine("grpc", "JobService.CancelTrainingJob", cancel, "eve event=forged", "",
                                     absl::NotFoundError("no"));
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_LT(line.size(), 250u);
  EXPECT_NE(line.find("user=\"eve event=forged\" peer=- code=NOT_FOUND"), std::string::npos) << line;
}

}  // namespace
}  // namespace tessera::services
