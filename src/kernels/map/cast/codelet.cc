#include "kernels/map/cast/codelet.h"

#include <algorithm>
#include <cmath>

#include "base/stochastic_rounding.h"
#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/cast/cast.h"
#include "kernels/map/cast/stochastic.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

void cast_reference(const Vertex& v) {
  const FieldView& in = v.fields[cast_field::in];
  const FieldView& out = v.fields[cast_field::out];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c)
      set_number(out, r, c, converted(in.type, out.type, number_at(in, r, c)));
}

void cast_simd(const Vertex& v) { apply_cast(v.fields[cast_field::in], v.fields[cast_field::out]); }

StochasticCast stochastic_of(const Vertex& v) {
  using namespace stochastic_cast_param;
  const auto param = [&](size_t i) { return static_cast<uint64_t>(v.params[i]); };
  const auto step = [&](size_t i) { return static_cast<uint32_t>(v.params[i]); };
  return {.draws = draws_at(v.fields[stochastic_cast_field::step], param(seed), step(operation)),
          .order = {step(row_step), std::max(1U, step(group)), step(group_step), step(col_step)},
          .row = param(row),
          .col = param(col)};
}

void stochastic_cast_reference(const Vertex& v) {
  const FieldView& in = v.fields[stochastic_cast_field::in];
  if (!in.empty()) stochastic_cast_by_elements(stochastic_of(v), in, v.fields[stochastic_cast_field::out]);
}

void stochastic_cast_simd(const Vertex& v) {
  const FieldView& in = v.fields[stochastic_cast_field::in];
  if (!in.empty()) apply_stochastic_cast(stochastic_of(v), in, v.fields[stochastic_cast_field::out]);
}

// Cycles on a tile, W = workers: 12 + W(37 + 1 per 2 elements) (PopLibs).
constexpr double kTileSupervisorCycles = 12;
constexpr double kTileWorkerCycles = 37;
constexpr double kTileElementsPerCycle = 2;

// Vector operations for each element on a host, from measured times: a quarter of a block of Philox,
// rounding to FP16 and to BF16, and what elements cost that are not numbered along their rows.
constexpr double kHostDrawOperations = 40;
constexpr double kHostHalfOperations = 20;
constexpr double kHostBfloat16Operations = 8;
constexpr double kHostScatterOperations = 28;

program::PhaseTimes cost_of(const FieldView& in, const FieldView& out, double host_operations,
                            const machine::Machine& m) {
  const double elements = static_cast<double>(in.elements());
  if (m.kind == machine::Kind::host)
    return in_phase(Phase::compute,
                    host_cycles(m, {bytes_of(in), bytes_of(out), host_operations * elements}));
  const double worker = kTileWorkerCycles + std::ceil(worker_slice(m, elements) / kTileElementsPerCycle);
  return in_phase(Phase::compute, kTileSupervisorCycles + m.workers_per_tile * worker);
}

program::PhaseTimes cast_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[cast_field::in];
  const FieldView& out = v.fields[cast_field::out];
  return cost_of(in, out, 1 + widen_operations(in.type) + round_operations(out.type), m);
}

// A tile's instructions that round to FP16 do so stochastically by a mode of its processor, from random
// numbers of its own: the cycles are those of rounding to nearest (vendor's instruction set).
program::PhaseTimes stochastic_cast_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[stochastic_cast_field::in];
  const FieldView& out = v.fields[stochastic_cast_field::out];
  using namespace stochastic_cast_param;
  const bool is_along_rows = v.params[group] == 1 && v.params[group_step] == 1;
  const double operations = kHostDrawOperations + (is_along_rows ? 0 : kHostScatterOperations) +
                            widen_operations(in.type) +
                            (out.type == Type::f16 ? kHostHalfOperations : kHostBfloat16Operations);
  return cost_of(in, out, operations, m);
}

}  // namespace

void stochastic_cast_by_elements(const StochasticCast& cast, const FieldView& in, const FieldView& out) {
  const base::RandomStream stream = cast.draws.stream();
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      const auto number = f32_at(in, r, c);
      const uint32_t word = stream.word(cast.element(r, c));
      std::byte* to = address_of(out, r, c);
      out.type == Type::f16 ? store(to, base::to_half(number, word))
                            : store(to, base::to_bfloat16(number, word));
    }
}

TESSERA_DEFINE_FAMILY(cast, TESSERA_CAST_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
