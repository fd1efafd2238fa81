#include "io/fail.h"

namespace tessera::io {

std::string excerpt(std::string_view text) {
  constexpr size_t kLongest = 40;
  std::string out = "\"";
  for (char c : text.substr(0, kLongest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > kLongest ? "…\"" : "\"");
}

}  // namespace tessera::io
