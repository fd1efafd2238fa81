#include "kernels/product/batched/codelet.h"

#include <algorithm>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/host/dense/micro_tile_cost.h"
#include "kernels/tile/tile_product/cost.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;

FieldView rows_of(const FieldView& field, uint32_t row, uint32_t rows) {
  FieldView part = field;
  if (part.data != nullptr) part.data = address_of(field, row, 0);
  part.rows = rows;
  return part;
}

// Cycles from the engine's call to the first element; for each matrix.
constexpr double kVertexCycles = 100;
constexpr double kMatrixCycles = 60;
// Copying a vector of an operand into panels.
constexpr double kCopyPerVector = 3;

double host_cycles(const BatchedSizes& sizes, const program::Vertex& v, const machine::HostFigures& f) {
  using namespace batched_product_field;
  const double cols = v.fields[y].cols, terms = sizes.terms();
  double cycles = kVertexCycles;
  for (uint32_t i = 0; i < sizes.matrices(); ++i) {
    const double rows = sizes.part(i).y.rows;
    const MicroTileWork work{std::ceil(cols / kPanelRows), rows, terms};
    cycles +=
        kMatrixCycles + micro_tile_cycles(work, 0, f) + kCopyPerVector / lanes_of(f) * terms * (rows + cols);
  }
  return std::max(cycles, stream_cycles(v.fields[a], f) + stream_cycles(v.fields[b], f));
}

/// The multipliers may hold either factor; transposed factors are transposed first.
double tile_cycles(const BatchedSizes& sizes, const program::Vertex& v, const machine::Machine& m) {
  using namespace batched_product_field;
  const uint32_t cols = v.fields[y].cols, terms = sizes.terms();
  const Type type = v.fields[y].type;
  double cycles = 0;
  for (uint32_t i = 0; i < sizes.matrices(); ++i) {
    const uint32_t rows = sizes.part(i).y.rows;
    cycles += std::min(dense_cycles(m, type, rows, terms, cols), dense_cycles(m, type, cols, terms, rows));
    if (sizes.transposes_a()) cycles += transpose_cycles(m, type, double{1} * rows * terms);
    if (sizes.transposes_b()) cycles += transpose_cycles(m, type, double{1} * cols * terms);
  }
  return cycles;
}

}  // namespace

BatchedSizes::BatchedSizes(const program::Vertex& v) : v_(v) {
  namespace param = batched_product_param;
  namespace field = batched_product_field;
  m_ = static_cast<uint32_t>(v.params[param::m]);
  row_ = m_ == 0 ? 0 : static_cast<uint32_t>(v.params[param::row] % m_);
  col_ = static_cast<uint32_t>(v.params[param::col]);
  transposes_a_ = v.params[param::transpose_a] != 0;
  transposes_b_ = v.params[param::transpose_b] != 0;
  const FieldView &of_a = v.fields[field::a], &of_b = v.fields[field::b], &of_y = v.fields[field::y];
  if (of_y.empty()) return;
  matrices_ = (row_ + of_y.rows + m_ - 1) / m_;
  terms_ = transposes_a_ ? of_a.rows / matrices_ : of_a.cols;
  b_rows_ = of_b.rows / matrices_;
}

BatchedPart BatchedSizes::part(uint32_t matrix) const {
  namespace field = batched_product_field;
  const FieldView &a = v_.fields[field::a], &b = v_.fields[field::b], &y = v_.fields[field::y];
  const uint32_t begin = matrix == 0 ? 0 : matrix * m_ - row_;
  const uint32_t end = std::min((matrix + 1) * m_ - row_, y.rows);
  return {transposes_a_ ? rows_of(a, matrix * terms_, terms_) : rows_of(a, begin, end - begin),
          rows_of(b, matrix * b_rows_, b_rows_), rows_of(y, begin, end - begin), matrix == 0 ? row_ : 0};
}

void batched_product_reference(const program::Vertex& v) {
  const BatchedSizes sizes(v);
  for (uint32_t i = 0; i < sizes.matrices(); ++i) {
    const auto [a, b, y, row] = sizes.part(i);
    for (uint32_t r = 0; r < y.rows; ++r)
      for (uint32_t c = 0; c < y.cols; ++c) {
        float sum = 0;
        for (uint32_t t = 0; t < sizes.terms(); ++t) {
          const double left = sizes.transposes_a() ? number_at(a, t, row + r) : number_at(a, r, t);
          const double right = sizes.transposes_b() ? number_at(b, sizes.col() + c, t) : number_at(b, t, c);
          sum += static_cast<float>(left) * static_cast<float>(right);
        }
        set_number(y, r, c, sum);
      }
  }
}

program::PhaseTimes batched_product_cost(const program::Vertex& v, const machine::Machine& m) {
  const BatchedSizes sizes(v);
  return in_phase(Phase::compute, m.kind == machine::Kind::host ? host_cycles(sizes, v, m.figures)
                                                                : tile_cycles(sizes, v, m));
}

TESSERA_DEFINE_FAMILY(batched, TESSERA_BATCHED_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
