#include "kernels/tile/row_epilogue/codelet.h"

#include <cmath>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/element.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

void row_epilogue_reference(const Vertex& v) {
  const FieldView& bias = v.fields[row_epilogue_field::bias];
  const FieldView& y = v.fields[row_epilogue_field::y];
  const auto activation = static_cast<Activation>(v.params[row_epilogue_param::activation]);
  for (uint32_t r = 0; r < y.rows; ++r)
    for (uint32_t c = 0; c < y.cols; ++c) {
      const int64_t row = (v.params[row_epilogue_param::first] + int64_t{r} * y.cols + c) /
                          v.params[row_epilogue_param::row_elements];
      float value = f32_at(y, r, c);
      if (row < bias.rows) value += f32_at(bias, row, 0);
      set_number(y, r, c, activate(activation, value));
    }
}

// Derived from PopLibs' elementwise operations: 11 + W(26 half | 29 float + 3 per vector), 24 per vector for
// GELU; and per row of a bias a load and a branch of its worker.
constexpr double kSupervisorCycles = 11;
constexpr double kWorkerCyclesHalf = 26;
constexpr double kWorkerCyclesFloat = 29;
constexpr double kVectorCycles = 3;
constexpr double kGeluVectorCycles = 24;
constexpr double kRowCycles = 4;

program::PhaseTimes row_epilogue_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& bias = v.fields[row_epilogue_field::bias];
  const FieldView& y = v.fields[row_epilogue_field::y];
  using enum Activation;
  const auto activation = static_cast<Activation>(v.params[row_epilogue_param::activation]);
  const bool has_exponential = activation == gelu || activation == gelu_tanh || activation == silu;
  const double vectors =
      std::ceil(worker_slice(m, static_cast<double>(y.elements())) / tile_vector_width(y.type));
  const double worker = (y.type == Type::f32 ? kWorkerCyclesFloat : kWorkerCyclesHalf) +
                        vectors * (has_exponential ? kGeluVectorCycles : kVectorCycles) +
                        kRowCycles * worker_slice(m, bias.rows);
  return in_phase(Phase::compute, kSupervisorCycles + m.workers_per_tile * worker);
}

}  // namespace

TESSERA_DEFINE_FAMILY(row_epilogue, TESSERA_ROW_EPILOGUE_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
