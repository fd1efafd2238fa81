#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr float kSampleRange = 4;
constexpr float kSampleFactor = -0.375F;

uint32_t sample_rows(uint32_t scale) { return 3 * scale; }
uint32_t sample_cols(uint32_t scale) { return 37 * scale; }

// Single IEEE operations are exact; the SIMD form's erf has an error of 1.5e-7, times x / 2, and may round to
// the neighbouring number.
Tolerance tolerance_of(Unary op, Type type) {
  if (op != Unary::gelu) return {};
  return {4 * epsilon_of(Type::f32) + epsilon_of(type), 1.5e-7 * kSampleRange};
}

// A fused multiply-add rounds once, the reference twice.
Tolerance tolerance_of(Binary op, Type type) {
  if (op != Binary::add_scaled) return {};
  return {epsilon_of(Type::f32) + epsilon_of(type), epsilon_of(Type::f32) * kSampleRange};
}

template <Unary op, Type type>
Sample unary_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale);
  const uint32_t cols = sample_cols(scale);
  Sample sample(codelet_of(op));
  sample.random(type, rows, cols, seed, kSampleRange, true).unset(type, rows, cols);
  if (op == Unary::scale) sample.param(param_of(kSampleFactor));
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
  sample.random(type, rows, cols, seed, kSampleRange, true);
  sample.random(type, b_rows, b_cols, seed + 1, kSampleRange, true);
  if (op == Binary::add_scaled) sample.param(param_of(kSampleFactor));
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
