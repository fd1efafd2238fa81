// The error of integers that a run computes.
#pragma once

#include <tessera/error.h>

#include <cstdint>
#include <optional>

namespace tessera::program {

/// Thrown by codelets whose results are exact integers, where 32 bits do not hold one; the engine adds where
/// that was.
class Overflow : public UsageError {
 public:
  explicit Overflow(std::optional<uint32_t> set = {})
      : UsageError("an integer is beyond 32 bits"), compute_set(set) {}

  std::optional<uint32_t> compute_set;  ///< in a run
};

}  // namespace tessera::program
