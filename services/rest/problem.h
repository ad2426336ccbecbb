// Problem documents (RFC 9457) from absl::Status.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "services/rest/http.h"

namespace tessera::services {

// The HTTP status of an error.
int HttpStatusOf(const absl::Status& status);

// application/problem+json with status, title, detail, code (the canonical name),
// reason and, for bad fields, errors[] of {path, value, message, remedy, line}.
HttpReply Problem(const absl::Status& status);

// The same with an HTTP status that no code stands for (405, 413, 415, 431).
HttpReply Problem(int http_status, const absl::Status& status);

// "Not Found"
std::string HttpTitle(int http_status);

}  // namespace tessera::services
