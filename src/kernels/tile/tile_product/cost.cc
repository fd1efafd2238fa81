#include "kernels/tile/tile_product/cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/tile/tile_product/codelet.h"

// All formulas are those of PopLibs' performance estimators (SDK 3.4), except those of gradients, which are
// derived from them. FP16 with FP32 sums has none and is assumed to cost the same as FP16: the multipliers
// accumulate in FP32 in either case.
namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::PhaseTimes;
using program::Vertex;

/// 30 + 6h + rows (6x + 17) + blocks (16 + b² · size / 8 + 6y): start-up h, x per row, y = first + further (n
/// − 1) per block, n the columns of one worker.
struct BlockKernel {
  double h;
  double x;
  double first;
  double further;
};

BlockKernel kernel_of(const machine::Machine& m, Type type, uint32_t block_size, double columns) {
  const auto slope = [&](double cycles) { return multiplier_cycles(m, type, cycles); };
  if (type == Type::f16) {
    if (block_size == 4) return {17, 1, columns <= 2 ? 8.0 : 14.0, slope(1)};
    if (block_size == 8) return {13, 1, 14, slope(2)};
    return {13, 1, 19, slope(4)};
  }
  if (block_size == 4) return {13, 1, 12, slope(4)};
  if (block_size == 8) return {13, 4, 19, slope(8)};
  return {16, 4, columns <= 1 ? 58.0 : 74.0, slope(16)};
}

/// Loading a block into the multipliers, while nothing else runs.
double load_cycles(const machine::Machine& m, double block_bytes) {
  return 16 + block_bytes / m.load_bytes_per_cycle;
}

/// Each worker takes rows of single elements until it has its share of the elements, or one row if there are
/// no more rows than workers. The lists have this many entries per element.
double element_cycles(const FieldView& lists, const ElementRates& rates, const machine::Machine& m,
                      uint32_t entries = 1) {
  std::vector<uint32_t> rows;
  uint64_t elements = 0;
  for (uint32_t at = 0; at < lists.rows; at += 1 + entries * rows.back()) {
    rows.push_back(static_cast<uint32_t>(number_at(lists, at, 0)));
    elements += rows.back();
  }
  const uint64_t workers = m.workers_per_tile;
  double slowest = 0;
  size_t row = 0;
  for (uint64_t w = 0; w < workers; ++w) {
    double cycles = rates.start;
    for (uint64_t taken = 0; row < rows.size() && taken * workers < elements;) {
      cycles += rates.per_row + rates.per_further * (rows[row] - 1.0);
      taken += rows[row++];
      if (rows.size() <= workers) break;
    }
    slowest = std::max(slowest, cycles);
  }
  return slowest * m.workers_per_tile;
}

double block_cycles(const BlockRates& rates, uint32_t rows, uint32_t block_size, uint32_t blocks) {
  const double block_rows = std::ceil(static_cast<double>(rows) / block_size);
  return rates.start + block_rows * rates.per_row + blocks * rates.per_block;
}

}  // namespace

double multiplier_cycles(const machine::Machine& m, Type type, double cycles) {
  constexpr double kMacsF16 = 64;  // per cycle, of the machine for which the formulas were written
  constexpr double kMacsF32 = 16;
  return type == Type::f16 ? cycles * kMacsF16 / m.macs_per_cycle_f16
                           : cycles * kMacsF32 / m.macs_per_cycle_f32;
}

uint32_t kernel_size(uint32_t block_size) { return block_size <= 4 ? 4 : block_size <= 8 ? 8 : 16; }

// Derived: the multipliers take a block in storage order, so its transpose is written to memory first: 8
// bytes loaded and 8 stored for every 8.
BlockRates block_rates(const machine::Machine& m, Type type, uint32_t block_size, uint32_t n,
                       bool transposed) {
  const uint32_t size = kernel_size(block_size);
  const double side = std::ceil(static_cast<double>(block_size) / size);  // in kernels
  const double columns = std::max(1.0, worker_slice(m, n));
  const BlockKernel kernel = kernel_of(m, type, size, columns);
  const double workers = m.workers_per_tile;
  const double block_bytes = static_cast<double>(size) * size * static_cast<double>(size_of(type));
  const double transpose = transposed ? transpose_cycles(m, type, double{1} * size * size) : 0;
  return {30 + workers * kernel.h, side * (workers * kernel.x + 17),
          side * side *
              (load_cycles(m, block_bytes) + transpose +
               workers * (kernel.first + kernel.further * (columns - 1)))};
}

// Derived: n is processed in pieces of as many columns as the kernel has. The piece of a block row of dY is
// loaded into the multipliers like a block of W, once for all blocks of the row, and the rows of X of each
// block stream through them like columns of X.
BlockRates sddmm_block_rates(const machine::Machine& m, Type type, uint32_t block_size, uint32_t n) {
  const uint32_t size = kernel_size(block_size);
  const double side = std::ceil(static_cast<double>(block_size) / size);
  const double pieces = std::ceil(static_cast<double>(n) / size);
  const double columns = std::max(1.0, worker_slice(m, size));
  const BlockKernel kernel = kernel_of(m, type, size, columns);
  const double workers = m.workers_per_tile;
  const double piece_bytes = static_cast<double>(size) * size * static_cast<double>(size_of(type));
  return {30 + workers * kernel.h, side * (workers * kernel.x + 17 + pieces * load_cycles(m, piece_bytes)),
          side * side * pieces * workers * (kernel.first + kernel.further * (columns - 1))};
}

ElementRates element_rates(Type type, uint32_t n) {
  if (type == Type::f16) {
    if (n == 4) return {31, 7, 2};
    if (n == 8) return {31, 8, 3};
    const double whole = std::floor(n / 8.0);
    const double rest = n % 8 != 0 ? 1 : 0;
    return {33, 11 + whole * 14 + rest * 9, whole * 3 + rest * 2};
  }
  if (n == 2) return {29, 5, 2};
  if (n == 4) return {30, 6, 3};
  const double whole = std::floor(n / 4.0);
  const double rest = n % 4 != 0 ? 1 : 0;
  return {31, 12 + whole * 10 + rest * 10, whole * 3 + rest * 2};
}

// Derived: an element costs what a row of the forward product costs for one vector of columns (8 in half, 4
// in float), with the vectors of the n columns as its terms: the first and each further one as there.
ElementRates sddmm_element_rates(Type type, uint32_t n) {
  const bool half = type == Type::f16;
  const uint32_t lanes = half ? 8 : 4;
  const double whole = std::max(1.0, std::floor(static_cast<double>(n) / lanes));
  const double rest = n > lanes && n % lanes != 0 ? 2 : 0;
  const double element = (half ? 14 : 10) + 3 * (whole - 1) + rest;
  return {half ? 33.0 : 31.0, (half ? 11 : 12) + element, element};
}

// A pass of the multipliers takes 16 × 16 (FP16) or 8 × 16 (FP32) weights over all columns: loading them, and
// for each worker 38 + 4(n − 3), 46 + 8(n − 3) in FP32. Around it 50, 19 per 16 rows, 7.
double dense_cycles(const machine::Machine& m, Type type, uint32_t rows, uint32_t inner, uint32_t cols) {
  constexpr double kOut = 16;
  const bool half = type == Type::f16;
  const double in = half ? 16 : 8;
  const double row_groups = std::ceil(rows / kOut);
  const double passes = row_groups * std::ceil(inner / in);
  const double columns = std::max(1.0, worker_slice(m, cols));
  const double slope = multiplier_cycles(m, type, half ? 4 : 8);
  const double worker = (half ? 26 : 22) + slope * columns;
  const double load = in * kOut * static_cast<double>(size_of(type)) / m.load_bytes_per_cycle;
  return 57 + 19 * row_groups + passes * (load + m.workers_per_tile * worker);
}

// Derived: 8 bytes loaded and 8 stored for each 8.
double transpose_cycles(const machine::Machine& m, Type type, double elements) {
  return 2 * elements * static_cast<double>(size_of(type)) / m.load_bytes_per_cycle;
}

PhaseTimes sparse_product_cost(const Vertex& v, const machine::Machine& m) {
  using namespace sparse_product_field;
  const auto b = static_cast<uint32_t>(v.params[sparse_product_param::block_size]);
  const FieldView& out = v.fields[y];
  const Type type = v.fields[values].type;
  if (b == 1)
    return in_phase(Phase::compute, element_cycles(v.fields[lists], element_rates(type, out.cols), m));
  const BlockRates rates = block_rates(m, type, b, out.cols, v.params[sparse_product_param::transposed] != 0);
  return in_phase(Phase::compute, block_cycles(rates, out.rows, b, v.fields[values].rows));
}

// Derived: the product of Wᵀ with blocks read as their transposes; the supervisor loads the number of each
// block (6 cycles), or for single elements a worker does (1).
PhaseTimes sparse_transposed_product_cost(const Vertex& v, const machine::Machine& m) {
  using namespace sparse_transposed_product_field;
  constexpr double kBlockNumberCycles = 6;
  const auto b = static_cast<uint32_t>(v.params[sparse_transposed_product_param::block_size]);
  const FieldView& out = v.fields[y];
  const Type type = v.fields[values].type;
  if (b > 1) {
    BlockRates rates = block_rates(m, type, b, out.cols, true);
    rates.per_block += kBlockNumberCycles;
    return in_phase(Phase::compute, block_cycles(rates, out.rows, b, v.fields[values].rows));
  }
  ElementRates rates = element_rates(type, out.cols);
  rates.per_row += 1;
  rates.per_further += 1;
  return in_phase(Phase::compute, element_cycles(v.fields[lists], rates, m, 2));
}

PhaseTimes tile_sddmm_cost(const Vertex& v, const machine::Machine& m) {
  using namespace tile_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[tile_sddmm_param::block_size]);
  const FieldView& left = v.fields[dy];
  if (b == 1)
    return in_phase(Phase::compute,
                    element_cycles(v.fields[lists], sddmm_element_rates(left.type, left.cols), m));
  const BlockRates rates = sddmm_block_rates(m, left.type, b, left.cols);
  return in_phase(Phase::compute, block_cycles(rates, left.rows, b, v.fields[dw].rows));
}

PhaseTimes dense_product_cost(const Vertex& v, const machine::Machine& m) {
  const auto param = [&](size_t i) { return static_cast<uint32_t>(v.params[i]); };
  return in_phase(Phase::compute,
                  dense_cycles(m, v.fields[dense_product_field::w].type, param(dense_product_param::m),
                               param(dense_product_param::k), param(dense_product_param::n)));
}

// Derived: a product of Wᵀ, which is written to memory before.
PhaseTimes dense_input_gradient_cost(const Vertex& v, const machine::Machine& m) {
  const auto param = [&](size_t i) { return static_cast<uint32_t>(v.params[i]); };
  const FieldView& left = v.fields[dense_input_gradient_field::w];
  return in_phase(Phase::compute, dense_cycles(m, left.type, param(dense_product_param::k),
                                               param(dense_product_param::m), param(dense_product_param::n)) +
                                      transpose_cycles(m, left.type, static_cast<double>(left.elements())));
}

// Derived: a product with Xᵀ, which is written to memory before.
PhaseTimes dense_weight_gradient_cost(const Vertex& v, const machine::Machine& m) {
  const auto param = [&](size_t i) { return static_cast<uint32_t>(v.params[i]); };
  const FieldView& right = v.fields[dense_weight_gradient_field::x];
  return in_phase(Phase::compute, dense_cycles(m, right.type, param(dense_product_param::m),
                                               param(dense_product_param::n), param(dense_product_param::k)) +
                                      transpose_cycles(m, right.type, static_cast<double>(right.elements())));
}

}  // namespace tessera::kernels
