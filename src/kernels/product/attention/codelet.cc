#include "kernels/product/attention/codelet.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/common/cost.h"
#include "kernels/host/dense/micro_tile_cost.h"
#include "kernels/product/attention/problem.h"
#include "kernels/tile/tile_product/cost.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

// Cycles from the engine's call to the first element.
constexpr double kVertexCycles = 200;
// Vector operations for each probability, beside the products: mask, exponential, sums; and of the gradient.
constexpr double kSoftmaxOperations = 18;
constexpr double kGradientOperations = 20;
constexpr double kDropoutOperations = 90;
// Copying a vector of an operand into panels.
constexpr double kCopyPerVector = 4;

// Distance of products of tiles from the processor's rate, and vector operations for each probability: scores
// are multiplied by the scale, and probabilities rounded.
constexpr double kBf16Slack = 1.45;
constexpr double kBf16Operations = 3;

// Cycles on a tile, derived from the elementwise operations (29 a worker, 3 a vector): of each vector of
// probabilities an exponential for 12 and the softmax's passes for 9, as in softmax; of the gradient the
// exponential, and a difference and two products; and a mask, as a comparison and a choice. Dropout as in
// dropout.
constexpr double kTileWorkerCycles = 29;
constexpr double kTileSoftmaxCycles = 21;
constexpr double kTileGradientCycles = 24;
constexpr double kTileMaskCycles = 6;
constexpr double kTileDropoutCycles = 60;

/// Tokens that follow one another, at most 16, of one sequence of a pack or of padding.
struct Block {
  uint32_t begin = 0, end = 0, id = 0;
};

template <class IdOf>
std::vector<Block> blocks_of(uint32_t begin, uint32_t end, const IdOf& id_of) {
  constexpr uint32_t kMostTokens = 16;
  std::vector<Block> blocks;
  for (uint32_t i = begin; i < end; ++i) {
    const uint32_t id = id_of(i);
    if (blocks.empty() || blocks.back().id != id || i - blocks.back().begin == kMostTokens)
      blocks.push_back({i, i, id});
    blocks.back().end = i + 1;
  }
  return blocks;
}

/// Pairs of blocks of queries and keys in which any query attends to a key; a tile skips all others.
double attended_pairs(const AttentionProblem& p) {
  double pairs = 0;
  for (uint32_t s = 0; s < p.sequences; ++s) {
    const AttentionProblem::Rows rows = p.rows_of(s);
    const KeyRange range = p.keys_of(s);
    const std::vector<Block> all_queries = blocks_of(rows.position, rows.position + rows.end - rows.begin,
                                                     [&](uint32_t query) { return p.query_id(s, query); });
    const std::vector<Block> all_keys =
        blocks_of(range.begin, range.end, [&](uint32_t key) { return p.key_id(s, key); });
    for (const Block& queries : all_queries) {
      const KeyRange reach = p.reach(queries.begin, queries.end);
      for (const Block& keys : all_keys)
        if (queries.id != 0 && keys.id == queries.id && keys.end > reach.begin && keys.begin < reach.end)
          pairs += double{1} * (queries.end - queries.begin) * (keys.end - keys.begin);
    }
  }
  return pairs * p.heads;
}

/// The numbers of products of a vertex on a tile: products whose results are pairs of query and key, over the
/// features of keys or of values, and products that are over pairs.
struct TileProducts {
  uint32_t over_keys_size = 0, over_values_size = 0, to_keys_size = 0, to_values_size = 0;
  double vector_cycles = 0;
};

double tile_cycles(const Vertex& v, const machine::Machine& m, AttentionRowsOf rows_of,
                   const TileProducts& products) {
  const AttentionRows of_tokens(v);
  const AttentionProblem p(of_tokens.vertex(), rows_of);
  if (p.heads == 0) return 0;
  const FieldView &q = of_tokens.vertex().fields[attention_input::q],
                  &k = of_tokens.vertex().fields[attention_input::k];
  const double fraction = static_cast<double>(k.rows) / (double{1} * p.sequences * p.keys);
  const double pairs = p.knows_ids() ? attended_pairs(p) : p.pairs() * fraction;
  if (pairs == 0) return m.workers_per_tile * kTileWorkerCycles;
  const uint32_t queries = (q.rows + p.sequences - 1) / p.sequences;
  const auto keys = static_cast<uint32_t>(std::ceil(pairs / (double{1} * q.rows * p.heads)));
  const bool is_by_key = rows_of == AttentionRowsOf::keys;
  const uint32_t own = is_by_key ? keys : queries, others = is_by_key ? queries : keys;
  // The multipliers may hold either factor.
  const auto product = [&](uint32_t rows, uint32_t inner, uint32_t cols) {
    return std::min(dense_cycles(m, q.type, rows, inner, cols), dense_cycles(m, q.type, cols, inner, rows));
  };
  const auto to_pairs = [&](uint32_t size) {
    return product(queries, size, keys) + transpose_cycles(m, q.type, double{1} * others * size);
  };
  const double of_head = products.over_keys_size * to_pairs(p.size) +
                         products.over_values_size * to_pairs(p.value_size) +
                         products.to_keys_size * product(own, others, p.size) +
                         products.to_values_size * product(own, others, p.value_size);
  const double of_worker = worker_slice(m, pairs);
  double vector_cycles = products.vector_cycles;
  if (p.has_ids() || p.has_window() || p.has_bias()) vector_cycles += kTileMaskCycles;
  const double softmax = kTileWorkerCycles +
                         vector_cycles * std::ceil(of_worker / tile_vector_width(Type::f32)) +
                         (p.has_dropout() ? kTileDropoutCycles * of_worker : 0);
  return p.sequences * p.heads * of_head + m.workers_per_tile * softmax;
}

/// Cycles of products over the pairs of query and key: `of_size` products of the keys' size and `of_values`
/// of the values' size.
double cycles_of(const Vertex& v, const machine::HostFigures& f, double of_size, double of_values,
                 double operations, bool is_bf16 = false) {
  const AttentionRows rows(v);
  const AttentionProblem p(rows.vertex());
  const double pairs = p.pairs(), lanes = lanes_of(f), rate = f.flops_per_cycle / 2 / lanes;
  const auto product = [&](double terms) {
    if (is_bf16) return kBf16Slack * 2 * pairs * terms / f.bf16_flops_per_cycle;
    return micro_tile_cycles({pairs / kPanelRows, 1, terms}, 0, f);
  };
  double copied = 0;
  for (const program::FieldView& field : v.fields) copied += static_cast<double>(field.elements());
  if (p.has_dropout()) operations += kDropoutOperations;
  return kVertexCycles + of_size * product(p.size) + of_values * product(p.value_size) +
         operations * pairs / lanes / rate + kCopyPerVector * copied / lanes;
}

}  // namespace

double AttentionProblem::pairs() const {
  double pairs = 0;
  for (uint32_t query = 0; heads > 0 && query < queries; ++query) {
    const KeyRange range = reach(query, query + 1);
    pairs += range.end - range.begin;
  }
  return pairs / queries * v_.fields[attention_input::q].rows * heads;
}

program::PhaseTimes attention_cost(const Vertex& v, const machine::Machine& m) {
  if (m.kind == machine::Kind::tiled)
    return in_phase(
        Phase::compute,
        tile_cycles(v, m, AttentionRowsOf::queries,
                    {.over_keys_size = 1, .to_values_size = 1, .vector_cycles = kTileSoftmaxCycles}));
  const bool is_bf16 = multiplies_bf16(v, m.figures.isa);
  const double operations = kSoftmaxOperations + (is_bf16 ? kBf16Operations : 0);
  return in_phase(Phase::compute, cycles_of(v, m.figures, 1, 1, operations, is_bf16));
}

program::PhaseTimes attention_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return in_phase(Phase::compute, cycles_of(v, m.figures, 3, 2, kSoftmaxOperations + kGradientOperations));
}

program::PhaseTimes attention_query_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return in_phase(Phase::compute, tile_cycles(v, m, AttentionRowsOf::queries,
                                              {.over_keys_size = 1,
                                               .over_values_size = 1,
                                               .to_keys_size = 1,
                                               .vector_cycles = kTileGradientCycles}));
}

program::PhaseTimes attention_key_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return in_phase(Phase::compute, tile_cycles(v, m, AttentionRowsOf::keys,
                                              {.over_keys_size = 1,
                                               .over_values_size = 1,
                                               .to_keys_size = 1,
                                               .to_values_size = 1,
                                               .vector_cycles = kTileGradientCycles}));
}

TESSERA_DEFINE_FAMILY(attention, TESSERA_ATTENTION_CODELETS, TESSERA_CODELET)

}  // namespace tessera::kernels
