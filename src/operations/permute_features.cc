// Permutations of the last dimension.
#include <fmt/format.h>
#include <tessera/error.h>

#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/map/gather.h"

namespace tessera::graph {
namespace {

const std::vector<int64_t>& permute_features_places_of(const Node& node) { return node.list("permutation"); }

Types infer_permute_features(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const std::vector<int64_t>& places = permute_features_places_of(s.attributes);
  if (x.pattern || x.shape.empty() || places.size() != x.cols())
    throw UsageError(fmt::format("permute_features: a permutation of {} places does not match {}",
                                 places.size(), to_string(x)));
  std::vector<bool> used(places.size());
  for (int64_t place : places) {
    if (place < 0 || place >= static_cast<int64_t>(places.size()) || used[place])
      throw UsageError(
          fmt::format("permute_features: {} is not a place of {}, or there twice", place, places.size()));
    used[place] = true;
  }
  return {x};
}

Gradients permute_features_gradient(const Differentiation& d) {
  const std::vector<int64_t>& places = permute_features_places_of(d.node);
  std::vector<int64_t> inverse(places.size());
  for (size_t i = 0; i < places.size(); ++i) inverse[places[i]] = static_cast<int64_t>(i);
  return {d.graph.apply("permute_features", {*d.dy[0]}, {{"permutation", std::move(inverse)}})[0]};
}

std::vector<Array> permute_features_reference(const Evaluation& e) {
  const std::vector<int64_t>& places = permute_features_places_of(e.node);
  Array y(e.inputs[0]->size());
  for (uint64_t begin = 0; begin < y.size(); begin += places.size())
    for (size_t i = 0; i < places.size(); ++i) y[begin + i] = (*e.inputs[0])[begin + places[i]];
  return {y};
}

/// Rows are gathered.
std::vector<LayoutChoice> permute_features_layouts(Lowering&, const Node&) {
  return {{{kTransposed}, {kTransposed}}};
}

void lower_permute_features(Lowering& l, const Node& node) {
  const ops::Operand in = l.input(0), out = l.output(0);
  const std::vector<int64_t>& places = permute_features_places_of(node);
  l.add(ops::GatherProblem{l.builder().type_of(in), in.rows(), in.cols(), {places.begin(), places.end()}},
        {in, out});
}

std::vector<Case> permute_features_cases() {
  const Attributes attributes = {{"permutation", std::vector<int64_t>{3, 0, 6, 2, 5, 1, 4}}};
  return {{{{Type::f32, {3, 4, 7}, {}, {}}}, attributes}, {{{Type::f16, {9, 7}, {}, {}}}, attributes}};
}

constexpr Operation kPermuteFeatures[] = {
    {"permute_features", 1, 1, infer_permute_features, permute_features_gradient, permute_features_reference,
     permute_features_layouts, lower_permute_features, permute_features_cases}};

}  // namespace

std::span<const Operation> permute_features_operations() { return kPermuteFeatures; }

Value permute_features(Value x, const std::vector<uint32_t>& permutation) {
  return x.owner().apply("permute_features", {x}, {{"permutation", as_integers(permutation)}})[0];
}

}  // namespace tessera::graph
