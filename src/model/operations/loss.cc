// Losses with their gradients: scalars.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "model/lowering.h"
#include "model/operations/list.h"
#include "model/transforms/gradients.h"
#include "ops/map/reduce.h"
#include "ops/map/softmax.h"

namespace tessera::model {
namespace {

/// Outputs: the mean of −log softmax(logits)[label] over rows, and its gradient.
Types infer(const Signature& s) {
  require_dense(s);
  require_float(s, s.inputs[0]);
  const TensorType &logits = s.inputs[0], &labels = s.inputs[1];
  if (labels.type != Type::u32 || labels.elements() != logits.rows() || logits.shape.empty())
    throw UsageError(fmt::format("cross_entropy: labels are {}; logits {} need u32[{}]", to_string(labels),
                                 to_string(logits), logits.rows()));
  return {{Type::f32, {}, {}, {}}, logits};
}

/// The gradient was computed with the loss.
Gradients gradient(const Differentiation& d) {
  if (d.dy[1]) throw UsageError("cross_entropy: its second output, a gradient, has no gradient itself");
  return {is_one(*d.dy[0]) ? d.output(1) : d.output(1) * cast(*d.dy[0], d.input(0).type().type), {}};
}

std::vector<Array> reference(const Evaluation& e) {
  const TensorType& logits = e.input_type(0);
  const uint32_t cols = logits.cols(), rows = logits.rows();
  Array p = *e.inputs[0];
  double loss = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    const std::span<double> row(p.data() + uint64_t{r} * cols, cols);
    const auto label = static_cast<uint64_t>((*e.inputs[1])[r]);
    const double most = *std::ranges::max_element(row);
    double total = 0;
    for (double x : row) total += std::exp(x - most);
    const bool is_class = label < cols;
    loss += is_class ? std::log(total) + most - row[label] : std::numeric_limits<double>::quiet_NaN();
    for (uint32_t c = 0; c < cols; ++c)
      row[c] = is_class ? (std::exp(row[c] - most) / total - (c == label ? 1 : 0)) / rows
                        : std::numeric_limits<double>::quiet_NaN();
  }
  return {{loss / rows}, p};
}

void lower(Lowering& l, const Node& node) {
  const ops::Operand logits = l.input(0), labels = l.input(1), loss = l.output(0);
  const bool classes_in_rows = l.input_layout(0).transposed;
  const uint32_t classes = classes_in_rows ? logits.rows() : logits.cols();
  const uint32_t columns = classes_in_rows ? logits.cols() : logits.rows();
  const ops::Operand losses = l.temporary("losses", Type::f32, labels.rows(), labels.cols());
  const float scale = 1.0F / static_cast<float>(columns);
  const bool with_gradient = l.is_used(node.outputs[1]);
  std::vector<ops::Operand> operands = {logits, labels};
  if (with_gradient) operands.push_back(l.output(1));
  operands.push_back(losses);
  l.add(ops::SoftmaxCrossEntropyProblem{.classes = classes,
                                        .columns = columns,
                                        .scale = scale,
                                        .type = l.builder().type_of(logits),
                                        .classes_in_rows = classes_in_rows,
                                        .gradient = with_gradient},
        operands);
  l.add(ops::AxisReduceProblem{kernels::Reduction::sum, losses.rows(), losses.cols(), losses.cols() == 1,
                               Type::f32, Type::f32, scale},
        {losses, loss});
}

/// Labels lie along the dimension that holds the rows of the logits.
std::vector<LayoutChoice> layouts(Lowering&, const Node&) {
  return {{{kRows, kTransposed}, {kRows, kRows}}, {{kTransposed, kRows}, {kRows, kTransposed}}};
}

std::vector<Case> cases() {
  return {
      {.inputs = {{Type::f32, {7, 10}, {}, {}}, {Type::u32, {7}, {}, {}}}, .low = -3, .high = 3, .below = 10},
      {.inputs = {{Type::f32, {50, 3}, {}, {}}, {Type::u32, {50}, {}, {}}}, .low = -3, .high = 3, .below = 3},
      {.inputs = {{Type::f16, {6, 33}, {}, {}}, {Type::u32, {6}, {}, {}}},
       .low = -3,
       .high = 3,
       .below = 33}};
}

constexpr Operation kLoss[] = {{"cross_entropy", 2, 2, infer, gradient, reference, layouts, lower, cases}};

}  // namespace

std::span<const Operation> loss_operations() { return kLoss; }

Value cross_entropy(Value logits, Value labels) {
  return logits.owner().apply("cross_entropy", {logits, labels})[0];
}

Value mean_squared_error(Value x, Value target) { return mean(square(x - target)); }

}  // namespace tessera::model
