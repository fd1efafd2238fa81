// Elements of the last dimension in any order and number, and sums of neighbours in it.
#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "base/ceil_divide.h"
#include "lower/lowering.h"
#include "operations/list.h"
#include "ops/map/gather.h"
#include "ops/map/reduce.h"
#include "ops/split.h"

namespace tessera::graph {
namespace {

using ops::Operand;
using program::Box;
using program::MappedBox;

// Selections.

const std::vector<int64_t>& select_features_places_of(const Node& node) { return node.list("places"); }

/// Elements that are used together, in a sum: they lie on one tile.
uint32_t neighbours_of(const Node& node) { return static_cast<uint32_t>(node.integer("neighbours", 1)); }

/// Inputs whose shapes differ only in the last dimension, from which elements are taken as if they were
/// concatenated.
Types infer_select(const Signature& s) {
  int64_t features = 0;
  for (const TensorType& x : s.inputs) {
    TensorType same = s.inputs[0];
    if (x.pattern || x.shape.empty() || same.shape.empty())
      throw UsageError(fmt::format("select_features: nothing can be taken from {}", to_string(x)));
    same.shape.back() = x.shape.back();
    if (!(same == x))
      throw UsageError(fmt::format("select_features: {} and {} differ in more than the last dimension",
                                   to_string(s.inputs[0]), to_string(x)));
    features += x.cols();
  }
  const std::vector<int64_t>& places = select_features_places_of(s.attributes);
  const auto outside = std::ranges::find_if(places, [&](int64_t at) { return at < 0 || at >= features; });
  if (outside != places.end())
    throw UsageError(fmt::format("select_features: place {} is not one of the {} of {}", *outside, features,
                                 to_string(s.inputs[0])));
  const int64_t neighbours = s.attributes.integer("neighbours", 1);
  if (places.empty() || neighbours < 1 || static_cast<int64_t>(places.size()) % neighbours != 0)
    throw UsageError(fmt::format(
        "select_features: {} places in groups of {} neighbours; there must be a group or more, all whole",
        places.size(), neighbours));
  TensorType y = s.inputs[0];
  y.shape.back() = static_cast<uint32_t>(places.size());
  return {y};
}

/// By element of an input: the positions in y to which it was taken.
std::vector<std::vector<int64_t>> uses_of(const Node& node, int64_t first, uint32_t count) {
  std::vector<std::vector<int64_t>> uses(count);
  const std::vector<int64_t>& places = select_features_places_of(node);
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i] >= first && places[i] < first + count)
      uses[places[i] - first].push_back(static_cast<int64_t>(i));
  return uses;
}

/// A zero for each row of a value, as a feature.
Value zero_feature(Value of) {
  TensorType zero = of.type();
  zero.shape.back() = 1;
  return of.graph->constant("", zero.shape, std::vector<float>(zero.elements()), zero.type);
}

Value select_from(const std::vector<Value>& parts, std::vector<int64_t> places, int64_t neighbours = 1) {
  return parts[0].owner().apply("select_features", parts,
                                {{"places", std::move(places)}, {"neighbours", neighbours}})[0];
}

/// The gradients of an element's uses become neighbours, and are added; zeros where one has fewer than
/// others, and for those that have none.
std::optional<Value> selection_gradient(const Differentiation& d, int64_t first, uint32_t count) {
  std::vector<std::vector<int64_t>> uses = uses_of(d.node, first, count);
  std::vector<int64_t> position(count);  // among the used ones
  int64_t used = 0;
  for (uint32_t i = 0; i < count; ++i) position[i] = uses[i].empty() ? -1 : used++;
  if (used == 0) return {};
  std::erase_if(uses, [](const auto& of_element) { return of_element.empty(); });
  const auto [least, most] = std::ranges::minmax(uses, {}, &std::vector<int64_t>::size);
  const Value dy = *d.dy[0];
  std::vector<Value> from = {dy};
  if (least.size() != most.size()) from.push_back(zero_feature(dy));
  std::vector<int64_t> places;
  for (const std::vector<int64_t>& of_element : uses) {
    places.insert(places.end(), of_element.begin(), of_element.end());
    places.insert(places.end(), most.size() - of_element.size(), dy.type().cols());
  }
  const Value dx = sum_neighbours(select_from(from, std::move(places), static_cast<int64_t>(most.size())),
                                  static_cast<uint32_t>(most.size()));
  if (used == count) return dx;
  for (int64_t& at : position)
    if (at < 0) at = used;
  return select_from({dx, zero_feature(dx)}, std::move(position));
}

Gradients select_gradient(const Differentiation& d) {
  Gradients gradients;
  int64_t first = 0;
  for (size_t i = 0; i < d.node.inputs.size(); ++i) {
    const uint32_t count = d.input(i).type().cols();
    gradients.push_back(selection_gradient(d, first, count));
    first += count;
  }
  return gradients;
}

std::vector<Array> select_reference(const Evaluation& e) {
  const std::vector<int64_t>& places = select_features_places_of(e.node);
  const uint32_t rows = e.output_type(0).rows();
  Array y;
  for (uint32_t r = 0; r < rows; ++r) {
    Array row;
    for (size_t i = 0; i < e.inputs.size(); ++i) {
      const uint32_t cols = e.input_type(i).cols();
      const auto begin = e.inputs[i]->begin() + int64_t{r} * cols;
      row.insert(row.end(), begin, begin + cols);
    }
    for (int64_t place : places) y.push_back(row[place]);
  }
  return {y};
}

/// Lays out features as rows.
std::vector<LayoutChoice> feature_rows(Lowering&, const Node& node) {
  return {{std::vector<ValueLayout>(node.inputs.size(), kTransposed), {kTransposed}}};
}

/// A part of rows × cols for each tile, of nearly equal size, in which neighbouring rows are together; as few
/// rows a part as that allows, because each is moved by itself.
std::vector<MappedBox> map_neighbours(uint32_t rows, uint32_t cols, uint32_t neighbours, uint32_t tiles) {
  constexpr double kUneven = 1.1;
  const uint32_t units = rows / neighbours;
  const double even = static_cast<double>(units) * cols / tiles;
  uint32_t best_parts = 1, best_cols = 1;
  double best = 0;
  for (uint32_t col_parts = 1; col_parts <= std::min(cols, tiles); ++col_parts) {
    const uint32_t parts = std::min(units, tiles / col_parts);
    const double size =
        static_cast<double>(base::ceil_divide(units, parts)) * base::ceil_divide(cols, col_parts);
    if (best > 0 && size >= best) continue;
    best = size, best_parts = parts, best_cols = col_parts;
    if (best <= kUneven * even) break;
  }
  const std::vector<uint32_t> row = ops::split_evenly(units, best_parts),
                              col = ops::split_evenly(cols, best_cols);
  std::vector<MappedBox> mapping;
  for (uint32_t r = 0; r < best_parts; ++r)
    for (uint32_t c = 0; c < best_cols; ++c)
      mapping.push_back(
          {{row[r] * neighbours, (row[r + 1] - row[r]) * neighbours, col[c], col[c + 1] - col[c]},
           r * best_cols + c});
  return mapping;
}

/// One operand of the inputs' features, one after the other.
Operand concatenated(Lowering& l, const Node& node) {
  if (node.inputs.size() == 1) return l.input(0);
  uint32_t rows = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) rows += l.input(i).rows();
  const Operand all = l.temporary("all", l.builder().type_of(l.input(0)), rows, l.input(0).cols());
  std::vector<program::StepId> steps;
  for (size_t i = 0, row = 0; i < node.inputs.size(); row += l.input(i).rows(), ++i)
    l.builder().send(l.input(i),
                     {all.variable, {static_cast<uint32_t>(row), l.input(i).rows(), 0, all.cols()}}, steps);
  for (program::StepId step : steps) l.run(step);
  return all;
}

/// On tiles: an exchange of runs of rows.
void exchange(Lowering& l, const Node& node, const Operand& out) {
  const std::vector<int64_t>& places = select_features_places_of(node);
  program::CopySet set{"select", {}};
  uint32_t first = 0;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const Operand in = l.input(i);
    std::vector<Box> from, to;
    for (uint32_t begin = 0, end = 0; begin < places.size(); begin = end) {
      for (end = begin + 1; end < places.size() && places[end] == places[begin] + (end - begin); ++end) {
      }
      // A run may continue in the next input.
      const int64_t low = std::max<int64_t>(places[begin], first);
      const int64_t high = std::min<int64_t>(places[begin] + (end - begin), first + in.rows());
      if (low >= high) continue;
      const auto rows = static_cast<uint32_t>(high - low);
      from.push_back({static_cast<uint32_t>(low - first), rows, 0, in.cols()});
      to.push_back({begin + static_cast<uint32_t>(low - places[begin]), rows, 0, out.cols()});
    }
    first += in.rows();
    if (from.empty()) continue;
    set.groups.push_back(ops::copy_boxes(in, std::move(from), out, std::move(to)));
  }
  l.run(l.builder().copy(std::move(set)));
}

void lower_select(Lowering& l, const Node& node) {
  if (l.on_host()) {
    const Operand in = concatenated(l, node), out = l.output(0);
    const std::vector<int64_t>& places = select_features_places_of(node);
    return l.add(
        ops::GatherProblem{l.builder().type_of(in), in.rows(), in.cols(), {places.begin(), places.end()}},
        {in, out});
  }
  const auto rows = static_cast<uint32_t>(select_features_places_of(node).size());
  exchange(
      l, node,
      l.output(0, map_neighbours(rows, l.input(0).cols(), neighbours_of(node), l.builder().machine().tiles)));
}

std::vector<Case> select_cases() {
  const auto of = [](std::vector<int64_t> places, std::initializer_list<TensorType> inputs) {
    return Case{inputs, {{"places", std::move(places)}}};
  };
  std::vector<Case> cases = {
      of({3, 0, 6, 6, 5, 1, 4, 2}, {{Type::f32, {3, 4, 7}, {}, {}}}),
      of({2, 1, 1, 0, 2, 0}, {{Type::f16, {9, 3}, {}, {}}}),
      of({0, 1, 2, 3, 8, 7, 6, 5}, {{Type::f32, {4, 3}, {}, {}}, {Type::f32, {4, 6}, {}, {}}}),
      of({4, 1, 1, 4}, {{Type::f32, {6, 5}, {}, {}}}), of({1, 1, 0, 0, 2, 2}, {{Type::f32, {3}, {}, {}}})};
  cases.back().attributes["neighbours"] = int64_t{2};
  return cases;
}

// Sums of neighbours.

Types infer_sum(const Signature& s) {
  const TensorType& x = s.inputs[0];
  require_float(s, x);
  const int64_t neighbours = s.attributes.integer("neighbours");
  if (x.pattern || x.shape.empty() || neighbours < 1 || x.cols() % neighbours != 0)
    throw UsageError(fmt::format("sum_neighbours: {} has no groups of {} neighbours in the last dimension",
                                 to_string(x), neighbours));
  TensorType y = x;
  y.shape.back() = x.cols() / static_cast<uint32_t>(neighbours);
  return {y};
}

Gradients sum_gradient(const Differentiation& d) {
  const int64_t neighbours = d.node.integer("neighbours");
  std::vector<int64_t> places(d.input(0).type().cols());
  for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i) / neighbours;
  return {select_from({*d.dy[0]}, std::move(places), neighbours)};
}

std::vector<Array> sum_reference(const Evaluation& e) {
  const int64_t neighbours = e.node.integer("neighbours");
  Array y(e.output_type(0).elements());
  for (uint64_t i = 0; i < e.inputs[0]->size(); ++i) y[i / neighbours] += (*e.inputs[0])[i];
  return {y};
}

/// The mapping of the summands, if it keeps groups whole.
std::vector<MappedBox> where_summed(const Lowering& l, const Operand& in, uint32_t neighbours) {
  if (l.on_host() || !l.builder().holds(in)) return {};
  std::vector<MappedBox> mapping = l.builder().mapping_of(in);
  for (MappedBox& mapped : mapping) {
    if (mapped.box.row % neighbours != 0 || mapped.box.rows % neighbours != 0) return {};
    mapped.box.row /= neighbours, mapped.box.rows /= neighbours;
  }
  return mapping;
}

void lower_sum(Lowering& l, const Node& node) {
  const auto neighbours = static_cast<uint32_t>(node.integer("neighbours"));
  const Operand in = l.input(0), out = l.output(0, where_summed(l, in, neighbours));
  l.add(ops::NeighbourSumProblem{out.rows(), out.cols(), neighbours, l.builder().type_of(in),
                                 l.builder().type_of(out)},
        {in, out});
}

std::vector<Case> sum_cases() {
  return {{{{Type::f32, {3, 4, 14}, {}, {}}}, {{"neighbours", int64_t{2}}}},
          {{{Type::f16, {9, 12}, {}, {}}}, {{"neighbours", int64_t{3}}}},
          {{{Type::f32, {10}, {}, {}}}, {{"neighbours", int64_t{5}}}},
          {{{Type::f32, {33, 4}, {}, {}}}, {{"neighbours", int64_t{1}}}}};
}

constexpr size_t kMostSelectedFrom = 4096;

constexpr Operation kSelectFeatures[] = {{"select_features",
                                          1,
                                          kMostSelectedFrom,
                                          infer_select,
                                          select_gradient,
                                          select_reference,
                                          feature_rows,
                                          lower_select,
                                          select_cases,
                                          {.keeps_samples = rows_of_all_keep_samples}},
                                         {"sum_neighbours",
                                          1,
                                          1,
                                          infer_sum,
                                          sum_gradient,
                                          sum_reference,
                                          feature_rows,
                                          lower_sum,
                                          sum_cases,
                                          {.keeps_samples = rows_of_all_keep_samples}}};

}  // namespace

std::span<const Operation> select_features_operations() { return kSelectFeatures; }

Value select_features(Value x, const std::vector<uint32_t>& places) {
  return x.owner().apply("select_features", {x}, {{"places", as_integers(places)}})[0];
}

Value sum_neighbours(Value x, uint32_t neighbours) {
  if (neighbours == 1) return x;
  return x.owner().apply("sum_neighbours", {x}, {{"neighbours", int64_t{neighbours}}})[0];
}

}  // namespace tessera::graph
