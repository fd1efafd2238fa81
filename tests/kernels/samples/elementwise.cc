#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr float kSampleRange = 4;
constexpr float kSampleFactor = -0.375F;

uint32_t sample_rows(uint32_t scale) { return 3 * scale; }
uint32_t sample_cols(uint32_t scale) { return 37 * scale; }

// The SIMD form's erf has an error of 1.5e-7.
constexpr double kErfError = 1.5e-7;

bool is_exact(Unary op) {
  switch (op) {
    case Unary::gelu:
    case Unary::exp:
    case Unary::log:
    case Unary::tanh:
    case Unary::sigmoid: return false;
    default: return true;
  }
}

// Single IEEE operations are exact; others may round to the neighbouring number.
Tolerance tolerance_of(Unary op, Type type) {
  if (is_exact(op)) return {};
  return {4 * epsilon_of(Type::f32) + epsilon_of(type), op == Unary::gelu ? kErfError * kSampleRange : 0};
}

bool is_smooth_gradient(Binary op) {
  return op == Binary::gelu_gradient || op == Binary::tanh_gradient || op == Binary::sigmoid_gradient;
}

// A fused multiply-add rounds once, the reference twice; 1 − b² cancels.
Tolerance tolerance_of(Binary op, Type type) {
  if (op != Binary::add_scaled && !is_smooth_gradient(op)) return {};
  const double terms = is_smooth_gradient(op) ? kSampleRange * kSampleRange : 1;
  const double erf_error = op == Binary::gelu_gradient ? kErfError * kSampleRange : 0;
  return {4 * epsilon_of(Type::f32) + epsilon_of(type),
          terms * epsilon_of(Type::f32) * kSampleRange + erf_error};
}

template <Unary op, Type type>
Sample unary_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale);
  const uint32_t cols = sample_cols(scale);
  Sample sample(codelet_of(op));
  sample.random(type, rows, cols, seed, kSampleRange, true).unset(type, rows, cols);
  if (takes_factor(op)) sample.param(param_of(kSampleFactor));
  return sample.tolerance(tolerance_of(op, type));
}

/// b as a matrix, or as a single row or column that is broadcast.
enum class Shape : uint8_t { matrix, row, column };

template <Binary op, Type type, Shape shape = Shape::matrix>
Sample binary_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale);
  const uint32_t cols = sample_cols(scale);
  const uint32_t b_rows = shape == Shape::row ? 1 : rows;
  const uint32_t b_cols = shape == Shape::column ? 1 : cols;
  Sample sample(codelet_of(op));
  sample.random(type, rows, cols, seed, kSampleRange, !is_smooth_gradient(op));
  sample.random(type, b_rows, b_cols, seed + 1, kSampleRange, true);
  if (takes_factor(op)) sample.param(param_of(kSampleFactor));
  return sample.unset(type, rows, cols).tolerance(tolerance_of(op, type));
}

template <Unary op>
constexpr NamedSample kUnarySamples[] = {{"f32", unary_sample<op, Type::f32>},
                                         {"f16", unary_sample<op, Type::f16>},
                                         {"bf16", unary_sample<op, Type::bf16>}};
template <Binary op>
constexpr NamedSample kBinarySamples[] = {{"f32", binary_sample<op, Type::f32>},
                                          {"f16", binary_sample<op, Type::f16>},
                                          {"bf16", binary_sample<op, Type::bf16>},
                                          {"f32-row", binary_sample<op, Type::f32, Shape::row>},
                                          {"f16-column", binary_sample<op, Type::f16, Shape::column>}};

}  // namespace

std::span<const CodeletSamples> elementwise_samples() {
  static const CodeletSamples kAll[] = {
#define TESSERA_LIST(op) {codelet_of(Unary::op), kUnarySamples<Unary::op>},
      TESSERA_UNARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
#define TESSERA_LIST(op) {codelet_of(Binary::op), kBinarySamples<Binary::op>},
          TESSERA_BINARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
  };
  return kAll;
}

}  // namespace tessera::kernels
