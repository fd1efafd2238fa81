#include "ops/map/patches.h"

#include <cstring>

#include "kernels/map/patches/codelet.h"

namespace tessera::ops {

using program::Role;

namespace {

/// A matrix of positions × features, or its transpose, of which vertices have some rows, or need all.
MapOperand matrix(const PatchesProblem& p, const char* name, Role role, uint32_t positions,
                  uint32_t features) {
  return {name,
          p.type,
          role,
          p.transposed ? features : positions,
          p.transposed ? positions : features,
          role == Role::output,
          false};
}

MapOperation operation(const program::Codelet& codelet, const PatchesProblem& p, const MapOperand& x,
                       const MapOperand& out) {
  return {.codelet = &codelet,
          .phase = program::Phase::rearrange,
          .rows = out.rows,
          .cols = 1,
          .operands = {x, window_operand(p.window), out},
          .params = {p.channels, p.transposed ? 1 : 0},
          .takes_origin = true};
}

}  // namespace

MapOperand window_operand(const kernels::Window& window) {
  const std::shared_ptr<std::byte[]> words(new std::byte[sizeof window]);
  std::memcpy(words.get(), &window, sizeof window);
  return {.name = "window",
          .type = Type::u32,
          .role = Role::constant,
          .rows = 1,
          .cols = kernels::kWindowWords,
          .split_rows = false,
          .split_cols = false,
          .contents = {words, words.get()}};
}

MapOperation operation_of(const PatchesProblem& p) {
  const uint32_t seen = p.channels * p.window.taps();
  return operation(kernels::patches_codelet, p,
                   matrix(p, "x", Role::input, p.samples * p.window.positions(), p.channels),
                   matrix(p, "out", Role::output, p.samples * p.window.out_positions(), seen));
}

MapOperation operation_of(const FoldProblem& problem) {
  const PatchesProblem& p = problem.of;
  const uint32_t seen = p.channels * p.window.taps();
  return operation(kernels::fold_codelet, p,
                   matrix(p, "x", Role::input, p.samples * p.window.out_positions(), seen),
                   matrix(p, "out", Role::output, p.samples * p.window.positions(), p.channels));
}

}  // namespace tessera::ops
