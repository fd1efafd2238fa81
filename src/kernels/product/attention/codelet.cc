#include "kernels/product/attention/codelet.h"

#include "kernels/common/cost.h"
#include "kernels/host/dense/micro_tile_cost.h"
#include "kernels/product/attention/problem.h"

namespace tessera::kernels {
namespace {

using program::Phase;
using program::Vertex;

// From the engine's call to the first element.
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

/// Whether products are of BF16 values.
bool multiplies_bf16(const Vertex& v, const machine::HostFigures& f) {
  using namespace attention_input;
  return f.bf16_flops_per_cycle > 0 && v.fields[q].type == Type::bf16 && v.fields[k].type == Type::bf16 &&
         v.fields[attention_input::v].type == Type::bf16;
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
  const bool is_bf16 = multiplies_bf16(v, m.figures);
  const double operations = kSoftmaxOperations + (is_bf16 ? kBf16Operations : 0);
  return in_phase(Phase::compute, cycles_of(v, m.figures, 1, 1, operations, is_bf16));
}

program::PhaseTimes attention_gradient_cost(const Vertex& v, const machine::Machine& m) {
  return in_phase(Phase::compute, cycles_of(v, m.figures, 3, 2, kSoftmaxOperations + kGradientOperations));
}

TESSERA_DEFINE_FAMILY(attention, TESSERA_ATTENTION_CODELETS, TESSERA_HOST_CODELET)

}  // namespace tessera::kernels
