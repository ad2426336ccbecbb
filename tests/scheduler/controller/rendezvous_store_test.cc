#include "scheduler/controller/rendezvous_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "absl/time/clock.h"
#include "tests/patience.h"
#include "tests/status.h"

namespace tessera::scheduler {
namespace {

using ::testing::HasSubstr;
using Request = v1::StoreRequest;

class RendezvousStoreTest : public ::testing::Test {
 protected:
  RendezvousStoreTest() { store_.Open("u", 1); }
  static Request Make(Request::Operation operation, std::vector<std::string> keys, std::string value = "",
                      std::string expected = "", int64_t amount = 0) {
    Request request;
    request.set_job_uid("u");
    request.set_epoch(1);
    request.set_operation(operation);
    for (auto& key : keys) request.add_keys(std::move(key));
    request.set_value(std::move(value));
    request.set_expected(std::move(expected));
    request.set_amount(amount);
    return request;
  }
  absl::StatusOr<v1::StoreResponse> Call(const Request& request) {
    return store_.Apply(request, absl::Now());
  }

  RendezvousStore store_;
};

TEST_F(RendezvousStoreTest, WhatIsSetIsGotWithAnyBytes) {
  ASSERT_OK(Call(Make(Request::OPERATION_SET, {"k"}, std::string("a\0b", 3))));
  EXPECT_EQ(Call(Make(Request::OPERATION_GET, {"k"}))->values(0), std::string("a\0b", 3));
}

TEST_F(RendezvousStoreTest, GetWaitsForAllItsKeys) {
  std::thread setter([&] {
    ASSERT_OK(Call(Make(Request::OPERATION_SET, {"a"}, "1")));
    ASSERT_OK(Call(Make(Request::OPERATION_SET, {"b"}, "2")));
  });
  auto response = store_.Apply(Make(Request::OPERATION_GET, {"a", "b"}), absl::Now() + kPatience);
  setter.join();
  ASSERT_OK(response);
  EXPECT_EQ(response->values(0), "1");
  EXPECT_EQ(response->values(1), "2");
}

TEST_F(RendezvousStoreTest, AKeyThatDoesNotComeIsNamed) {
  auto response = Call(Make(Request::OPERATION_GET, {"missing"}));
  EXPECT_TRUE(absl::IsDeadlineExceeded(response.status()));
  EXPECT_THAT(response.status().message(), HasSubstr("'missing'"));
}

TEST_F(RendezvousStoreTest, AddCountsInDecimalText) {
  EXPECT_EQ(Call(Make(Request::OPERATION_ADD, {"n"}, "", "", 5))->number(), 5);
  EXPECT_EQ(Call(Make(Request::OPERATION_ADD, {"n"}, "", "", -7))->number(), -2);
  EXPECT_EQ(Call(Make(Request::OPERATION_GET, {"n"}))->values(0), "-2");
  ASSERT_OK(Call(Make(Request::OPERATION_SET, {"s"}, "text")));
  EXPECT_TRUE(absl::IsInvalidArgument(Call(Make(Request::OPERATION_ADD, {"s"})).status()));
}

TEST_F(RendezvousStoreTest, CompareSetAnswersWhatIsThereAfterwards) {
  EXPECT_EQ(Call(Make(Request::OPERATION_COMPARE_SET, {"k"}, "new", "old"))->values(0), "old");
  EXPECT_EQ(Call(Make(Request::OPERATION_CHECK, {"k"}))->number(), 0);
  EXPECT_EQ(Call(Make(Request::OPERATION_COMPARE_SET, {"k"}, "a", ""))->values(0), "a");
  EXPECT_EQ(Call(Make(Request::OPERATION_COMPARE_SET, {"k"}, "b", "x"))->values(0), "a");
  EXPECT_EQ(Call(Make(Request::OPERATION_COMPARE_SET, {"k"}, "b", "a"))->values(0), "b");
}

TEST_F(RendezvousStoreTest, CheckDeleteAndCount) {
  ASSERT_OK(Call(Make(Request::OPERATION_SET, {"a"})));
  EXPECT_EQ(Call(Make(Request::OPERATION_CHECK, {"a"}))->number(), 1);
  EXPECT_EQ(Call(Make(Request::OPERATION_CHECK, {"a", "b"}))->number(), 0);
  EXPECT_EQ(Call(Make(Request::OPERATION_COUNT, {}))->number(), 1);
  EXPECT_EQ(Call(Make(Request::OPERATION_DELETE, {"a"}))->number(), 1);
  EXPECT_EQ(Call(Make(Request::OPERATION_DELETE, {"a"}))->number(), 0);
  EXPECT_EQ(Call(Make(Request::OPERATION_COUNT, {}))->number(), 0);
}

TEST_F(RendezvousStoreTest, EpochsAreApartAndOldOnesAreOver) {
  ASSERT_OK(Call(Make(Request::OPERATION_SET, {"k"}, "old")));
  store_.Open("u", 2);
  EXPECT_TRUE(absl::IsAborted(Call(Make(Request::OPERATION_GET, {"k"})).status()));
  Request newer = Make(Request::OPERATION_CHECK, {"k"});
  newer.set_epoch(2);
  EXPECT_EQ(Call(newer)->number(), 0);
}

TEST_F(RendezvousStoreTest, WaitersEndWithTheirEpochAndWithTheScheduler) {
  std::thread dropper([&] { store_.Drop("u"); });
  EXPECT_TRUE(
      absl::IsAborted(store_.Apply(Make(Request::OPERATION_GET, {"k"}), absl::Now() + kPatience).status()));
  dropper.join();
  store_.Open("u", 1);
  std::thread closer([&] { store_.Close(); });
  EXPECT_TRUE(absl::IsUnavailable(
      store_.Apply(Make(Request::OPERATION_GET, {"k"}), absl::Now() + kPatience).status()));
  closer.join();
}

TEST_F(RendezvousStoreTest, AJobCanNotFillTheScheduler) {
  const std::string big(RendezvousStore::kMaxBytes / 2, 'x');
  ASSERT_OK(Call(Make(Request::OPERATION_SET, {"a"}, big)));
  ASSERT_OK(Call(Make(Request::OPERATION_SET, {"a"}, big))) << "replacing takes no more";
  EXPECT_TRUE(absl::IsResourceExhausted(Call(Make(Request::OPERATION_SET, {"b"}, big)).status()));
}

TEST_F(RendezvousStoreTest, OperationsWithoutAKeyAreInvalid) {
  EXPECT_TRUE(absl::IsInvalidArgument(Call(Make(Request::OPERATION_SET, {})).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Call(Make(Request::OPERATION_UNSPECIFIED, {"k"})).status()));
}

}  // namespace
}  // namespace tessera::scheduler
