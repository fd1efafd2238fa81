#include "kernels/tile/cross_entropy/codelet.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLeast = -std::numeric_limits<float>::infinity();

/// The terms of some or all classes of a column.
struct Terms {
  float largest = kLeast;
  float sum = 0;
  float of_label = 0;

  static Terms at(const FieldView& terms, uint32_t part, uint32_t col) {
    const uint32_t row = part * kCrossEntropyTerms;
    return {f32_at(terms, row, col), f32_at(terms, row + 1, col), f32_at(terms, row + 2, col)};
  }
  void store(const FieldView& terms, uint32_t col) const {
    set_number(terms, 0, col, largest);
    set_number(terms, 1, col, sum);
    set_number(terms, 2, col, of_label);
  }
};

void class_terms_reference(const Vertex& v) {
  const bool columns = v.params[class_terms_param::classes_in_rows] != 0;
  const FieldView logits = as_columns(v.fields[class_terms_field::logits], columns);
  const FieldView labels = as_columns(v.fields[class_terms_field::labels], columns);
  for (uint32_t j = 0; j < logits.cols; ++j) {
    Terms terms;
    for (uint32_t i = 0; i < logits.rows; ++i) terms.largest = std::max(terms.largest, f32_at(logits, i, j));
    for (uint32_t i = 0; i < logits.rows; ++i)
      if (const float x = f32_at(logits, i, j); x != kLeast) terms.sum += std::exp(x - terms.largest);
    const auto label = static_cast<int64_t>(number_at(labels, 0, j)) - v.params[class_terms_param::first];
    if (label >= 0 && label < logits.rows) terms.of_label = f32_at(logits, static_cast<uint32_t>(label), j);
    terms.store(v.fields[class_terms_field::terms], j);
  }
}

void join_class_terms_reference(const Vertex& v) {
  const FieldView& parts = v.fields[join_class_terms_field::terms];
  const uint32_t count = parts.rows / kCrossEntropyTerms;
  for (uint32_t j = 0; j < parts.cols; ++j) {
    Terms all;
    for (uint32_t i = 0; i < count; ++i) all.largest = std::max(all.largest, Terms::at(parts, i, j).largest);
    for (uint32_t i = 0; i < count; ++i) {
      const Terms part = Terms::at(parts, i, j);
      if (part.sum != 0) all.sum += part.sum * std::exp(part.largest - all.largest);
      all.of_label += part.of_label;
    }
    all.store(v.fields[join_class_terms_field::out], j);
  }
}

bool is_class(const FieldView& labels, uint32_t col, int64_t classes) {
  return static_cast<int64_t>(number_at(labels, 0, col)) < classes;
}

void class_loss_reference(const Vertex& v) {
  const bool columns = v.params[class_loss_param::classes_in_rows] != 0;
  const FieldView labels = as_columns(v.fields[class_loss_field::labels], columns);
  const FieldView weights = as_columns(v.fields[class_loss_field::weights], columns);
  const FieldView loss = as_columns(v.fields[class_loss_field::loss], columns);
  for (uint32_t j = 0; j < loss.cols; ++j) {
    const Terms all = Terms::at(v.fields[class_loss_field::terms], 0, j);
    const float weight = f32_at(weights, 0, j);
    const float own = is_class(labels, j, v.params[class_loss_param::classes])
                          ? all.largest + std::log(all.sum) - all.of_label
                          : kNaN;
    set_number(loss, 0, j, weight == 0 ? 0 : weight * own);
  }
}

void class_gradient_reference(const Vertex& v) {
  const bool columns = v.params[class_gradient_param::classes_in_rows] != 0;
  const FieldView logits = as_columns(v.fields[class_gradient_field::logits], columns);
  const FieldView labels = as_columns(v.fields[class_gradient_field::labels], columns);
  const FieldView weights = as_columns(v.fields[class_gradient_field::weights], columns);
  const FieldView gradient = as_columns(v.fields[class_gradient_field::gradient], columns);
  for (uint32_t j = 0; j < logits.cols; ++j) {
    const Terms all = Terms::at(v.fields[class_gradient_field::terms], 0, j);
    const float weight = f32_at(weights, 0, j);
    const auto label = static_cast<int64_t>(number_at(labels, 0, j)) - v.params[class_gradient_param::first];
    const bool is_valid = weight == 0 || is_class(labels, j, v.params[class_gradient_param::classes]);
    for (uint32_t i = 0; i < logits.rows; ++i) {
      const float p = std::exp(f32_at(logits, i, j) - all.largest) / all.sum;
      set_number(gradient, i, j, is_valid ? weight * (p - (i == label ? 1.0F : 0.0F)) : kNaN);
    }
  }
}

// Cycles on a tile, as for softmax (kernels/map/softmax): 29 per worker, 12 per vector for an exponential, 3
// for each pass, and for each column 20, with the label and a logarithm 40.
constexpr double kWorkerCycles = 29;
constexpr double kExponentialCycles = 12;
constexpr double kPassCycles = 3;
constexpr double kColumnCycles = 20;
constexpr double kLabelCycles = 40;

// Columns are split over workers.
program::PhaseTimes columns_cost(const machine::Machine& m, Type type, double columns, double rows,
                                 double vector_cycles, double column_cycles) {
  const double slice = worker_slice(m, columns);
  const double vectors = std::ceil(slice * rows / tile_vector_width(type));
  return in_phase(Phase::compute,
                  m.workers_per_tile * (kWorkerCycles + vector_cycles * vectors + column_cycles * slice));
}

/// Two passes over the logits.
program::PhaseTimes of_logits_cost(const FieldView& field, bool columns, const machine::Machine& m) {
  const FieldView logits = as_columns(field, columns);
  return columns_cost(m, logits.type, logits.cols, logits.rows, kExponentialCycles + 2 * kPassCycles,
                      kColumnCycles);
}

program::PhaseTimes class_terms_cost(const Vertex& v, const machine::Machine& m) {
  return of_logits_cost(v.fields[class_terms_field::logits],
                        v.params[class_terms_param::classes_in_rows] != 0, m);
}

program::PhaseTimes join_class_terms_cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& terms = v.fields[join_class_terms_field::terms];
  return columns_cost(m, Type::f32, terms.cols, terms.rows,
                      kExponentialCycles / kCrossEntropyTerms + kPassCycles, kColumnCycles);
}

program::PhaseTimes class_loss_cost(const Vertex& v, const machine::Machine& m) {
  return columns_cost(m, Type::f32, static_cast<double>(v.fields[class_loss_field::loss].elements()), 0, 0,
                      kLabelCycles);
}

program::PhaseTimes class_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return of_logits_cost(v.fields[class_gradient_field::logits],
                        v.params[class_gradient_param::classes_in_rows] != 0, m);
}

}  // namespace

TESSERA_DEFINE_FAMILY(cross_entropy, TESSERA_CROSS_ENTROPY_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
