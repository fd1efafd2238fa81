// Layer normalisation over the last dimension (Ba et al. 2016), and normalisation by the root mean square
// (Zhang & Sennrich 2019), whose mean is taken for 0: one codelet on hosts, other operations elsewhere.
#include <fmt/format.h>
#include <tessera/error.h>

#include <iterator>
#include <limits>
#include <memory>

#include "graph/broadcast.h"
#include "graph/transforms/function_gradients.h"
#include "kernels/common/element.h"
#include "kernels/map/layer_norm/codelet.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/map/map.h"

namespace tessera::graph {
namespace {

using program::Role;

constexpr double kEpsilon = 1e-5;  // PyTorch's

double epsilon_of(const Node& node) { return node.number("epsilon", kEpsilon); }

bool is_centred(const Node& node) { return node.integer("centred", 1) != 0; }

/// The type of mean and reciprocal deviation: one number per row of x.
TensorType statistics_type(const TensorType& x) {
  Shape shape = x.shape;
  shape.back() = 1;
  return {Type::f32, std::move(shape), {}, {}};
}

void require_layer_norm(const Signature& s, size_t input, std::string_view name, const TensorType& wanted) {
  if (input < s.inputs.size()) require_type(s, s.inputs[input], name, wanted);
}

TensorType weight_type(const TensorType& x) { return {x.type, {x.cols()}, {}, {}}; }

/// x, and as far as there are, weight and bias: y, mean, 1 / deviation.
Types infer_layer_norm(const Signature& s) {
  const TensorType& x = s.inputs[0];
  require_float(s, x);
  if (x.pattern || x.shape.empty())
    throw UsageError(fmt::format("{}: x is {}; it must be [..., features]", s.operation, to_string(x)));
  require_layer_norm(s, 1, "the weight", weight_type(x));
  require_layer_norm(s, 2, "the bias", weight_type(x));
  if (const double epsilon = epsilon_of(s.attributes);
      !(epsilon >= 0 && epsilon <= std::numeric_limits<float>::max()))
    throw UsageError(fmt::format("{}: epsilon is {}; it must be a finite FP32 number of at least 0",
                                 s.operation, epsilon));
  return {x, statistics_type(x), statistics_type(x)};
}

Value sum_of_squares(Value x, double scale) {
  return x.owner().apply("sum_of_squares", {x}, {{"over", "columns"}, {"scale", scale}})[0];
}

std::vector<Value> decompose_layer_norm(const Decomposition& d) {
  const Type type = d.inputs[0].type().type;
  const auto wide = [&](size_t input) { return cast(d.inputs[input], Type::f32); };
  const Value x = wide(0);
  const bool is_centred = graph::is_centred(d.node);
  const Value average = is_centred ? mean(x, {-1}, true) : Value(), centred = is_centred ? x - average : x;
  const Value rstd = reciprocal(sqrt(sum_of_squares(centred, 1.0 / x.type().cols()) + epsilon_of(d.node)));
  Value y = centred * rstd;
  if (d.inputs.size() > 1) y = y * wide(1);
  if (d.inputs.size() > 2) y = y + wide(2);
  return {cast(y, type), is_centred ? average : rstd * 0, rstd};
}

/// The gradient as a single operation, unless mean and deviation are used as well.
Gradients layer_norm_gradient(const Differentiation& d) {
  if (!d.dy[0] || d.dy[1] || d.dy[2]) return differentiate_decomposition(d);
  std::vector<Value> inputs = {*d.dy[0], d.input(0), d.output(1), d.output(2)};
  const size_t count = d.node.inputs.size();
  if (count > 1) inputs.push_back(d.input(1));
  const std::vector<Value> all =
      d.graph.apply("layer_norm_gradients", inputs,
                    {{"bias", int64_t{count > 2}}, {"centred", int64_t{is_centred(d.node)}}});
  return {all.begin(), all.end()};
}

/// dy, x, mean, 1 / deviation, and if there is one, the weight: dx, and the gradients of weight and bias.
Types infer_layer_norm_gradients(const Signature& s) {
  const TensorType& x = s.inputs[1];
  require_float(s, x);
  require_dense(s);
  if (x.shape.empty()) throw UsageError(fmt::format("{}: x is a scalar", s.operation));
  require_layer_norm(s, 0, "dy", x);
  for (const size_t i : {size_t{2}, size_t{3}}) require_layer_norm(s, i, "a statistic", statistics_type(x));
  require_layer_norm(s, 4, "the weight", weight_type(x));
  Types types = {x};
  if (s.inputs.size() > 4) types.push_back(weight_type(x));
  if (s.attributes.integer("bias", 0) != 0) types.push_back(weight_type(x));
  if (types.size() == 2 && s.inputs.size() < 5)
    throw UsageError(fmt::format("{}: a bias without a weight is not possible", s.operation));
  return types;
}

std::vector<Value> decompose_gradients(const Decomposition& d) {
  const Type type = d.inputs[0].type().type;
  const auto wide = [&](size_t input) { return cast(d.inputs[input], Type::f32); };
  const bool is_centred = graph::is_centred(d.node);
  const Value dy = wide(0), rstd = wide(3), normalised = (wide(1) - wide(2)) * rstd;
  const bool has_weight = d.inputs.size() > 4;
  const Value g = has_weight ? dy * wide(4) : dy;
  const Value centred = is_centred ? g - mean(g, {-1}, true) : g;
  const Value dx = (centred - normalised * mean(g * normalised, {-1}, true)) * rstd;
  std::vector<Value> results = {cast(dx, type)};
  if (has_weight) results.push_back(cast(sum_to(dy * normalised, weight_type(dy.type())), type));
  if (d.node.integer("bias", 0) != 0) results.push_back(cast(sum_to(dy, weight_type(dy.type())), type));
  return results;
}

/// A codelet over the samples, or over the features, of matrices that all lie the same way.
class HostOperation {
 public:
  HostOperation(Lowering& l, const program::Codelet& codelet, const ops::Operand& x, bool splits_samples)
      : l_(l),
        features_in_rows_(l.input_layout(0).transposed),
        splits_rows_(splits_samples != features_in_rows_),
        operation_{.codelet = &codelet,
                   .rows = splits_rows_ ? x.rows() : 1,
                   .cols = splits_rows_ ? 1 : x.cols(),
                   .params = {features_in_rows_ ? 1 : 0}} {}

  /// Adds an operand; each vertex takes its own part of it, or all.
  void add(const char* name, Role role, const ops::Operand& operand, bool is_split) {
    operands_.push_back(operand);
    describe(name, role, l_.builder().type_of(operand), operand.rows(), operand.cols(), is_split);
  }
  /// Adds a constant with the same number for each feature, instead of a missing operand.
  void add_constant(const char* name, Type type, uint32_t features, double value) {
    const std::shared_ptr<std::byte[]> all(new std::byte[features * size_of(type)]);
    for (uint32_t i = 0; i < features; ++i) kernels::store_number(type, all.get() + i * size_of(type), value);
    describe(name, Role::constant, type, features_in_rows_ ? features : 1, features_in_rows_ ? 1 : features,
             false);
    operation_.operands.back().contents = {all, all.get()};
  }
  void add_parameter(int64_t value) { operation_.params.push_back(value); }

  void run() {
    const ops::MapPlan plan = ops::plan_map(l_.builder(), operation_, operands_);
    l_.run(ops::build_map(l_.builder(), operation_, plan, operands_));
  }

 private:
  void describe(const char* name, Role role, Type type, uint32_t rows, uint32_t cols, bool is_split) {
    operation_.operands.push_back(
        {name, type, role, rows, cols, is_split && splits_rows_, is_split && !splits_rows_});
  }

  Lowering& l_;
  bool features_in_rows_;
  bool splits_rows_;
  ops::MapOperation operation_;
  std::vector<ops::Operand> operands_;
};

void lower_layer_norm(Lowering& l, const Node& node) {
  const TensorType& type = l.graph().type(node.inputs[0]);
  HostOperation operation(l, kernels::layer_norm_codelet, l.input(0), true);
  operation.add("x", Role::input, l.input(0), true);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    const char* name = i == 1 ? "weight" : "bias";
    if (i < node.inputs.size())
      operation.add(name, Role::input, l.input(i), false);
    else
      operation.add_constant(name, type.type, type.cols(), i == 1 ? 1 : 0);
  }
  operation.add("mean", Role::output, l.output(1), true);
  operation.add("rstd", Role::output, l.output(2), true);
  operation.add("y", Role::output, l.output(0), true);
  operation.add_parameter(kernels::param_of(static_cast<float>(epsilon_of(node))));
  operation.add_parameter(is_centred(node) ? 1 : 0);
  operation.run();
}

/// dy, x, mean and reciprocal deviation.
void add_inputs(HostOperation& operation, Lowering& l, bool splits_samples) {
  constexpr const char* kNames[] = {"dy", "x", "mean", "rstd"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    operation.add(kNames[i], Role::input, l.input(i), i < 2 || splits_samples);
}

void lower_layer_norm_gradients(Lowering& l, const Node& node) {
  const TensorType& type = l.graph().type(node.inputs[1]);
  const bool has_weight = node.inputs.size() > 4;
  if (l.is_used(node.outputs[0])) {
    HostOperation operation(l, kernels::layer_norm_input_gradient_codelet, l.input(1), true);
    add_inputs(operation, l, true);
    if (has_weight)
      operation.add("weight", Role::input, l.input(4), false);
    else
      operation.add_constant("weight", type.type, type.cols(), 1);
    operation.add("dx", Role::output, l.output(0), true);
    operation.add_parameter(is_centred(node) ? 1 : 0);
    operation.run();
  }
  const auto is_used = [&](size_t i) { return i < node.outputs.size() && l.is_used(node.outputs[i]); };
  if (!is_used(1) && !is_used(2)) return;
  HostOperation operation(l, kernels::layer_norm_weight_gradient_codelet, l.input(1), false);
  add_inputs(operation, l, false);
  const ops::Operand dweight = l.output(1);
  const ops::Operand dbias =
      node.outputs.size() > 2 ? l.output(2) : l.temporary("bias", type.type, dweight.rows(), dweight.cols());
  operation.add("dbias", Role::output, dbias, true);
  operation.add("dweight", Role::output, dweight, true);
  operation.run();
}

std::vector<Case> layer_norm_cases() {
  std::vector<Case> cases = {
      {.inputs = {dense_type(Type::f32, {3, 4, 10}), dense_type(Type::f32, {10}),
                  dense_type(Type::f32, {10})}},
      {.inputs = {dense_type(Type::f32, {5, 33}), dense_type(Type::f32, {33})},
       .attributes = {{"epsilon", 0.01}}},
      {.inputs = {dense_type(Type::f32, {19, 7})}},
      {.inputs = {dense_type(Type::f32, {12})}},
      {.inputs = {dense_type(Type::f32, {3, 5, 17}), dense_type(Type::f32, {17})},
       .attributes = {{"centred", int64_t{0}}}},
      {.inputs = {dense_type(Type::f32, {8, 6})}, .attributes = {{"centred", int64_t{0}}}},
  };
  for (Type type : {Type::f16, Type::bf16})
    cases.push_back({.inputs = {dense_type(type, {9, 21}), dense_type(type, {21}), dense_type(type, {21})}});
  for (Case& c : cases) c.low = -2, c.high = 3;
  return cases;
}

std::vector<Case> layer_norm_gradients_cases() {
  std::vector<Case> all = layer_norm_cases();
  for (Case& c : all) {
    const TensorType x = c.inputs[0];
    Types inputs = {x, x, statistics_type(x), statistics_type(x)};
    if (c.inputs.size() > 1) inputs.push_back(c.inputs[1]);
    const int64_t centred = c.attributes.contains("centred") ? 0 : 1;
    c = {.inputs = std::move(inputs),
         .attributes = {{"bias", int64_t{c.inputs.size() > 2}}, {"centred", centred}}};
  }
  return all;
}

constexpr Operation kLayerNorm[] = {{.name = "layer_norm",
                                     .least_inputs = 1,
                                     .most_inputs = 3,
                                     .infer = infer_layer_norm,
                                     .gradient = layer_norm_gradient,
                                     .layouts = same_layouts,
                                     .lower = lower_layer_norm,
                                     .cases = layer_norm_cases,
                                     .traits = {.keeps_samples = rows_keep_samples},
                                     .decompose = decompose_layer_norm,
                                     .lowers_on = lowers_on_hosts},
                                    {.name = "layer_norm_gradients",
                                     .least_inputs = 4,
                                     .most_inputs = 5,
                                     .infer = infer_layer_norm_gradients,
                                     .layouts = same_layouts,
                                     .lower = lower_layer_norm_gradients,
                                     .cases = layer_norm_gradients_cases,
                                     .decompose = decompose_gradients,
                                     .lowers_on = lowers_on_hosts}};

}  // namespace

std::span<const Operation> layer_norm_operations() { return kLayerNorm; }

Value layer_norm(Value x, std::optional<Value> weight, std::optional<Value> bias, double epsilon) {
  if (bias && !weight) return layer_norm(x, {}, {}, epsilon) + *bias;
  std::vector<Value> inputs = {x};
  if (weight) inputs.push_back(*weight);
  if (bias) inputs.push_back(*bias);
  return x.owner().apply("layer_norm", inputs, {{"epsilon", epsilon}})[0];
}

Value rms_norm(Value x, std::optional<Value> weight, double epsilon) {
  std::vector<Value> inputs = {x};
  if (weight) inputs.push_back(*weight);
  return x.owner().apply("layer_norm", inputs, {{"epsilon", epsilon}, {"centred", int64_t{0}}})[0];
}

}  // namespace tessera::graph
