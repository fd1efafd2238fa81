// Files that are compiled into the library, as cmake/embed.cmake generates them.
#pragma once

#include <string_view>

namespace tessera::base {

struct EmbeddedFile {
  std::string_view name;
  std::string_view content;
};

}  // namespace tessera::base
