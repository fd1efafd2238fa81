// Random graphs of all operations on hosts and small modelled machines, compared with float64: outputs, and
// parameters and state after each step. A failing graph is made as small as it can be, and printed.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string_view>

#include "base/integer_types.h"
#include "base/isa.h"
#include "graph/initial.h"
#include "graph/transforms/recompute.h"
#include "networks.h"
#include "random_graph.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

using test::number_of;
using test::number_of_cases;
using test::Random;

/// How a graph is run.
struct Setting {
  uint64_t seed = 0;
  std::string machine = "host";
  uint32_t tiles = 1;  ///< of a chip, or threads
  uint32_t chips = 1;
  Isa isa = Isa::generic;
  uint32_t steps = 1;
  bool reloads = false;               ///< goes on in another session, from a file
  bool is_shared = false;             ///< outputs are those of a session that shares the parameters
  bool has_shared_gradients = false;  ///< and if the graph is trained, also gradients
  bool changes_patterns = false;
  bool recomputes = false;  ///< the backward pass computes some calls and stages again

  bool is_host() const { return machine == "host"; }
};

std::string to_string(const Setting& s) {
  return fmt::format("seed {}: {} of {} tiles or threads and {} chips, {}, {} steps{}{}{}{}{}", s.seed,
                     s.machine, s.tiles, s.chips, name_of(s.isa), s.steps, s.reloads ? ", reloaded" : "",
                     s.is_shared ? ", shared" : "", s.has_shared_gradients ? " with gradients" : "",
                     s.changes_patterns ? ", with other patterns" : "", s.recomputes ? ", recomputed" : "");
}

Machine machine_of(const Setting& s) {
  if (s.is_host()) return Machine::host(s.tiles);
  const Machine machine = Machine::find(s.chips > 1 ? "m2000" : "bow").with("tiles", s.tiles);
  return s.chips > 1 ? machine.with("chips", s.chips) : machine;
}

/// Most of the calls and stages that can be computed again are.
void recompute_some(Graph& graph, uint64_t seed) {
  Random random(seed);
  std::vector<Recomputable> chosen;
  for (const RecomputationCandidate& candidate : recomputation_candidates(graph))
    if (random.below(4) != 0) chosen.push_back(candidate.what);
  recompute(graph, chosen);
}

/// Blocks in other places, as many as the capacity allows.
Pattern shifted(const Pattern& pattern, uint64_t capacity) {
  Pattern result = pattern;
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    const auto begin = result.col_indices.begin() + static_cast<int64_t>(result.crow_indices[row]),
               end = result.col_indices.begin() + static_cast<int64_t>(result.crow_indices[row + 1]);
    for (auto column = begin; column != end; ++column) *column = (*column + 1) % pattern.block_cols();
    std::sort(begin, end);
  }
  for (uint32_t row = 0; row < pattern.block_rows(); ++row)
    for (uint32_t column = 0; column < pattern.block_cols() && result.blocks() < capacity; ++column) {
      const auto begin = result.col_indices.begin() + static_cast<int64_t>(result.crow_indices[row]),
                 end = result.col_indices.begin() + static_cast<int64_t>(result.crow_indices[row + 1]);
      const auto at = std::lower_bound(begin, end, column);
      if (at != end && *at == column) continue;
      result.col_indices.insert(at, column);
      for (uint32_t after = row + 1; after < result.crow_indices.size(); ++after)
        ++result.crow_indices[after];
    }
  return result;
}

/// Every second block of each row: others leave room that was used before.
Pattern thinned(const Pattern& pattern) {
  Pattern result{pattern.rows, pattern.cols, pattern.block_size, {0}, {}};
  for (uint32_t row = 0; row < pattern.block_rows(); ++row) {
    for (uint64_t block = pattern.crow_indices[row]; block < pattern.crow_indices[row + 1]; block += 2)
      result.col_indices.push_back(pattern.col_indices[block]);
    result.crow_indices.push_back(result.col_indices.size());
  }
  return result;
}

Pattern changed(const TensorType& type, uint64_t seed) {
  return seed % 3 == 0 ? thinned(*type.pattern) : shifted(*type.pattern, *type.capacity);
}

/// The values of blocks in another pattern; 0 for new ones.
Array moved(const Pattern& from, const Array& values, const Pattern& to) {
  const uint64_t block = uint64_t{from.block_size} * from.block_size;
  Array result(to.blocks() * block);
  for (uint32_t row = 0; row < to.block_rows(); ++row)
    for (uint64_t t = to.crow_indices[row]; t < to.crow_indices[row + 1]; ++t)
      for (uint64_t f = from.crow_indices[row]; f < from.crow_indices[row + 1]; ++f)
        if (from.col_indices[f] == to.col_indices[t])
          std::copy_n(values.begin() + static_cast<int64_t>(f * block), block,
                      result.begin() + static_cast<int64_t>(t * block));
  return result;
}

/// A recipe's graph in float64, with contents that differ a little from the contents of other references.
class Reference {
 public:
  Reference(const Recipe& recipe, const Setting& setting, const Graph& graph, uint64_t disturbance, double by)
      : recipe_(recipe), setting_(setting), graph_(graph), random_(disturbance), by_(by) {
    for (ValueId id = 0; id < graph.values().size(); ++id) {
      const ValueInfo& info = graph.info(id);
      if (!is_kept(info)) continue;
      const std::optional<size_t> item = item_of(info.name);
      state_[info.name] = disturbed(item ? contents_of(recipe.items[*item], info.type.elements(),
                                                       setting.seed, static_cast<uint32_t>(*item))
                                         : Array(info.type.elements()),
                                    info.type.type);
    }
  }

  const WideArrays& state() const { return state_; }

  WideArrays inputs(uint32_t step) {
    WideArrays arrays;
    for (ValueId id : graph_.inputs()) {
      const ValueInfo& info = graph_.info(id);
      const TensorType type = graph_.bound_type(id);
      const std::optional<size_t> item = item_of(info.name);
      Array& array = arrays[info.name];
      if (item)
        array = contents_of(recipe_.items[*item], type.elements(), setting_.seed + step,
                            static_cast<uint32_t>(*item));
      else
        array.assign(type.elements(), info.name == "lr" ? 0.125 : step + 1);
      array = disturbed(std::move(array), type.type);
    }
    return arrays;
  }

  WideArrays run(uint32_t step) {
    WideArrays outputs = evaluate(graph_, inputs(step), state_);
    for (const ValueInfo& info : graph_.values())
      if (is_kept(info)) state_[info.name] = disturbed(std::move(state_[info.name]), info.type.type);
    return outputs;
  }

  void set_state(const WideArrays& state) { state_ = state; }

  void change_pattern(const std::string& name, const Pattern& from, const Pattern& to) {
    for (ValueId id = 0; id < graph_.values().size(); ++id) {
      const ValueInfo& info = graph_.info(id);
      const bool belongs = info.belongs && graph_.info(*info.belongs).name == name;
      if (info.name == name || (info.kind == Kind::state && belongs))
        state_[info.name] = moved(from, state_[info.name], to);
    }
  }

  static std::optional<size_t> item_of(const std::string& name) {
    if (name.size() < 2 || name[0] != 'v' || name.find('.') != std::string::npos) return {};
    return std::stoull(name.substr(1));
  }

 private:
  Array disturbed(Array values, Type type) {
    if (by_ == 0 || is_integer(type)) return values;
    for (double& x : values) x *= 1 + by_ * (2 * random_.unit() - 1);
    return values;
  }

  const Recipe& recipe_;
  const Setting& setting_;
  const Graph& graph_;
  Random random_;
  double by_;
  WideArrays state_;
};

/// The results of a run, and the expected ones.
class Comparison {
 public:
  Comparison(double epsilon) : epsilon_(epsilon) {}

  void expect(const WideArrays& expected) { exact_.push_back(expected); }
  void allow(size_t at, const WideArrays& disturbed) {
    allowed_.resize(exact_.size());
    for (const auto& [name, values] : disturbed) {
      Array& allowed = allowed_[at][name];
      allowed.resize(values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        const double difference = std::abs(values[i] - exact_[at].at(name)[i]);
        allowed[i] = std::isnan(difference) ? INFINITY : std::max(allowed[i], difference);
      }
    }
  }

  /// Whether float64 has numbers of moderate size.
  bool is_moderate() const {
    return std::ranges::all_of(exact_, [](const WideArrays& arrays) {
      return std::ranges::all_of(arrays, [](const auto& named) {
        return std::ranges::all_of(named.second, [](double x) { return std::isnan(x) || std::abs(x) < 1e4; });
      });
    });
  }

  /// The first difference; empty: none.
  std::string difference(size_t at, const Arrays& found) const {
    double scale = 1;
    for (const auto& [name, values] : exact_[at])
      for (double x : values) scale = std::isnan(x) ? scale : std::max(scale, std::abs(x));
    for (const auto& [name, values] : exact_[at]) {
      const std::vector<float>& own = found.at(name);
      if (own.size() != values.size())
        return fmt::format("{} has {} elements instead of {}", name, own.size(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        // A reference has no number where an element is unspecified, and says nothing where rounding decides.
        if (std::isnan(values[i])) continue;
        // Only inputs were disturbed; values computed from them are rounded too, which norms of nearly equal
        // values amplify.
        const double allowed = 8 * allowed_[at].at(name)[i] + 64 * epsilon_ * scale;
        if (allowed > 0.1 * scale) continue;
        if (!(std::abs(own[i] - values[i]) <= allowed))
          return fmt::format("{}[{}] is {} instead of {}, ± {}", name, i, own[i], values[i], allowed);
      }
    }
    return {};
  }

 private:
  double epsilon_;
  std::vector<WideArrays> exact_, allowed_;
};

/// Runs a recipe in a session, step by step.
class Trial {
 public:
  Trial(const Recipe& recipe, const Setting& setting) : recipe_(recipe), setting_(setting) {
    build(recipe, before_);
    if (setting.changes_patterns)
      for (size_t item = 0; item < recipe.items.size(); ++item)
        if (recipe.items[item].type.capacity)
          patterns_[item] = changed(recipe.items[item].type, setting.seed);
    build(recipe, after_, patterns_);
    evaluation_ = recipe;
    evaluation_.assignments.clear();
    if (evaluation_.lesson && setting.has_shared_gradients)
      evaluation_.lesson->has_updates = false, evaluation_.lesson->options = {};
    else
      evaluation_.lesson.reset();
    build(evaluation_, evaluation_before_);
    build(evaluation_, evaluation_after_, patterns_);
  }

  enum class Result : uint8_t { right, wrong, refused, immoderate };

  Result run(uint32_t disturbances) {
    Comparison comparison(largest_epsilon());
    try {
      expect(comparison, disturbances);
      if (!comparison.is_moderate()) return Result::immoderate;
      trained_ = before_.graph;
      if (setting_.recomputes) recompute_some(trained_, setting_.seed);
      Session session(trained_, machine_of(setting_));
      if (!session.fits()) return Result::refused;
      what_ = compare(comparison, session);
    } catch (const UsageError& error) {
      what_ = error.what();
      return Result::refused;
    } catch (const std::exception& error) {
      what_ = fmt::format("an exception of another kind: {}", error.what());
    }
    return what_.empty() ? Result::right : Result::wrong;
  }

  const std::string& what() const { return what_; }

 private:
  double largest_epsilon() const {
    double epsilon = epsilon_of(Type::f32);
    for (Type type : {Type::f16, Type::bf16})
      if (recipe_.has_type(type)) epsilon = std::max(epsilon, epsilon_of(type));
    return epsilon;
  }

  /// Outputs, state and an evaluation's outputs after each step.
  std::vector<WideArrays> evaluated(uint64_t disturbance, double by) const {
    std::vector<WideArrays> all;
    Reference first(recipe_, setting_, before_.graph, disturbance, by);
    Reference later(recipe_, setting_, after_.graph, disturbance, by);
    for (uint32_t step = 0; step < setting_.steps; ++step) {
      Reference& reference = step == 0 ? first : later;
      if (step == 1) take_over(first, later);
      all.push_back(reference.run(step));
      all.push_back(reference.state());
      all.push_back(evaluation_in_float64(step, reference.state(), disturbance, by));
    }
    return all;
  }

  WideArrays evaluation_in_float64(uint32_t step, const WideArrays& state, uint64_t disturbance,
                                   double by) const {
    if (!setting_.is_shared) return {};
    Reference reference(evaluation_, setting_, (step == 0 ? evaluation_before_ : evaluation_after_).graph,
                        disturbance, by);
    reference.set_state(state);
    return reference.run(step);
  }

  void take_over(Reference& from, Reference& to) const {
    for (const auto& [item, pattern] : patterns_)
      from.change_pattern(fmt::format("v{}", item), *recipe_.items[item].type.pattern, pattern);
    to.set_state(from.state());
  }

  void expect(Comparison& comparison, uint32_t disturbances) const {
    for (const WideArrays& arrays : evaluated(0, 0)) comparison.expect(arrays);
    for (uint32_t i = 0; i < disturbances; ++i) {
      size_t at = 0;
      for (const WideArrays& arrays : evaluated(1 + i, 16 * largest_epsilon()))
        comparison.allow(at++, arrays);
    }
  }

  std::string compare(const Comparison& comparison, Session& session) {
    Reference exact(recipe_, setting_, before_.graph, 0, 0);
    session.set_state(narrowed(exact.state()));
    std::optional<Session> evaluation;
    for (uint32_t step = 0; step < setting_.steps; ++step) {
      // A session that shares parameters lives on when their patterns change.
      if (step == 1) change(session);
      if (setting_.is_shared && (step == 0 || (step == 1 && setting_.reloads)))
        evaluation.emplace(evaluation_before_.graph, session);
      const Arrays inputs = narrowed(exact.inputs(step));
      const Arrays outputs = session.run(inputs);
      for (const auto& [i, found] :
           {std::pair(size_t{0}, outputs), {1, session.state()}, {2, evaluation_of(evaluation, step)}}) {
        const std::string what = comparison.difference(3 * step + i, found);
        if (!what.empty()) return fmt::format("in step {}{} {}", step, i == 2 ? ", evaluated," : "", what);
      }
    }
    return {};
  }

  Arrays evaluation_of(std::optional<Session>& evaluation, uint32_t step) const {
    if (!evaluation) return {};
    if (!evaluation->fits()) throw UsageError("the evaluation does not fit");
    Reference reference(evaluation_, setting_, evaluation_before_.graph, 0, 0);
    return evaluation->run(narrowed(reference.inputs(step)));
  }

  void change(Session& session) const {
    for (const auto& [item, pattern] : patterns_) session.set_pattern(fmt::format("v{}", item), pattern);
    if (!setting_.reloads) return;
    const std::string path = ::testing::TempDir() + fmt::format("/graph{}.safetensors", setting_.seed);
    session.save(path);
    session = Session(trained_, machine_of(setting_), {.seed = 7});
    session.load(path);
    std::filesystem::remove(path);
  }

  const Recipe& recipe_;
  const Setting& setting_;
  Recipe evaluation_;
  Patterns patterns_;
  Built before_, after_, evaluation_before_, evaluation_after_;
  Graph trained_;  ///< the graph of the session
  std::string what_;
};

using Result = Trial::Result;

/// A difference must remain when more disturbances show the effects of rounding.
Result run(const Recipe& recipe, const Setting& setting, std::string& what) {
  Result result = Result::right;
  for (uint32_t disturbances : {3, 40}) {
    Trial trial(recipe, setting);
    result = trial.run(disturbances);
    what = trial.what();
    if (result != Result::wrong) break;
  }
  return result;
}

/// False, too, for a recipe that makes no graph.
bool fails(const Recipe& recipe, const Setting& setting) {
  std::string what;
  try {
    return run(recipe, setting, what) == Result::wrong;
  } catch (const UsageError&) {
    return false;
  }
}

void shrink(Recipe& recipe, Setting& setting) {
  const auto try_setting = [&](const auto& change) {
    Setting changed = setting;
    change(changed);
    if (fails(recipe, changed)) setting = changed;
  };
  try_setting([](Setting& s) { s.steps = 1; });
  try_setting([](Setting& s) { s.reloads = false; });
  try_setting([](Setting& s) { s.has_shared_gradients = false; });
  try_setting([](Setting& s) { s.is_shared = false; });
  try_setting([](Setting& s) { s.changes_patterns = false; });
  try_setting([](Setting& s) { s.recomputes = false; });
  try_setting([](Setting& s) { s.tiles = 1; });
  for (bool shrinks = true; shrinks;) {
    shrinks = false;
    for (Recipe& candidate : smaller(recipe)) {
      if (!fails(candidate, setting)) continue;
      recipe = std::move(candidate);
      shrinks = true;
      break;
    }
  }
}

Setting random_setting(uint64_t seed) {
  Random random(seed ^ 0x5eed);
  Setting s{.seed = seed};
  const std::vector<Isa> isas = available_isas();
  s.isa = isas.back();
  switch (random.below(5)) {
    case 0: break;
    case 1: s.tiles = 2; break;
    case 2:
      s.tiles = 2;
      s.isa = isas[random.below(static_cast<uint32_t>(isas.size()))];
      break;
    case 3:
      s.machine = "bow";
      s.tiles = 4 + random.below(37);
      break;
    default:
      s.machine = "m2000";
      s.tiles = 2 * (2 + random.below(5));
      s.chips = 2 + 2 * random.below(2);
  }
  s.steps = 1 + random.below(3);
  s.reloads = random.below(3) == 0;
  s.changes_patterns = random.coin();
  s.is_shared = random.below(3) == 0;
  s.has_shared_gradients = s.is_shared && random.coin();
  s.recomputes = random.coin();
  return s;
}

/// Adds the operations of functions and gradients too.
void add_operations(const Graph& graph, std::set<std::string_view>& operations) {
  for (const Node& node : graph.nodes()) {
    operations.insert(node.operation->name);
    if (node.body) add_operations(*node.body, operations);
  }
}

constexpr uint64_t kParts = 8;
constexpr uint64_t kForAll = 600;  // graphs in which all operations occur

Recipe recipe_of(const Setting& setting) {
  return random_recipe(setting.seed, {.operations = 2 + static_cast<uint32_t>(setting.seed / kParts % 7),
                                      .hosts_only = setting.is_host(),
                                      .most_replicas = setting.chips});
}

/// The operations of graphs, and of those on tiles.
struct Occurring {
  std::set<std::string_view> anywhere, on_tiles;

  void add(const Recipe& recipe, const Setting& setting) {
    Built built;
    build(recipe, built);
    add_operations(built.graph, anywhere);
    if (!setting.is_host()) add_operations(built.graph, on_tiles);
  }

  void expect_all() const {
    for (const Operation* operation : all_operations()) {
      EXPECT_TRUE(anywhere.contains(operation->name))
          << operation->name << " occurs in no graph: give it cases that others can be combined with";
      // Tiles may run the decomposition of an operation that hosts run as one.
      EXPECT_TRUE(operation->decompose == nullptr || on_tiles.contains(operation->name))
          << operation->name << " occurs in no graph on tiles";
    }
  }
};

TEST(RandomRecipes, HaveAllOperations) {
  Occurring drawn;
  for (uint64_t i = 0; i < kForAll; ++i) {
    const Setting setting = random_setting(i * kParts);
    drawn.add(recipe_of(setting), setting);
  }
  drawn.expect_all();
}

class RandomGraphs : public testing::TestWithParam<uint64_t> {};

/// TESSERA_TEST_GRAPHS sets the number of graphs in each part; by default it is a twelfth of the graphs in
/// which all operations occur, or all of these with ./test --full. TESSERA_TEST_SEED sets the first seed.
/// TESSERA_TEST_VERBOSITY shows refused graphs (1), and all graphs before they run (2).
TEST_P(RandomGraphs, AgreeWithFloat64) {
  const uint64_t count = number_of("TESSERA_TEST_GRAPHS", number_of_cases(kForAll / 12, kForAll));
  const uint64_t first = number_of("TESSERA_TEST_SEED", 0),
                 verbosity = number_of("TESSERA_TEST_VERBOSITY", 0);
  std::map<Result, uint64_t> results;
  Occurring compared;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t seed = first + i * kParts + GetParam();
    Setting setting = random_setting(seed);
    Recipe recipe = recipe_of(setting);
    restrict_isa(setting.isa);
    if (verbosity > 1) fmt::print(stderr, "{}\n{}\n", to_string(setting), code_of(recipe));
    std::string what;
    const Result result = run(recipe, setting, what);
    ++results[result];
    if (result == Result::right) compared.add(recipe, setting);
    if (result == Result::refused && verbosity > 0) fmt::print("{}\n  {}\n", to_string(setting), what);
    if (result != Result::wrong) continue;
    const std::string whole = what;
    shrink(recipe, setting);
    run(recipe, setting, what);
    ADD_FAILURE() << to_string(setting) << "\n"
                  << whole << "\nmade smaller: " << what << "\n"
                  << code_of(recipe);
  }
  restrict_isa(available_isas().back());
  RecordProperty("right", std::to_string(results[Result::right]));
  if (count >= kForAll) compared.expect_all();
  EXPECT_GT(results[Result::right], count / 2)
      << results[Result::refused] << " refused, " << results[Result::immoderate] << " immoderate";
}

INSTANTIATE_TEST_SUITE_P(Model, RandomGraphs, testing::Range(uint64_t{0}, kParts));

}  // namespace
}  // namespace tessera::graph
