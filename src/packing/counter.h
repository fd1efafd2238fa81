// Counting lengths, one place for all inputs.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <string>

namespace tessera::pack {

/// Adds up an Input and does to too long sequences what its policy says.
class Counter {
 public:
  /// Throws UsageError for a maximum out of range.
  Counter(uint32_t max_length, TooLong policy);

  /// Counts `count` sequences of a length from 1 on. False where they are too long and the policy is
  /// error, which the caller reports with the place; throws Error where a sum passes 2^63.
  bool add(uint64_t length, uint64_t count);

  const Input& so_far() const { return input_; }

  /// Throws UsageError where the pieces are too many.
  Input finish() &&;

 private:
  static uint64_t sum(uint64_t a, uint64_t b);
  static uint64_t product(uint64_t a, uint64_t b);
  [[noreturn]] static void refuse();

  Input input_;
};

/// What is wrong with a sequence that is too long.
std::string too_long_text(uint64_t length, uint32_t max_length);

}  // namespace tessera::pack
