// Files that are part of the program; see tessera_embed in cmake/TesseraEmbed.cmake.
#pragma once

#include <string_view>

namespace tessera {

struct EmbeddedFile {
  std::string_view name;
  std::string_view content;
};

}  // namespace tessera
