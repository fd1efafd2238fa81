// Bytes that a vertex and its infrastructure take on a tile with its own memory. Planner and compiler use the
// same formulas.
#pragma once

#include <algorithm>
#include <cstdint>

#include "program/codelet.h"

namespace tessera::program {

/// A vertex's record: a pointer to its code, and a pointer and a length for each field.
inline uint64_t vertex_state_bytes(const Codelet& codelet) {
  return 4 + 8 * codelet.fields.size() + 4 * codelet.params.size();
}

/// Code for starting one superstep on a tile: a branch to each group of vertices.
inline uint64_t control_code_bytes(uint32_t groups) { return 16 + 12 * uint64_t{groups}; }

/// Exchange code of a tile that takes part in an exchange: what a transfer by itself takes, up to 9 words
/// (third-party measurement).
inline constexpr uint64_t kExchangeCodeBytes = 36;
/// Additional exchange code of each end of a transfer: a word, to send on or to listen to another tile.
/// Fitted to the only program for which a source gives the complete exchange code
/// (docs/machine-constants.md).
inline constexpr uint64_t kTransferCodeBytes = 4;
/// The longest transfer: 4148 words (third-party measurement).
inline constexpr uint64_t kMostTransferBytes = 4148 * 4;

/// Exchange code of one end of a move of this many bytes, which may take several transfers.
inline uint64_t transfer_code_bytes(uint64_t bytes) {
  return kTransferCodeBytes * std::max<uint64_t>(1, (bytes + kMostTransferBytes - 1) / kMostTransferBytes);
}

/// Alignment of a tile's data, which follows its code, and of the gap between its two regions.
inline constexpr uint64_t kDataAlignment = 64;

/// Stacks of a tile's supervisor and workers.
inline constexpr uint64_t kStackBytes = 3072;

}  // namespace tessera::program
