// The contents of a public Weight.
#pragma once

#include <tessera/weight.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "ops/sparse/host/weight.h"
#include "sparse/moves.h"

namespace tessera {

struct Weight::Storage {
  std::shared_ptr<ops::PackedWeight> packed;
};

/// Blocks stay in place and freed slots are cleared, or slots are renumbered. Single elements move.
struct Relocation::Moves {
  uint64_t packed_size = 0;
  uint32_t slot_values = 1;
  std::vector<uint32_t> cleared = {};
  std::optional<std::vector<uint32_t>> former_slots = {};      ///< by slot with a block, from 0
  std::shared_ptr<const sparse::Moves> of_elements = nullptr;  ///< null: blocks
};

/// A ParallelFor on the process's pool, with the default number of threads.
const base::ParallelFor& parallel();

}  // namespace tessera
