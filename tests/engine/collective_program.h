// Programs of one collective.
#pragma once

#include <cstdint>
#include <optional>

#include "program/collective.h"
#include "program/program.h"
#include "support/toy_codelets.h"

namespace tessera::engine {

/// The sum of a variable over replicas.
inline program::Collective all_reduce(
    program::VariableId whole, program::VariableId buffer,
    program::CollectiveAlgorithm algorithm = program::CollectiveAlgorithm::ring) {
  return {
      "sum", program::CollectiveKind::all_reduce, algorithm, &testing::add_codelet, {{whole, {}, buffer}}};
}

struct CollectiveProgram {
  program::Program program;
  program::VariableId whole = 0;
  program::VariableId part = 0;
};

/// `tiles` lines of `elements`, or parts of them, that the caller binds.
inline CollectiveProgram collective_program(program::CollectiveKind kind,
                                            program::CollectiveAlgorithm algorithm, uint32_t replicas,
                                            uint32_t tiles, uint32_t elements, uint32_t group = 0) {
  using program::map_rows_to_tiles;
  using program::Role;
  const uint32_t together = group == 0 ? replicas : group;
  CollectiveProgram b;
  program::Program& p = b.program;
  p.set_replicas(replicas);
  b.whole = p.add({"whole", Type::f32, tiles, elements, Role::inout, map_rows_to_tiles(tiles, elements), {}});
  std::optional<program::VariableId> part, buffer;
  if (kind != program::CollectiveKind::all_reduce) {
    const auto own = static_cast<uint32_t>(program::part_elements(elements, together));
    part = b.part = p.add({"part", Type::f32, tiles, own, Role::inout, map_rows_to_tiles(tiles, own), {}});
  }
  if (program::sums(kind)) {
    const auto room = static_cast<uint32_t>(program::buffer_elements(algorithm, elements, together));
    buffer = p.add({"buffer", Type::f32, tiles, room, Role::temporary, map_rows_to_tiles(tiles, room), {}});
  }
  p.set_main(p.collect({"exchange",
                        kind,
                        algorithm,
                        program::sums(kind) ? &testing::add_codelet : nullptr,
                        {{b.whole, part, buffer}},
                        group}));
  return b;
}

}  // namespace tessera::engine
