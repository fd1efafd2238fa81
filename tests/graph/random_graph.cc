#include "random_graph.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/integer_types.h"
#include "graph/loop.h"
#include "random_values.h"
#include "sparse/generate.h"

namespace tessera::graph {
namespace {

using test::Random;

/// Larger values would make rounding errors large.
constexpr double kMost = 50;

bool is_float(Type type) { return !is_integer(type); }

/// For rounded numbers, the rounding decides the result.
bool is_equality(const Operation& operation) {
  return operation.name == std::string_view("equal") || operation.name == std::string_view("not_equal");
}

/// Computed integers may be beyond 32 bits.
bool is_exact(const Operation& operation) { return operation.name == std::string_view("exact"); }

/// Values of edge blocks beyond the matrix are ignored.
void clear_overhang(const Pattern& p, Array& values) {
  const uint32_t b = p.block_size;
  for (uint32_t row = 0; row < p.block_rows(); ++row)
    for (uint64_t block = p.crow_indices[row]; block < p.crow_indices[row + 1]; ++block)
      for (uint32_t i = 0; i < b * b; ++i)
        if (row * b + i / b >= p.rows || p.col_indices[block] * b + i % b >= p.cols)
          values[block * b * b + i] = 0;
}

Value add_leaf(Graph& graph, const Item& item, const std::string& name, const Pattern* pattern,
               uint64_t index) {
  const TensorType& type = item.type;
  if (item.kind == Kind::constant) {
    const Array values = contents_of(item, type.elements(), 0, static_cast<uint32_t>(index));
    return graph.constant(name, type.shape, narrowed(values), type.type);
  }
  if (item.kind == Kind::input) return graph.input(name, type);
  if (type.pattern)
    return graph.sparse_parameter(name, pattern != nullptr ? *pattern : *type.pattern, {}, type.type,
                                  type.capacity);
  if (item.kind == Kind::state) return graph.state(name, type);
  return graph.parameter(name, type.shape, {}, type.type);
}

class Builder {
 public:
  Builder(Built& built, const Patterns& patterns) : built_(built), patterns_(patterns) {}

  void add(const Item& item) {
    const size_t index = built_.values.size();
    if (item.kind != Kind::result) {
      const auto pattern = patterns_.find(index);
      built_.values.push_back({add_leaf(built_.graph, item, name_of_item(index),
                                        pattern == patterns_.end() ? nullptr : &pattern->second, index)});
      return;
    }
    std::vector<Value> inputs;
    for (const ItemOutput& place : item.inputs) inputs.push_back(at(place));
    if (item.loop) {
      Loop how = *item.loop;
      how.stage = item.stage;
      built_.values.push_back(built_.graph.loop(function(item.body), inputs, how));
    } else if (item.body || item.stage) {
      built_.values.push_back(built_.graph.call(item.body ? function(item.body) : function(item, inputs),
                                                inputs, {.stage = item.stage}));
    } else {
      built_.values.push_back(built_.graph.apply(node_of(item), inputs));
    }
  }

  Value at(const ItemOutput& place) const { return built_.values.at(place.item).at(place.output); }

 private:
  std::shared_ptr<const Graph> function(const std::shared_ptr<const Recipe>& body) {
    std::shared_ptr<const Graph>& known = functions_[body];
    if (!known) {
      Built inside;
      build(*body, inside);
      known = std::make_shared<const Graph>(std::move(inside.graph));
    }
    return known;
  }

  static Node node_of(const Item& item) {
    return {
        .operation = &find_operation(item.operation), .attributes = item.attributes, .body = item.case_body};
  }

  /// A single operation.
  static std::shared_ptr<const Graph> function(const Item& item, const std::vector<Value>& inputs) {
    auto graph = std::make_shared<Graph>();
    std::vector<Value> taken;
    for (const Value& input : inputs)
      taken.push_back(graph->input(fmt::format("x{}", taken.size()), input.type()));
    for (const Value& result : graph->apply(node_of(item), taken))
      graph->output(fmt::format("y{}", graph->outputs().size()), result);
    return graph;
  }

  Built& built_;
  const Patterns& patterns_;
  std::map<std::shared_ptr<const Recipe>, std::shared_ptr<const Graph>> functions_;
};

Value loss_of(const Lesson& lesson, const Builder& builder) {
  std::optional<Value> loss;
  for (const ItemOutput& place : lesson.losses) {
    const Value value = cast(builder.at(place), Type::f32);
    const Value own = mean(lesson.squared ? square(value) : value);
    loss = loss ? *loss + own : own;
  }
  return *loss;
}

void add_gradients(const Recipe& recipe, Value loss, Built& built) {
  std::vector<Value> parameters;
  for (size_t item = 0; item < recipe.items.size(); ++item)
    if (recipe.items[item].kind == Kind::parameter) parameters.push_back(built.values[item][0]);
  const std::vector<std::optional<Value>> found = gradients(loss, parameters);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    const std::string name = built.graph.info(parameters[i].id).name;
    built.graph.output(name + ".slope", *found[i]);
    built.graph.output(name + ".norm", sum(square(cast(*found[i], Type::f32))));
  }
}

/// Adds operations one by one, and evaluates each.
class Generator {
 public:
  Generator(uint64_t seed, const GraphOptions& options)
      : random_(seed), seed_(seed), options_(options), builder_(built_, patterns_) {}

  Recipe run() {
    for (uint32_t i = 0; i < options_.operations; ++i)
      for (uint32_t attempt = 0; attempt < 30 && !add_operation(); ++attempt) {
      }
    choose_outputs();
    choose_assignment();
    if (random_.below(5) < 3) choose_lesson();
    if (recipe_.lesson && !can_learn()) recipe_.lesson.reset();
    choose_stages();
    return std::move(recipe_);
  }

 private:
  const TensorType& type_at(const ItemOutput& place) const { return builder_.at(place).type(); }

  void add(Item item) {
    builder_.add(item);
    try {
      evaluate(item);
    } catch (const UsageError&) {  // ids that are no rows
      built_.values.pop_back();
      throw;
    }
    recipe_.items.push_back(std::move(item));
  }
  /// Adds an item with leaves that it takes, unless it is not possible.
  bool add_with(std::vector<Item> leaves, Item item) {
    for (Item& leaf : leaves) add(std::move(leaf));
    try {
      add(std::move(item));
    } catch (const UsageError&) {
      return false;
    }
    return true;
  }

  void evaluate(const Item& item) {
    const std::vector<Value>& values = built_.values.back();
    const size_t index = built_.values.size() - 1;
    std::vector<Array> results;
    if (item.kind != Kind::result) {
      results.push_back(contents_of(item, item.type.elements(), seed_, static_cast<uint32_t>(index)));
    } else {
      const Node& node = built_.graph.nodes().back();
      Evaluation evaluation{built_.graph, node, {}, {}};
      for (const ItemOutput& place : item.inputs) evaluation.inputs.push_back(&arrays_.at(place));
      results = results_of(evaluation);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const ItemOutput place{index, i};
      const auto is_moderate = [](double x) { return std::isfinite(x) && std::abs(x) <= kMost; };
      if (!is_float(values[i].type().type) || std::ranges::all_of(results[i], is_moderate))
        usable_.push_back(place);
      arrays_[place] = std::move(results[i]);
    }
  }

  /// Sizes of a case's dimensions replaced by those of existing values.
  struct Sizes {
    std::map<uint32_t, uint32_t> to;

    TensorType of(TensorType type) const {
      if (type.pattern) return type;
      for (uint32_t& size : type.shape)
        if (const auto found = to.find(size); found != to.end()) size = found->second;
      return type;
    }
    bool unify(const TensorType& wanted, const TensorType& has) {
      if (wanted.type != has.type || wanted.shape.empty() || has.shape.empty()) return false;
      if (wanted.shape.size() != has.shape.size())
        return set(wanted.rows(), has.rows()) && set(wanted.cols(), has.cols());
      for (size_t i = 0; i < wanted.shape.size(); ++i)
        if (!set(wanted.shape[i], has.shape[i])) return false;
      return true;
    }
    bool set(uint32_t from, uint32_t size) { return to.emplace(from, size).first->second == size; }
  };

  bool add_operation() {
    if (random_.below(12) == 0) return add_function(random_.below(3) == 0);
    const std::span<const Operation* const> all = all_operations();
    const Operation& operation = *all[random_.below(static_cast<uint32_t>(all.size()))];
    if (operation.traits.shards) return false;  // only training adds these
    const std::vector<Case> cases = operation.cases();
    // After an operation that can absorb its only user, such a user is often added.
    if (ends_with_absorbing() && cases[0].inputs.size() == 1 && !cases[0].hosts_only && random_.below(4) != 0)
      return add(operation, cases[0], {}, {ItemOutput{recipe_.items.size() - 1, 0}});
    const Case& c = cases[random_.below(static_cast<uint32_t>(cases.size()))];
    const auto is_bf16 = [](const TensorType& type) { return type.type == Type::bf16; };
    if (!options_.hosts_only && (c.hosts_only || std::ranges::any_of(c.inputs, is_bf16))) return false;
    Sizes sizes;
    for (const TensorType& type : c.inputs)
      if (type.pattern) sizes.set(type.shape[0], type.shape[0]), sizes.set(type.shape[1], type.shape[1]);
    std::vector<std::optional<ItemOutput>> places;
    const bool fits = c.given.empty() && random_.below(8) != 0;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      // Given contents belong together, such as lists and the neurons that they name.
      const bool is_given = c.given.contains(i) || (!c.given.empty() && !is_float(c.inputs[i].type));
      places.push_back(fits                          ? find(c.inputs[i], sizes)
                       : !is_given && random_.coin() ? find(c.inputs[i], sizes, false)
                                                     : std::nullopt);
    }
    const auto is_rounded = [&](const std::optional<ItemOutput>& place) {
      return place && recipe_.items[place->item].kind == Kind::result && is_float(type_at(*place).type);
    };
    if (is_equality(operation) && std::ranges::any_of(places, is_rounded)) return false;
    const auto is_computed = [&](const std::optional<ItemOutput>& place) {
      return place && recipe_.items[place->item].kind == Kind::result;
    };
    if (is_exact(operation) && std::ranges::any_of(places, is_computed)) return false;
    return add(operation, c, sizes, places);
  }

  bool ends_with_absorbing() const {
    if (recipe_.items.empty() || recipe_.items.back().operation.empty()) return false;
    return find_operation(recipe_.items.back().operation).absorb != nullptr;
  }

  /// An existing value that has the type, or could have it with other sizes.
  std::optional<ItemOutput> find(const TensorType& type, Sizes& sizes, bool may_resize = true) {
    const TensorType wanted = sizes.of(type);
    std::vector<ItemOutput> same, others;
    for (const ItemOutput& place : usable_) {
      if (type_at(place) == wanted || (type.pattern && type_at(place).shape == wanted.shape))
        same.push_back(place);
      else if (type_at(place).type == type.type)
        others.push_back(place);
    }
    if (!same.empty() && random_.below(4) != 0) return one_of(same);
    if (type.pattern || !may_resize || others.empty() || random_.below(3) == 0) return {};
    const ItemOutput place = one_of(others);
    Sizes resized = sizes;
    // Scalars, vectors and columns are broadcast to anything.
    if (random_.below(6) != 0 && !resized.unify(type, type_at(place))) return {};
    sizes = resized;
    return place;
  }

  ItemOutput one_of(const std::vector<ItemOutput>& places) {
    // Recent ones, so that graphs are deep.
    const auto count = static_cast<uint32_t>(places.size());
    return places[count - 1 - std::min(random_.below(count), random_.below(count))];
  }

  bool add(const Operation& operation, const Case& c, const Sizes& sizes,
           const std::vector<std::optional<ItemOutput>>& places) {
    std::vector<Item> leaves;
    Types types;
    Item item{.operation = std::string(operation.name), .attributes = c.attributes, .case_body = c.body};
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      const auto resized = sizes.to.find(c.below);
      const uint32_t below = resized != sizes.to.end() ? resized->second : c.below;  // ids of rows
      if (places[i]) {
        // Indices from other micro-batches might not be rows.
        const Item& from = recipe_.items[places[i]->item];
        if (from.kind != Kind::result && !is_float(from.type.type) && from.below > below) return false;
        item.inputs.push_back(*places[i]);
        types.push_back(type_at(*places[i]));
        continue;
      }
      item.inputs.push_back({recipe_.items.size() + leaves.size(), 0});
      leaves.push_back(leaf(c, i, sizes.of(c.inputs[i])));
      leaves.back().below = below;
      types.push_back(leaves.back().type);
    }
    Node node{.operation = &operation, .attributes = c.attributes, .body = c.body};
    try {
      operation.infer({operation.name, types, node});
    } catch (const UsageError&) {
      return false;
    }
    return add_with(std::move(leaves), std::move(item));
  }

  Item leaf(const Case& c, size_t input, const TensorType& type) {
    Item leaf{.type = type, .low = c.low, .high = c.high, .below = c.below};
    if (const auto given = c.given.find(input); given != c.given.end()) leaf.given = given->second;
    if (type.pattern)
      leaf.kind = Kind::parameter;
    else if (!is_float(type.type) || !leaf.given.empty())
      leaf.kind = Kind::input;
    else
      leaf.kind =
          random_.one_of({Kind::input, Kind::input, Kind::input, Kind::input, Kind::parameter,
                          Kind::parameter, Kind::parameter, Kind::parameter, Kind::constant, Kind::state});
    return leaf;
  }

  /// A function of its own, called a few times, or repeated.
  bool add_function(bool repeats) {
    if (options_.operations < 3) return false;
    auto body = std::make_shared<const Recipe>(function_of(
        Generator(seed_ * 31 + recipe_.items.size(), {.operations = 2, .hosts_only = options_.hosts_only})
            .run()));
    if (body->items.empty() || std::ranges::any_of(body->items, is_over_step)) return false;
    const bool are_layers = !repeats && random_.coin();
    const uint32_t calls = repeats ? 1 : 1 + random_.below(are_layers ? 4 : 2);
    for (uint32_t call = 0; call < calls; ++call)
      if (!add_call(body, repeats, are_layers ? std::optional(call) : std::nullopt)) break;
    return true;
  }

  /// A layer takes a result of the layer before, if there is one, and parameters of its own.
  bool add_call(const std::shared_ptr<const Recipe>& body, bool repeats, std::optional<uint32_t> layer) {
    std::vector<Item> leaves;
    Item item{.operation = repeats ? "loop" : "call", .body = body};
    if (repeats) item.loop = loop_of(*body);
    const size_t before = recipe_.items.size() - 1;
    bool is_chained = !layer || *layer == 0;
    for (size_t i = 0; i < body->items.size(); ++i) {
      Item of = body->items[i];
      if (of.kind != Kind::input) continue;
      if (repeats && item.loop->indexed.contains(name_of_item(i)))
        of.type = of_all_passes(of.type, item.loop->count, name_of_item(i));
      std::optional<ItemOutput> found;
      if (!is_chained) {
        for (size_t output = 0; output < built_.values.back().size() && !found; ++output)
          if (type_at({before, output}) == of.type) found = ItemOutput{before, output};
        is_chained = found.has_value();
      }
      Sizes none;
      if (!found && !layer && of.given.empty()) found = find(of.type, none, false);
      item.inputs.push_back(found.value_or(ItemOutput{recipe_.items.size() + leaves.size(), 0}));
      if (found) continue;
      leaves.push_back(of);
      if (of.type.pattern) leaves.back().kind = Kind::parameter;
      if (is_float(of.type.type) && of.given.empty() && (layer || random_.coin()))
        leaves.back().kind = Kind::parameter;
    }
    return add_with(std::move(leaves), std::move(item));
  }

  Loop loop_of(const Recipe& body) {
    Built built;
    build(body, built);
    const Graph& graph = built.graph;
    Loop loop{.count = 1 + random_.below(3), .reversed = random_.below(4) == 0};
    if (random_.coin()) loop.scale = 0.5;
    for (const auto& [name, id] : graph.outputs()) {
      const uint32_t kind = random_.below(3);
      if (kind == 1 && !graph.type(id).pattern) loop.stacked.insert(name);
      if (kind == 2 && is_float(graph.type(id).type)) loop.summed.insert(name);
    }
    std::set<std::string> given;  // they match others in every pass
    for (size_t i = 0; i < body.items.size(); ++i)
      if (!body.items[i].given.empty()) given.insert(name_of_item(i));
    for (ValueId input : graph.inputs()) {
      const TensorType& type = graph.type(input);
      if (type.pattern) continue;
      std::vector<std::string> same;
      for (const auto& [name, id] : graph.outputs())
        if (graph.type(id) == type) same.push_back(name);
      if (!same.empty() && !given.contains(graph.info(input).name) && random_.below(3) != 0)
        loop.carried[graph.info(input).name] = same[random_.below(static_cast<uint32_t>(same.size()))];
      else if (random_.coin())
        loop.indexed.insert(graph.info(input).name);
    }
    return loop;
  }

  /// Without state and patterns that change.
  static Recipe function_of(Recipe recipe) {
    recipe.lesson.reset();
    recipe.assignments.clear();
    for (Item& item : recipe.items) {
      if (item.is_state()) item.kind = Kind::input;
      if (item.type.capacity || item.case_body) return {};
    }
    return recipe;
  }

  void choose_outputs() {
    std::set<ItemOutput> chosen;
    for (uint32_t i = 0; i < 1 + random_.below(3) && !usable_.empty(); ++i) chosen.insert(one_of(usable_));
    recipe_.outputs.assign(chosen.begin(), chosen.end());
  }

  void choose_assignment() {
    const size_t items = recipe_.items.size();
    for (size_t item = 0; item < items; ++item) {
      if (!recipe_.items[item].is_state() || random_.below(6) != 0) continue;
      std::vector<ItemOutput> same;
      // Few results have the type of a weight whose pattern may change.
      if (recipe_.items[item].type.capacity) {
        add(Item{.operation = "scale", .inputs = {{item, 0}}, .attributes = {{"factor", 0.75}}});
        same.push_back({recipe_.items.size() - 1, 0});
      }
      for (const ItemOutput& place : usable_)
        if (place.item != item && type_at(place) == type_at({item, 0})) same.push_back(place);
      if (!same.empty()) recipe_.assignments.emplace_back(item, one_of(same));
    }
  }

  /// All chips of a machine, if they are not replicas.
  void choose_stages() {
    const uint32_t stages = options_.most_replicas;
    if (stages == 1 || recipe_.items.empty() || (recipe_.lesson && recipe_.lesson->options.replicas > 1) ||
        random_.coin())
      return;
    std::vector<Item*> pieces;
    for (Item& item : recipe_.items)
      if (item.kind == Kind::result && random_.coin() && can_be_called(item)) pieces.push_back(&item);
    for (Item* item : pieces) item->stage = random_.below(stages);
    // The number of the last stage decides how many stages a graph has.
    if (!pieces.empty()) pieces.back()->stage = stages - 1;
  }

  /// Neither loops nor functions can contain such items.
  static bool is_over_step(const Item& item) {
    return item.kind == Kind::result && !item.body && find_operation(item.operation).traits.over_step;
  }

  bool can_be_called(const Item& item) const {
    return item.body || (!item.case_body && !is_over_step(item) &&
                         std::ranges::none_of(item.inputs, [&](const ItemOutput& place) {
                           return type_at(place).capacity.has_value();
                         }));
  }

  /// Whether the loss depends on a parameter, and through no operation without a gradient.
  bool can_learn() const {
    Built built;
    try {
      build(recipe_, built);
    } catch (const UsageError&) {
      return false;
    }
    return true;
  }

  /// A gradient that is 0 except for rounding has an arbitrary trust ratio unless there is decay, and for
  /// LARS unless the trust coefficient equals it.
  static constexpr double kDecay = 0.01;

  Optimizer random_optimizer() {
    const double decay = random_.one_of({0.0, kDecay});
    switch (random_.below(8)) {
      case 0: return Sgd{.momentum = 0.9, .nesterov = true};
      case 1:
      case 2: return Sgd{.momentum = random_.one_of({0.0, 0.9}), .weight_decay = decay};
      case 3:
        return Lars{
            .momentum = random_.one_of({0.0, 0.9}), .weight_decay = kDecay, .trust_coefficient = kDecay};
      case 4:
      case 5: return Lamb{.epsilon = 1e-2, .weight_decay = kDecay, .bias_correction = random_.coin()};
      default:
        return Adam{.epsilon = 1e-2,
                    .weight_decay = decay,
                    .decoupled = random_.coin(),
                    .bias_correction = random_.coin()};
    }
  }

  void choose_lesson() {
    Lesson lesson;
    std::vector<ItemOutput> floats;
    for (const ItemOutput& place : usable_)
      if (is_float(type_at(place).type) && !type_at(place).pattern) floats.push_back(place);
    if (floats.empty()) return;
    for (uint32_t i = 0; i < 1 + random_.below(2); ++i) lesson.losses.push_back(one_of(floats));
    lesson.squared = random_.coin();
    lesson.has_gradient_outputs = random_.below(4) == 0;
    TrainingOptions& options = lesson.options;
    options.optimizer = random_optimizer();
    if (random_.below(4) == 0)
      options.groups.push_back(
          {.names = {"v*"},
           .lr_scale = random_.one_of({0.5, 1.0}),
           .weight_decay = std::holds_alternative<Lars>(options.optimizer) ? kDecay : 0.02,
           .trust_ratio = random_.coin(),
           .offload = random_flag(),
           .offload_weights = random_flag(),
           .offload_gradients = random_flag()});
    if (random_.below(3) == 0) options.clip_norm = 0.5;
    if (random_.below(3) == 0) options.micro_batches = 2 + random_.below(2);
    if (options.micro_batches > 1 && random_.coin()) choose_pipeline(options);
    if (random_.coin()) options.replicas = options_.most_replicas;
    if (options.replicas > 1 && random_.coin()) options.shard_from = random_.one_of({0, 40});
    if (options.replicas > 1 && random_.coin()) options.shard_weights_from = random_.one_of({0, 40});
    if (options.replicas > 1 && random_.below(3) == 0) options.shard_gradients_from = random_.one_of({0, 40});
    if (options.replicas > 1)
      for (ParameterGroup& group : options.groups)
        group.shard = random_flag(), group.shard_weights = random_flag(),
        group.shard_gradients = random_flag();
    if (random_.below(3) == 0) options.offload_from = random_.one_of({0, 40});
    if (random_.below(3) == 0) options.offload_weights_from = random_.one_of({0, 40});
    if (random_.below(3) == 0) options.offload_gradients_from = random_.one_of({0, 40});
    options.prefetch = random_.coin();
    if (random_.below(5) == 0) options.state = Type::f16;
    recipe_.lesson = lesson;
    // Only its update sets trained state.
    std::erase_if(recipe_.assignments, [&](const auto& assignment) {
      return recipe_.items[assignment.first].kind == Kind::parameter;
    });
  }

  /// Mostly none.
  std::optional<bool> random_flag() {
    return random_.below(3) == 0 ? std::optional(random_.coin()) : std::nullopt;
  }

  /// Spiking layers are trained one micro-batch after the other.
  void choose_pipeline(TrainingOptions& options) {
    if (std::ranges::any_of(recipe_.items, [](const Item& item) {
          return item.operation.find("spiking") != std::string::npos;
        }))
      return;
    options.pipeline.kind =
        random_.one_of({PipelineKind::grouped, PipelineKind::interleaved,
                        PipelineKind::one_forward_one_backward, PipelineKind::zero_bubble});
    if (options.pipeline.kind == PipelineKind::grouped) options.micro_batches = 2 * options_.most_replicas;
    if (random_.coin()) options.pipeline.recomputed = {0};
    if (random_.below(3) == 0) options.pipeline.offload_from = random_.one_of({0, 40});
  }

  Random random_;
  uint64_t seed_;
  GraphOptions options_;
  Patterns patterns_;
  Built built_;
  Builder builder_;
  Recipe recipe_;
  std::map<ItemOutput, Array> arrays_;
  std::vector<ItemOutput> usable_;
};

/// The recipe without an item, which nothing may use.
Recipe without(const Recipe& recipe, size_t removed) {
  Recipe result = recipe;
  const auto move = [&](ItemOutput& place) { place.item -= place.item > removed ? 1 : 0; };
  result.items.erase(result.items.begin() + static_cast<int64_t>(removed));
  for (Item& item : result.items) std::ranges::for_each(item.inputs, move);
  std::ranges::for_each(result.outputs, move);
  for (auto& [state, place] : result.assignments) state -= state > removed ? 1 : 0, move(place);
  if (result.lesson) std::ranges::for_each(result.lesson->losses, move);
  return result;
}

bool is_used(const Recipe& recipe, size_t item) {
  const auto uses = [&](const ItemOutput& place) { return place.item == item; };
  const auto any = [&](const std::vector<ItemOutput>& places) { return std::ranges::any_of(places, uses); };
  return std::ranges::any_of(recipe.items, [&](const Item& other) { return any(other.inputs); }) ||
         any(recipe.outputs) || (recipe.lesson && any(recipe.lesson->losses)) ||
         std::ranges::any_of(recipe.assignments, [&](const auto& assignment) {
           return assignment.first == item || assignment.second.item == item;
         });
}

}  // namespace

std::string name_of_item(size_t item) { return fmt::format("v{}", item); }

bool Recipe::has_type(Type type) const {
  if (lesson && lesson->has_updates && lesson->options.state == type) return true;
  return std::ranges::any_of(items, [&](const Item& item) {
    return (item.kind != Kind::result && item.type.type == type) ||
           (item.body && item.body->has_type(type)) ||
           (item.operation == "cast" && std::get<std::string>(item.attributes.at("type")) == name_of(type));
  });
}

void build(const Recipe& recipe, Built& built, const Patterns& patterns) {
  Builder builder(built, patterns);
  for (const Item& item : recipe.items) builder.add(item);
  const bool scalars = recipe.lesson && recipe.lesson->options.micro_batches > 1;
  for (const ItemOutput& place : recipe.outputs)
    if (!scalars || builder.at(place).type().elements() == 1)
      built.graph.output(fmt::format("y{}.{}", place.item, place.output), builder.at(place));
  for (const auto& [item, place] : recipe.assignments)
    built.graph.assign(builder.at({item, 0}), builder.at(place));
  if (!recipe.lesson) return;
  const Value loss = loss_of(*recipe.lesson, builder);
  built.graph.output("loss", loss);
  if (!recipe.lesson->has_updates) return add_gradients(recipe, loss, built);
  add_training(loss, recipe.lesson->options);
  if (!recipe.lesson->has_gradient_outputs || scalars) return;
  for (size_t item = 0; item < recipe.items.size(); ++item) {
    const std::string name = name_of_item(item) + ".gradient";
    if (built.graph.contains(name)) built.graph.output(name + ".out", built.graph.find(name));
  }
}

Recipe random_recipe(uint64_t seed, const GraphOptions& options) { return Generator(seed, options).run(); }

Array contents_of(const Item& item, uint64_t elements, uint64_t seed, uint32_t stream) {
  if (item.given.empty()) {
    const TensorType all{item.type.type, {static_cast<uint32_t>(elements)}, {}, {}};
    Array contents = random_values(all, item.low, item.high, item.below, seed, stream);
    // With other patterns, contents have moved.
    if (item.type.pattern && elements == item.type.elements()) clear_overhang(*item.type.pattern, contents);
    return contents;
  }
  Array contents;
  while (contents.size() < elements) contents.insert(contents.end(), item.given.begin(), item.given.end());
  return contents;
}

std::vector<Recipe> smaller(const Recipe& recipe) {
  std::vector<Recipe> all;
  const auto change = [&](const auto& how) { how(all.emplace_back(recipe)); };
  if (std::ranges::any_of(recipe.items, [](const Item& item) { return item.stage.has_value(); }))
    change([](Recipe& r) {
      for (Item& item : r.items) item.stage.reset();
    });
  if (recipe.lesson) {
    const TrainingOptions& options = recipe.lesson->options;
    change([](Recipe& r) { r.lesson.reset(); });
    if (options.pipeline != Pipeline{}) change([](Recipe& r) { r.lesson->options.pipeline = {}; });
    if (options.micro_batches > 1) change([](Recipe& r) { r.lesson->options.micro_batches = 1; });
    if (options.shard_from) change([](Recipe& r) { r.lesson->options.shard_from.reset(); });
    if (options.shard_weights_from) change([](Recipe& r) { r.lesson->options.shard_weights_from.reset(); });
    if (options.shard_gradients_from)
      change([](Recipe& r) { r.lesson->options.shard_gradients_from.reset(); });
    if (options.prefetch) change([](Recipe& r) { r.lesson->options.prefetch = false; });
    if (options.offload_from) change([](Recipe& r) { r.lesson->options.offload_from.reset(); });
    if (options.offload_weights_from)
      change([](Recipe& r) { r.lesson->options.offload_weights_from.reset(); });
    if (options.offload_gradients_from)
      change([](Recipe& r) { r.lesson->options.offload_gradients_from.reset(); });
    if (options.replicas > 1 && !options.shard_from && !options.shard_weights_from &&
        !options.shard_gradients_from && options.groups.empty())
      change([](Recipe& r) { r.lesson->options.replicas = 1; });
    if (options.state != Type::f32) change([](Recipe& r) { r.lesson->options.state = Type::f32; });
    if (options.clip_norm) change([](Recipe& r) { r.lesson->options.clip_norm.reset(); });
    if (!options.groups.empty()) change([](Recipe& r) { r.lesson->options.groups.clear(); });
    if (recipe.lesson->has_gradient_outputs)
      change([](Recipe& r) { r.lesson->has_gradient_outputs = false; });
    if (recipe.lesson->squared) change([](Recipe& r) { r.lesson->squared = false; });
    for (size_t i = 0; i < recipe.lesson->losses.size() && recipe.lesson->losses.size() > 1; ++i)
      change([&](Recipe& r) { r.lesson->losses.erase(r.lesson->losses.begin() + static_cast<int64_t>(i)); });
  }
  for (size_t i = 0; i < recipe.outputs.size(); ++i)
    change([&](Recipe& r) { r.outputs.erase(r.outputs.begin() + static_cast<int64_t>(i)); });
  for (size_t i = 0; i < recipe.assignments.size(); ++i)
    change([&](Recipe& r) { r.assignments.erase(r.assignments.begin() + static_cast<int64_t>(i)); });
  Built built;
  build(recipe, built);
  for (size_t i = recipe.items.size(); i-- > 0;) {
    if (!is_used(recipe, i)) {
      all.push_back(without(recipe, i));
      continue;
    }
    const Item& item = recipe.items[i];
    if (item.kind == Kind::result && built.values[i].size() == 1 && !built.values[i][0].type().pattern)
      change([&](Recipe& r) {
        r.items[i] = {.kind = Kind::input, .type = built.values[i][0].type(), .low = 0.5};
      });
    if (item.kind == Kind::state || item.kind == Kind::constant)
      change([&](Recipe& r) { r.items[i].kind = Kind::input; });
  }
  return all;
}

}  // namespace tessera::graph
