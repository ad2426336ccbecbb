// Assertions about absl::Status and absl::StatusOr that say what went wrong.
#pragma once

#include <gtest/gtest.h>

#include "absl/status/statusor.h"

namespace tessera {

inline testing::AssertionResult IsOk(const absl::Status& status) {
  if (status.ok()) return testing::AssertionSuccess();
  return testing::AssertionFailure() << status;
}

template <typename T>
testing::AssertionResult IsOk(const absl::StatusOr<T>& value) {
  return IsOk(value.status());
}

}  // namespace tessera

#define ASSERT_OK(expression) ASSERT_TRUE(::tessera::IsOk(expression))
#define EXPECT_OK(expression) EXPECT_TRUE(::tessera::IsOk(expression))
