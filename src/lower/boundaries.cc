#include "lower/boundaries.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "graph/loop.h"
#include "lower/layout_search.h"
#include "lower/lowering.h"

namespace tessera::graph {
namespace {

/// A function of a graph's calls, whose layouts are searched again and again.
struct Called {
  explicit Called(Lowering& body) : lowering(body), costs(body), search(std::in_place, body, costs) {}

  Lowering& lowering;
  ConversionCosts costs;
  std::optional<LayoutSearch> search;
  uint32_t calls = 0;
  Boundary boundary = {};
  std::vector<std::pair<Boundary, double>> known = {};

  /// The time of one call.
  double seconds() {
    const auto found = std::ranges::find(known, boundary, &std::pair<Boundary, double>::first);
    if (found != known.end()) return found->second;
    return known.emplace_back(boundary, search->seconds(boundary)).second;
  }
};

/// A value inside a function, or in the graph around it.
struct ScopedValue {
  std::optional<size_t> function;
  ValueId id = 0;

  auto operator<=>(const ScopedValue&) const = default;
};

/// Values that calls pass on as they are: a value that one call gives and another takes, or several functions
/// take.
struct Passed {
  std::vector<ScopedValue> values = {};
  bool is_computed = false;                    ///< whether a call gives it
  std::vector<ops::OperandLayout> parts = {};  ///< layouts in parts that they may have
};

class BoundarySearch {
 public:
  explicit BoundarySearch(Lowering& around)
      : around_(around), graph_(around.graph()), costs_(around), is_taken_(graph_.values().size()) {
    for (const Node& node : graph_.nodes())
      for (ValueId input : node.inputs) is_taken_[input] = is_taken_[input] || !is_call(node);
    for (const auto& [name, id] : graph_.outputs()) is_taken_[id] = true;
  }

  void run() {
    find_functions();
    if (functions_.empty()) return;
    if (!around_.on_host()) {
      find_passed();
      find_parts();
      const double apart = total();
      for (size_t p = 0; p < passed_.size(); ++p) choose(p, natural(p));
      improve();
      if (total() >= apart)
        for (const auto& each : called_) each->boundary.clear();
    }
    for (const auto& each : called_) {
      ChosenLayouts chosen = each->search->run(each->boundary);
      each->lowering.take(std::move(chosen), std::move(each->boundary));
    }
  }

 private:
  /// The layout that all values of a class have: rows, their transpose, or parts.
  struct Choice {
    bool transposed = false;
    std::optional<size_t> parts = {};

    bool operator==(const Choice&) const = default;
  };

  void find_functions() {
    for (const Node& node : graph_.nodes()) {
      if (!node.body || is_loop(node)) continue;
      Lowering& body = around_.body_of(node);
      auto [found, is_new] = functions_.try_emplace(&body, called_.size());
      if (is_new) {
        choose_boundaries(body);
        called_.push_back(std::make_unique<Called>(body));
      }
      ++called_[found->second]->calls;
      calls_.emplace_back(&node, found->second);
    }
  }

  const Lowering& lowering_of(const ScopedValue& value) const {
    return value.function ? called_[*value.function]->lowering : around_;
  }

  bool is_free(const ScopedValue& value) const {
    const Lowering& l = lowering_of(value);
    const TensorType& type = l.graph().type(value.id);
    return !l.form_of(value.id) && !type.pattern && type.elements() > 1 && !l.is_part(value.id);
  }

  void find_passed() {
    std::map<ScopedValue, std::vector<ScopedValue>> beside;
    std::set<ScopedValue> given;
    std::vector<ScopedValue> all;
    for (const auto& [node, function] : calls_) {
      const auto connect = [&, function = function](ValueId outside, ValueId inside) {
        const ScopedValue one{{}, outside}, other{function, inside};
        beside[one].push_back(other);
        beside[other].push_back(one);
        all.push_back(one);
      };
      const std::vector<ValueId> inputs = node->body->inputs();
      for (size_t i = 0; i < inputs.size(); ++i) connect(node->inputs[i], inputs[i]);
      size_t position = 0;
      for (const auto& [name, id] : node->body->outputs()) {
        given.insert({{}, node->outputs[position]});
        connect(node->outputs[position++], id);
      }
    }
    std::set<ScopedValue> seen;
    for (const ScopedValue& first : all) {
      Passed passed;
      std::set<size_t> functions;
      std::vector<ScopedValue> reached = {first};
      for (size_t i = 0; i < reached.size(); ++i) {
        const ScopedValue value = reached[i];
        if (!seen.insert(value).second) continue;
        passed.values.push_back(value);
        passed.is_computed = passed.is_computed || given.contains(value);
        if (value.function) functions.insert(*value.function);
        reached.insert(reached.end(), beside[value].begin(), beside[value].end());
      }
      if ((passed.is_computed || functions.size() > 1) &&
          std::ranges::all_of(passed.values, [&](const ScopedValue& value) { return is_free(value); }))
        passed_.push_back(std::move(passed));
    }
    chosen_.resize(passed_.size());
  }

  /// Finds the parts in which functions compute or want passed values, if they may choose.
  void find_parts() {
    std::vector<ChosenLayouts> free;
    for (size_t f = 0; f < called_.size(); ++f) {
      Boundary boundary;
      for (const auto& [name, id] : called_[f]->lowering.graph().outputs())
        if (is_passed({f, id})) boundary[id] = std::nullopt;
      free.push_back(called_[f]->search->run(boundary));
    }
    for (Passed& passed : passed_)
      for (const ScopedValue& value : passed.values) {
        if (!value.function || !passed.is_computed) continue;
        const ChosenLayouts& layouts = free[*value.function];
        add_parts(passed, layouts.values[value.id]);
        const std::vector<Node>& nodes = lowering_of(value).graph().nodes();
        for (size_t n = 0; n < nodes.size(); ++n)
          for (size_t i = 0; i < nodes[n].inputs.size(); ++i)
            if (nodes[n].inputs[i] == value.id) add_parts(passed, layouts.nodes[n].inputs[i]);
      }
    let_functions_take_parts();
  }

  bool is_passed(const ScopedValue& value) const {
    return std::ranges::any_of(passed_, [&](const Passed& passed) {
      return std::ranges::find(passed.values, value) != passed.values.end();
    });
  }

  static void add_parts(Passed& passed, const ValueLayout& layout) {
    if (layout.parts && std::ranges::find(passed.parts, *layout.parts) == passed.parts.end())
      passed.parts.push_back(*layout.parts);
  }

  /// Operations on each element may take and give the parts of other functions.
  void let_functions_take_parts() {
    std::vector<bool> has_new(called_.size());
    for (const Passed& passed : passed_)
      for (const ScopedValue& value : passed.values)
        for (const ops::OperandLayout& parts : passed.parts)
          if (value.function && called_[*value.function]->lowering.add_parts(parts))
            has_new[*value.function] = true;
    for (size_t f = 0; f < called_.size(); ++f)
      if (has_new[f]) called_[f]->search.emplace(called_[f]->lowering, called_[f]->costs);
  }

  ValueLayout layout_in(Lowering& l, const Passed& passed, const Choice& choice) const {
    return choice.parts ? l.placed(passed.parts[*choice.parts]) : (choice.transposed ? kTransposed : kRows);
  }

  Choice natural(size_t p) const { return passed_[p].parts.empty() ? Choice{} : Choice{.parts = 0}; }

  /// Gives a layout to all values that a value is passed as.
  void choose(size_t p, const Choice& choice) {
    const Passed& passed = passed_[p];
    chosen_[p] = choice;
    for (const ScopedValue& value : passed.values) {
      if (!value.function) continue;
      Called& called = *called_[*value.function];
      called.boundary[value.id] = layout_in(called.lowering, passed, choice);
    }
  }

  /// The time of all calls, and of conversions outside.
  double total() {
    double seconds = 0;
    for (const auto& each : called_) seconds += each->calls * each->seconds();
    for (size_t p = 0; p < passed_.size(); ++p) seconds += outside(p);
    return seconds;
  }

  /// The time of conversions for operations outside, which want matrices.
  double outside(size_t p) {
    if (!chosen_[p] || !chosen_[p]->parts) return 0;
    const ValueLayout parts = layout_in(around_, passed_[p], *chosen_[p]);
    double seconds = 0;
    for (const ScopedValue& value : passed_[p].values) {
      if (value.function) continue;
      const auto& node = graph_.info(value.id).node;
      if (!node || !is_call(graph_.nodes()[*node])) seconds += costs_.seconds(value.id, kRows, parts);
      if (is_taken_[value.id]) seconds += costs_.seconds(value.id, parts, kRows);
    }
    return seconds;
  }

  static bool is_call(const Node& node) { return node.body && !is_loop(node); }

  void improve() {
    constexpr int kSweeps = 3;
    bool changed = true;
    for (int sweep = 0; sweep < kSweeps && changed; ++sweep) {
      changed = false;
      for (size_t p = 0; p < passed_.size(); ++p) changed |= improve(p);
    }
  }

  bool improve(size_t p) {
    std::vector<Choice> choices = {{}, {.transposed = true}};
    for (size_t parts = 0; parts < passed_[p].parts.size(); ++parts) choices.push_back({.parts = parts});
    const Choice before = *chosen_[p];
    Choice best = before;
    double least = total();
    for (const Choice& choice : choices) {
      if (choice == before) continue;
      choose(p, choice);
      if (const double seconds = total(); seconds < least) least = seconds, best = choice;
    }
    choose(p, best);
    return !(best == before);
  }

  Lowering& around_;
  const Graph& graph_;
  ConversionCosts costs_;
  std::vector<bool> is_taken_;  ///< by value: whether an operation other than a call takes it, or the caller
  std::map<const Lowering*, size_t> functions_;
  std::vector<std::unique_ptr<Called>> called_;  ///< in the order of their first calls
  std::vector<std::pair<const Node*, size_t>> calls_;
  std::vector<Passed> passed_;
  std::vector<std::optional<Choice>> chosen_;
};

}  // namespace

void choose_boundaries(Lowering& around) { BoundarySearch(around).run(); }

}  // namespace tessera::graph
