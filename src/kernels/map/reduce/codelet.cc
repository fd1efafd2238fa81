#include "kernels/map/reduce/codelet.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "base/integer_types.h"
#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "program/box.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

uint32_t target_of(const FieldView& rows, uint32_t i) { return static_cast<uint32_t>(number_at(rows, i, 0)); }

uint32_t neighbours(const Vertex& v) {
  const FieldView& out = v.fields[reduce_neighbours_field::out];
  return out.rows == 0 ? 0 : v.fields[reduce_neighbours_field::in].rows / out.rows;
}

// Cycles on a tile, W = workers: W(16 + ⌈⌈out/W⌉/vacc⌉(c + 6 + p − 1)), c = 8 half→half,
// 7 half→float, 5 float (PopLibs).
constexpr double kTileWorkerCycles = 16;
constexpr double kTileVectorCycles = 6;

double tile_store_cycles(Type partials, Type out) {
  if (partials == Type::f32) return 5;
  return out == Type::f32 ? 7 : 8;
}

double tile_cycles(const machine::Machine& m, Type from, Type to, double partials, double elements) {
  const double accumulators = 2 * tile_vector_width(from);  // half8, float4
  const double vectors = std::ceil(worker_slice(m, elements) / accumulators);
  const double per_vector = tile_store_cycles(from, to) + kTileVectorCycles + partials - 1;
  return m.workers_per_tile * (kTileWorkerCycles + vectors * per_vector);
}

}  // namespace

void reduce_sum_reference(const Vertex& v) {
  const FieldView& partials = v.fields[reduce_sum_field::partials];
  const FieldView& out = v.fields[reduce_sum_field::out];
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      float sum = 0;
      for (uint32_t row = r; row < partials.rows; row += out.rows) sum += f32_at(partials, row, c);
      set_number(out, r, c, float_of(v.params[reduce_sum_param::scale]) * sum);
    }
}

program::PhaseTimes reduce_sum_cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind != machine::Kind::host)
    return in_phase(
        Phase::reduce,
        tile_cycles(m, v.fields[reduce_sum_field::partials].type, v.fields[reduce_sum_field::out].type,
                    static_cast<double>(v.fields[reduce_sum_field::partials].rows /
                                        std::max(1U, v.fields[reduce_sum_field::out].rows)),
                    static_cast<double>(v.fields[reduce_sum_field::out].elements())));
  const double operations = 1 + widen_operations(v.fields[reduce_sum_field::partials].type);  // per partial
  const HostWork work{bytes_of(v.fields[reduce_sum_field::partials]),
                      bytes_of(v.fields[reduce_sum_field::out]),
                      operations * static_cast<double>(v.fields[reduce_sum_field::partials].elements())};
  return in_phase(Phase::reduce, host_cycles(m, work));
}

// Sums of rows that are assigned by a list.

void reduce_rows_reference(const Vertex& v) {
  const FieldView& partials = v.fields[reduce_rows_field::partials];
  const FieldView& out = v.fields[reduce_rows_field::out];
  std::vector<float> sums(out.elements());
  for (uint32_t i = 0; i < partials.rows; ++i) {
    float* sum = &sums[uint64_t{target_of(v.fields[reduce_rows_field::rows], i)} * out.cols];
    for (uint32_t c = 0; c < out.cols; ++c) sum[c] += f32_at(partials, i, c);
  }
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) set_number(out, r, c, sums[uint64_t{r} * out.cols + c]);
}

/// Rows with equal numbers of partials form one reduction.
program::PhaseTimes reduce_rows_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& out = v.fields[reduce_rows_field::out];
  std::vector<uint32_t> partials(out.rows);
  for (uint32_t i = 0; i < v.fields[reduce_rows_field::rows].rows; ++i)
    ++partials[target_of(v.fields[reduce_rows_field::rows], i)];
  std::map<uint32_t, uint32_t> rows_with;
  for (uint32_t count : partials) ++rows_with[count];
  double cycles = 0;
  for (const auto& [count, rows] : rows_with)
    cycles += tile_cycles(m, v.fields[reduce_rows_field::partials].type, out.type, std::max(1U, count),
                          double{1} * rows * out.cols);
  return in_phase(Phase::reduce, cycles);
}

void worker_reduce_rows_reference(const Vertex& v) { reduce_rows_reference(v); }

// Cycles of a worker (PopLibs, strided reductions): 16 + ⌈out / v⌉(6 + s + p − 1), v = half4, float2, and
// s = 8 half→half, 7 half→float, 5 float for the end of a vector. A single partial of the result's type
// arrives in place; PopLibs leaves rows without any as they are.
program::PhaseTimes worker_reduce_rows_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& from = v.fields[worker_reduce_rows_field::partials];
  const FieldView& out = v.fields[worker_reduce_rows_field::out];
  const uint32_t partials = from.rows / std::max(1U, out.rows);
  if (partials == 1 && from.type == out.type) return in_phase(Phase::reduce, 0);
  if (partials == 0)
    return in_phase(Phase::reduce, kTileWorkerCycles + bytes_of(out) / m.load_bytes_per_cycle);
  const double vectors = std::ceil(static_cast<double>(out.elements()) / tile_vector_width(from.type));
  const double per_vector = kTileVectorCycles + tile_store_cycles(from.type, out.type) + partials - 1;
  return in_phase(Phase::reduce, kTileWorkerCycles + vectors * per_vector);
}

// Sums of neighbouring rows.

void reduce_neighbours_reference(const Vertex& v) {
  const FieldView& in = v.fields[reduce_neighbours_field::in];
  const FieldView& out = v.fields[reduce_neighbours_field::out];
  const uint32_t count = neighbours(v);
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      float sum = 0;
      for (uint32_t i = 0; i < count; ++i) sum += f32_at(in, r * count + i, c);
      set_number(out, r, c, sum);
    }
}

/// On a tile as many reductions of partials; on a host they are short, and each begins and ends.
program::PhaseTimes reduce_neighbours_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[reduce_neighbours_field::in];
  const FieldView& out = v.fields[reduce_neighbours_field::out];
  if (m.kind != machine::Kind::host)
    return in_phase(Phase::reduce, tile_cycles(m, in.type, out.type, std::max(1U, neighbours(v)),
                                               static_cast<double>(out.elements())));
  constexpr double kRowOperations = 40;
  const double operations = (1 + widen_operations(in.type)) * static_cast<double>(in.elements());
  return in_phase(Phase::reduce,
                  host_cycles(m, {bytes_of(in), bytes_of(out), operations + kRowOperations * out.rows}));
}

// Reductions over an axis, or all elements.

namespace {

constexpr program::FieldSpec kAxisFields[] = {TESSERA_AXIS_REDUCTION_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kAxisParams[] = {TESSERA_AXIS_REDUCTION_PARAMS(TESSERA_NAME)};

ReduceOver over_of(const Vertex& v) { return static_cast<ReduceOver>(v.params[axis_reduction_param::over]); }

/// The elements that a result reduces.
program::Box terms_of(ReduceOver over, const FieldView& in, uint32_t row, uint32_t col) {
  if (over == ReduceOver::columns) return {0, in.rows, col, 1};
  if (over == ReduceOver::rows) return {row, 1, 0, in.cols};
  return {0, in.rows, 0, in.cols};
}

float with_element(Reduction op, float sum, float x) {
  switch (op) {
    case Reduction::sum: return sum + x;
    case Reduction::maximum: return sum > x || std::isnan(sum) ? sum : x;
    case Reduction::sum_of_squares: return std::fma(x, x, sum);
  }
  return sum;
}

template <Reduction op>
uint32_t integer_result(const FieldView& in, const program::Box& terms) {
  int64_t most = std::numeric_limits<int64_t>::min();
  uint32_t sum = 0;
  for (uint32_t r = terms.row; r < terms.row_end(); ++r)
    for (uint32_t c = terms.col; c < terms.col_end(); ++c) {
      const auto x = static_cast<int64_t>(number_at(in, r, c));
      most = std::max(most, x);
      const auto word = static_cast<uint32_t>(x);
      sum += op == Reduction::sum_of_squares ? word * word : word;
    }
  return op == Reduction::maximum ? static_cast<uint32_t>(most) : sum;
}

template <Reduction op>
float float_result(const FieldView& in, const program::Box& terms) {
  float sum = op == Reduction::maximum ? -std::numeric_limits<float>::infinity() : 0;
  for (uint32_t r = terms.row; r < terms.row_end(); ++r)
    for (uint32_t c = terms.col; c < terms.col_end(); ++c) sum = with_element(op, sum, f32_at(in, r, c));
  return sum;
}

template <Reduction op>
void axis_reference(const Vertex& v) {
  const FieldView& in = v.fields[axis_reduction_field::in];
  const FieldView& out = v.fields[axis_reduction_field::out];
  const float scale = float_of(v.params[axis_reduction_param::scale]);
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) {
      const program::Box terms = terms_of(over_of(v), in, r, c);
      if (is_integer(in.type))
        store(address_of(out, r, c), integer_result<op>(in, terms));
      else
        set_number(out, r, c, scale * float_result<op>(in, terms));
    }
}

template <Reduction op>
void axis_simd(const Vertex& v) {
  const FieldView& in = v.fields[axis_reduction_field::in];
  const FieldView& out = v.fields[axis_reduction_field::out];
  const ReduceOver over = over_of(v);
  const float scale = float_of(v.params[axis_reduction_param::scale]);
  const bool is_done = over == ReduceOver::all
                           ? apply_total_reduction(op, in, scale, out, v.helpers)
                           : apply_axis_reduction(op, over == ReduceOver::columns, in, scale, out, v.helpers);
  if (!is_done) axis_reference<op>(v);
}

// Lines split over the workers: as partials, a vector at a time, and for each result an estimate of what
// joining its lanes and workers takes.
constexpr double kTileRowCycles = 12;

double tile_cycles_of_lines(const machine::Machine& m, Type from, double lines, double length,
                            double results) {
  const double vectors = std::ceil(lines * std::ceil(length / tile_vector_width(from)) / m.workers_per_tile);
  return m.workers_per_tile * (kTileWorkerCycles + vectors + kTileRowCycles * worker_slice(m, results));
}

double axis_tile_cycles(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[axis_reduction_field::in];
  const FieldView& out = v.fields[axis_reduction_field::out];
  const auto results = static_cast<double>(out.elements());
  switch (over_of(v)) {
    case ReduceOver::columns: return tile_cycles(m, in.type, out.type, std::max(1U, in.rows), results);
    case ReduceOver::rows: return tile_cycles_of_lines(m, in.type, results, in.cols, results);
    case ReduceOver::all: break;
  }
  const bool is_column = in.cols == 1;
  return tile_cycles_of_lines(m, in.type, is_column ? 1 : in.rows, is_column ? in.rows : in.cols, results);
}

// On a host, for each element besides its conversion; for few results, beginning and ending each.
constexpr double kHostElementOperations = 1;
constexpr double kHostMaximumOperations = 4;  // keeping NaN takes three of these
constexpr double kHostRowOperations = 300;

template <Reduction op>
program::PhaseTimes axis_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& in = v.fields[axis_reduction_field::in];
  const FieldView& out = v.fields[axis_reduction_field::out];
  const auto results = static_cast<double>(out.elements());
  if (m.kind != machine::Kind::host) return in_phase(Phase::reduce, axis_tile_cycles(v, m));
  const double operations = (op == Reduction::maximum ? kHostMaximumOperations : kHostElementOperations) +
                            widen_operations(in.type);
  const double per_result = over_of(v) == ReduceOver::columns ? 0 : kHostRowOperations;
  return in_phase(Phase::reduce,
                  host_cycles(m, {bytes_of(in), bytes_of(out),
                                  operations * static_cast<double>(in.elements()) + per_result * results}));
}

template <Reduction op>
constexpr program::Codelet make_axis_codelet(std::string_view name) {
  return {.name = name,
          .fields = kAxisFields,
          .params = kAxisParams,
          .reference = axis_reference<op>,
          .simd = axis_simd<op>,
          .cost = axis_cost<op>,
          .code_bytes = 384};
}

constexpr program::Codelet kAxisReductions[] = {
#define TESSERA_AXIS_CODELET(op) make_axis_codelet<Reduction::op>("axis_" #op),
    TESSERA_REDUCTIONS(TESSERA_AXIS_CODELET)
#undef TESSERA_AXIS_CODELET
};

}  // namespace

TESSERA_REDUCE_CODELETS(TESSERA_CODELET)
TESSERA_WORKER_REDUCE_CODELETS(TESSERA_WORKER_CODELET)

const program::Codelet& codelet_of(Reduction op) { return kAxisReductions[static_cast<size_t>(op)]; }

std::span<const ListedCodelet> reduce_codelets() {
#define TESSERA_LIST_AXIS(op) kAxisReductions[static_cast<size_t>(Reduction::op)],
  static constexpr ListedCodelet kListed[] = {TESSERA_REDUCE_CODELETS(TESSERA_LIST_CODELET)
                                                  TESSERA_WORKER_REDUCE_CODELETS(TESSERA_LIST_CODELET)
                                                      TESSERA_REDUCTIONS(TESSERA_LIST_AXIS)};
#undef TESSERA_LIST_AXIS
  return kListed;
}

}  // namespace tessera::kernels
