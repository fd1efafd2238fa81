#include "kernels/tile/row_epilogue/codelet.h"

#include <cmath>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/element.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr FieldSpec kFields[row_epilogue_field::count] = {{.name = "bias", .optional = true},
                                                          {.name = "y", .access = Access::inout}};
constexpr std::string_view kParams[] = {"activation", "row_elements", "first"};

void reference(const Vertex& v) {
  const FieldView& bias = v.fields[row_epilogue_field::bias];
  const FieldView& y = v.fields[row_epilogue_field::y];
  const auto activation = static_cast<Activation>(v.params[0]);
  for (uint32_t r = 0; r < y.rows; ++r)
    for (uint32_t c = 0; c < y.cols; ++c) {
      const int64_t row = (v.params[2] + int64_t{r} * y.cols + c) / v.params[1];
      float value = static_cast<float>(number_at(y, r, c));
      if (row < bias.rows && bias.cols > 0) value += static_cast<float>(number_at(bias, row, 0));
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

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& bias = v.fields[row_epilogue_field::bias];
  const FieldView& y = v.fields[row_epilogue_field::y];
  const bool gelu = static_cast<Activation>(v.params[0]) == Activation::gelu;
  const double vectors =
      std::ceil(worker_slice(m, static_cast<double>(y.elements())) / tile_vector_width(y.type));
  const double worker = (y.type == Type::f32 ? kWorkerCyclesFloat : kWorkerCyclesHalf) +
                        vectors * (gelu ? kGeluVectorCycles : kVectorCycles) +
                        kRowCycles * worker_slice(m, bias.rows);
  return in_phase(Phase::compute, kSupervisorCycles + m.workers_per_tile * worker);
}

/// A run that begins inside a row.
template <Type type, Activation activation, bool has_bias>
Sample sample(uint32_t scale, uint64_t seed) {
  const uint32_t row_elements = 5 * scale + 1;
  const uint32_t first = scale;
  const uint32_t rows = scale == 0 ? 0 : 1 + 3 * scale;
  const uint32_t elements = scale == 0 ? 0 : rows * row_elements - first - 2;
  Sample s(row_epilogue_codelet);
  s.random(Type::f32, has_bias ? rows : 0, has_bias ? 1 : 0, seed).random(type, 1, elements, seed + 1, 4);
  return s.param(static_cast<int64_t>(activation)).param(row_elements).param(first);
}

constexpr NamedSample kSamples[] = {{"bias-f32", sample<Type::f32, Activation::none, true>},
                                    {"bias-relu-f16", sample<Type::f16, Activation::relu, true>},
                                    {"gelu-f32", sample<Type::f32, Activation::gelu, false>}};

}  // namespace

constexpr program::Codelet row_epilogue_codelet = {
    .name = "row_epilogue",
    .workers = program::Workers::whole_tile,
    .fields = kFields,
    .params = kParams,
    .reference = reference,
    .cost = cost,
    .code_bytes = 320,
    .runs_on = program::RunsOn::tiles,
};

std::span<const ListedCodelet> row_epilogue_codelets() {
  static constexpr ListedCodelet kListed[] = {{row_epilogue_codelet, kSamples}};
  return kListed;
}

}  // namespace tessera::kernels
