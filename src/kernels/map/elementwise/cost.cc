#include "kernels/map/elementwise/cost.h"

namespace tessera::kernels {
namespace {

// On a host, measured with bench_kernels. GELU: a division, an exponential and a polynomial.
constexpr double kSimple = 1;
constexpr double kDivision = 10;
constexpr double kSquareRoot = 11;
constexpr double kExponential = 33;
constexpr double kLogarithm = 33;
constexpr double kTanh = 40;
constexpr double kSigmoid = 40;
constexpr double kGelu = 65;

// On a tile, a load, an operation and a store (PopLibs), which ReLU and others are taken for too.
constexpr VectorCycles kSimpleVector = {3, 3};
// An estimate: polynomial and exponential.
constexpr VectorCycles kGeluVector = {24, 24};
// Estimates: the operations of which they consist.
constexpr VectorCycles kGeluGradientVector = {30, 30};
constexpr VectorCycles kProductVector = {5, 5};

}  // namespace

double host_operations(Unary op) {
  switch (op) {
    case Unary::gelu: return kGelu;
    case Unary::exp: return kExponential;
    case Unary::log: return kLogarithm;
    case Unary::sqrt: return kSquareRoot;
    case Unary::reciprocal: return kDivision;
    case Unary::tanh: return kTanh;
    case Unary::sigmoid: return kSigmoid;
    default: return kSimple;
  }
}

double host_operations(Binary op) {
  switch (op) {
    case Binary::div: return kDivision;
    case Binary::maximum:
    case Binary::minimum:
    case Binary::tanh_gradient:
    case Binary::sigmoid_gradient: return 3 * kSimple;
    case Binary::gelu_gradient: return kGelu;
    default: return kSimple;
  }
}

// PopLibs' tables of unary and binary operations.
VectorCycles tile_vector_cycles(Unary op) {
  switch (op) {
    case Unary::gelu: return kGeluVector;
    case Unary::exp: return {6, 4};
    case Unary::log: return {12, 4};
    case Unary::sqrt: return {10, 23};
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
    case Binary::maximum:
    case Binary::minimum: return {4, 4};
    case Binary::equal: return {7, 9};
    case Binary::gelu_gradient: return kGeluGradientVector;
    case Binary::tanh_gradient:
    case Binary::sigmoid_gradient: return kProductVector;
    default: return kSimpleVector;
  }
}

}  // namespace tessera::kernels
