#include "kernels/map/elementwise/codelet.h"

#include <algorithm>
#include <cmath>

#include "base/integer_types.h"
#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/elementwise/cost.h"
#include "kernels/map/elementwise/exact.h"

namespace tessera::kernels {
namespace {

using program::Codelet;
using program::FieldSpec;
using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr FieldSpec kUnaryFields[] = {TESSERA_UNARY_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kBinaryFields[] = {TESSERA_BINARY_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kWhereFields[] = {TESSERA_WHERE_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kFactor[] = {"factor"};
constexpr std::string_view kFunction[] = {"function"};

float factor_of(const Vertex& v) { return v.params.empty() ? 1 : float_of(v.params[0]); }

float evaluate(Unary op, float factor, float x) {
  switch (op) {
    case Unary::relu: return activate(Activation::relu, x);
    case Unary::gelu: return activate(Activation::gelu, x);
    case Unary::gelu_tanh: return gelu_tanh(x);
    case Unary::silu: return x * sigmoid(x);
    case Unary::neg: return -x;
    case Unary::scale: return factor * x;
    case Unary::exp: return std::exp(x);
    case Unary::log: return std::log(x);
    case Unary::sqrt: return std::sqrt(x);
    case Unary::rsqrt: return 1 / std::sqrt(x);
    case Unary::reciprocal: return 1 / x;
    case Unary::tanh: return std::tanh(x);
    case Unary::sigmoid: return sigmoid(x);
    case Unary::erf: return std::erf(x);
    case Unary::sin: return std::sin(x);
    case Unary::cos: return std::cos(x);
    case Unary::square: return x * x;
    case Unary::abs: return std::abs(x);
    case Unary::offset: return x + factor;
  }
  return x;
}

float evaluate(Binary op, float factor, float a, float b) {
  switch (op) {
    case Binary::add: return a + b;
    case Binary::sub: return a - b;
    case Binary::mul: return a * b;
    case Binary::add_scaled: return a + factor * b;
    case Binary::div: return a / b;
    case Binary::fmod: return std::fmod(a, b);
    case Binary::maximum: return a > b || std::isnan(a) ? a : b;
    case Binary::minimum: return a < b || std::isnan(a) ? a : b;
    case Binary::equal: return a == b ? 1 : 0;
    case Binary::not_equal: return a != b ? 1 : 0;
    case Binary::less: return a < b ? 1 : 0;
    case Binary::less_equal: return a <= b ? 1 : 0;
    case Binary::relu_gradient: return b <= 0 ? 0 : a;
    case Binary::gelu_gradient: return a * gelu_gradient(b);
    case Binary::gelu_tanh_gradient: return a * gelu_tanh_gradient(b);
    case Binary::silu_gradient: return a * silu_gradient(b);
    case Binary::tanh_gradient: return a * (1 - b * b);
    case Binary::sigmoid_gradient: return a * b * (1 - b);
  }
  return a;
}

/// For a field whose single row or column may be broadcast.
double broadcast_at(const FieldView& field, uint32_t row, uint32_t col) {
  return number_at(field, field.rows == 1 ? 0 : row, field.cols == 1 ? 0 : col);
}
float broadcast_f32_at(const FieldView& field, uint32_t row, uint32_t col) {
  return static_cast<float>(broadcast_at(field, row, col));
}

template <class Evaluate>
void fill(const FieldView& out, const Evaluate& evaluate_at) {
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) set_number(out, r, c, evaluate_at(r, c));
}

template <Unary op>
void reference(const Vertex& v) {
  fill(v.fields[unary_field::out], [&](uint32_t r, uint32_t c) {
    return evaluate(op, factor_of(v), broadcast_f32_at(v.fields[unary_field::in], r, c));
  });
}

template <Binary op>
void reference(const Vertex& v) {
  if constexpr (takes_integers(op))
    if (const FieldView& out = v.fields[binary_field::out]; is_integer(out.type))
      return with_integer_type(out.type, [&]<class T>(T) {
        fill(out, [&](uint32_t r, uint32_t c) {
          return of_integers<op>(static_cast<T>(broadcast_at(v.fields[binary_field::a], r, c)),
                                 static_cast<T>(broadcast_at(v.fields[binary_field::b], r, c)));
        });
      });
  fill(v.fields[binary_field::out], [&](uint32_t r, uint32_t c) {
    return evaluate(op, factor_of(v), broadcast_f32_at(v.fields[binary_field::a], r, c),
                    broadcast_f32_at(v.fields[binary_field::b], r, c));
  });
}

/// A loop that the compiler turns into vectors.
void exact_reference(const Vertex& v) {
  apply_exact(static_cast<Exact>(v.params[0]), v.fields[binary_field::a], v.fields[binary_field::b],
              v.fields[binary_field::out]);
}

void where_reference(const Vertex& v) {
  fill(v.fields[where_field::out], [&](uint32_t r, uint32_t c) {
    const bool holds = broadcast_at(v.fields[where_field::condition], r, c) != 0;
    return broadcast_at(v.fields[holds ? where_field::a : where_field::b], r, c);
  });
}

void where_simd(const Vertex& v) {
  apply_where(v.fields[where_field::condition], v.fields[where_field::a], v.fields[where_field::b],
              v.fields[where_field::out]);
}

template <Unary op>
void simd(const Vertex& v) {
  apply_unary(op, factor_of(v), v.fields[unary_field::in], v.fields[unary_field::out]);
}

template <Binary op>
void simd(const Vertex& v) {
  apply_binary(op, factor_of(v), v.fields[binary_field::a], v.fields[binary_field::b],
               v.fields[binary_field::out]);
}

program::PhaseTimes host_cost(const Vertex& v, const machine::Machine& m, double operations) {
  const size_t inputs = v.fields.size() - 1;
  const Type type = v.fields[inputs].type;
  HostWork work = traffic_of(v.fields, inputs);
  for (size_t f = 0; f < inputs; ++f) operations += widen_operations(v.fields[f].type);
  operations += round_operations(type);
  work.vector_operations = operations * static_cast<double>(v.fields[inputs].elements());
  return in_phase(Phase::compute, host_cycles(m, work));
}

/// Assumed: with a conversion of each vector for half values that are added to float ones.
constexpr double kTileConversionCycles = 1;

program::PhaseTimes tile_cost(const Vertex& v, const machine::Machine& m, const VectorCycles& vector_cycles) {
  const Type type = v.fields.back().type;
  const bool is_float = size_of(type) == size_of(Type::f32);
  const auto is_narrow = [&](const FieldView& field) { return size_of(field.type) < size_of(type); };
  const double conversions = std::ranges::any_of(v.fields, is_narrow) ? kTileConversionCycles : 0;
  return in_phase(
      Phase::compute,
      tile_elementwise_cycles(m, type, static_cast<double>(v.fields.back().elements()),
                              (is_float ? vector_cycles.of_float2 : vector_cycles.of_half4) + conversions));
}

template <auto op>
program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind == machine::Kind::host) return host_cost(v, m, host_operations(op));
  return tile_cost(v, m, tile_vector_cycles(op));
}

program::PhaseTimes exact_cost(const Vertex& v, const machine::Machine& m) {
  constexpr double kHostOperations = 6;  // with 64 bits
  // The same as for where, an estimate.
  constexpr VectorCycles kTileVector = {6, 6};
  return m.kind == machine::Kind::host ? host_cost(v, m, kHostOperations) : tile_cost(v, m, kTileVector);
}

program::PhaseTimes where_cost(const Vertex& v, const machine::Machine& m) {
  constexpr double kHostOperations = 2;
  // A comparison, and a choice.
  constexpr VectorCycles kTileVector = {6, 6};
  return m.kind == machine::Kind::host ? host_cost(v, m, kHostOperations) : tile_cost(v, m, kTileVector);
}

template <auto op>
constexpr Codelet make_codelet(std::string_view name, std::span<const FieldSpec> fields,
                               std::span<const std::string_view> params) {
  return {.name = name,
          .fields = fields,
          .params = params,
          .reference = reference<op>,
          .simd = simd<op>,
          .cost = cost<op>,
          .code_bytes = 256};
}

template <class Op>
constexpr std::span<const std::string_view> params_of(Op op) {
  return takes_factor(op) ? std::span<const std::string_view>(kFactor) : std::span<const std::string_view>();
}

constexpr Codelet kUnary[] = {
#define TESSERA_OPERATION_CODELET(op) make_codelet<Unary::op>(#op, kUnaryFields, params_of(Unary::op)),
    TESSERA_UNARY_OPERATIONS(TESSERA_OPERATION_CODELET)
#undef TESSERA_OPERATION_CODELET
};
constexpr Codelet kBinary[] = {
#define TESSERA_OPERATION_CODELET(op) make_codelet<Binary::op>(#op, kBinaryFields, params_of(Binary::op)),
    TESSERA_BINARY_OPERATIONS(TESSERA_OPERATION_CODELET)
#undef TESSERA_OPERATION_CODELET
};

}  // namespace

constexpr Codelet exact_codelet = {.name = "exact",
                                   .fields = kBinaryFields,
                                   .params = kFunction,
                                   .reference = exact_reference,
                                   .simd = nullptr,
                                   .cost = exact_cost,
                                   .code_bytes = 256};

constexpr Codelet where_codelet = {.name = "where",
                                   .fields = kWhereFields,
                                   .params = {},
                                   .reference = where_reference,
                                   .simd = where_simd,
                                   .cost = where_cost,
                                   .code_bytes = 256};

namespace {

#define TESSERA_LIST_UNARY(op) kUnary[static_cast<size_t>(Unary::op)],
#define TESSERA_LIST_BINARY(op) kBinary[static_cast<size_t>(Binary::op)],
constexpr ListedCodelet kListed[] = {TESSERA_UNARY_OPERATIONS(TESSERA_LIST_UNARY)
                                         TESSERA_BINARY_OPERATIONS(TESSERA_LIST_BINARY) exact_codelet,
                                     where_codelet};
#undef TESSERA_LIST_UNARY
#undef TESSERA_LIST_BINARY

}  // namespace

const Codelet& codelet_of(Unary op) { return kUnary[static_cast<size_t>(op)]; }
const Codelet& codelet_of(Binary op) { return kBinary[static_cast<size_t>(op)]; }

std::span<const ListedCodelet> elementwise_codelets() { return kListed; }

}  // namespace tessera::kernels
