// Structured linear maps of a batch of samples and their gradients: planned, and added to a tile program.
#pragma once

#include <tessera/structured.h>
#include <tessera/types.h>

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "machine/model/machine.h"
#include "ops/batch_partition.h"
#include "ops/builder.h"
#include "ops/plan.h"
#include "ops/structured/tiles/partition.h"

namespace tessera::ops {

struct StructuredProblem {
  Structure structure;
  uint32_t batch = 0;
  Type type = Type::f32;    ///< type of all values and parameters; f16 only on tiles
  bool transposed = false;  ///< x, y and their gradients are [features, batch] instead of [batch, features]
  bool bias = false;        ///< on hosts: a bias is added to each sample of y
  bool gradients = false;   ///< dx and the parameters' gradients from x and dy, instead of y from x
  bool input_gradient = true;       ///< for gradients: whether dx is computed
  bool parameter_gradients = true;  ///< for gradients: whether the gradients of parameters and bias are
                                    ///< computed

  bool operator==(const StructuredProblem&) const = default;

  /// Rows and columns of a matrix of samples with `features` features.
  uint32_t rows(uint32_t features) const { return transposed ? features : batch; }
  uint32_t cols(uint32_t features) const { return transposed ? batch : features; }
};

using StructuredPartition = std::variant<BatchPartition, TileChainPartition, TileToeplitzPartition>;
using StructuredPlan = Plan<StructuredPartition>;

/// Partitions the map: on a host, the batch over the threads by cost, with one thread for small batches; on
/// tiles, the passes of a chain, or the dense products of Toeplitz matrices. Throws UsageError for impossible
/// sizes, and types or structures that the machine does not support. Equal problems on like machines are
/// planned once.
StructuredPlan plan_structured(const StructuredProblem& problem, const machine::Machine& machine);

/// Numbers of floats in a sample of x and of y, for a structure that was checked, such as a plan's.
struct StructuredFeatures {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
};
StructuredFeatures features_of(const Structure& structure);

/// Shape of a parameter as the matrix that programs store: its last dimensions are columns.
struct ParameterMatrix {
  uint32_t rows = 0;
  uint32_t cols = 0;
};
/// The matrices of the parameters of a structure that was checked.
std::vector<ParameterMatrix> parameter_matrices(const Structure& structure);
/// The bias as a matrix, in the orientation of the samples.
ParameterMatrix bias_matrix(const StructuredProblem& problem);

/// Operands of a program, of the problem's type. The forward product reads x and writes y; gradients read x
/// and dy, which is the operand `y`, and write dx and the parameters' gradients, as far as the problem has
/// them. Only the forward product reads the bias.
struct StructuredOperands {
  Operand x;
  Operand y;
  std::vector<Operand> parameters = {};
  std::optional<Operand> dx = {};
  std::vector<Operand> parameter_gradients = {};
  std::optional<Operand> bias = {};
  std::optional<Operand> bias_gradient = {};
};

/// Adds the operands of a problem as external variables; with a mapping for each parameter.
StructuredOperands external_operands(const Builder& builder, const StructuredProblem& problem,
                                     const std::vector<program::MappedBox>& parameter_mapping = {});

/// Adds the product. Throws UsageError for operands of another type or shape.
program::StepId build_structured(const Builder& builder, const StructuredProblem& problem,
                                 const StructuredPlan& plan, const StructuredOperands& operands);

}  // namespace tessera::ops
