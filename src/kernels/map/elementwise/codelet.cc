#include "kernels/map/elementwise/codelet.h"

#include <cmath>

#include "kernels/common/activation.h"
#include "kernels/common/cost.h"
#include "kernels/common/element.h"

namespace tessera::kernels {
namespace {

using program::Codelet;
using program::FieldSpec;
using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr FieldSpec kUnaryFields[] = {TESSERA_UNARY_FIELDS(TESSERA_FIELD)};
constexpr FieldSpec kBinaryFields[] = {TESSERA_BINARY_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kFactor[] = {"factor"};

float factor_of(const Vertex& v) { return v.params.empty() ? 1 : float_of(v.params[0]); }

float evaluate(Unary op, float factor, float x) {
  switch (op) {
    case Unary::relu: return activate(Activation::relu, x);
    case Unary::gelu: return activate(Activation::gelu, x);
    case Unary::neg: return -x;
    case Unary::scale: return factor * x;
  }
  return x;
}

float evaluate(Binary op, float factor, float a, float b) {
  switch (op) {
    case Binary::add: return a + b;
    case Binary::sub: return a - b;
    case Binary::mul: return a * b;
    case Binary::add_scaled: return a + factor * b;
    case Binary::relu_gradient: return b <= 0 ? 0 : a;
  }
  return a;
}

/// For a field whose single row or column may be broadcast.
float f32_at(const FieldView& field, uint32_t row, uint32_t col) {
  return static_cast<float>(number_at(field, field.rows == 1 ? 0 : row, field.cols == 1 ? 0 : col));
}

template <class Evaluate>
void fill(const FieldView& out, const Evaluate& evaluate_at) {
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t c = 0; c < out.cols; ++c) set_number(out, r, c, evaluate_at(r, c));
}

template <Unary op>
void reference(const Vertex& v) {
  fill(v.fields[unary_field::out], [&](uint32_t r, uint32_t c) {
    return evaluate(op, factor_of(v), f32_at(v.fields[unary_field::in], r, c));
  });
}

template <Binary op>
void reference(const Vertex& v) {
  fill(v.fields[binary_field::out], [&](uint32_t r, uint32_t c) {
    return evaluate(op, factor_of(v), f32_at(v.fields[binary_field::a], r, c),
                    f32_at(v.fields[binary_field::b], r, c));
  });
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

// Vector operations per element on a host. GELU: a division, an exponential and a polynomial.
constexpr double kSimpleOperations = 1;
constexpr double kGeluOperations = 65;

program::PhaseTimes host_cost(const Vertex& v, const machine::Machine& m, double operations) {
  const size_t inputs = v.fields.size() - 1;
  const Type type = v.fields[inputs].type;
  HostWork work;
  for (size_t f = 0; f < inputs; ++f) work.read_bytes += bytes_of(v.fields[f]);
  work.written_bytes = bytes_of(v.fields[inputs]);
  operations += widen_operations(type) * static_cast<double>(inputs) + round_operations(type);
  work.vector_operations = operations * static_cast<double>(v.fields[inputs].elements());
  return in_phase(Phase::compute, host_cycles(m, work));
}

// Cycles on a tile, W = workers: 11 + W(26 half | 29 float + 3 per vector) (PopLibs, binary operations;
// assumed equal for unary ones). GELU has no public figure; 24 per vector is an estimate of its polynomial
// and exponential.
constexpr double kTileSupervisorCycles = 11;
constexpr double kTileWorkerCyclesHalf = 26;
constexpr double kTileWorkerCyclesFloat = 29;
constexpr double kTileVectorCycles = 3;
constexpr double kTileVectorCyclesGelu = 24;

program::PhaseTimes tile_cost(const Vertex& v, const machine::Machine& m, double vector_cycles) {
  const Type type = v.fields.back().type;
  const double elements = static_cast<double>(v.fields.back().elements());
  const double vectors = std::ceil(worker_slice(m, elements) / tile_vector_width(type));
  const double worker =
      (type == Type::f32 ? kTileWorkerCyclesFloat : kTileWorkerCyclesHalf) + vector_cycles * vectors;
  return in_phase(Phase::compute, kTileSupervisorCycles + m.workers_per_tile * worker);
}

template <Unary op>
program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind == machine::Kind::host)
    return host_cost(v, m, op == Unary::gelu ? kGeluOperations : kSimpleOperations);
  return tile_cost(v, m, op == Unary::gelu ? kTileVectorCyclesGelu : kTileVectorCycles);
}

template <Binary op>
program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind == machine::Kind::host) return host_cost(v, m, kSimpleOperations);
  return tile_cost(v, m, kTileVectorCycles);
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

constexpr std::span<const std::string_view> params_of(Unary op) {
  return op == Unary::scale ? std::span<const std::string_view>(kFactor)
                            : std::span<const std::string_view>();
}
constexpr std::span<const std::string_view> params_of(Binary op) {
  return op == Binary::add_scaled ? std::span<const std::string_view>(kFactor)
                                  : std::span<const std::string_view>();
}

constexpr Codelet kUnary[] = {
#define TESSERA_CODELET(op) make_codelet<Unary::op>(#op, kUnaryFields, params_of(Unary::op)),
    TESSERA_UNARY_OPERATIONS(TESSERA_CODELET)
#undef TESSERA_CODELET
};
constexpr Codelet kBinary[] = {
#define TESSERA_CODELET(op) make_codelet<Binary::op>(#op, kBinaryFields, params_of(Binary::op)),
    TESSERA_BINARY_OPERATIONS(TESSERA_CODELET)
#undef TESSERA_CODELET
};

constexpr ListedCodelet kListed[] = {
#define TESSERA_LIST(op) kUnary[static_cast<size_t>(Unary::op)],
    TESSERA_UNARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
#define TESSERA_LIST(op) kBinary[static_cast<size_t>(Binary::op)],
        TESSERA_BINARY_OPERATIONS(TESSERA_LIST)
#undef TESSERA_LIST
};

}  // namespace

const Codelet& codelet_of(Unary op) { return kUnary[static_cast<size_t>(op)]; }
const Codelet& codelet_of(Binary op) { return kBinary[static_cast<size_t>(op)]; }

std::span<const ListedCodelet> elementwise_codelets() { return kListed; }

}  // namespace tessera::kernels
