#include "kernels/tile/scalar_product/codelet.h"

#include "kernels/common/cost.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

// Instructions of one worker, each of which takes one of its issue slots: what the vendor's compiler makes of
// the plain loops below, without vectors and without pairing arithmetic with loads. Derived from the
// instruction set; no program was fitted.
constexpr double kMultiplyAccumulate = 5;  // two loads with increment, multiply, add, decrement and branch
constexpr double kVertex = 11;  // its record and code (3), four fields, clearing the sum, the loop's test,
                                // the store, the exit
constexpr double kElement =
    6;                      // two addresses, the old number or zero, the loop's test, the store, the branch
constexpr double kRow = 3;  // two addresses and the branch

program::PhaseTimes worker_cycles(double instructions) { return in_phase(Phase::compute, instructions); }

void scalar_dot_reference(const Vertex& v) {
  const auto row = v.fields[scalar_dot_field::row].matrix<const float>();
  const auto column = v.fields[scalar_dot_field::column].matrix<const float>();
  const FieldView& out = v.fields[scalar_dot_field::sum];
  if (out.empty()) return;
  float sum = 0;
  for (uint32_t i = 0; i < v.fields[scalar_dot_field::row].cols; ++i) sum += row(0, i) * column(0, i);
  out.matrix<float>()(0, 0) = sum;
}

program::PhaseTimes scalar_dot_cost(const Vertex& v, const machine::Machine&) {
  return worker_cycles(kVertex + kMultiplyAccumulate * v.fields[scalar_dot_field::row].cols);
}

void scalar_block_reference(const Vertex& v) {
  const FieldView& a_field = v.fields[scalar_block_field::a];
  const FieldView& c_field = v.fields[scalar_block_field::c];
  const auto a = a_field.matrix<const float>();
  const auto b = v.fields[scalar_block_field::b].matrix<const float>();
  const auto c = c_field.matrix<float>();
  const bool adds = v.params[scalar_block_param::adds] != 0;
  for (uint32_t i = 0; i < c_field.rows; ++i)
    for (uint32_t j = 0; j < c_field.cols; ++j) {
      float sum = adds ? c(i, j) : 0;
      for (uint32_t k = 0; k < a_field.cols; ++k) sum += a(i, k) * b(k, j);
      c(i, j) = sum;
    }
}

program::PhaseTimes scalar_block_cost(const Vertex& v, const machine::Machine&) {
  const FieldView& c = v.fields[scalar_block_field::c];
  const double depth = v.fields[scalar_block_field::a].cols;
  return worker_cycles(kVertex + c.rows * kRow +
                       static_cast<double>(c.elements()) * (kElement + kMultiplyAccumulate * depth));
}

}  // namespace

TESSERA_DEFINE_FAMILY(scalar_product, TESSERA_SCALAR_PRODUCT_CODELETS, TESSERA_WORKER_CODELET)

}  // namespace tessera::kernels
