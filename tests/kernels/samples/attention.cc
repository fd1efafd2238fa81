#include <cmath>
#include <initializer_list>
#include <utility>

#include "kernels/common/element.h"
#include "kernels/product/attention/codelet.h"
#include "kernels/samples/list.h"

namespace tessera::kernels {
namespace {

/// The keys to which a query attends.
struct Mask {
  int64_t left = -1, right = -1, offset = 0;
  bool ids = false;
  bool bias = false;
  bool dropout = false;
};

constexpr Mask kAll{}, kCausal{.right = 0}, kSliding{.left = 9, .right = 4, .offset = -3},
    kPacked{.ids = true}, kBiased{.bias = true}, kDropped{.dropout = true},
    kEverything{.left = 40, .right = 0, .offset = 2, .ids = true, .bias = true, .dropout = true};

struct Sizes {
  uint32_t sequences, queries, keys, heads, shared, size, value_size;

  /// The first row of the vertex's first sequence.
  uint32_t skip(uint32_t rows) const { return sequences == 0 ? 0 : rows / 3; }

  explicit Sizes(uint32_t scale)
      : sequences(scale == 0 ? 0 : 1 + scale % 2),
        queries(1 + 11 * scale),
        keys(2 + 13 * scale),
        heads(2),
        shared(1 + scale % 2),
        size(3 + 6 * scale),
        value_size(5 + 4 * scale) {}
};

/// The sequences of a pack; the last tokens are padding.
double id_at(uint64_t position, uint32_t length) {
  const uint64_t at = position % length;
  return at + 2 >= length ? 0 : 1 + at / 19.0 - std::fmod(at / 19.0, 1);
}

/// The bits of fields that lie as their transposes.
constexpr int64_t bits(std::initializer_list<size_t> fields) {
  int64_t bits = 0;
  for (const size_t field : fields) bits |= transposed_bit(field);
  return bits;
}

constexpr int64_t kTransposed =
    bits({attention_field::q, attention_field::k, attention_field::v, attention_field::y});
constexpr int64_t kMixed = bits({attention_field::k, attention_field::y});

void add_inputs(Sample& s, Type type, const Sizes& z, const Mask& mask, uint32_t rows, uint32_t keys,
                uint64_t seed, int64_t transposed = 0) {
  const uint32_t kv_heads = z.heads / z.shared;
  const auto add = [&](size_t field, uint32_t of_tokens, uint32_t of_features) {
    if ((transposed & transposed_bit(field)) != 0) std::swap(of_tokens, of_features);
    s.random(type, of_tokens, of_features, seed + field);
  };
  add(attention_field::q, rows, z.heads * z.size);
  add(attention_field::k, keys, kv_heads * z.size);
  add(attention_field::v, keys, kv_heads * z.value_size);
  const uint32_t with_ids = mask.ids ? z.sequences : 0;
  s.values(Type::u32, with_ids, z.queries, [&](uint64_t i) { return id_at(i, z.queries); });
  s.values(Type::u32, with_ids, z.keys, [&](uint64_t i) { return id_at(i, z.keys); });
  // The same for all sequences; the vertex begins with the second head.
  s.random(type, mask.bias ? (kv_heads + 1) * z.shared * z.queries : 0, z.keys, seed + 3);
  s.values(Type::u32, mask.dropout ? 1 : 0, 4, [&](uint64_t i) { return double(3 + i); });
}

void add_params(Sample& s, const Sizes& z, const Mask& mask, uint32_t row, int64_t transposed = 0) {
  s.param(z.size)
      .param(z.value_size)
      .param(z.queries)
      .param(z.keys)
      .param((z.heads / z.shared + 1) * z.shared);
  s.param(mask.left).param(mask.right).param(mask.offset).param(param_of(1.5F / std::sqrt(float(z.size))));
  s.param(kBiasOfQueries | kBiasOfHeads).param(7).param(5).param(param_of(0.8F));
  s.param(transposed).param(row).param(1);
}

Tolerance tolerance_of(Type type, double terms) {
  const double rounding = type == Type::f32 ? 0 : epsilon_of(type);
  return {rounding, terms * epsilon_of(Type::f32) + rounding * 0x1p-8};
}

/// Probabilities, which add up to 1 or a little more with dropout, are rounded to BF16 before they weigh
/// values below 1.
Tolerance forward_tolerance(Type type) {
  Tolerance tolerance = tolerance_of(type, 30);
  if (type == Type::bf16) tolerance.absolute += epsilon_of(type);
  return tolerance;
}

template <Type type, Mask mask, int64_t transposed = 0>
Sample forward(uint32_t scale, uint64_t seed) {
  const Sizes z(scale);
  const uint32_t first = z.skip(z.queries), rows = z.sequences * z.queries - first;
  Sample s(attention_codelet);
  add_inputs(s, type, z, mask, rows, z.sequences * z.keys, seed, transposed);
  s.unset(Type::f32, rows, z.heads);
  if ((transposed & transposed_bit(attention_field::y)) != 0)
    s.unset(type, z.heads * z.value_size, rows);
  else
    s.unset(type, rows, z.heads * z.value_size);
  add_params(s, z, mask, 2 * z.queries + first, transposed);
  return s.tolerance(forward_tolerance(type)).flops(2.0 * rows * z.keys * z.heads * (z.size + z.value_size));
}

/// A vertex of some rows of queries, of keys, or of whole sequences.
template <Type type, Mask mask, AttentionRowsOf rows_of>
Sample gradient(uint32_t scale, uint64_t seed) {
  const Sizes z(scale);
  const bool is_by_query = rows_of == AttentionRowsOf::queries, is_by_key = rows_of == AttentionRowsOf::keys;
  const uint32_t first = is_by_query ? z.skip(z.queries) : is_by_key ? z.skip(z.keys) : 0;
  const uint32_t rows = z.sequences * z.queries - (is_by_query ? first : 0),
                 keys = z.sequences * z.keys - (is_by_key ? first : 0), kv_heads = z.heads / z.shared;
  Sample s(is_by_query ? attention_query_gradient_codelet
           : is_by_key ? attention_key_gradient_codelet
                       : attention_gradient_codelet);
  add_inputs(s, type, z, mask, rows, keys, seed);
  if (is_by_key)
    s.random(Type::f32, rows, z.heads, seed + 4);  // means
  else
    s.random(type, rows, z.heads * z.value_size, seed + 4);
  s.values(Type::f32, rows, z.heads, [&](uint64_t i) { return 1 + std::log(z.keys) + double(i % 7) / 7; });
  s.random(type, rows, z.heads * z.value_size, seed + 5);
  if (is_by_query)
    s.unset(Type::f32, rows, z.heads);
  else
    s.unset(type, keys, kv_heads * z.size).unset(type, keys, kv_heads * z.value_size);
  if (!is_by_key) s.unset(type, rows, z.heads * z.size);
  add_params(s, z, mask, is_by_query ? 2 * z.queries + first : is_by_key ? 2 * z.keys + first : 2);
  return s.tolerance(tolerance_of(type, 40.0 + z.queries))
      .flops(2.0 * rows * z.keys * z.heads * (3 * z.size + 2 * z.value_size));
}

constexpr NamedSample attention_uses[] = {{"f32", forward<Type::f32, kAll>},
                                          {"f32-causal", forward<Type::f32, kCausal>},
                                          {"f32-sliding", forward<Type::f32, kSliding>},
                                          {"f32-packed", forward<Type::f32, kPacked>},
                                          {"f32-biased", forward<Type::f32, kBiased>},
                                          {"f32-dropout", forward<Type::f32, kDropped>},
                                          {"f32-transposed", forward<Type::f32, kAll, kTransposed>},
                                          {"f32-mixed", forward<Type::f32, kBiased, kMixed>},
                                          {"f16", forward<Type::f16, kEverything>},
                                          {"f16-transposed", forward<Type::f16, kEverything, kTransposed>},
                                          {"bf16", forward<Type::bf16, kCausal>},
                                          {"bf16-sliding", forward<Type::bf16, kSliding>},
                                          {"bf16-everything", forward<Type::bf16, kEverything>},
                                          {"bf16-mixed", forward<Type::bf16, kAll, kMixed>},
                                          {"bf16-transposed", forward<Type::bf16, kAll, kTransposed>}};
constexpr auto kSequences = AttentionRowsOf::sequences, kQueries = AttentionRowsOf::queries,
               kKeys = AttentionRowsOf::keys;
constexpr NamedSample attention_gradient_uses[] = {{"f32", gradient<Type::f32, kAll, kSequences>},
                                                   {"f32-causal", gradient<Type::f32, kCausal, kSequences>},
                                                   {"f32-sliding", gradient<Type::f32, kSliding, kSequences>},
                                                   {"f32-packed", gradient<Type::f32, kPacked, kSequences>},
                                                   {"f32-biased", gradient<Type::f32, kBiased, kSequences>},
                                                   {"f32-dropout", gradient<Type::f32, kDropped, kSequences>},
                                                   {"f16", gradient<Type::f16, kEverything, kSequences>},
                                                   {"bf16", gradient<Type::bf16, kCausal, kSequences>}};
constexpr NamedSample attention_query_gradient_uses[] = {
    {"f32", gradient<Type::f32, kAll, kQueries>},
    {"f32-sliding", gradient<Type::f32, kSliding, kQueries>},
    {"f32-packed", gradient<Type::f32, kPacked, kQueries>},
    {"f16", gradient<Type::f16, kEverything, kQueries>}};
constexpr NamedSample attention_key_gradient_uses[] = {{"f32", gradient<Type::f32, kAll, kKeys>},
                                                       {"f32-sliding", gradient<Type::f32, kSliding, kKeys>},
                                                       {"f32-packed", gradient<Type::f32, kPacked, kKeys>},
                                                       {"f16", gradient<Type::f16, kEverything, kKeys>}};

}  // namespace

TESSERA_DEFINE_SAMPLES(attention, TESSERA_ATTENTION_CODELETS)

}  // namespace tessera::kernels
