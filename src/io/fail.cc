#include "io/fail.h"

namespace tessera::io {

std::string excerpt(std::string_view text, size_t longest) {
  std::string out = "\"";
  for (char c : text.substr(0, longest)) out += c >= ' ' && c <= '~' ? c : '?';
  return out + (text.size() > longest ? "…\"" : "\"");
}

}  // namespace tessera::io
