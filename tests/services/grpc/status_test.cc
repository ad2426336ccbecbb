#include "services/grpc/status.h"

#include "gtest/gtest.h"
#include "proto/tessera/v1/violation.h"
#include "services/api/reason.h"

namespace tessera::services {
namespace {

TEST(GrpcStatus, KeepsCodeMessageReasonAndFields) {
  absl::Status status =
      spec::MakeInvalid({{.path = "spec.workers.batch", .value = "0", .message = "must be at least 1"}});
  SetReason(&status, "WHY");
  const absl::Status back = FromGrpcStatus(ToGrpcStatus(status));
  EXPECT_EQ(back.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(back.message(), status.message());
  EXPECT_EQ(ReasonOf(back), "WHY");
  const auto violations = spec::ViolationsFrom(back);
  ASSERT_EQ(violations.size(), 1u);
  EXPECT_EQ(spec::ToLine(violations[0]), "spec.workers.batch: must be at least 1, found 0");
}

TEST(GrpcStatus, EveryCodeMapsToItself) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "x");
    EXPECT_EQ(static_cast<int>(ToGrpcStatus(status).error_code()), code);
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)).code(), status.code());
  }
}

TEST(GrpcStatus, FitsIntoTrailersHoweverManyFaults) {
  std::vector<spec::Violation> violations(500,
                                          {.path = "spec.workers.batch", .message = std::string(200, 'x')});
  const grpc::Status status = ToGrpcStatus(spec::MakeInvalid(violations));
  EXPECT_LT(status.error_message().size() + status.error_details().size() * 4 / 3, 6500u);
  EXPECT_GT(spec::ViolationsFrom(FromGrpcStatus(status)).size(), 5u);
}

}  // namespace
}  // namespace tessera::services
