// Attention in plain loops.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/product/attention/problem.h"

namespace tessera::kernels {
namespace {

using program::FieldView;

double product(const FieldView& a, uint32_t a_row, uint32_t a_col, const FieldView& b, uint32_t b_row,
               uint32_t b_col, uint32_t count) {
  double sum = 0;
  for (uint32_t i = 0; i < count; ++i) sum += number_at(a, a_row, a_col + i) * number_at(b, b_row, b_col + i);
  return sum;
}

/// A query of a head: its row, and the row of its sequence's first key.
struct Query {
  uint32_t sequence, head, position, row, first_key;
};

template <class Visit>
void each_query(const AttentionProblem& p, const Visit& visit) {
  for (uint32_t s = 0; s < p.sequences; ++s)
    for (uint32_t h = 0; h < p.heads; ++h) {
      const AttentionProblem::Rows rows = p.rows_of(s);
      for (uint32_t r = rows.begin; r < rows.end; ++r)
        visit(Query{s, h, rows.position + r - rows.begin, r, p.first_key_row(s)});
    }
}

/// Minus infinity for keys that the vertex lacks, and to which the query does not attend.
std::vector<double> scores(const program::Vertex& v, const AttentionProblem& p, const Query& query) {
  using namespace attention_input;
  std::vector<double> scores(p.keys, -std::numeric_limits<double>::infinity());
  const KeyRange own = p.keys_of(query.sequence);
  for (uint32_t j = own.begin; j < own.end; ++j) {
    if (!p.attends(query.sequence, query.position, j)) continue;
    scores[j] = double{p.scale} * product(v.fields[q], query.row, query.head * p.size, v.fields[k],
                                          query.first_key + j, query.head / p.shared * p.size, p.size);
    if (p.has_bias())
      scores[j] += number_at(v.fields[bias], p.bias_row(query.sequence, query.head, query.position), j);
  }
  return scores;
}

/// For a query and each key: dropout's factor of the probability.
std::vector<double> kept(const AttentionProblem& p, const Query& query) {
  std::vector<double> kept(p.keys, 1);
  if (!p.has_dropout()) return kept;
  const base::RandomStream stream = p.draws().stream();
  const uint64_t first = p.pair(query.sequence, query.head, query.position);
  for (uint32_t j = 0; j < p.keys; ++j)
    kept[j] = stream.uniform(first + j) < p.keep() ? 1 / double{p.keep()} : 0;
  return kept;
}

/// Gradients of queries into dq, of keys and values into dk and dv, and Σ dy · y, as far as these are given.
struct GradientFields {
  const FieldView *dq = nullptr, *dk = nullptr, *dv = nullptr, *means = nullptr;
};

void differentiate(const program::Vertex& vertex, AttentionRowsOf rows, const GradientFields& to) {
  using namespace attention_gradient_input;
  const AttentionProblem p(vertex, rows);
  const auto& f = vertex.fields;
  // Sums over queries and shared heads, rounded once.
  std::vector<float> of_k(to.dk != nullptr ? to.dk->elements() : 0),
      of_v(to.dv != nullptr ? to.dv->elements() : 0);
  if (to.dq != nullptr) clear(*to.dq);
  if (to.means != nullptr) clear(*to.means);
  each_query(p, [&](const Query& query) {
    const std::vector<double> score = scores(vertex, p, query), factors = kept(p, query);
    const uint32_t kv_head = query.head / p.shared, col = query.head * p.value_size;
    const double lse_of = number_at(f[lse], query.row, query.head);
    const double mean = rows == AttentionRowsOf::keys
                            ? number_at(f[attention_key_gradient_field::means], query.row, query.head)
                            : product(f[dy], query.row, col, f[y], query.row, col, p.value_size);
    if (to.means != nullptr) set_number(*to.means, query.row, query.head, mean);
    std::vector<double> query_gradient(p.size);
    const KeyRange own = p.keys_of(query.sequence);
    for (uint32_t j = own.begin; j < own.end; ++j) {
      if (!p.attends(query.sequence, query.position, j)) continue;
      const uint32_t key = query.first_key + j;
      const double probability = std::exp(score[j] - lse_of);
      const double dp = product(f[dy], query.row, col, f[v], key, kv_head * p.value_size, p.value_size);
      const double ds = probability * (factors[j] * dp - mean) * double{p.scale};
      for (uint32_t i = 0; i < p.size; ++i) {
        query_gradient[i] += ds * number_at(f[k], key, kv_head * p.size + i);
        if (to.dk != nullptr)
          of_k[size_t{key} * to.dk->cols + kv_head * p.size + i] +=
              static_cast<float>(ds * number_at(f[q], query.row, query.head * p.size + i));
      }
      for (uint32_t i = 0; to.dv != nullptr && i < p.value_size; ++i)
        of_v[size_t{key} * to.dv->cols + kv_head * p.value_size + i] +=
            static_cast<float>(probability * factors[j] * number_at(f[dy], query.row, col + i));
    }
    for (uint32_t i = 0; to.dq != nullptr && i < p.size; ++i)
      set_number(*to.dq, query.row, query.head * p.size + i, query_gradient[i]);
  });
  const auto store = [](const std::vector<float>& sums, const FieldView* field) {
    for (size_t i = 0; i < sums.size(); ++i)
      set_number(*field, static_cast<uint32_t>(i / field->cols), static_cast<uint32_t>(i % field->cols),
                 sums[i]);
  };
  store(of_k, to.dk);
  store(of_v, to.dv);
}

}  // namespace

void attention_reference(const program::Vertex& vertex) {
  using namespace attention_field;
  const AttentionRows of_tokens(vertex);
  const program::Vertex& v = of_tokens.vertex();
  const AttentionProblem p(v);
  if (p.keys == 0) clear(v.fields[y]);
  each_query(p, [&](const Query& query) {
    std::vector<double> probabilities = scores(v, p, query);
    double most = -std::numeric_limits<double>::infinity(), sum = 0;
    for (const double score : probabilities) most = std::isnan(score) ? score : std::max(most, score);
    for (double& score : probabilities)
      sum += score = std::isinf(score) && score < 0 ? 0 : std::exp(score - most);
    set_number(v.fields[lse], query.row, query.head, sum == 0 ? double{kNoLogarithm} : most + std::log(sum));
    const std::vector<double> factors = kept(p, query);
    for (uint32_t i = 0; i < p.value_size; ++i) {
      double total = 0;
      for (uint32_t j = 0; j < p.keys; ++j)
        if (p.attends(query.sequence, query.position, j))
          total += probabilities[j] * factors[j] *
                   number_at(v.fields[attention_field::v], query.first_key + j,
                             query.head / p.shared * p.value_size + i);
      set_number(v.fields[y], query.row, query.head * p.value_size + i, sum == 0 ? 0 : total / sum);
    }
  });
}

void attention_gradient_reference(const program::Vertex& given) {
  using namespace attention_gradient_field;
  const AttentionRows of_tokens(given);
  const auto& f = of_tokens.vertex().fields;
  differentiate(of_tokens.vertex(), AttentionRowsOf::sequences, {.dq = &f[dq], .dk = &f[dk], .dv = &f[dv]});
}

void attention_query_gradient_reference(const program::Vertex& given) {
  using namespace attention_query_gradient_field;
  const AttentionRows of_tokens(given);
  const auto& f = of_tokens.vertex().fields;
  differentiate(of_tokens.vertex(), AttentionRowsOf::queries, {.dq = &f[dq], .means = &f[means]});
}

void attention_key_gradient_reference(const program::Vertex& given) {
  using namespace attention_key_gradient_field;
  const AttentionRows of_tokens(given);
  const auto& f = of_tokens.vertex().fields;
  differentiate(of_tokens.vertex(), AttentionRowsOf::keys, {.dk = &f[dk], .dv = &f[dv]});
}

}  // namespace tessera::kernels
