// Numbers that the environment may set.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

namespace tessera::test {

/// The number in an environment variable, or `otherwise` if it is not set.
inline uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoull(text) : otherwise;
}

}  // namespace tessera::test
