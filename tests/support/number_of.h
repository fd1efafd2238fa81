// Numbers that the environment may set, and the selection among many cases.
#pragma once

#include <bit>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace tessera::test {

/// The number in an environment variable, or `otherwise` if it is not set.
inline uint64_t number_of(const char* variable, uint64_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::stoull(text) : otherwise;
}

/// Whether ./test --full runs: with each of many similar cases, and with cases of real size.
inline bool is_full() { return number_of("TESSERA_TEST_FULL", 0) != 0; }

/// The number of cases: few, or all with ./test --full.
inline uint64_t number_of_cases(uint64_t few, uint64_t all) { return is_full() ? all : few; }

/// For cases numbered by choices between two: takes half of them, in which any two choices meet; all with
/// --full.
inline bool takes_half(uint32_t number) { return is_full() || std::popcount(number) % 2 == 0; }

/// Takes every nth case of nested loops, and each with ./test --full. If n has no divisor in common with the
/// number of values of any loop, and there are enough cases, any two values of two loops meet.
class EveryNth {
 public:
  explicit EveryNth(uint64_t n) : n_(is_full() ? 1 : n) {}
  /// Whether the next case is one of them.
  bool takes() { return count_++ % n_ == 0; }

 private:
  uint64_t n_;
  uint64_t count_ = 0;
};

}  // namespace tessera::test
