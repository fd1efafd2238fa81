#include "kernels/common/element.h"
#include "kernels/map/elementwise/codelet.h"
#include "kernels/map/elementwise/exact.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

constexpr float kSampleRange = 4;
constexpr float kSampleFactor = -0.375F;

uint32_t sample_rows(uint32_t scale) { return 3 * scale; }
uint32_t sample_cols(uint32_t scale) { return 37 * scale; }

// The SIMD form's erf has an error of 2e-7.
constexpr double kErfError = 2e-7;

bool is_exact(Unary op) {
  switch (op) {
    case Unary::gelu:
    case Unary::gelu_tanh:
    case Unary::silu:
    case Unary::rsqrt:
    case Unary::erf:
    case Unary::sin:
    case Unary::cos:
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
  const double relative = 4 * epsilon_of(Type::f32) + epsilon_of(type);
  switch (op) {
    case Unary::gelu:
    case Unary::erf: return {relative, kErfError * kSampleRange};
    case Unary::gelu_tanh:
    case Unary::silu: return {4 * relative, 0};
    case Unary::sin:
    case Unary::cos: return {relative, epsilon_of(Type::f32)};
    default: return {relative, 0};
  }
}

bool is_smooth_gradient(Binary op) {
  return op == Binary::gelu_gradient || op == Binary::gelu_tanh_gradient || op == Binary::silu_gradient ||
         op == Binary::tanh_gradient || op == Binary::sigmoid_gradient;
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

template <Binary op, Type type, Shape shape = Shape::matrix, Type of_b = type>
Sample binary_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale);
  const uint32_t cols = sample_cols(scale);
  const uint32_t b_rows = shape == Shape::row ? 1 : rows;
  const uint32_t b_cols = shape == Shape::column ? 1 : cols;
  Sample sample(codelet_of(op));
  sample.random(type, rows, cols, seed, kSampleRange, !is_smooth_gradient(op));
  sample.random(of_b, b_rows, b_cols, seed + 1, kSampleRange, true);
  if (takes_factor(op)) sample.param(param_of(kSampleFactor));
  return sample.unset(type, rows, cols).tolerance(tolerance_of(op, type));
}

/// Small numbers, some of which are equal, and large ones.
template <Binary op, Type type>
Sample integer_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale);
  const uint32_t cols = sample_cols(scale);
  const auto value_at = [seed](uint64_t i) {
    const auto word = static_cast<uint32_t>((i * (seed + 3)) % 5 - 2);
    return type == Type::i32 ? 1.0 * static_cast<int32_t>(word) : 1.0 * word;
  };
  Sample sample(codelet_of(op));
  sample.values(type, rows, cols, value_at).values(type, 1, cols, value_at);
  return sample.unset(type, rows, cols);
}

/// Integers whose products fit in 32 bits.
template <Exact op>
Sample exact_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale), cols = sample_cols(scale);
  const auto value_at = [seed](uint64_t i) { return static_cast<double>(i * (seed + 977) % 90001) - 45000; };
  Sample sample(exact_codelet);
  sample.values(Type::i32, rows, cols, value_at).values(Type::i32, 1, cols, value_at);
  return sample.unset(Type::i32, rows, cols).param(static_cast<int64_t>(op));
}

Sample integer_where_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale), cols = sample_cols(scale);
  const auto value_at = [seed](uint64_t i) { return static_cast<double>((i * (seed + 3)) % 5) - 2; };
  Sample sample(where_codelet);
  sample.values(Type::i32, rows, cols, value_at).values(Type::i32, 1, cols, value_at);
  return sample.values(Type::i32, rows, cols, value_at).unset(Type::i32, rows, cols);
}

template <Type type, Shape shape = Shape::matrix>
Sample where_sample(uint32_t scale, uint64_t seed) {
  const uint32_t rows = sample_rows(scale), cols = sample_cols(scale);
  Sample sample(where_codelet);
  sample.random(type, shape == Shape::row ? 1 : rows, shape == Shape::column ? 1 : cols, seed, kSampleRange,
                true);
  sample.random(type, rows, cols, seed + 1, kSampleRange, true);
  sample.random(type, 1, 1, seed + 2, kSampleRange, true);
  return sample.unset(type, rows, cols);
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
template <Binary op>
constexpr NamedSample kIntegerSamples[] = {{"f32", binary_sample<op, Type::f32>},
                                           {"f16", binary_sample<op, Type::f16>},
                                           {"bf16", binary_sample<op, Type::bf16>},
                                           {"u32", integer_sample<op, Type::u32>},
                                           {"i32", integer_sample<op, Type::i32>},
                                           {"f32-row", binary_sample<op, Type::f32, Shape::row>},
                                           {"f16-column", binary_sample<op, Type::f16, Shape::column>}};
/// With 16-bit values that are added to FP32 ones.
constexpr NamedSample kAddScaledSamples[] = {
    {"f32", binary_sample<Binary::add_scaled, Type::f32>},
    {"f16", binary_sample<Binary::add_scaled, Type::f16>},
    {"bf16", binary_sample<Binary::add_scaled, Type::bf16>},
    {"f32-row", binary_sample<Binary::add_scaled, Type::f32, Shape::row>},
    {"f16-column", binary_sample<Binary::add_scaled, Type::f16, Shape::column>},
    {"f32-f16", binary_sample<Binary::add_scaled, Type::f32, Shape::matrix, Type::f16>},
    {"f32-bf16", binary_sample<Binary::add_scaled, Type::f32, Shape::matrix, Type::bf16>}};
template <Binary op>
constexpr std::span<const NamedSample> samples_of() {
  if constexpr (op == Binary::add_scaled) return kAddScaledSamples;
  if constexpr (takes_integers(op)) return kIntegerSamples<op>;
  return kBinarySamples<op>;
}
constexpr NamedSample kExactSamples[] = {
    {"add", exact_sample<Exact::add>}, {"sub", exact_sample<Exact::sub>}, {"mul", exact_sample<Exact::mul>}};
constexpr NamedSample kWhereSamples[] = {{"f32", where_sample<Type::f32>},
                                         {"f16", where_sample<Type::f16>},
                                         {"bf16", where_sample<Type::bf16>},
                                         {"i32", integer_where_sample},
                                         {"f32-row", where_sample<Type::f32, Shape::row>},
                                         {"f32-column", where_sample<Type::f32, Shape::column>}};

}  // namespace

std::span<const CodeletSamples> elementwise_samples() {
  static const CodeletSamples kAll[] = {
#define TESSERA_LIST(op) {codelet_of(Unary::op), kUnarySamples<Unary::op>},
      TESSERA_UNARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
#define TESSERA_LIST(op) {codelet_of(Binary::op), samples_of<Binary::op>()},
          TESSERA_BINARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
              {exact_codelet, kExactSamples},
      {where_codelet, kWhereSamples},
  };
  return kAll;
}

}  // namespace tessera::kernels
