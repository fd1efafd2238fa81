// Recommends the mode and block size of a weight on a machine.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstdint>
#include <vector>

#include "machine/model/machine.h"

namespace tessera::ops {

/// A way to multiply with a weight, and its predicted time.
struct Advice {
  bool is_dense = false;
  uint32_t block_size = 1;
  double seconds = 0;
};

/// Dense, and static sparse with each supported block size, on a host: fastest first. `pattern` has block
/// size 1.
std::vector<Advice> advise(const Pattern& pattern, Type type, uint32_t n, const machine::Machine& host);

}  // namespace tessera::ops
