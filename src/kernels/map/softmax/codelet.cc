#include "kernels/map/softmax/codelet.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/softmax/softmax.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

/// A column's largest element, and the sum of exponentials of differences to it.
struct ColumnSums {
  float largest;
  float sum;
};

ColumnSums sums_of(const FieldView& in, uint32_t col) {
  const auto at = [&](uint32_t i) { return f32_at(in, i, col); };
  ColumnSums sums{at(0), 0};
  for (uint32_t i = 1; i < in.rows; ++i) sums.largest = std::max(sums.largest, at(i));
  for (uint32_t i = 0; i < in.rows; ++i) sums.sum += std::exp(at(i) - sums.largest);
  return sums;
}

void softmax_reference(const FieldView& in, const FieldView& out) {
  if (in.empty()) return;
  for (uint32_t j = 0; j < in.cols; ++j) {
    const auto [largest, sum] = sums_of(in, j);
    for (uint32_t i = 0; i < in.rows; ++i) set_number(out, i, j, std::exp(f32_at(in, i, j) - largest) / sum);
  }
}

void cross_entropy_reference(const CrossEntropy& of) {
  if (of.logits.empty()) return;
  const uint32_t classes = of.logits.rows;
  for (uint32_t j = 0; j < of.logits.cols; ++j) {
    const auto logit = [&](uint32_t i) { return f32_at(of.logits, i, j); };
    const auto [largest, sum] = sums_of(of.logits, j);
    set_number(of.loss, 0, j, of.loss_of(j, largest + std::log(sum)));
    for (uint32_t i = 0; of.gradient.data != nullptr && i < classes; ++i) {
      const float p = std::exp(logit(i) - largest) / sum;
      set_number(of.gradient, i, j,
                 of.is_invalid(j) ? std::numeric_limits<float>::quiet_NaN()
                                  : of.scale_of(j) * (p - (i == of.label(j) ? 1.0F : 0.0F)));
    }
  }
}

void cross_entropy_simd(const CrossEntropy& of) {
  if (!apply_softmax_cross_entropy(of)) cross_entropy_reference(of);
}

CrossEntropy with_gradient(const Vertex& v) {
  using namespace softmax_cross_entropy_field;
  const bool columns = v.params[cross_entropy_param::classes_in_rows] != 0;
  return {as_columns(v.fields[logits], columns),
          as_columns(v.fields[labels], columns),
          as_columns(v.fields[loss], columns),
          as_columns(v.fields[gradient], columns),
          {},
          float_of(v.params[cross_entropy_param::scale])};
}

CrossEntropy with_weights(const Vertex& v) {
  using namespace weighted_cross_entropy_field;
  const bool columns = v.params[weighted_cross_entropy_param::classes_in_rows] != 0;
  return {as_columns(v.fields[logits], columns), as_columns(v.fields[labels], columns),
          as_columns(v.fields[loss], columns), as_columns(v.fields[gradient], columns),
          as_columns(v.fields[weights], columns)};
}

CrossEntropy without_gradient(const Vertex& v) {
  using namespace softmax_cross_entropy_loss_field;
  const bool columns = v.params[cross_entropy_loss_param::classes_in_rows] != 0;
  return {as_columns(v.fields[logits], columns),
          as_columns(v.fields[labels], columns),
          as_columns(v.fields[loss], columns),
          {},
          {}};
}

/// A softmax's fields, as columns.
struct SoftmaxViews {
  FieldView in;
  FieldView out;
};

SoftmaxViews softmax_views(const Vertex& v) {
  const bool columns = v.params[softmax_param::over_rows] != 0;
  return {as_columns(v.fields[softmax_field::in], columns),
          as_columns(v.fields[softmax_field::out], columns)};
}

void softmax_reference(const Vertex& v) {
  const auto [in, out] = softmax_views(v);
  softmax_reference(in, out);
}
void softmax_cross_entropy_reference(const Vertex& v) { cross_entropy_reference(with_gradient(v)); }
void softmax_cross_entropy_loss_reference(const Vertex& v) { cross_entropy_reference(without_gradient(v)); }
void weighted_cross_entropy_reference(const Vertex& v) { cross_entropy_reference(with_weights(v)); }

void softmax_simd(const Vertex& v) {
  const auto [in, out] = softmax_views(v);
  if (!apply_softmax(in, out)) softmax_reference(in, out);
}
void softmax_cross_entropy_simd(const Vertex& v) { cross_entropy_simd(with_gradient(v)); }
void softmax_cross_entropy_loss_simd(const Vertex& v) { cross_entropy_simd(without_gradient(v)); }
void weighted_cross_entropy_simd(const Vertex& v) { cross_entropy_simd(with_weights(v)); }

// Vector operations on a host, measured with bench_kernels: for each element an exponential and the
// operations of the passes; for each column a logarithm and the label, and, where it lies in a row, the
// remainder of its vectors and joining their lanes.
constexpr double kHostOperations = 44;
constexpr double kHostLossOperations = 40;
constexpr double kHostLabelOperations = 600;
constexpr double kHostLineOperations = 1500;
// Cycles on a tile, derived from the elementwise operations (29 a worker, 3 a vector): an exponential is
// taken for 12 instructions a vector, each of three passes for 3, and the logarithm with the label for 40 a
// column. Without a label, an estimate: a division and joining lanes.
constexpr double kTileWorkerCycles = 29;
constexpr double kTileVectorCycles = 21;
constexpr double kTilePassCycles = 3;
constexpr double kTileLabelCycles = 40;
constexpr double kTileColumnCycles = 20;

struct SoftmaxCost {
  double host_operations;
  double host_column_operations;
  double vector_cycles;
  double column_cycles;
};

// All fields after the inputs are written; columns are split over workers.
program::PhaseTimes cost(const Vertex& v, const machine::Machine& m, bool over_rows, size_t inputs,
                         const SoftmaxCost& of) {
  const FieldView logits = as_columns(v.fields[0], over_rows);
  if (m.kind == machine::Kind::host) {
    HostWork work = traffic_of(v.fields, inputs);
    const double of_element =
        of.host_operations + widen_operations(logits.type) + round_operations(logits.type);
    const double of_column = of.host_column_operations + (over_rows ? 0 : kHostLineOperations);
    work.vector_operations = of_element * static_cast<double>(logits.elements()) + of_column * logits.cols;
    return in_phase(Phase::compute, host_cycles(m, work));
  }
  const double columns = std::ceil(worker_slice(m, logits.cols));
  const double vectors = columns * logits.rows / tile_vector_width(logits.type);
  return in_phase(Phase::compute,
                  m.workers_per_tile * (kTileWorkerCycles + of.vector_cycles * std::ceil(vectors) +
                                        of.column_cycles * columns));
}

program::PhaseTimes softmax_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, v.params[softmax_param::over_rows] != 0, 1,
              {kHostOperations, 0, kTileVectorCycles, kTileColumnCycles});
}

program::PhaseTimes softmax_cross_entropy_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, v.params[cross_entropy_param::classes_in_rows] != 0, 2,
              {kHostOperations, kHostLabelOperations, kTileVectorCycles, kTileLabelCycles});
}

program::PhaseTimes weighted_cross_entropy_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, v.params[weighted_cross_entropy_param::classes_in_rows] != 0, 3,
              {kHostOperations, kHostLabelOperations, kTileVectorCycles, kTileLabelCycles});
}

program::PhaseTimes softmax_cross_entropy_loss_cost(const Vertex& v, const machine::Machine& m) {
  return cost(
      v, m, v.params[cross_entropy_loss_param::classes_in_rows] != 0, 2,
      {kHostLossOperations, kHostLabelOperations, kTileVectorCycles - kTilePassCycles, kTileLabelCycles});
}

}  // namespace

TESSERA_DEFINE_FAMILY(softmax, TESSERA_SOFTMAX_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
