// Early returns for absl::Status and absl::StatusOr.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define TESSERA_RETURN_IF_ERROR(expression)                 \
  do {                                                      \
    if (absl::Status tessera_status_ = (expression); !tessera_status_.ok()) return tessera_status_; \
  } while (false)

#define TESSERA_CONCAT_INNER(a, b) a##b
#define TESSERA_CONCAT(a, b) TESSERA_CONCAT_INNER(a, b)

// TESSERA_ASSIGN_OR_RETURN(auto x, Make());
#define TESSERA_ASSIGN_OR_RETURN(declaration, expression) \
  TESSERA_ASSIGN_OR_RETURN_INNER(TESSERA_CONCAT(tessera_statusor_, __LINE__), declaration, expression)
#define TESSERA_ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                           \
  if (!temporary.ok()) return std::move(temporary).status();               \
  declaration = *std::move(temporary)
