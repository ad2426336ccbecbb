// The routes of the HTTP door, as data. Routing, the parity test and the OpenAPI
// document come from this table.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/types/span.h"

namespace tessera::services {

struct Route {
  const char* method;
  const char* path;  // "{x}" is one segment and fills the request's field x
  const char* rpc;   // "JobService.GetTrainingJob"
  // What the body fills: "" = nothing may be sent, "*" = the request itself, else the
  // request's field of that name.
  const char* body = "";
  const char* part = "";  // answer with this field of the response alone, under its last name
  bool stream = false;    // server-sent events
};

absl::Span<const Route> Routes();

// What the door answers itself, without an rpc. All are GET.
struct PlainRoute {
  const char* path;
  const char* name;
  const char* content_type;
  const char* description;
  bool open = false;  // without a token
};

absl::Span<const PlainRoute> PlainRoutes();

struct RouteMatch {
  const Route* route = nullptr;                  // null: see allowed
  std::map<std::string, std::string> variables;  // percent-decoded
  std::vector<std::string> allowed;              // methods of this path when only the method is wrong
};

// `path` is without query. Not found when route is null and allowed empty.
RouteMatch MatchRoute(std::string_view method, std::string_view path);

// Nothing for a broken escape or a NUL byte.
std::optional<std::string> PercentDecode(std::string_view text, bool plus_is_space);

}  // namespace tessera::services
