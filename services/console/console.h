// The web console: static files that are part of the program. They hold no data; the page asks the API for it
// with the token that its user types.
#pragma once

#include <string_view>

namespace tessera::services {

struct ConsoleFile {
  std::string_view content;  // null data: no such file
  const char* content_type = "";
};

// What the page may do: its own scripts and styles, calls to this service, nothing else.
inline constexpr char kConsolePolicy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// Of "/" and "/console/<name>".
ConsoleFile FindConsoleFile(std::string_view path);

}  // namespace tessera::services
