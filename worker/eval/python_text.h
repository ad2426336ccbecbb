// Python's string methods as lm-evaluation-harness's task templates use them, on UTF-8 text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::worker {

// White space as str.isspace has it.
std::string_view LeftStrip(std::string_view text);
std::string_view RightStrip(std::string_view text);
std::string_view Strip(std::string_view text);

// str.capitalize: first character to upper case, the others to lower case, by the C library's Unicode tables:
// one character to one, so without the few that Python makes two of.
std::string Capitalize(std::string_view text);

int64_t CharacterCount(std::string_view text);  // len()

}  // namespace tessera::worker
