// Losses with their gradients: scalars.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/integer_types.h"
#include "graph/transforms/gradients.h"
#include "lower/lowering.h"
#include "operations/constants.h"
#include "operations/list.h"
#include "ops/map/elementwise.h"
#include "ops/map/reduce.h"
#include "ops/map/softmax.h"

namespace tessera::graph {
namespace {

/// Logits, labels, and if there are, weights of rows. Outputs: the mean of −log softmax(logits)[label] over
/// rows, or the sum times weights; its gradient; and the terms of that sum.
Types infer_loss(const Signature& s) {
  require_dense(s);
  require_float(s, s.inputs[0]);
  const TensorType &logits = s.inputs[0], &labels = s.inputs[1];
  if (labels.type != Type::u32 || labels.elements() != logits.rows() || logits.shape.empty())
    throw UsageError(fmt::format("cross_entropy: labels are {}; logits {} need u32[{}]", to_string(labels),
                                 to_string(logits), logits.rows()));
  const TensorType terms{Type::f32, labels.shape, {}, {}};
  if (s.inputs.size() > 2 && !(s.inputs[2] == terms))
    throw UsageError(fmt::format("cross_entropy: weights of rows are {}; they must be {}",
                                 to_string(s.inputs[2]), to_string(terms)));
  return {{Type::f32, {}, {}, {}}, logits, terms};
}

/// The gradient of weights: the losses of rows without weights.
std::optional<Value> weights_gradient(const Differentiation& d) {
  if (d.node.inputs.size() < 3 || !d.needed[2]) return {};
  const Value losses = d.graph.apply("cross_entropy", {d.input(0), d.input(1)})[2];
  std::optional<Value> dw;
  for (const size_t output : {0, 2})
    if (d.dy[output]) dw = dw ? *dw + losses * *d.dy[output] : losses * *d.dy[output];
  return dw;
}

/// The gradient of 16-bit logits, multiplied by the gradients of the loss and of its terms, such as loss
/// scales, and rounded once: in 16 bits, a scale may be infinite, and values that it should keep from
/// vanishing are 0.
Value scaled_gradient(const Differentiation& d) {
  const TensorType labels = d.input(1).type();
  const bool is_weighted = d.node.inputs.size() > 2;
  std::optional<Value> of_rows;
  const auto add = [&](Value x) { of_rows = of_rows ? *of_rows + x : x; };
  if (d.dy[0] && is_weighted) add(d.input(2) * *d.dy[0]);
  if (d.dy[0] && !is_weighted) {
    const uint64_t rows = labels.elements();
    std::vector<float> shares(rows, 1 / static_cast<float>(rows));
    add(d.graph.constant("", labels.shape, std::move(shares)) * *d.dy[0]);
  }
  if (d.dy[2]) add(is_weighted ? d.input(2) * *d.dy[2] : *d.dy[2]);
  return d.graph.apply("cross_entropy", {d.input(0), d.input(1), *of_rows})[1];
}

/// The gradient of logits was computed with the loss.
Gradients loss_gradient(const Differentiation& d) {
  if (d.dy[1]) throw UsageError("cross_entropy: its second output, a gradient, has no gradient itself");
  const TensorType logits = d.input(0).type();
  const bool is_plain = d.dy[0] && is_one(*d.dy[0]), is_wide = logits.type == Type::f32;
  std::optional<Value> dx;
  if (!is_wide && (d.dy[2] || (d.dy[0] && !is_plain)))
    dx = scaled_gradient(d);
  else if (d.dy[0])
    dx = is_plain ? d.output(1) : d.output(1) * *d.dy[0];
  if (is_wide && d.dy[2]) {
    Shape column = logits.shape;
    column.back() = 1;
    Value of_rows = reshape(*d.dy[2], column);
    if (d.node.inputs.size() < 3) of_rows = of_rows * logits.rows();
    const Value own = d.output(1) * of_rows;
    dx = dx ? *dx + own : own;
  }
  Gradients gradients(d.node.inputs.size());
  gradients[0] = dx;
  if (gradients.size() > 2) gradients[2] = weights_gradient(d);
  return gradients;
}

std::vector<Array> loss_reference(const Evaluation& e) {
  const TensorType& logits = e.input_type(0);
  const uint32_t cols = logits.cols(), rows = logits.rows();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  Array p = *e.inputs[0], terms(rows);
  double loss = 0;
  for (uint32_t r = 0; r < rows; ++r) {
    const std::span<double> row(p.data() + uint64_t{r} * cols, cols);
    const auto label = static_cast<uint64_t>((*e.inputs[1])[r]);
    const double weight = e.inputs.size() > 2 ? (*e.inputs[2])[r] : 1;
    const double scale = e.inputs.size() > 2 ? weight : 1.0 / rows;
    const double most = *std::ranges::max_element(row);
    double total = 0;
    for (double x : row) total += std::exp(x - most);
    const bool is_class = label < cols, is_invalid = !is_class && weight != 0;
    if (is_class) terms[r] = weight == 0 ? 0 : weight * (std::log(total) + most - row[label]);
    if (is_invalid) terms[r] = nan;
    loss += scale == 0 ? 0 : terms[r] / weight * scale;
    for (uint32_t c = 0; c < cols; ++c)
      row[c] = is_invalid ? nan : (std::exp(row[c] - most) / total - (c == label ? 1 : 0)) * scale;
  }
  return {{loss}, p, terms};
}

/// The loss, and the gradient if it is used. Without a gradient, the weights are applied afterwards.
ops::SoftmaxCrossEntropyProblem loss_problem_of(const Lowering& l, const Node& node, bool classes_in_rows) {
  const TensorType& logits = l.graph().type(node.inputs[0]);
  const bool weighted = node.inputs.size() > 2, with_gradient = l.is_used(node.outputs[1]);
  return {.classes = logits.cols(),
          .columns = logits.rows(),
          .scale = weighted ? 1 : 1.0F / static_cast<float>(logits.rows()),
          .type = logits.type,
          .classes_in_rows = classes_in_rows,
          .gradient = with_gradient,
          .weighted = weighted && with_gradient};
}

void lower_loss(Lowering& l, const Node& node) {
  const ops::Operand logits = l.input(0), labels = l.input(1), loss = l.output(0);
  const ops::Operand terms = l.is_used(node.outputs[2])
                                 ? l.output(2)
                                 : l.temporary("losses", Type::f32, labels.rows(), labels.cols());
  const ops::SoftmaxCrossEntropyProblem problem = loss_problem_of(l, node, l.input_layout(0).transposed);
  std::vector<ops::Operand> operands = {logits, labels};
  if (problem.weighted) operands.push_back(l.input(2));
  if (problem.gradient) operands.push_back(l.output(1));
  operands.push_back(terms);
  l.add(problem, operands);
  if (node.inputs.size() > 2 && !problem.gradient) {
    // Terms with weight 0 may be NaN.
    const ops::Operand weights = l.input(2);
    l.add(ops::WhereProblem{Type::f32, terms.rows(), terms.cols()}, {weights, terms, weights, terms});
    l.add(ops::BinaryProblem{kernels::Binary::mul, Type::f32, terms.rows(), terms.cols()},
          {terms, weights, terms});
  }
  l.add(ops::AxisReduceProblem{kernels::Reduction::sum, terms.rows(), terms.cols(), terms.cols() == 1,
                               Type::f32, Type::f32, problem.scale},
        {terms, loss});
}

/// What it takes on tiles where operands are spread over all of them.
double loss_seconds(Lowering& l, const Node& node, const LayoutChoice& choice) {
  return seconds_alone(l.builder().machine(), [&](const ops::Builder& builder) {
    using program::Role;
    const auto operand = [&](const char* name, Role role, ValueId id, const ValueLayout& layout) {
      const TensorType& type = l.graph().type(id);
      return builder.add(name, role, type.type, l.operand_layout(type, layout));
    };
    const ops::SoftmaxCrossEntropyProblem problem = loss_problem_of(l, node, choice.inputs[0].transposed);
    std::vector<ops::Operand> operands = {operand("logits", Role::input, node.inputs[0], choice.inputs[0]),
                                          operand("labels", Role::input, node.inputs[1], choice.inputs[1])};
    if (problem.weighted)
      operands.push_back(operand("weights", Role::input, node.inputs[2], choice.inputs[2]));
    if (problem.gradient)
      operands.push_back(operand("gradient", Role::output, node.outputs[1], choice.outputs[1]));
    operands.push_back(operand("losses", Role::output, node.outputs[2], choice.outputs[2]));
    return ops::add(builder, problem, operands);
  });
}

/// Labels and weights lie along the dimension that holds the rows of the logits.
std::vector<LayoutChoice> loss_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = {{{kRows, kTransposed}, {kRows, kRows, kTransposed}},
                                       {{kTransposed, kRows}, {kRows, kTransposed, kRows}}};
  for (LayoutChoice& choice : choices) {
    if (node.inputs.size() > 2) choice.inputs.push_back(choice.inputs[1]);
    if (!l.on_host()) choice.seconds = loss_seconds(l, node, choice);
  }
  return choices;
}

std::vector<Case> loss_cases() {
  return {
      {.inputs = {{Type::f32, {7, 10}, {}, {}}, {Type::u32, {7}, {}, {}}}, .low = -3, .high = 3, .below = 10},
      {.inputs = {{Type::f32, {50, 3}, {}, {}}, {Type::u32, {50}, {}, {}}}, .low = -3, .high = 3, .below = 3},
      {.inputs = {{Type::f16, {6, 33}, {}, {}}, {Type::u32, {6}, {}, {}}}, .low = -3, .high = 3, .below = 33},
      {.inputs = {{Type::f32, {5, 12}, {}, {}}, {Type::u32, {5}, {}, {}}, {Type::f32, {5}, {}, {}}},
       .low = -3,
       .high = 3,
       .given = {{1, {3, 9, 0, 11, 7}}, {2, {0.5, 0, 2, 1, 0}}}},
      // Where a weight is 0, any label is accepted.
      {.inputs = {{Type::f32, {5, 12}, {}, {}}, {Type::u32, {5}, {}, {}}, {Type::f32, {5}, {}, {}}},
       .low = -3,
       .high = 3,
       .differentiable = false,
       .given = {{1, {3, 200, 0, 11, 7}}, {2, {0.5, 0, 2, 1, 0}}}},
      {.inputs = {{Type::f16, {4, 9}, {}, {}}, {Type::u32, {4}, {}, {}}, {Type::f32, {4}, {}, {}}},
       .low = -3,
       .high = 3,
       .differentiable = false,
       .given = {{1, {8, 0, 99, 4}}, {2, {1, 0.25, 0, 3}}}}};
}

constexpr Operation kLoss[] = {
    {"cross_entropy", 2, 3, infer_loss, loss_gradient, loss_reference, loss_layouts, lower_loss, loss_cases}};

// Losses with options, composed of this operation and others.

void check_loss(const CrossEntropyOptions& options, const TensorType& logits) {
  if (!(options.smoothing >= 0 && options.smoothing <= 1))
    throw UsageError(
        fmt::format("cross_entropy: the smoothing is {}; it must be from 0 to 1", options.smoothing));
  if (options.weight && options.weight->shape() != Shape{logits.cols()})
    throw UsageError(fmt::format("cross_entropy: weights are {}; logits {} need one of each class",
                                 to_string(options.weight->type()), to_string(logits)));
}

/// Reduces the losses of rows to one; a mean divides by `count`, or by the number of rows.
Value reduced(Value terms, LossReduction reduction, std::optional<Value> count = {}) {
  if (reduction == LossReduction::none) return terms;
  if (reduction == LossReduction::sum) return sum(terms);
  return count ? sum(terms) / *count : mean(terms);
}

Value of_probabilities(Value logits, Value target, const CrossEntropyOptions& options) {
  check_loss(options, logits.type());
  if (options.ignored) throw UsageError("cross_entropy: a label is ignored, but targets are probabilities");
  if (target.shape() != logits.shape())
    throw UsageError(
        fmt::format("cross_entropy: the target is {}; logits {} need u32[{}], or probabilities of "
                    "their shape",
                    to_string(target.type()), to_string(logits.type()), logits.type().rows()));
  Value p = cast(target, Type::f32);
  if (options.smoothing > 0) p = p * (1 - options.smoothing) + options.smoothing / logits.type().cols();
  if (options.weight) p = p * cast(*options.weight, Type::f32);
  return reduced(-sum(p * log_softmax(cast(logits, Type::f32)), {-1}), options.reduction);
}

class LabelledRows {
 public:
  LabelledRows(Value logits, Value labels, const CrossEntropyOptions& options)
      : options_(options), shape_(labels.shape()) {
    check_loss(options, logits.type());
    const uint32_t rows = logits.type().rows(), classes = logits.type().cols();
    if (labels.type().elements() != rows)
      throw UsageError(fmt::format("cross_entropy: labels are {}; logits {} need u32[{}]",
                                   to_string(labels.type()), to_string(logits.type()), rows));
    logits_ = reshape(logits, {rows, classes});
    labels_ = reshape(labels, {rows});
    if (options.ignored) {
      const Value counts = not_equal(labels_, whole_number(graph(), *options.ignored));
      counts_ = cast(counts, Type::f32);
      labels_ = labels_ * counts;
    } else {
      counts_ = graph().constant("", {rows}, std::vector<float>(rows, 1));
    }
    weights_ = counts_;
    if (options.weight)
      weights_ = counts_ * reshape(embedding(labels_, reshape(class_weights(), {classes, 1})), {rows});
  }

  Value loss() const {
    const bool is_mean = options_.reduction == LossReduction::mean;
    // Sums and counts are divided once, before gradients are taken.
    const Value share = is_mean ? reciprocal(sum(weights_)) : Value();
    const auto scaled = [&](Value of_rows) { return is_mean ? of_rows * share : of_rows; };
    Value terms = weights_;
    if (options_.smoothing > 0) terms = terms * (1 - options_.smoothing);
    const std::vector<Value> found = graph().apply("cross_entropy", {logits_, labels_, scaled(terms)});
    if (options_.smoothing == 0)
      return options_.reduction == LossReduction::none ? reshape(found[2], shape_) : found[0];
    const Value spread = scaled(smoothed());
    if (options_.reduction == LossReduction::none) return reshape(found[2] + spread, shape_);
    return found[0] + sum(spread);
  }

 private:
  Graph& graph() const { return logits_.owner(); }
  Value class_weights() const { return cast(*options_.weight, Type::f32); }

  /// The part of the target that is uniform over all classes, for each row; ignored rows may have infinite
  /// logits.
  Value smoothed() const {
    Value log_p = log_softmax(cast(logits_, Type::f32));
    if (options_.weight) log_p = log_p * class_weights();
    const Value of_rows = sum(log_p, {-1}) * (-options_.smoothing / logits_.type().cols());
    return options_.ignored ? where(counts_, of_rows, number(of_rows, 0)) : of_rows;
  }

  const CrossEntropyOptions& options_;
  Shape shape_;
  Value logits_, labels_, counts_, weights_;
};

}  // namespace

std::span<const Operation> loss_operations() { return kLoss; }

Value cross_entropy(Value logits, Value target, const CrossEntropyOptions& options) {
  target = as_indices(target);
  if (target.type().type != Type::u32) return of_probabilities(logits, target, options);
  const bool is_plain = !options.weight && !options.ignored && options.smoothing == 0;
  if (is_plain && options.reduction == LossReduction::mean) {
    // Losses form a row or a column, as labels do.
    const uint32_t rows = logits.type().rows();
    if (target.shape().size() > 1 && target.type().elements() == rows) target = reshape(target, {rows});
    return logits.owner().apply("cross_entropy", {logits, target})[0];
  }
  return LabelledRows(logits, target, options).loss();
}

Value mean_squared_error(Value x, Value target) {
  const Value difference = x - target;
  const Type type = difference.type().type;
  if (is_integer(type)) return mean(square(difference));
  // A square may be beyond FP16 where the mean is not.
  return cast(mean(square(cast(difference, Type::f32))), type);
}

}  // namespace tessera::graph
