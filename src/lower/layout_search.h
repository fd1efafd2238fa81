// The search for the layouts of a graph, with the costs of conversions between them.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "graph/loop.h"
#include "graph/operation.h"
#include "lower/lowering.h"

namespace tessera::graph {

/// The time of conversions: the time of a program with nothing else.
class ConversionCosts {
 public:
  explicit ConversionCosts(const Lowering& lowering) : l_(lowering) {}

  double seconds(ValueId id, const ValueLayout& from, const ValueLayout& to) {
    const TensorType& type = l_.graph().type(id);
    if (from == to || type.pattern || type.elements() == 1) return 0;
    for (const Known& known : known_[{type.type, type.rows(), type.cols()}])
      if (known.from == from && known.to == to) return known.seconds;
    const double seconds = of_layouts(type, from, to);
    known_[{type.type, type.rows(), type.cols()}].push_back({from, to, seconds});
    return seconds;
  }

 private:
  struct Known {
    ValueLayout from, to;
    double seconds = 0;
  };

  /// Functions and stages of a graph have equal conversions, on equal parts of a machine.
  double of_layouts(const TensorType& type, const ValueLayout& from, const ValueLayout& to) const {
    const std::tuple key(type.type, l_.operand_layout(type, from), l_.operand_layout(type, to));
    return seconds_alone(l_.builder().machine(), key, [&](const ops::Builder& builder) {
      const ops::Operand value =
          builder.add("value", program::Role::input, type.type, l_.operand_layout(type, from));
      std::vector<program::StepId> steps;
      l_.convert(builder, value, type, from, to, steps);
      return builder.sequence(std::move(steps));
    });
  }

  const Lowering& l_;
  std::map<std::tuple<Type, uint32_t, uint32_t>, std::vector<Known>> known_;
};

/// Layouts of a graph while they are being chosen.
class LayoutSearch {
 public:
  LayoutSearch(Lowering& lowering, ConversionCosts& costs)
      : l_(lowering), graph_(lowering.graph()), costs_(costs), is_output_(graph_.values().size()) {
    values_.resize(graph_.values().size());
    for (const auto& [name, id] : graph_.outputs()) is_output_[id] = true;
    for (ValueId id = 0; id < values_.size(); ++id) values_[id].weight = l_.form_of(id);
    Options all(graph_.nodes().size());
    chosen_.resize(graph_.nodes().size());
    // Other operations may take the parts of products.
    for (bool of_products : {true, false})
      for (uint32_t n = 0; n < graph_.nodes().size(); ++n)
        if (node(n).operation->traits.weight.has_value() == of_products)
          all[n] = node(n).operation->layouts(l_, node(n));
    options_ = std::make_shared<const Options>(std::move(all));
    for (uint32_t n = 0; n < graph_.nodes().size(); ++n) {
      if (updates_whole(n)) updated_.insert(updated_parameter(graph_, node(n)));
      if (is_loop(node(n))) take_passes(n);
    }
  }

  ChosenLayouts run(const Boundary& boundary = {}) const { return best(boundary).result(); }

  /// The cost of all operations and conversions.
  double seconds(const Boundary& boundary) const { return best(boundary).total(); }

 private:
  LayoutSearch best(const Boundary& boundary) const {
    LayoutSearch improved = *this;
    improved.fix(boundary);
    LayoutSearch following = improved;
    for (uint32_t n = 0; n < node_count(); ++n) improved.improve(n);
    improved.sweep();
    for (uint32_t n = 0; n < node_count(); ++n) following.follow_inputs(n);
    following.sweep();
    return following.total() < improved.total() ? following : improved;
  }

  void fix(const Boundary& boundary) {
    boundary_ = boundary;
    for (const auto& [id, layout] : boundary)
      if (layout && graph_.info(id).kind == Kind::input) set_leaf(id, *layout);
  }

  uint32_t node_count() const { return static_cast<uint32_t>(chosen_.size()); }

  void sweep() {
    constexpr int kSweeps = 8;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      bool changed = false;
      for (uint32_t n = 0; n < node_count(); ++n) changed |= improve(n);
      for (ValueId id = 0; id < values_.size(); ++id) changed |= improve_leaf(id);
      for (ValueId id = 0; id < values_.size(); ++id) changed |= push(id);
      if (!changed) break;
    }
  }

  /// Inputs have the layout wanted by the loop that takes its passes from them.
  void take_passes(uint32_t n) {
    for (size_t i = 0; i < node(n).inputs.size(); ++i) {
      const ValueId input = node(n).inputs[i];
      if (choice(n).inputs[i].passes > 0 && graph_.info(input).kind != Kind::result && !l_.is_part(input))
        values_[input] = choice(n).inputs[i];
    }
  }

  /// Cost of all operations and conversions.
  double total() const {
    double seconds = 0;
    for (uint32_t n = 0; n < node_count(); ++n) seconds += choice(n).seconds;
    for (ValueId id = 0; id < values_.size(); ++id) seconds += conversions(id);
    return seconds;
  }

  /// Chooses by the layouts that a node's inputs have, whatever becomes of its results.
  void follow_inputs(uint32_t n) {
    size_t best = 0;
    double least = 0;
    for (size_t option = 0; option < options(n).size(); ++option) {
      choose(n, option);
      double seconds = choice(n).seconds;
      for (size_t i = 0; i < node(n).inputs.size(); ++i) {
        const ValueId input = node(n).inputs[i];
        seconds += costs_.seconds(input, values_[input], choice(n).inputs[i]);
      }
      if (option == 0 || seconds < least) least = seconds, best = option;
    }
    choose(n, best);
  }

  ChosenLayouts result() const {
    ChosenLayouts result;
    for (uint32_t n = 0; n < node_count(); ++n) result.nodes.push_back(choice(n));
    result.values = values_;
    return result;
  }

  const Node& node(uint32_t n) const { return graph_.nodes()[n]; }
  const std::vector<LayoutChoice>& options(uint32_t n) const { return (*options_)[n]; }
  const LayoutChoice& choice(uint32_t n) const { return options(n)[chosen_[n]]; }

  void choose(uint32_t n, size_t option) {
    chosen_[n] = option;
    for (size_t i = 0; i < node(n).outputs.size(); ++i) values_[node(n).outputs[i]] = choice(n).outputs[i];
    // An update is in place, if it can be.
    if (!updates_whole(n)) return;
    const ValueId updated = updated_parameter(graph_, node(n));
    if (graph_.info(updated).kind != Kind::result && !l_.form_of(updated))
      set_leaf(updated, choice(n).outputs[0]);
  }

  /// Whether a node updates a parameter, or its state, not only the parts of replicas.
  bool updates_whole(uint32_t n) const { return is_update(node(n)) && !l_.is_shard(node(n).outputs[0]); }

  /// Cost of the conversions of a value, each made once.
  double conversions(ValueId id) const {
    std::vector<ValueLayout> wanted;
    const auto want = [&](const ValueLayout& layout) {
      if (std::ranges::find(wanted, layout) == wanted.end()) wanted.push_back(layout);
    };
    for (uint32_t user : l_.users_of(id))
      for (size_t i = 0; i < node(user).inputs.size(); ++i)
        if (node(user).inputs[i] == id) want(choice(user).inputs[i]);
    if (is_output_[id])
      if (const std::optional<ValueLayout> layout = given_layout(boundary_, id, values_[id])) want(*layout);
    double seconds = 0;
    for (const ValueLayout& layout : wanted) seconds += costs_.seconds(id, values_[id], layout);
    return seconds;
  }

  bool improve(uint32_t n) {
    const size_t before = chosen_[n];
    size_t best = before;
    choose(n, before);
    double least = cost_of({n});
    for (size_t option = 0; option < options(n).size(); ++option) {
      choose(n, option);
      const double seconds = cost_of({n});
      if (seconds < least) least = seconds, best = option;
    }
    choose(n, best);
    return best != before;
  }

  /// The caller binds inputs as rows or transposed, and state and constants lie either way. Users follow,
  /// where that pays.
  bool improve_leaf(ValueId id) {
    const ValueInfo& info = graph_.info(id);
    if (info.kind == Kind::result || info.belongs || l_.form_of(id) || updated_.contains(id)) return false;
    if (values_[id].passes > 0 || l_.is_part(id) || boundary_.contains(id)) return false;
    const ValueLayout before = values_[id];
    const std::vector<uint32_t>& users = l_.users_of(id);
    std::vector<size_t> chosen;
    for (uint32_t user : users) chosen.push_back(chosen_[user]);
    const double as_it_is = cost_around(id);
    set_leaf(id, before.transposed ? kRows : kTransposed);
    for (uint32_t user : users) improve(user);
    if (cost_around(id) < as_it_is) return true;
    for (size_t i = 0; i < users.size(); ++i) choose(users[i], chosen[i]);
    set_leaf(id, before);
    return false;
  }

  /// Lets users take a converted value as it lies, and their users take what they then give, if all of that
  /// together pays: one change alone would only move the conversion.
  bool push(ValueId id) {
    constexpr size_t kMost = 32;
    if (conversions(id) == 0) return false;
    std::vector<uint32_t> moved;
    std::vector<size_t> before, after;
    std::vector<ValueId> reached = {id};
    for (size_t r = 0; r < reached.size() && moved.size() < kMost; ++r)
      for (uint32_t user : l_.users_of(reached[r])) {
        const std::optional<size_t> option = option_taking(user, reached[r]);
        if (!option || std::ranges::find(moved, user) != moved.end()) continue;
        moved.push_back(user), before.push_back(chosen_[user]), after.push_back(*option);
        choose(user, *option);
        reached.insert(reached.end(), node(user).outputs.begin(), node(user).outputs.end());
      }
    const std::set<uint32_t> nodes(moved.begin(), moved.end());
    const double seconds = cost_of(nodes);
    for (size_t i = 0; i < moved.size(); ++i) choose(moved[i], before[i]);
    if (seconds >= cost_of(nodes)) return false;
    for (size_t i = 0; i < moved.size(); ++i) choose(moved[i], after[i]);
    return true;
  }

  /// Another option of a node that takes a value without a conversion.
  std::optional<size_t> option_taking(uint32_t n, ValueId id) const {
    const auto takes = [&](const LayoutChoice& option) {
      for (size_t i = 0; i < node(n).inputs.size(); ++i)
        if (node(n).inputs[i] == id && !(option.inputs[i] == values_[id])) return false;
      return true;
    };
    if (takes(choice(n))) return {};
    for (size_t option = 0; option < options(n).size(); ++option)
      if (takes(options(n)[option])) return option;
    return {};
  }

  double cost_around(ValueId id) const { return cost_of({l_.users_of(id).begin(), l_.users_of(id).end()}); }

  /// Cost of nodes and of the conversions of their inputs and outputs.
  double cost_of(const std::set<uint32_t>& users) const {
    std::set<ValueId> around;
    double seconds = 0;
    for (uint32_t user : users) {
      seconds += choice(user).seconds;
      around.insert(node(user).inputs.begin(), node(user).inputs.end());
      around.insert(node(user).outputs.begin(), node(user).outputs.end());
    }
    for (ValueId value : around) seconds += conversions(value);
    return seconds;
  }

  /// An optimizer's state has the layout of its parameter.
  void set_leaf(ValueId id, const ValueLayout& layout) {
    values_[id] = layout;
    for (ValueId other = 0; other < values_.size(); ++other)
      if (graph_.info(other).belongs == id && !l_.is_shard(other)) values_[other] = layout;
  }

  Lowering& l_;
  const Graph& graph_;
  ConversionCosts& costs_;
  std::vector<ValueLayout> values_;
  std::vector<bool> is_output_;
  std::set<ValueId> updated_;  ///< parameters
  using Options = std::vector<std::vector<LayoutChoice>>;
  std::shared_ptr<const Options> options_;  ///< by node
  std::vector<size_t> chosen_;
  Boundary boundary_;
};

}  // namespace tessera::graph
