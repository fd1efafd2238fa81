// Counts lengths, for all kinds of input.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <string>

namespace tessera::pack {

/// Accumulates an Input, and applies the policy to overlong sequences.
class Counter {
 public:
  /// Throws UsageError for a maximum out of range.
  Counter(uint32_t max_length, Overlong policy);

  /// Counts `count` sequences of a length from 1 on. False if they are too long and the policy is error,
  /// which the caller reports with the position. Throws Error if a sum exceeds 2^63.
  bool add(uint64_t length, uint64_t count);

  const Input& so_far() const { return input_; }

  /// Throws UsageError if there are too many pieces.
  Input finish() &&;

 private:
  static uint64_t sum(uint64_t a, uint64_t b);
  static uint64_t product(uint64_t a, uint64_t b);
  [[noreturn]] static void refuse();

  Input input_;
};

/// Error text for an overlong sequence.
std::string overlong_text(uint64_t length, uint32_t max_length);

}  // namespace tessera::pack
