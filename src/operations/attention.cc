// Scaled dot-product attention (Vaswani et al. 2017): one pass over the keys or, where a tile cannot hold the
// keys of a sequence, products and a softmax.
#include "ops/map/attention.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cmath>
#include <initializer_list>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "base/integer_types.h"
#include "graph/transforms/function_gradients.h"
#include "kernels/product/attention/codelet.h"
#include "lower/lowering.h"
#include "operations/constants.h"
#include "operations/dropout.h"
#include "operations/list.h"
#include "ops/split.h"

namespace tessera::graph {
namespace {

bool drops(const Node& node) { return node.attributes.contains("p"); }

/// q, k, v; then, if there are any, the ids of queries and of keys, the bias, and the step of dropout.
struct Inputs {
  bool has_ids, has_bias, has_dropout;

  explicit Inputs(const Node& node)
      : has_ids(node.integer("ids", 0) != 0),
        has_bias(node.integer("bias", 0) != 0),
        has_dropout(drops(node)) {}
  size_t bias() const { return has_ids ? 5 : 3; }
  size_t step() const { return bias() + (has_bias ? 1 : 0); }
  size_t count() const { return step() + (has_dropout ? 1 : 0); }
};

uint32_t tokens_of(const TensorType& type) { return type.shape[type.shape.size() - 2]; }

Attributes attention_attributes_of(const Attention& of) {
  Attributes attributes = {{"heads", int64_t{of.heads}}};
  if (of.kv_heads != 0) attributes["kv_heads"] = int64_t{of.kv_heads};
  if (of.scale) attributes["scale"] = *of.scale;
  if (of.left) attributes["left"] = int64_t{*of.left};
  if (of.right) attributes["right"] = int64_t{*of.right};
  if (of.offset != 0) attributes["offset"] = of.offset;
  if (of.dropout != 0) {
    attributes["p"] = of.dropout;
    attributes["seed"] = static_cast<int64_t>(of.seed);
  }
  return attributes;
}

ops::AttentionProblem attention_problem_of(const Node& node, const TensorType& q, const TensorType& k,
                                           const TensorType& v) {
  ops::AttentionProblem p;
  p.type = q.type;
  p.queries = tokens_of(q);
  p.keys = tokens_of(k);
  p.sequences = q.rows() / p.queries;
  p.heads = static_cast<uint32_t>(node.integer("heads"));
  p.kv_heads = static_cast<uint32_t>(node.integer("kv_heads", p.heads));
  p.size = q.cols() / p.heads;
  p.value_size = v.cols() / p.kv_heads;
  p.scale = static_cast<float>(node.number("scale", 1 / std::sqrt(double{1} * p.size)));
  p.left = node.integer("left", -1);
  p.right = node.integer("right", -1);
  p.offset = node.integer("offset", 0);
  return p;
}

[[noreturn]] void refuse(const Signature& s, std::string_view what) {
  throw UsageError(fmt::format("{}: {}", s.operation, what));
}

void require_heads(const Signature& s, int64_t heads, int64_t kv_heads) {
  const TensorType &q = s.inputs[0], &k = s.inputs[1], &v = s.inputs[2];
  if (heads < 1 || kv_heads < 1 || heads % kv_heads != 0 || heads > q.cols() || kv_heads > k.cols())
    refuse(s, fmt::format("{} heads cannot share {} of keys and values", heads, kv_heads));
  if (q.cols() % heads != 0 || k.cols() % kv_heads != 0 || q.cols() / heads != k.cols() / kv_heads)
    refuse(s, fmt::format("queries {} and keys {} are not {} and {} heads of one size", to_string(q),
                          to_string(k), heads, kv_heads));
  if (v.cols() % kv_heads != 0)
    refuse(s, fmt::format("the values {} do not have {} heads", to_string(v), kv_heads));
}

void require_attention_ids(const Signature& s, size_t input, const TensorType& of) {
  Shape shape = of.shape;
  shape.pop_back();
  if (const TensorType &ids = s.inputs[input], wanted = {Type::u32, shape, {}, {}}; !(ids == wanted))
    refuse(s, fmt::format("the ids are {}; they must be {}", to_string(ids), to_string(wanted)));
}

void require_bias(const Signature& s, const TensorType& bias, const ops::AttentionProblem& p) {
  const Shape whole = {p.sequences, p.heads, p.queries, p.keys};
  bool fits = bias.type == s.inputs[0].type && bias.shape.size() == 4 && bias.shape[3] == p.keys;
  for (size_t i = 0; fits && i < 3; ++i) fits = bias.shape[i] == 1 || bias.shape[i] == whole[i];
  if (!fits)
    refuse(s, fmt::format("the bias is {}; it must be {}, of which all but the last may be 1",
                          to_string(bias), to_string(TensorType{s.inputs[0].type, whole, {}, {}})));
}

void require_window(const Signature& s) {
  for (const char* limit : {"left", "right"})
    if (s.attributes.attributes.contains(limit) && s.attributes.integer(limit) < 0)
      refuse(s, fmt::format("the limit {} is {}; it must be at least 0, or left out for none", limit,
                            s.attributes.integer(limit)));
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  for (const char* distance : {"left", "right", "offset"})
    if (const int64_t value = s.attributes.integer(distance, 0); value < -kMost || value > kMost)
      refuse(s, fmt::format("{} is {}; it must be from -2^32 + 1 to 2^32 - 1", distance, value));
}

/// Throws UsageError for invalid inputs of an attention.
void require_attention_inputs(const Signature& s) {
  const TensorType &q = s.inputs[0], &k = s.inputs[1], &v = s.inputs[2];
  require_dense(s);
  require_float(s, q);
  const Inputs inputs(s.attributes);
  if (s.inputs.size() < inputs.count())
    refuse(s, fmt::format("{} inputs; it takes {}", s.inputs.size(), inputs.count()));
  const auto leading = [](const TensorType& type) { return Shape(type.shape.begin(), type.shape.end() - 2); };
  if (q.type != k.type || q.type != v.type || q.shape.size() < 2 || k.shape.size() != q.shape.size() ||
      v.shape.size() != q.shape.size() || leading(q) != leading(k) || leading(q) != leading(v) ||
      tokens_of(k) != tokens_of(v))
    refuse(s, fmt::format(
                  "queries {}, keys {} and values {} are not [..., tokens, features] of one type and the "
                  "same leading dimensions",
                  to_string(q), to_string(k), to_string(v)));
  const int64_t heads = s.attributes.integer("heads");
  require_heads(s, heads, s.attributes.integer("kv_heads", heads));
  const ops::AttentionProblem p = attention_problem_of(s.attributes, q, k, v);
  require_window(s);
  if (!std::isfinite(p.scale)) refuse(s, fmt::format("the scale is {}", p.scale));
  if (inputs.has_ids) {
    require_attention_ids(s, 3, q);
    require_attention_ids(s, 4, k);
  }
  if (inputs.has_bias) require_bias(s, s.inputs[inputs.bias()], p);
  if (inputs.has_dropout) require_dropout(s, s.inputs[inputs.step()]);
}

TensorType lse_type(const TensorType& q, uint32_t heads) {
  TensorType type{Type::f32, q.shape, {}, {}};
  type.shape.back() = heads;
  return type;
}

TensorType result_type(const TensorType& q, const ops::AttentionProblem& p) {
  TensorType type = q;
  type.shape.back() = p.heads * p.value_size;
  return type;
}

Types infer_attention(const Signature& s) {
  require_attention_inputs(s);
  const ops::AttentionProblem p = attention_problem_of(s.attributes, s.inputs[0], s.inputs[1], s.inputs[2]);
  return {result_type(s.inputs[0], p), lse_type(s.inputs[0], p.heads)};
}

/// The inputs, y, lse, dy: dq, dk, dv.
Types infer_attention_gradient(const Signature& s) {
  require_attention_inputs(s);
  const size_t count = Inputs(s.attributes).count();
  const ops::AttentionProblem p = attention_problem_of(s.attributes, s.inputs[0], s.inputs[1], s.inputs[2]);
  const TensorType y = result_type(s.inputs[0], p);
  if (s.inputs.size() != count + 3 || !(s.inputs[count] == y) || !(s.inputs[count + 2] == y) ||
      !(s.inputs[count + 1] == lse_type(s.inputs[0], p.heads)))
    refuse(s, "results and their gradient do not match the inputs");
  return {s.inputs[0], s.inputs[1], s.inputs[2]};
}

/// The gradient as a single operation, unless the bias or the logarithm has a gradient.
Gradients attention_gradient(const Differentiation& d) {
  const Inputs inputs(d.node);
  const bool needs_bias = inputs.has_bias && d.needed[inputs.bias()];
  if (!d.dy[0] || d.dy[1] || needs_bias) return differentiate_decomposition(d);
  std::vector<Value> all;
  for (size_t i = 0; i < inputs.count(); ++i) all.push_back(d.input(i));
  all.insert(all.end(), {d.output(0), d.output(1), *d.dy[0]});
  const std::vector<Value> of_inputs = d.graph.apply("attention_gradient", all, d.node.attributes);
  Gradients gradients(of_inputs.begin(), of_inputs.end());
  gradients.resize(inputs.count());
  return gradients;
}

/// The score of pairs that do not attend: its exponential is 0.
constexpr double kLittle = -1e30;
/// The logarithm of an empty sum, chosen so that exponentials of differences from it are 0.
constexpr double kNoLogarithm = kernels::kNoLogarithm;

/// Scores and probabilities as matrices [sequences, kv heads, queries of all heads that share keys, keys].
class AttentionParts {
 public:
  AttentionParts(const Decomposition& d, const Inputs& inputs)
      : d_(d),
        inputs_(inputs),
        p_(attention_problem_of(d.node, d.inputs[0].type(), d.inputs[1].type(), d.inputs[2].type())) {}

  const ops::AttentionProblem& problem() const { return p_; }

  /// [..., tokens, heads · size] as [sequences, kv heads, rows, size].
  Value by_head(Value x, uint32_t heads) const {
    const uint32_t tokens = tokens_of(x.type()), size = x.type().cols() / heads;
    const Value heads_first = permute(reshape(x, {p_.sequences, tokens, heads, size}), {0, 2, 1, 3});
    return reshape(heads_first, {p_.sequences, p_.kv_heads, heads / p_.kv_heads * tokens, size});
  }
  /// The reverse, in a shape.
  Value by_token(Value x, uint32_t heads, const Shape& shape) const {
    const uint32_t size = x.type().cols(), tokens = shape[shape.size() - 2];
    const Value heads_first = reshape(x, {p_.sequences, heads, tokens, size});
    return reshape(permute(heads_first, {0, 2, 1, 3}), shape);
  }
  /// A number for each query.
  Value rows(Value x) const { return reshape(x, {p_.sequences, p_.heads, p_.queries, 1}); }
  Value pairs(Value x) const { return reshape(x, {p_.sequences, p_.heads, p_.queries, p_.keys}); }
  Value by_kv_head(Value x) const {
    return reshape(x, {p_.sequences, p_.kv_heads, p_.heads / p_.kv_heads * p_.queries, p_.keys});
  }

  /// [sequences, heads, queries, keys] in FP32.
  Value scores() const {
    // Scaled before, so that products of FP16 do not overflow.
    const Value q = d_.inputs[0] * double{p_.scale};
    const Value products = matmul(by_head(q, p_.heads), by_head(d_.inputs[1], p_.kv_heads), false, true);
    Value scores = pairs(cast(products, Type::f32));
    if (inputs_.has_bias) scores = scores + cast(d_.inputs[inputs_.bias()], Type::f32);
    return scores;
  }

  /// 1 for the pairs that attend, else 0; none: all do.
  std::optional<Value> mask() const {
    std::optional<Value> mask;
    if (p_.left >= 0 || p_.right >= 0) mask = window();
    if (!inputs_.has_ids) return mask;
    const Value queries = reshape(d_.inputs[3], {p_.sequences, 1, p_.queries, 1}),
                keys = reshape(d_.inputs[4], {p_.sequences, 1, 1, p_.keys});
    const Value same =
        cast(equal(queries, keys), Type::f32) * cast(not_equal(keys, number(keys, 0)), Type::f32);
    return mask ? *mask * same : same;
  }
  /// Applies dropout to pairs, [sequences, heads, queries, keys].
  Value dropped(Value pairs) const {
    if (!inputs_.has_dropout) return pairs;
    Attributes attributes;
    for (const char* name : {"p", "seed", "stream"}) attributes[name] = d_.node.attributes.at(name);
    return pairs.owner().apply("dropout", {pairs, d_.inputs[inputs_.step()]}, std::move(attributes))[0];
  }
  Value masked(Value scores, const std::optional<Value>& mask) const {
    return mask ? where(*mask, scores, number(scores, kLittle)) : scores;
  }

 private:
  Value window() const {
    std::vector<float> allowed;
    for (int64_t i = 0; i < p_.queries; ++i)
      for (int64_t j = 0; j < p_.keys; ++j) {
        const int64_t distance = j - i - p_.offset;
        allowed.push_back(
            (p_.left < 0 || distance >= -p_.left) && (p_.right < 0 || distance <= p_.right) ? 1 : 0);
      }
    return d_.inputs[0].owner().constant("", {1, 1, p_.queries, p_.keys}, std::move(allowed));
  }

  const Decomposition& d_;
  const Inputs& inputs_;
  ops::AttentionProblem p_;
};

std::vector<Value> decompose_attention(const Decomposition& d) {
  const Inputs inputs(d.node);
  const AttentionParts parts(d, inputs);
  const ops::AttentionProblem& p = parts.problem();
  const std::optional<Value> mask = parts.mask();
  const Value scores = parts.masked(parts.scores(), mask);
  const bool may_hide_all = mask || inputs.has_bias;
  const Value largest = max(scores, {-1}, true);
  // Not minus infinity, as scores minus it would be NaN.
  const Value most =
      may_hide_all ? maximum(largest, number(largest, std::numeric_limits<float>::lowest())) : largest;
  Value powers = exp(scores - most);
  if (mask) powers = powers * *mask;
  const Value total = sum(powers, {-1}, true);
  // The largest power is 1, unless no pair attends.
  const Value divisor = may_hide_all ? maximum(total, number(total, 0.5)) : total;
  const Value probabilities = powers / divisor;
  Value lse = most + log(divisor);
  if (may_hide_all) lse = where(total, lse, number(lse, kNoLogarithm));
  const TensorType& q = d.inputs[0].type();
  const Value weights = parts.by_kv_head(cast(parts.dropped(probabilities), p.type));
  const Value y = matmul(weights, parts.by_head(d.inputs[2], p.kv_heads));
  return {parts.by_token(y, p.heads, result_type(q, p).shape),
          parts.by_token(lse, p.heads, lse_type(q, p.heads).shape)};
}

std::vector<Value> decompose_attention_gradient(const Decomposition& d) {
  const Inputs inputs(d.node);
  const AttentionParts parts(d, inputs);
  const ops::AttentionProblem& p = parts.problem();
  const std::optional<Value> mask = parts.mask();
  const Value q = parts.by_head(d.inputs[0], p.heads), k = parts.by_head(d.inputs[1], p.kv_heads),
              v = parts.by_head(d.inputs[2], p.kv_heads),
              y = parts.by_head(d.inputs[inputs.count()], p.heads),
              lse = parts.rows(parts.by_head(d.inputs[inputs.count() + 1], p.heads)),
              dy = parts.by_head(d.inputs[inputs.count() + 2], p.heads);
  Value probabilities = exp(parts.masked(parts.scores(), mask) - lse);
  if (mask) probabilities = probabilities * *mask;
  const auto wide = [](Value x) { return cast(x, Type::f32); };
  const Value mean = parts.rows(sum(wide(dy) * wide(y), {-1}, true));
  const Value of_probabilities = parts.dropped(parts.pairs(wide(matmul(dy, v, false, true))));
  const Value of_scores =
      parts.by_kv_head(cast(probabilities * (of_probabilities - mean) * double{p.scale}, p.type));
  const Value weights = parts.by_kv_head(cast(parts.dropped(probabilities), p.type));
  return {parts.by_token(matmul(of_scores, k), p.heads, d.inputs[0].shape()),
          parts.by_token(matmul(of_scores, q, true), p.kv_heads, d.inputs[1].shape()),
          parts.by_token(matmul(weights, dy, true), p.kv_heads, d.inputs[2].shape())};
}

/// The bias as a matrix of bias_rows × keys has the same elements.
ops::AttentionProblem attention_problem_of(Lowering& l, const Node& node) {
  const auto type = [&](size_t input) -> const TensorType& { return l.graph().type(node.inputs[input]); };
  const Inputs inputs(node);
  ops::AttentionProblem p = attention_problem_of(node, type(0), type(1), type(2));
  p.has_ids = inputs.has_ids;
  p.has_bias = inputs.has_bias;
  p.has_dropout = inputs.has_dropout;
  if (p.has_dropout) {
    p.keep = keep_of(node);
    p.seed = seed_of(node);
    p.operation = stream_of(node);
    p.substream_words = l.substream_words();
  }
  if (!p.has_bias) return p;
  const Shape& bias = type(inputs.bias()).shape;
  p.bias_of_sequences = bias[0] > 1;
  p.bias_of_heads = bias[1] > 1;
  p.bias_of_queries = bias[2] > 1;
  return p;
}

/// The time in which a value in parts is transposed where these lie.
double seconds_of_transposing(const Lowering& l, const TensorType& type, const ValueLayout& parts) {
  const std::pair key(type.type, l.operand_layout(type, parts));
  return seconds_alone(l.builder().machine(), key, [&](const ops::Builder& builder) {
    const ops::Operand value = builder.add("value", program::Role::input, key.first, key.second);
    std::vector<program::StepId> steps;
    builder.transposed_in_boxes(value, key.second, steps);
    return builder.sequence(std::move(steps));
  });
}

/// Adds choices in which these inputs, if they have the same type, lie in the parts that products use.
std::vector<LayoutChoice> with_parts(Lowering& l, const Node& node, std::vector<LayoutChoice> choices,
                                     const std::vector<size_t>& inputs) {
  const TensorType& type = l.graph().type(node.inputs[inputs.front()]);
  for (const size_t i : inputs)
    if (!(l.graph().type(node.inputs[i]) == type)) return choices;
  const size_t others = choices.size();
  for (const ValueLayout& parts : l.parted(type)) {
    if (!parts.parts->transposed) continue;
    const double seconds = static_cast<double>(inputs.size()) * seconds_of_transposing(l, type, parts);
    for (size_t other = 0; other < others; ++other) {
      LayoutChoice choice = choices[other];
      for (const size_t i : inputs) choice.inputs[i] = parts;
      choice.seconds += seconds;
      choices.push_back(std::move(choice));
    }
  }
  return choices;
}

/// Queries, keys, values and the result lie as rows or transposed, each independently; on tiles, the result
/// lies as rows, and the inputs as rows or in parts.
std::vector<LayoutChoice> attention_layouts(Lowering& l, const Node& node) {
  const LayoutChoice rows = row_layouts(l, node).front();
  if (!l.on_host()) return with_parts(l, node, {rows}, {0, 1, 2});
  const auto of = [&](ValueId id, bool transposed) {
    return transposed && l.graph().type(id).elements() != 1 ? kTransposed : kRows;
  };
  std::vector<LayoutChoice> choices;
  for (uint32_t bits = 0; bits < 16; ++bits) {
    LayoutChoice& choice = choices.emplace_back(rows);
    for (uint32_t i = 0; i < 3; ++i) choice.inputs[i] = of(node.inputs[i], (bits >> i & 1) != 0);
    choice.outputs[0] = of(node.outputs[0], (bits >> 3 & 1) != 0);
  }
  return choices;
}

/// On tiles, the result and its gradient, which the same product uses, may lie in other parts than queries,
/// keys and values.
std::vector<LayoutChoice> attention_gradient_layouts(Lowering& l, const Node& node) {
  std::vector<LayoutChoice> choices = row_layouts(l, node);
  if (l.on_host()) return choices;
  const size_t end = node.inputs.size();
  choices = with_parts(l, node, std::move(choices), {0, 1, 2});
  return with_parts(l, node, std::move(choices), {end - 3, end - 1});
}

/// An input that arrives in parts, as rows in the boxes in which the parts lie.
ops::Operand from_parts(Lowering& l, const Node& node, size_t i) {
  const ValueId id = node.inputs[i];
  if (l.layout_of(id) == kRows) return l.operand_of(id);
  const ops::Operand parts = l.input(i);
  std::vector<program::StepId> steps;
  const std::optional<ops::Operand> rows =
      l.builder().transposed_in_boxes(parts, *l.input_layout(i).parts, steps);
  for (const program::StepId step : steps) l.run(step);
  return rows ? *rows : l.in_layout(id, kRows);
}

std::vector<ops::Operand> input_operands(Lowering& l, const Node& node) {
  const Inputs inputs(node);
  std::vector<ops::Operand> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (inputs.has_dropout && i == inputs.step())
      operands.push_back(l.with_substream(i));
    else
      operands.push_back(l.input_layout(i).parts ? from_parts(l, node, i) : l.input(i));
  }
  return operands;
}

/// Operands of which many tiles take all tokens of a sequence, or of one of its heads, should come in few
/// pieces, because each piece is a transfer for every tile that takes it: from boxes of some tokens of a head
/// each, or from one tile. The boxes of one operand follow the boxes of the previous one on the tiles, so
/// that no tile has many.
class SequenceOperands {
 public:
  SequenceOperands(Lowering& l, uint32_t sequences) : l_(l), sequences_(sequences) {}

  void gather(ops::Operand& operand, uint32_t heads) {
    if (l_.on_host()) return;
    constexpr uint32_t kMostParts = 8;
    const uint32_t tiles = l_.builder().machine().tiles, tokens = operand.rows() / sequences_,
                   cols = operand.cols() / heads;
    const uint32_t parts = std::clamp(tiles / (sequences_ * heads), 1U, std::min(tokens, kMostParts));
    const std::vector<uint32_t> first = ops::split_evenly(tokens, parts);
    std::vector<program::MappedBox> mapping;
    for (uint32_t s = 0; s < sequences_; ++s)
      for (uint32_t h = 0; h < heads; ++h)
        for (uint32_t p = 0; p < parts; ++p)
          mapping.push_back(
              {{s * tokens + first[p], first[p + 1] - first[p], h * cols, cols}, next_++ % tiles});
    move(operand, std::move(mapping));
  }

  /// Ids, a row for each sequence.
  void gather_ids(ops::Operand& ids) const {
    if (l_.on_host()) return;
    std::vector<program::MappedBox> mapping;
    for (uint32_t s = 0; s < sequences_; ++s)
      mapping.push_back({{s, 1, 0, ids.cols()}, s % l_.builder().machine().tiles});
    move(ids, std::move(mapping));
  }

 private:
  void move(ops::Operand& operand, std::vector<program::MappedBox> mapping) const {
    const ops::Builder& builder = l_.builder();
    const ops::Operand moved = builder.like(operand, l_.name_beside_result("by head"), std::move(mapping));
    std::vector<program::StepId> steps;
    builder.send(operand, moved, steps);
    for (program::StepId step : steps) l_.run(step);
    operand = moved;
  }

  Lowering& l_;
  uint32_t sequences_;
  uint32_t next_ = 0;  ///< tile
};

/// The mappings in which an operation would best compute its last `last` operands.
template <class Problem>
std::vector<std::vector<program::MappedBox>> best_mappings(Lowering& l, const Problem& problem, size_t last) {
  std::vector<std::vector<program::MappedBox>> mappings(last);
  if (l.on_host()) return mappings;
  const ops::MapOperation operation = operation_of(problem);
  const ops::MapPlan plan = ops::plan(problem, l.builder().machine());
  const size_t first = operation.operands.size() - last;
  for (size_t i = 0; i < last; ++i) mappings[i] = map_operand(operation.operands[first + i], plan.partition);
  return mappings;
}

/// Adds an operation whose outputs, on tiles, lie where it best computes them.
template <class Problem>
void add_with_outputs(Lowering& l, const Problem& problem, std::vector<ops::Operand> operands,
                      std::initializer_list<size_t> outputs) {
  std::vector<std::vector<program::MappedBox>> mappings = best_mappings(l, problem, outputs.size());
  auto mapping = mappings.begin();
  for (const size_t i : outputs) operands.push_back(l.output(i, std::move(*mapping++)));
  l.add(problem, operands);
}

void lower_attention(Lowering& l, const Node& node) {
  ops::AttentionProblem p = attention_problem_of(l, node);
  p.q_transposed = l.input_layout(0).transposed;
  p.k_transposed = l.input_layout(1).transposed;
  p.v_transposed = l.input_layout(2).transposed;
  p.y_transposed = l.output_layout(0).transposed;
  std::vector<ops::Operand> inputs = input_operands(l, node);
  SequenceOperands of_sequences(l, p.sequences);
  for (const size_t i : {1, 2}) of_sequences.gather(inputs[i], p.kv_heads);
  for (size_t i = 3; p.has_ids && i < 5; ++i) of_sequences.gather_ids(inputs[i]);
  add_with_outputs(l, p, std::move(inputs), {1, 0});
}

/// Adds the gradient of queries, and returns the means that it computes.
ops::Operand add_query_gradient(Lowering& l, const ops::AttentionProblem& p,
                                std::vector<ops::Operand> inputs) {
  const ops::AttentionGradientProblem problem{p, kernels::AttentionRowsOf::queries};
  std::vector<std::vector<program::MappedBox>> mappings = best_mappings(l, problem, 2);
  const ops::Operand means = l.builder().temporary(l.name_beside_result("means"), Type::f32,
                                                   p.sequences * p.queries, p.heads, std::move(mappings[0]));
  inputs.push_back(means);
  inputs.push_back(l.output(0, std::move(mappings[1])));
  l.add(problem, inputs);
  return means;
}

/// On tiles, gradients of keys are computed separately from gradients of queries; otherwise the tiles of the
/// queries would have to add up the keys' gradients. They take the means instead of the results, of which
/// they would need all of a sequence.
void lower_attention_gradient(Lowering& l, const Node& node) {
  using kernels::AttentionRowsOf;
  const ops::AttentionProblem p = attention_problem_of(l, node);
  std::vector<ops::Operand> inputs = input_operands(l, node);
  const auto add = [&](AttentionRowsOf rows, std::initializer_list<size_t> outputs) {
    add_with_outputs(l, ops::AttentionGradientProblem{p, rows}, inputs, outputs);
  };
  if (l.on_host()) return add(AttentionRowsOf::sequences, {1, 2, 0});
  SequenceOperands of_sequences(l, p.sequences);
  for (size_t i = 3; p.has_ids && i < 5; ++i) of_sequences.gather_ids(inputs[i]);
  std::vector<ops::Operand> by_query = inputs;
  for (const size_t i : {1, 2}) of_sequences.gather(by_query[i], p.kv_heads);
  const size_t results = inputs.size() - 3;
  inputs[results] = add_query_gradient(l, p, std::move(by_query));
  // Queries, means, logarithms and the gradients of results.
  SequenceOperands of_queries(l, p.sequences);
  of_queries.gather(inputs[0], p.heads);
  for (size_t i = results; i < inputs.size(); ++i) of_queries.gather(inputs[i], p.heads);
  add(AttentionRowsOf::keys, {1, 2});
}

/// Whether half of a tile can hold the operands of a gradient's vertex for one head of a sequence, and the
/// bias. The gradient of a head of keys takes all queries that share it.
bool attention_lowers_on(const machine::Machine& machine, const Graph& graph, const Node& node) {
  if (machine.kind == machine::Kind::host) return true;
  constexpr double kMostOfTile = 0.5;
  const auto type = [&](size_t input) -> const TensorType& { return graph.type(node.inputs[input]); };
  const ops::AttentionProblem p = attention_problem_of(node, type(0), type(1), type(2));
  const Inputs inputs(node);
  const bool is_gradient = node.inputs.size() > inputs.count();
  const uint64_t queries = uint64_t{p.queries} * (is_gradient ? p.heads / p.kv_heads : 1);
  const uint64_t elements = std::max<uint64_t>(queries, p.keys) * (uint64_t{p.size} + 2 * p.value_size) +
                            (inputs.has_bias ? type(inputs.bias()).elements() : 0);
  return static_cast<double>(elements * size_of(p.type)) <
         kMostOfTile * static_cast<double>(machine.tile_bytes);
}

/// Queries and keys of two packs of sequences; the second pack has padding.
Array ids_of(uint32_t sequences, uint32_t tokens) {
  Array ids;
  for (uint32_t s = 0; s < sequences; ++s)
    for (uint32_t i = 0; i < tokens; ++i) ids.push_back(s > 0 && i + 3 > tokens ? 0 : 1 + i / 5);
  return ids;
}

struct CaseOf {
  Type type = Type::f32;
  uint32_t sequences = 2, queries = 7, keys = 7, heads = 2, kv_heads = 2, size = 6, value_size = 5;
  Attributes attributes = {};
  Shape bias = {};
  bool ids = false;
  double dropout = 0;

  Case make() const {
    Case c{.inputs = {dense_type(type, {sequences, queries, heads * size}),
                      dense_type(type, {sequences, keys, kv_heads * size}),
                      dense_type(type, {sequences, keys, kv_heads * value_size})},
           .attributes = attributes};
    c.attributes["heads"] = int64_t{heads};
    if (kv_heads != heads) c.attributes["kv_heads"] = int64_t{kv_heads};
    if (ids) {
      c.attributes["ids"] = int64_t{1};
      c.inputs.push_back(dense_type(Type::u32, {sequences, queries}));
      c.inputs.push_back(dense_type(Type::u32, {sequences, keys}));
      c.given = {{3, ids_of(sequences, queries)}, {4, ids_of(sequences, keys)}};
    }
    if (!bias.empty()) {
      c.attributes["bias"] = int64_t{1};
      c.inputs.push_back(dense_type(type, bias));
    }
    if (dropout > 0) {
      c.attributes.insert({{"p", dropout}, {"seed", int64_t{5}}, {"stream", int64_t{2}}});
      c.given[c.inputs.size()] = {3};
      c.inputs.push_back(dense_type(Type::u32, {}));
    }
    return c;
  }
};

std::vector<Case> attention_cases() {
  const Attributes causal = {{"right", int64_t{0}}};
  const Attributes sliding = {
      {"left", int64_t{2}}, {"right", int64_t{1}}, {"offset", int64_t{-1}}, {"scale", 0.3}};
  return {
      CaseOf{}.make(),
      CaseOf{.queries = 9, .attributes = causal}.make(),
      CaseOf{.queries = 5, .keys = 8, .heads = 4, .attributes = sliding}.make(),
      CaseOf{.keys = 12, .ids = true}.make(),
      CaseOf{.heads = 4, .attributes = causal, .bias = {1, 4, 7, 7}, .ids = true}.make(),
      CaseOf{.bias = {2, 1, 1, 7}}.make(),
      CaseOf{.queries = 33, .keys = 99, .heads = 4, .dropout = 0.3}.make(),
      CaseOf{.type = Type::f16, .attributes = causal, .bias = {2, 1, 7, 7}, .ids = true, .dropout = 0.2}
          .make(),
      CaseOf{.type = Type::f16, .queries = 20, .keys = 20, .size = 16, .value_size = 16, .attributes = causal}
          .make(),
      CaseOf{.type = Type::bf16, .size = 16, .value_size = 8}.make()};
}

/// y and the logarithm may be arbitrary, as the gradient does not depend on how they were computed.
std::vector<Case> attention_gradient_cases() {
  std::vector<Case> all = attention_cases();
  for (Case& c : all) {
    const TensorType q = c.inputs[0];
    Node node;
    node.attributes = c.attributes;
    const ops::AttentionProblem p = attention_problem_of(node, q, c.inputs[1], c.inputs[2]);
    c.inputs.push_back(result_type(q, p));
    c.given[c.inputs.size()] = Array(lse_type(q, p.heads).elements(), 2.5);
    c.inputs.push_back(lse_type(q, p.heads));
    c.inputs.push_back(result_type(q, p));
    c.differentiable = false;
  }
  return all;
}

/// Ids of queries and keys by which all queries attend to the keys before each sequence's length; negative
/// lengths, which would be large ones of u32, are 0.
std::pair<Value, Value> ids_of_lengths(Value q, Value k, Value lengths) {
  Shape queries = q.shape(), sequences = k.shape();
  const bool are_tokens = sequences.size() >= 2 && queries.size() == sequences.size();
  if (are_tokens) sequences.resize(sequences.size() - 2);
  if (!are_tokens || !is_integer(lengths.type().type) || lengths.shape() != sequences)
    throw UsageError(
        fmt::format("attention: the lengths are {}; they must be u32, one for each sequence of {}",
                    to_string(lengths.type()), to_string(k.type())));
  if (lengths.type().type == Type::i32) lengths = maximum(lengths, number(lengths, 0));
  queries.pop_back();
  sequences.push_back(1);
  const Value places = count_to(q.owner(), tokens_of(k.type()), Type::u32);
  return {q.owner().constant("", queries, std::vector<float>(q.type().rows(), 1), Type::u32),
          less(places, reshape(as_indices(lengths), sequences))};
}

/// Sequences attend to themselves; ids and a bias may be the same for all of them.
bool attention_keeps_samples(const Divided& divided) {
  for (size_t i = 0; i < divided.operands.size(); ++i) {
    const Shape& shape = divided.shape(i);
    if (divided.operands[i] ? shape.size() < (i < 3 ? 3 : 2) : i < 3 || shape.size() != 4 || shape[0] != 1)
      return false;
  }
  return true;
}

constexpr Operation kAttention[] = {{.name = "attention",
                                     .least_inputs = 3,
                                     .most_inputs = 7,
                                     .infer = infer_attention,
                                     .gradient = attention_gradient,
                                     .layouts = attention_layouts,
                                     .lower = lower_attention,
                                     .cases = attention_cases,
                                     .traits = {.keeps_samples = attention_keeps_samples,
                                                .has_substreams = drops,
                                                .kind = OperationKind::attention},
                                     .decompose = decompose_attention,
                                     .lowers_on = attention_lowers_on},
                                    {.name = "attention_gradient",
                                     .least_inputs = 6,
                                     .most_inputs = 10,
                                     .infer = infer_attention_gradient,
                                     .layouts = attention_gradient_layouts,
                                     .lower = lower_attention_gradient,
                                     .cases = attention_gradient_cases,
                                     .traits = {.has_substreams = drops, .kind = OperationKind::attention},
                                     .decompose = decompose_attention_gradient,
                                     .lowers_on = attention_lowers_on}};

}  // namespace

std::span<const Operation> attention_operations() { return kAttention; }

Value attention(Value q, Value k, Value v, const Attention& of) {
  Attributes attributes = attention_attributes_of(of);
  std::vector<Value> inputs = {q, k, v};
  if (of.query_ids.has_value() != of.key_ids.has_value())
    throw UsageError("attention: give ids of both queries and keys, or neither");
  if (of.query_ids && of.lengths) throw UsageError("attention: it has ids or lengths of sequences, not both");
  if (of.lengths) {
    const auto [query_ids, key_ids] = ids_of_lengths(q, k, *of.lengths);
    inputs.insert(inputs.end(), {query_ids, key_ids});
    attributes["ids"] = int64_t{1};
  }
  if (of.query_ids) {
    inputs.insert(inputs.end(), {as_indices(*of.query_ids), as_indices(*of.key_ids)});
    attributes["ids"] = int64_t{1};
  }
  if (of.bias) {
    inputs.push_back(*of.bias);
    attributes["bias"] = int64_t{1};
  }
  if (of.dropout != 0) {
    if (!of.step) throw UsageError("attention: dropout needs a step");
    inputs.push_back(*of.step);
  }
  return q.owner().apply("attention", inputs, std::move(attributes))[0];
}

}  // namespace tessera::graph
