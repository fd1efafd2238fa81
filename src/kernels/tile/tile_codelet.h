// Codelets of tiled machines that split themselves over the workers of their tile.
#pragma once

#include <span>
#include <string_view>

#include "program/codelet.h"

namespace tessera::kernels {

/// Its functions, as program::Codelet has them.
struct TileFunctions {
  void (*reference)(const program::Vertex&) = nullptr;
  void (*simd)(const program::Vertex&) = nullptr;
  program::PhaseTimes (*cost)(const program::Vertex&, const machine::Machine&) = nullptr;
};

constexpr program::Codelet tile_codelet(std::string_view name, std::span<const program::FieldSpec> fields,
                                        std::span<const std::string_view> params,
                                        const TileFunctions& functions, uint32_t code_bytes) {
  return {
      .name = name,
      .workers = program::Workers::whole_tile,
      .fields = fields,
      .params = params,
      .reference = functions.reference,
      .simd = functions.simd,
      .cost = functions.cost,
      .code_bytes = code_bytes,
      .runs_on = program::RunsOn::tiles,
  };
}

/// A codelet that works on integers alone, so that dry runs execute it.
constexpr program::Codelet integer_codelet(std::string_view name, std::span<const program::FieldSpec> fields,
                                           std::span<const std::string_view> params,
                                           const TileFunctions& functions, uint32_t code_bytes) {
  program::Codelet codelet = tile_codelet(name, fields, params, functions, code_bytes);
  codelet.integer_only = true;
  return codelet;
}

}  // namespace tessera::kernels
