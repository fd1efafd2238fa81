#include "kernels/map/elementwise/cost.h"

namespace tessera::kernels {
namespace {

// On a host, measured with bench_kernels. GELU: its gradient, an exponential and a polynomial.
constexpr double kSimple = 1;
constexpr double kDivision = 10;
constexpr double kSquareRoot = 11;
constexpr double kExponential = 33;
constexpr double kLogarithm = 33;
constexpr double kTanh = 40;
constexpr double kSigmoid = 40;
constexpr double kGelu = 65;
constexpr double kErf = 36;
constexpr double kGeluTanh = 46;
constexpr double kSine = 40;
constexpr double kRemainder = 1300;  // lane by lane

// On a tile, a load, an operation and a store (PopLibs), assumed for ReLU and others too.
constexpr VectorCycles kSimpleVector = {3, 3};
// An estimate: polynomial and exponential.
constexpr VectorCycles kGeluVector = {24, 24};
// Estimates: the operations of which they consist.
constexpr VectorCycles kGeluGradientVector = {30, 30};
constexpr VectorCycles kProductVector = {5, 5};
constexpr VectorCycles kGeluTanhVector = {16, 10};
constexpr VectorCycles kSiluVector = {13, 7};
constexpr VectorCycles kSiluGradientVector = {16, 10};
constexpr VectorCycles kRsqrtVector = {16, 38};
constexpr VectorCycles kSineVector = {24, 24};
constexpr VectorCycles kRemainderVector = {16, 27};

}  // namespace

double host_operations(Unary op) {
  switch (op) {
    case Unary::gelu:
    case Unary::erf: return kErf;
    case Unary::gelu_tanh: return kGeluTanh;
    case Unary::silu: return kSigmoid;
    case Unary::sin:
    case Unary::cos: return kSine;
    case Unary::exp: return kExponential;
    case Unary::log: return kLogarithm;
    case Unary::sqrt: return kSquareRoot;
    case Unary::rsqrt: return kSquareRoot + kDivision;
    case Unary::reciprocal: return kDivision;
    case Unary::tanh: return kTanh;
    case Unary::sigmoid: return kSigmoid;
    default: return kSimple;
  }
}

double host_operations(Binary op) {
  switch (op) {
    case Binary::div: return kDivision;
    case Binary::fmod: return kRemainder;
    case Binary::maximum:
    case Binary::minimum:
    case Binary::tanh_gradient:
    case Binary::sigmoid_gradient: return 3 * kSimple;
    case Binary::gelu_gradient: return kGelu;
    case Binary::gelu_tanh_gradient: return kGeluTanh;
    case Binary::silu_gradient: return kSigmoid;
    default: return kSimple;
  }
}

// PopLibs' tables of unary and binary operations.
VectorCycles tile_vector_cycles(Unary op) {
  switch (op) {
    case Unary::gelu:
    case Unary::erf: return kGeluVector;
    case Unary::gelu_tanh: return kGeluTanhVector;
    case Unary::silu: return kSiluVector;
    case Unary::sin:
    case Unary::cos: return kSineVector;
    case Unary::exp: return {6, 4};
    case Unary::log: return {12, 4};
    case Unary::sqrt: return {10, 23};
    case Unary::rsqrt: return kRsqrtVector;
    case Unary::reciprocal: return {6, 15};
    case Unary::tanh: return {12, 4};
    case Unary::sigmoid: return {12, 6};
    case Unary::square: return {2, 2};
    default: return kSimpleVector;
  }
}

VectorCycles tile_vector_cycles(Binary op) {
  switch (op) {
    case Binary::div: return {10, 21};
    case Binary::fmod: return kRemainderVector;
    case Binary::maximum:
    case Binary::minimum: return {4, 4};
    case Binary::equal:
    case Binary::not_equal:
    case Binary::less:
    case Binary::less_equal: return {7, 9};
    case Binary::gelu_gradient:
    case Binary::gelu_tanh_gradient: return kGeluGradientVector;
    case Binary::silu_gradient: return kSiluGradientVector;
    case Binary::tanh_gradient:
    case Binary::sigmoid_gradient: return kProductVector;
    default: return kSimpleVector;
  }
}

}  // namespace tessera::kernels
