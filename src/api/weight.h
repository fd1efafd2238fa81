// What a public Weight holds.
#pragma once

#include <tessera/weight.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "ops/spmm.h"

namespace tessera {

struct Weight::Storage {
  std::shared_ptr<ops::PackedWeight> packed;
};

/// Of blocks: they stay where they are, and slots that have lost theirs are cleared.
struct Relocation::Moves {
  uint64_t packed_size = 0;
  uint32_t slot_values = 1;
  std::vector<uint32_t> cleared;
};

}  // namespace tessera
