#include "kernels/tile/kronecker/cost.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/tile/kronecker/codelet.h"
#include "kernels/tile/tile_product/cost.h"

// Derived from the formulas of dense products and of single elements (tile_product/cost.cc): a group is a
// small dense product, on the multipliers or, where it fills them badly, row by row on the vector units.
namespace tessera::kernels {
namespace {

using program::Phase;
using program::Vertex;

// Around the passes of a dense product, once for all groups.
constexpr double kSupervisorCycles = 57;
// Starting the workers and waiting for them.
constexpr double kWorkersCycles = 12;
// Cycles of a worker: its start, and for a pair of features, loading their matrix and finding their rows.
constexpr double kWorkerStart = 31;
constexpr double kPairCycles = 10;
// Instructions for a vector of columns of two features: four multiplications or multiply-adds, each beside a
// load or a store. Of the gradients: as many for dX and for dW.
constexpr double kPairVectorCycles = 4;
constexpr double kPairGradientCycles = 8;
// Adding the lanes of four dot products and storing them.
constexpr double kPairSums = 12;

/// `rows` rows of `terms` elements dealt to the workers.
double element_cycles(const machine::Machine& m, const ElementRates& rates, double rows, double terms) {
  return m.workers_per_tile *
         (rates.start + worker_slice(m, rows) * (rates.per_row + rates.per_further * (terms - 1)));
}

/// A level of pairs dealt to the workers, which wait for one another between levels. A complex product is
/// four real ones; a complex weight and feature are two numbers.
double level_cycles(const machine::Machine& m, Type type, const ButterflyPassSize& size, uint32_t n,
                    double per_vector, double sums) {
  const double pairs = worker_slice(m, double{1} * size.groups * (1U << size.levels) / 2);
  const double vectors = std::ceil(n / tile_vector_width(type)), products = size.width * size.width;
  const double per_pair = size.width * kPairCycles + products * (sums + per_vector * vectors);
  return kWorkersCycles + m.workers_per_tile * (kWorkerStart + pairs * per_pair);
}

uint32_t param(const Vertex& v, size_t i) { return static_cast<uint32_t>(v.params[i]); }

ButterflyPassSize size_of_pass(const Vertex& v, const program::FieldView& x) {
  const uint32_t levels = param(v, butterfly_pass_param::levels),
                 width = param(v, butterfly_pass_param::width);
  return {x.rows / width >> levels, levels, width};
}

}  // namespace

double kronecker_product_cycles(const machine::Machine& m, Type type, uint32_t groups, uint32_t outputs,
                                uint32_t terms, uint32_t n, bool transposed) {
  const double dense = dense_cycles(m, type, outputs, terms, n) - kSupervisorCycles +
                       (transposed ? transpose_cycles(m, type, double{1} * outputs * terms) : 0);
  return std::min(kSupervisorCycles + groups * dense,
                  element_cycles(m, element_rates(type, n), double{1} * groups * outputs, terms));
}

double kronecker_weight_gradient_cycles(const machine::Machine& m, Type type, uint32_t groups,
                                        uint32_t outputs, uint32_t inputs, uint32_t n) {
  const double dense = dense_cycles(m, type, outputs, n, inputs) - kSupervisorCycles +
                       transpose_cycles(m, type, double{1} * inputs * n);
  return std::min(kSupervisorCycles + groups * dense,
                  element_cycles(m, sddmm_element_rates(type, n), double{1} * groups * outputs, inputs));
}

double butterfly_pass_cycles(const machine::Machine& m, Type type, const ButterflyPassSize& size,
                             uint32_t n) {
  return kSupervisorCycles + size.levels * level_cycles(m, type, size, n, kPairVectorCycles, 0);
}

double butterfly_pass_gradients_cycles(const machine::Machine& m, Type type, const ButterflyPassSize& size,
                                       uint32_t n) {
  const double again = (size.levels - 1) * level_cycles(m, type, size, n, kPairVectorCycles, 0);
  return kSupervisorCycles + again +
         size.levels * level_cycles(m, type, size, n, kPairGradientCycles, kPairSums);
}

program::PhaseTimes kronecker_product_cost(const Vertex& v, const machine::Machine& m) {
  using namespace kronecker_product_field;
  using namespace kronecker_product_param;
  const uint32_t groups = v.fields[y].rows / param(v, outputs);
  return in_phase(Phase::compute,
                  kronecker_product_cycles(m, v.fields[x].type, groups, param(v, outputs), param(v, terms),
                                           v.fields[y].cols, param(v, term_stride) != 1));
}

program::PhaseTimes kronecker_weight_gradient_cost(const Vertex& v, const machine::Machine& m) {
  using namespace kronecker_weight_gradient_field;
  using namespace kronecker_weight_gradient_param;
  return in_phase(Phase::compute,
                  kronecker_weight_gradient_cycles(m, v.fields[x].type, v.fields[dy].rows / param(v, outputs),
                                                   param(v, outputs), param(v, inputs), v.fields[x].cols));
}

program::PhaseTimes butterfly_pass_cost(const Vertex& v, const machine::Machine& m) {
  using namespace kronecker_product_field;
  return in_phase(Phase::compute,
                  butterfly_pass_cycles(m, v.fields[x].type, size_of_pass(v, v.fields[x]), v.fields[y].cols));
}

program::PhaseTimes butterfly_pass_gradients_cost(const Vertex& v, const machine::Machine& m) {
  using namespace butterfly_pass_gradients_field;
  return in_phase(Phase::compute, butterfly_pass_gradients_cycles(
                                      m, v.fields[x].type, size_of_pass(v, v.fields[x]), v.fields[x].cols));
}

}  // namespace tessera::kernels
