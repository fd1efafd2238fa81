#include "onnx/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Attention;
using graph::Shape;
using graph::Value;

/// [batch, heads, tokens, size] as [batch, tokens, heads · size]; without heads as it is.
Value heads_last(Value x) {
  if (x.shape().size() != 4) return x;
  const Value y = permute(x, {0, 2, 1, 3});
  const Shape& s = y.shape();
  return reshape(y, {s[0], s[1], s[2] * s[3]});
}

Value heads_first(Value x, uint32_t heads) {
  const Shape& s = x.shape();
  if (s[2] % heads != 0) refuse("{} heads of {} features are not possible", heads, s[2]);
  return permute(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

/// The pairs that a constant mask lets attend: those within limits around the diagonal.
struct Band {
  std::optional<uint32_t> left, right;
};

/// The limits that a constant bias expresses; none: it is not a band.
std::optional<Band> band_of(const Constant& bias, int64_t queries, int64_t keys) {
  const size_t rank = bias.dims.size();
  if (rank < 2 || bias.dims[rank - 2] != queries || bias.dims[rank - 1] != keys || !bias.has_floats())
    return {};
  constexpr float kHides = -1e30F;
  int64_t low = keys, high = -queries;
  const std::vector<float>& values = bias.floats();
  const auto distance_of = [&](uint64_t i) {
    const auto pair = static_cast<int64_t>(i % static_cast<uint64_t>(queries * keys));
    return pair % keys - pair / keys;
  };
  for (uint64_t i = 0; i < values.size(); ++i) {
    if (values[i] != 0 && !(values[i] < kHides)) return {};
    if (values[i] != 0) continue;
    low = std::min(low, distance_of(i));
    high = std::max(high, distance_of(i));
  }
  // Attention would give other results for rows that are hidden completely.
  if (low > 0 || high < 0 || queries + low > keys) return {};
  for (uint64_t i = 0; i < values.size(); ++i)
    if ((values[i] == 0) != (distance_of(i) >= low && distance_of(i) <= high)) return {};
  Band band;
  if (low > 1 - queries) band.left = static_cast<uint32_t>(-low);
  if (high < keys - 1) band.right = static_cast<uint32_t>(high);
  return band;
}

/// A bias of scores [batch, heads, queries, keys], in a shape that an attention takes.
Value bias_of(Context& context, const Known& bias, const Shape& scores, Type type) {
  Value value = bias.constant ? context.value_of(bias.constant) : *bias.value;
  Shape shape = as_shape(bias.dims);
  if (scores.size() == 3) {  // each sequence has one head
    shape.insert(shape.begin(), 3 - std::min<size_t>(3, shape.size()), 1);
    shape.insert(shape.begin() + 1, 1);
  }
  shape.insert(shape.begin(), 4 - std::min<size_t>(4, shape.size()), 1);
  value = reshape(value, shape);
  if (shape.back() != scores.back()) {
    shape.back() = scores.back();
    value = expand(value, shape);
  }
  return cast(value, type);
}

void add_bias(Context& context, const Known& bias, const Shape& scores, Type type, Attention& of) {
  if (bias.constant) {
    const auto band = band_of(*bias.constant, scores[scores.size() - 2], scores.back());
    if (band) {
      of.left = band->left;
      of.right = band->right;
      return;
    }
  }
  of.bias = bias_of(context, bias, scores, type);
}

std::pair<Value, double> unscaled(const Context& context, Value x) {
  const auto found = context.scaled.find(x.id);
  return found == context.scaled.end() ? std::pair(x, 1.0) : found->second;
}

// The operator Attention.

/// Throws UsageError unless queries, keys and values have three or four dimensions, and past keys and values
/// four.
void require_tokens(const Call& call) {
  for (const size_t input : {0, 1, 2, 4, 5}) {
    const bool is_past = input > 2;
    if (is_past && !call.has(input)) continue;
    const Dims& dims = call[input].dims;
    if (dims.size() != 4 && (is_past || dims.size() != 3))
      refuse("its input {} is {}, which is not [batch, heads, tokens, features]{}", input, to_string(dims),
             is_past ? "" : " or [batch, tokens, features]");
  }
}

/// [batch, tokens, heads · size] of an input with three dimensions or four.
Value tokens_of(Call& call, size_t input) { return heads_last(call.value(input)); }

uint32_t heads_of(Call& call, size_t input, const char* attribute) {
  if (call[input].dims.size() == 4) return static_cast<uint32_t>(call[input].dims[1]);
  const int64_t heads = call.integer(attribute);
  if (heads < 1 || heads > 1 << 20) refuse("{} heads are not possible", heads);
  return static_cast<uint32_t>(heads);
}

constexpr double kHidden = -std::numeric_limits<double>::infinity();

/// 0 where a truth value or a comparison holds, else minus infinity.
Value hidden_unless(Value holds, Type type) {
  const Value kept = cast(holds, type);
  return where(kept, number_like(kept, 0), number_like(kept, kHidden));
}

/// Converts a mask to a bias: pairs whose truth value is false are hidden.
Known as_bias(Call& call, const Known& mask, DataType type) {
  if (mask.constant && mask.type == DataType::boolean) {
    std::vector<double> bias(mask.constant->size());
    call.context.spend(bias.size());
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = mask.constant->integers()[i] != 0 ? 0 : kHidden;
    return known(of_numbers(bias, mask.dims, type));
  }
  if (mask.type != DataType::boolean) return mask;
  return known(hidden_unless(call.value_of(mask), graph_type_of(type)), type);
}

/// Pads a bias to the number of keys: the added keys are hidden.
Known with_all_keys(Call& call, const Known& bias, uint32_t keys) {
  if (bias.dims.empty() || bias.dims.back() >= int64_t{keys}) return bias;
  const Value some = call.value_of(bias);
  return known(pad(some, static_cast<uint32_t>(bias.dims.size() - 1), 0, keys - some.shape().back(), kHidden),
               bias.type);
}

/// Keys or values with those before them, [batch, heads, tokens, size].
Value with_past(Call& call, size_t input, size_t past, uint32_t heads) {
  Value x = call.value(input);
  if (x.shape().size() == 3) x = heads_first(x, heads);
  return call.has(past) ? graph::concatenate({call.value(past), x}, 2) : x;
}

/// Sets whether attention is causal or within a window. Past keys come before the first query.
void set_limits(Call& call, Attention& of) {
  const auto limit = [&](const char* name) {
    const int64_t size = call.integer(name, -1);
    return size < 0 ? std::nullopt : std::optional(static_cast<uint32_t>(std::min<int64_t>(size, INT32_MAX)));
  };
  of.left = limit("left_window_size");
  of.right = limit("right_window_size");
  if (call.integer("is_causal", 0) != 0) of.right = 0;
  if (call.has(4)) of.offset = call[4].dims.at(2);
}

/// The number of keys of each sample, after which padding follows: i32 [samples].
std::optional<Value> lengths_of(Call& call, uint32_t samples) {
  if (!call.has(6)) return {};
  if (call.has(4)) refuse("it has keys of the past and lengths of keys, which exclude each other");
  const Value lengths = cast(call.value(6), Type::i32);
  if (lengths.shape() != Shape{samples})
    refuse("its input 6 is {}, which is not a length for each of {} samples", to_string(call[6].dims),
           samples);
  return maximum(lengths, number_like(lengths, 0));
}

/// The limits as a bias of scores. For samples with lengths, they count from the end of the keys.
Value bias_of_limits(Call& call, const Attention& of, const std::optional<Value>& lengths,
                     const Shape& scores, Type type) {
  const int64_t queries = scores[2], keys = scores[3], offset = lengths ? -queries : of.offset;
  call.context.spend(static_cast<uint64_t>(queries * keys));
  std::vector<int64_t> distances;
  for (int64_t query = 0; query < queries; ++query)
    for (int64_t key = 0; key < keys; ++key) distances.push_back(key - query - offset);
  Value distance = whole_numbers(call.graph, distances, {1, 1, scores[2], scores[3]}, Type::i32);
  if (lengths) distance = distance - reshape(*lengths, {scores[0], 1, 1, 1});
  std::optional<Value> holds;
  if (of.left) holds = less_equal(number_like(distance, -static_cast<double>(*of.left)), distance);
  if (of.right) {
    const Value is_before = less_equal(distance, number_like(distance, *of.right));
    holds = holds ? *holds * is_before : is_before;
  }
  return hidden_unless(*holds, type);
}

/// A bias that hides the keys beyond the length of each sample.
Value bias_of_lengths(Call& call, Value lengths, const Shape& scores, Type type) {
  call.context.spend(scores[3]);
  std::vector<int64_t> places(scores[3]);
  std::iota(places.begin(), places.end(), int64_t{0});
  const Value place = whole_numbers(call.graph, places, {1, 1, 1, scores[3]}, Type::i32);
  return hidden_unless(less(place, reshape(lengths, {scores[0], 1, 1, 1})), type);
}

void add_to(std::optional<Value>& sum, Value x) { sum = sum ? *sum + x : x; }

/// Attention as products and a softmax, for scores that are capped or are a result of the operator.
struct AttentionInSteps {
  Value y;       ///< [batch, heads, queries, features]
  Value scores;  ///< the scores that the operator returns, [batch, heads, queries, keys]
};

AttentionInSteps in_steps(Call& call, Value q, Value k, Value v, const Attention& of) {
  const Shape& s = q.shape();
  if (s[1] % of.kv_heads != 0) refuse("{} heads cannot share {} of keys and values", s[1], of.kv_heads);
  // Queries of all heads that share keys are rows of one product.
  const uint32_t rows = s[1] / of.kv_heads * s[2], keys = k.shape()[2];
  const double scale = of.scale.value_or(1 / std::sqrt(double{1} * s[3]));
  const Value products = matmul(reshape(q * scale, {s[0], of.kv_heads, rows, s[3]}), k, false, true);
  const Value raw = reshape(products, {s[0], s[1], s[2], keys});
  const double cap = call.number("softcap", 0);
  const Value capped = cap > 0 ? tanh(divided(raw, cap)) * cap : raw;
  Value biased = capped, probabilities = capped;
  if (of.bias) {
    const Value bias = *of.bias, zero = number_like(bias, 0);
    biased = capped + bias;
    // The probabilities of queries to which all keys are hidden are 0.
    const Value hidden = equal(max(bias, {-1}, true), number_like(bias, kHidden));
    probabilities = where(hidden, zero, softmax(capped + where(hidden, zero, bias)));
  } else {
    probabilities = softmax(capped);
  }
  const Value y = matmul(reshape(probabilities, {s[0], of.kv_heads, rows, keys}), v);
  const Value all[] = {raw, capped, biased, probabilities};
  const int64_t mode = call.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode >= std::ssize(all)) refuse("there are no scores {}", mode);
  return {reshape(y, {s[0], s[1], s[2], v.shape()[3]}), all[mode]};
}

Results attention(Call& call) {
  require_tokens(call);
  const uint32_t heads = heads_of(call, 0, "q_num_heads"), kv_heads = heads_of(call, 1, "kv_num_heads");
  const Value q = tokens_of(call, 0), keys = with_past(call, 1, 4, kv_heads),
              values = with_past(call, 2, 5, kv_heads);
  const DataType type = call[0].type;
  const bool has_heads = call[0].dims.size() == 4;
  Attention of{.heads = heads, .kv_heads = kv_heads};
  if (call.attribute("scale") != nullptr) of.scale = call.number("scale");
  set_limits(call, of);
  const Shape scores = {q.shape()[0], heads, q.shape()[1], keys.shape()[2]};
  call.count_work(q.type().elements(), scores[3]);
  const std::optional<Value> lengths = lengths_of(call, scores[0]);
  const bool wants_scores = call.node.output_size() > 3 && !call.node.output(3).empty(),
             has_steps = wants_scores || call.number("softcap", 0) > 0,
             has_limits = of.left || of.right || of.offset != 0;
  const Type number = q.type().type;
  std::optional<Value> bias;
  if ((of.left || of.right) && (lengths || has_steps)) {
    bias = bias_of_limits(call, of, lengths, scores, number);
    of.left.reset();
    of.right.reset();
  }
  if (call.has(3)) {
    const Known mask = with_all_keys(call, as_bias(call, call[3], type), scores[3]);
    if (has_limits || has_steps)
      add_to(bias, bias_of(call.context, mask, scores, number));
    else
      add_bias(call.context, mask, scores, number, of);
  }
  if (has_steps && lengths) add_to(bias, bias_of_lengths(call, *lengths, scores, number));
  if (bias) of.bias = bias;
  if (has_steps) {
    const auto [y, chosen] = in_steps(call, heads_first(q, heads), keys, values, of);
    Results results = {known(has_heads ? y : heads_last(y), type), known(keys, type), known(values, type)};
    if (wants_scores) results.push_back(known(chosen, type));
    return results;
  }
  if (lengths) of.lengths = cast(*lengths, Type::u32);
  const Value y = attention(q, heads_last(keys), heads_last(values), of);
  return {known(has_heads ? heads_first(y, heads) : y, type), known(keys, type), known(values, type)};
}

Results rotary_embedding(Call& call) {
  const Known& input = call[0];
  Value x = call.value(0), cosines = call.value(1), sines = call.value(2);
  const bool has_heads = input.dims.size() == 4;
  if (!has_heads) {
    const int64_t heads = call.integer("num_heads");
    if (input.dims.size() != 3 || heads < 1 || input.dims[2] % heads != 0)
      refuse("{} heads of {} are not possible", heads, to_string(input.dims));
    x = heads_first(x, static_cast<uint32_t>(heads));
  }
  if (call.has(3)) {
    cosines = embedding(cast(call.value(3), Type::u32), cosines);
    sines = embedding(cast(call.value(3), Type::u32), sines);
  }
  const uint32_t features = x.shape()[3];
  const auto rotated =
      static_cast<uint32_t>(std::clamp<int64_t>(call.integer("rotary_embedding_dim", 0), 0, features));
  const uint32_t size = rotated == 0 ? features : rotated;
  const auto per_head = [](Value table) {
    const Shape& s = table.shape();
    if (s.size() != 3) refuse("its tables are not [batch, positions, features]");
    return reshape(table, {s[0], 1, s[1], s[2]});
  };
  const Value first = size == features ? x : slice(x, 3, 0, size);
  Value y = rotary(first, {per_head(cosines), per_head(sines)}, call.integer("interleaved", 0) != 0);
  if (size != features) y = graph::concatenate({y, slice(x, 3, size, features)}, 3);
  return {known(has_heads ? y : heads_last(y), input.type)};
}

constexpr Operator kAttentionOperators[] = {{"Attention", attention, 7},
                                            {"RotaryEmbedding", rotary_embedding, 4}};

}  // namespace

void note_scores(Context& context, Value a, Value b, Value y) {
  const size_t rank = y.shape().size();
  if (rank != 3 && rank != 4) return;
  const auto [q, of_q] = unscaled(context, a);
  const auto [transposed, of_k] = unscaled(context, b);
  const auto found = context.transposes.find(transposed.id);
  if (found == context.transposes.end() || found->second.shape().size() != rank) return;
  context.scores.insert({y.id, Scores{q, found->second, of_q * of_k, {}}});
}

std::optional<Value> attention_of(Context& context, Value probabilities, const Known& values) {
  const auto found = context.probabilities.find(probabilities.id);
  if (found == context.probabilities.end() || !values.value) return {};
  const Scores& scores = found->second;
  const Shape &q = scores.q.shape(), &k = scores.k.shape(), &v = values.value->shape();
  const size_t rank = q.size();
  const auto leading = [&](const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); };
  if (v.size() != rank || leading(q) != leading(k) || leading(q) != leading(v) || v[rank - 2] != k[rank - 2])
    return {};
  const uint32_t heads = rank == 4 ? q[1] : 1;
  Attention of{.heads = heads, .scale = scores.scale};
  if (scores.bias) add_bias(context, *scores.bias, probabilities.shape(), scores.q.type().type, of);
  const Value y = attention(heads_last(scores.q), heads_last(scores.k), heads_last(*values.value), of);
  return rank == 4 ? heads_first(y, heads) : y;
}

std::span<const Operator> attention_operators() { return kAttentionOperators; }

}  // namespace tessera::onnx
