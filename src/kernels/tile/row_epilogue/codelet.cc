#include "kernels/tile/row_epilogue/codelet.h"

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

// As for elementwise operations; and per row of a bias, a load and a branch of its worker.
constexpr double kVectorCycles = 3;
constexpr double kGeluVectorCycles = 24;
constexpr double kRowCycles = 4;

program::PhaseTimes row_epilogue_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& bias = v.fields[row_epilogue_field::bias];
  const FieldView& y = v.fields[row_epilogue_field::y];
  using enum Activation;
  const auto activation = static_cast<Activation>(v.params[row_epilogue_param::activation]);
  const bool has_exponential = activation == gelu || activation == gelu_tanh || activation == silu;
  return in_phase(Phase::compute, tile_elementwise_cycles(m, y.type, static_cast<double>(y.elements()),
                                                          has_exponential ? kGeluVectorCycles : kVectorCycles,
                                                          kRowCycles * worker_slice(m, bias.rows)));
}

}  // namespace

TESSERA_DEFINE_FAMILY(row_epilogue, TESSERA_ROW_EPILOGUE_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
