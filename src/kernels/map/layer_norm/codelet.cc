#include "kernels/map/layer_norm/codelet.h"

#include <cmath>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/common/lines.h"
#include "kernels/map/layer_norm/layer_norm.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

bool has_features_in_rows(const Vertex& v) { return v.params[layer_norm_param::features_in_rows] != 0; }

/// A field as features × samples.
FieldView as_columns(const Vertex& v, size_t field) {
  return has_features_in_rows(v) ? v.fields[field] : transposed(v.fields[field]);
}

LayerNorm forward_of(const Vertex& v) {
  using namespace layer_norm_field;
  return {as_columns(v, x),
          as_columns(v, weight),
          as_columns(v, bias),
          as_columns(v, mean),
          as_columns(v, rstd),
          as_columns(v, y),
          float_of(v.params[layer_norm_param::epsilon]),
          v.params[layer_norm_param::centred] != 0};
}

LayerNormInputGradient input_gradient_of(const Vertex& v) {
  using namespace layer_norm_input_gradient_field;
  return {as_columns(v, dy),
          as_columns(v, x),
          as_columns(v, mean),
          as_columns(v, rstd),
          as_columns(v, weight),
          as_columns(v, dx),
          v.params[layer_norm_input_gradient_param::centred] != 0};
}

LayerNormWeightGradient weight_gradient_of(const Vertex& v) {
  using namespace layer_norm_weight_gradient_field;
  return {as_columns(v, dy),   as_columns(v, x),     as_columns(v, mean),
          as_columns(v, rstd), as_columns(v, dbias), as_columns(v, dweight)};
}

void reference(const LayerNorm& f) {
  const double n = f.x.rows;
  for (uint32_t s = 0; f.x.rows > 0 && s < f.x.cols; ++s) {
    double mean = 0, variance = 0;
    for (uint32_t i = 0; f.centred && i < f.x.rows; ++i) mean += number_at(f.x, i, s) / n;
    for (uint32_t i = 0; i < f.x.rows; ++i) variance += std::pow(number_at(f.x, i, s) - mean, 2) / n;
    const double rstd = 1 / std::sqrt(variance + double{f.epsilon});
    set_number(f.mean, 0, s, mean);
    set_number(f.rstd, 0, s, rstd);
    for (uint32_t i = 0; i < f.x.rows; ++i)
      set_number(f.y, i, s,
                 (number_at(f.x, i, s) - mean) * rstd * number_at(f.weight, i, 0) + number_at(f.bias, i, 0));
  }
}

void reference(const LayerNormInputGradient& f) {
  const double n = f.x.rows;
  for (uint32_t s = 0; s < f.x.cols; ++s) {
    const double mean = number_at(f.mean, 0, s), rstd = number_at(f.rstd, 0, s);
    const auto normalised = [&](uint32_t i) { return (number_at(f.x, i, s) - mean) * rstd; };
    const auto weighted = [&](uint32_t i) { return number_at(f.dy, i, s) * number_at(f.weight, i, 0); };
    double of_mean = 0, of_deviation = 0;
    for (uint32_t i = 0; i < f.x.rows; ++i) {
      of_mean += f.centred ? weighted(i) / n : 0;
      of_deviation += weighted(i) * normalised(i) / n;
    }
    for (uint32_t i = 0; i < f.x.rows; ++i)
      set_number(f.dx, i, s, rstd * (weighted(i) - of_mean - normalised(i) * of_deviation));
  }
}

void reference(const LayerNormWeightGradient& f) {
  for (uint32_t i = 0; i < f.x.rows; ++i) {
    double bias = 0, weight = 0;
    for (uint32_t s = 0; s < f.x.cols; ++s) {
      const double dy = number_at(f.dy, i, s);
      bias += dy;
      weight += dy * (number_at(f.x, i, s) - number_at(f.mean, 0, s)) * number_at(f.rstd, 0, s);
    }
    set_number(f.dbias, i, 0, bias);
    set_number(f.dweight, i, 0, weight);
  }
}

// Vector operations on a host for each element, of the passes over it, and for each sample whose features lie
// in a row, to join the lanes of sums.
constexpr double kForwardOperations = 11;
constexpr double kInputGradientOperations = 11;
constexpr double kWeightGradientOperations = 7;
constexpr double kSampleOperations = 400;

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m, double operations, double loads,
                         size_t first_written) {
  const FieldView x = as_columns(v, 0);
  HostWork work = traffic_of(v.fields, first_written);
  const double of_element = operations + loads * widen_operations(x.type) + round_operations(x.type);
  work.vector_operations = of_element * static_cast<double>(x.elements()) + kSampleOperations * x.cols;
  return in_phase(Phase::compute, host_cycles(m, work));
}

void layer_norm_reference(const Vertex& v) { reference(forward_of(v)); }
void layer_norm_simd(const Vertex& v) {
  if (!apply_layer_norm(forward_of(v))) reference(forward_of(v));
}
program::PhaseTimes layer_norm_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, kForwardOperations, 3, layer_norm_field::mean);
}

void layer_norm_input_gradient_reference(const Vertex& v) { reference(input_gradient_of(v)); }
void layer_norm_input_gradient_simd(const Vertex& v) {
  if (!apply_layer_norm_input_gradient(input_gradient_of(v))) reference(input_gradient_of(v));
}
program::PhaseTimes layer_norm_input_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, kInputGradientOperations, 4, layer_norm_input_gradient_field::dx);
}

void layer_norm_weight_gradient_reference(const Vertex& v) { reference(weight_gradient_of(v)); }
void layer_norm_weight_gradient_simd(const Vertex& v) {
  if (!apply_layer_norm_weight_gradient(weight_gradient_of(v))) reference(weight_gradient_of(v));
}
program::PhaseTimes layer_norm_weight_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return cost(v, m, kWeightGradientOperations, 2, layer_norm_weight_gradient_field::dbias);
}

}  // namespace

TESSERA_DEFINE_FAMILY(layer_norm, TESSERA_LAYER_NORM_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
