// Passes of structured maps on tiles: compared with float64, at the cost that plans promise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/bound_operands.h"
#include "ops/run_on_tiles.h"
#include "ops/structured/definition.h"
#include "ops/structured/tiles/pass.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using program::Role;

std::vector<double> as_doubles(const std::vector<float>& values) { return {values.begin(), values.end()}; }

/// The factor, or the factors of butterflies, in terms of the weights of a pass.
std::vector<StructuredStage> stages_of(const TilePass& p) {
  std::vector<StructuredStage> stages(std::max(1U, p.levels), {p.outputs()});
  uint64_t weight = 0;
  for (uint32_t i = 0; i < p.a; ++i)
    for (uint32_t t = 0; t < p.d; ++t) {
      const auto add = [&](StructuredStage& stage, uint32_t out, uint32_t in) {
        stage.terms.push_back({(i * p.b + out) * p.d + t, (i * p.c + in) * p.d + t, 1, weight++});
      };
      for (uint32_t r = 0; p.levels == 0 && r < p.b; ++r)
        for (uint32_t q = 0; q < p.c; ++q) add(stages[0], r, q);
      for (uint32_t level = 0; level < p.levels; ++level)
        for (uint32_t pair = 0; pair < p.c / 2; ++pair) {
          const uint32_t stride = 1U << (p.decreasing ? p.levels - 1 - level : level);
          const uint32_t low = pair % stride, first = 2 * (pair - low) + low;
          for (uint32_t e = 0; e < 4; ++e) add(stages[level], first + e / 2 * stride, first + e % 2 * stride);
        }
    }
  return stages;
}

/// All results of a pass in float64; features are rows of n.
struct Reference {
  std::vector<double> y, dx, dweight;

  Reference(const TilePass& p, uint32_t n, const std::vector<double>& w, const std::vector<double>& x,
            const std::vector<double>& dy)
      : y(size_t{p.outputs()} * n), dx(size_t{p.inputs()} * n), dweight(w.size()) {
    const std::vector<StructuredStage> stages = stages_of(p);
    for (uint32_t j = 0; j < n; ++j) {
      const auto sample = [&](const std::vector<double>& of) {
        std::vector<double> values;
        for (size_t i = j; i < of.size(); i += n) values.push_back(of[i]);
        return values;
      };
      const auto vectors = apply_stages(stages, w, sample(x));
      const auto of_x = differentiate_stages(stages, w, vectors, sample(dy), dweight);
      for (size_t i = 0; i < p.outputs(); ++i) y[i * n + j] = vectors.back()[i];
      for (size_t i = 0; i < p.inputs(); ++i) dx[i * n + j] = of_x[i];
    }
  }
};

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, Type type,
                 double terms) {
  test::expect_near(found, expected,
                    epsilon_of(type) * 4 * test::largest(expected) + epsilon_of(Type::f32) * 2 * (terms + 4),
                    "result");
}

class PassRun {
 public:
  PassRun(const TilePassProblem& problem, const machine::Machine& m) : p_(problem), machine_(m) {
    const Type type = p_.numbers.operands;
    w_ = random_elements(p_.pass.all_weights(), type, 1);
    x_ = random_elements(uint64_t{p_.pass.inputs()} * p_.n, type, 2);
    dy_ = random_elements(uint64_t{p_.pass.outputs()} * p_.n, type, 3);
  }

  /// Plans, runs and compares.
  void expect_right() {
    plan_ = plan_tile_pass(p_, machine_);
    expect_right(plan_.partition);
    EXPECT_NEAR(cycles_, plan_.chosen.seconds.scaled(machine_.clock_hz).total(), 1e-9 * cycles_);
  }

  void expect_right(const TilePassPartition& partition) {
    program::Program program;
    const Builder b(program, machine_);
    const Type type = p_.numbers.operands;
    BoundOperands operands(type);
    const auto add = [&](const char* name, Role role, uint32_t rows, uint32_t cols,
                         const std::vector<float>& values, std::vector<program::MappedBox> mapping = {}) {
      const program::Purpose purpose =
          mapping.empty() ? program::Purpose::activation : program::Purpose::parameter;
      return operands.bind(b.external(name, role, type, rows, cols, std::move(mapping), purpose), values);
    };
    const TilePass& pass = p_.pass;
    const std::vector<float> nothing;
    const auto mapping = [&] { return pass_weight_mapping(p_, partition); };
    TilePassOperands o;
    if (p_.reads_weight()) o.weight = add("weight", Role::input, 1, pass.all_weights(), w_, mapping());
    if (p_.reads_x()) o.x = FeatureOperand{add("x", Role::input, pass.inputs(), p_.n, x_)};
    o.y = FeatureOperand{add("y", p_.is_forward() ? Role::output : Role::input, pass.outputs(), p_.n,
                             p_.is_forward() ? nothing : dy_)};
    if (p_.gives_dx()) o.dx = FeatureOperand{add("dx", Role::output, pass.inputs(), p_.n, nothing)};
    if (p_.gives_dweight())
      o.dweight = add("dweight", Role::output, 1, pass.all_weights(), nothing, mapping());
    program.set_main(build_tile_pass(b, p_, partition, o));

    cycles_ = operands.run(std::move(program), machine_);

    const Reference reference(pass, p_.n, as_doubles(w_), as_doubles(x_), as_doubles(dy_));
    const auto found = [&](const Operand& operand) { return operands.found(operand); };
    const double terms = pass.levels > 0 ? 4.0 * pass.c : pass.b + pass.c;
    const Type rounding = p_.numbers.partials;
    if (p_.is_forward()) expect_near(found(o.y->operand), reference.y, type, terms);
    if (p_.gives_dx()) expect_near(found(o.dx->operand), reference.dx, type, terms);
    if (p_.gives_dweight())
      expect_near(found(*o.dweight), reference.dweight, size_of(rounding) < size_of(type) ? rounding : type,
                  terms * p_.n);
  }

  double cycles() const { return cycles_; }

 private:
  TilePassProblem p_;
  machine::Machine machine_;
  std::vector<float> w_, x_, dy_;
  TilePassPlan plan_;
  double cycles_ = 0;
};

std::vector<TilePassProduct> products_of(const TilePass& pass) {
  if (pass.levels > 0) return {TilePassProduct::forward, TilePassProduct::gradients};
  return {TilePassProduct::forward, TilePassProduct::input_gradient, TilePassProduct::weight_gradient};
}

constexpr TilePass kPasses[] = {{.a = 3, .b = 5, .c = 7, .d = 1},
                                {.a = 1, .b = 8, .c = 4, .d = 6},
                                {.a = 2, .b = 3, .c = 9, .d = 5},
                                {.a = 1, .b = 16, .c = 16, .d = 1},
                                {.a = 2, .b = 2, .c = 2, .d = 4, .levels = 1},
                                {.a = 1, .b = 8, .c = 8, .d = 3, .levels = 3},
                                {.a = 3, .b = 4, .c = 4, .d = 1, .levels = 2, .decreasing = true}};

TEST(TilePass, IsRightAtItsPlansCost) {
  for (const TilePass& pass : kPasses)
    for (const TilePassProduct product : products_of(pass))
      for (const uint32_t tiles : {1U, 7U, 24U})
        for (const uint32_t n : {1U, 20U})
          for (const TiledNumbers& numbers : kNumbers) {
            SCOPED_TRACE(fmt::format("({}, {}, {}, {}), {} levels, product {}, {} tiles, n = {}, {}", pass.a,
                                     pass.b, pass.c, pass.d, pass.levels, static_cast<int>(product), tiles, n,
                                     name_of(numbers.operands)));
            PassRun({pass, n, numbers, product}, testing::toy_machine(tiles, 1 << 20)).expect_right();
          }
}

TEST(TilePass, AnyPartitionIsRight) {
  const machine::Machine m = testing::toy_machine_with_regions(60, 1 << 20);
  for (const TilePass& pass : kPasses)
    for (const TilePassProduct product : products_of(pass))
      for (const uint32_t groups : {1U, 2U, pass.groups()})
        for (const uint32_t n_parts : {1U, 2U})
          for (const uint32_t outputs : {1U, 2U}) {
            if (groups > pass.groups() || (outputs > 1 && (groups < pass.groups() || pass.levels > 0)))
              continue;
            SCOPED_TRACE(fmt::format("({}, {}, {}, {}), product {}, {} × {} × {}", pass.a, pass.b, pass.c,
                                     pass.d, static_cast<int>(product), groups, n_parts, outputs));
            PassRun({pass, 9, {}, product}, m).expect_right({groups, n_parts, outputs});
          }
}

TEST(TilePass, RunsOnIpus) {
  for (const char* name : {"gc200", "bow"})
    for (const TiledNumbers& numbers : kNumbers)
      for (const TilePass& pass :
           {TilePass{8, 16, 16, 1}, TilePass{1, 16, 8, 8}, TilePass::butterfly(128, 4, 5)})
        for (const TilePassProduct product : products_of(pass)) {
          SCOPED_TRACE(
              fmt::format("{}, {}, product {}", name, name_of(numbers.operands), static_cast<int>(product)));
          PassRun({pass, 24, numbers, product}, machine::find(name)).expect_right();
        }
}

/// Passes one after another, which leave their results on the tiles that computed them.
struct Chain {
  std::vector<TilePass> passes;
  uint32_t n;

  double run_and_compare(const machine::Machine& m) const {
    program::Program program;
    const Builder b(program, m);
    std::vector<double> expected;
    std::vector<float> x = random_elements(uint64_t{passes[0].inputs()} * n, Type::f32, 5);
    std::vector<float> y(size_t{passes.back().outputs()} * n, NAN);
    std::vector<std::vector<float>> weights;
    for (size_t i = 0; i < passes.size(); ++i) {
      weights.push_back(random_elements(passes[i].all_weights(), Type::f32, 6 + i));
      const std::vector<double> in = i == 0 ? as_doubles(x) : expected;
      const std::vector<double> dy(size_t{passes[i].outputs()} * n);
      expected = Reference(passes[i], n, as_doubles(weights[i]), in, dy).y;
    }
    std::vector<engine::Binding> bindings;
    FeatureOperand at{b.external("x", Role::input, Type::f32, passes[0].inputs(), n), {}};
    bindings.push_back({at.operand.variable, x.data(), n, 1});
    std::vector<program::StepId> steps;
    for (size_t i = 0; i < passes.size(); ++i) {
      const TilePassProblem problem{passes[i], n};
      const TilePassPartition partition = plan_tile_pass(problem, m).partition;
      const Operand w = b.external(fmt::format("w{}", i), Role::input, Type::f32, 1, passes[i].all_weights(),
                                   pass_weight_mapping(problem, partition), program::Purpose::parameter);
      bindings.push_back({w.variable, weights[i].data(), w.cols(), 1});
      FeatureOperand to{{}, FeatureOrder::outputs_of(passes[i])};
      if (i + 1 < passes.size()) {
        to.operand = b.temporary(fmt::format("y{}", i), Type::f32, passes[i].outputs(), n,
                                 pass_result_mapping(problem, partition));
      } else {
        to = {b.external("y", Role::output, Type::f32, passes[i].outputs(), n), {}};
        bindings.push_back({to.operand.variable, y.data(), n, 1});
      }
      steps.push_back(build_tile_pass(b, problem, partition, {.weight = w, .x = at, .y = to}));
      at = to;
    }
    program.set_main(b.sequence(std::move(steps)));
    const engine::Engine engine(compiler::compile(std::move(program), m));
    const double cycles = engine.run(bindings).cycles.total();
    expect_near(y, expected, Type::f32, 64);
    return cycles;
  }
};

TEST(TilePass, ChainsOfPassesAreMonarchAndButterflyLayers) {
  const machine::Machine bow = machine::find("bow");
  Chain{{{8, 16, 8, 1}, {1, 4, 8, 16}}, 12}.run_and_compare(bow);
  Chain{{TilePass::butterfly(64, 1, 3), TilePass::butterfly(64, 8, 3)}, 12}.run_and_compare(bow);
  Chain{{TilePass::butterfly(64, 8, 3, true), TilePass::butterfly(64, 1, 3, true)}, 12}.run_and_compare(bow);
}

TEST(TilePass, MergedFactorsExchangeLess) {
  const machine::Machine bow = machine::find("bow");
  const auto passes = [](uint32_t levels) {
    Chain chain{{}, 16};
    for (uint32_t done = 0; done < 8; done += levels)
      chain.passes.push_back(TilePass::butterfly(256, 1U << done, levels));
    return chain;
  };
  EXPECT_LT(passes(4).run_and_compare(bow), 0.6 * passes(1).run_and_compare(bow));
}

TEST(TilePass, RejectsWhatCannotBe) {
  const machine::Machine m = testing::toy_machine(4);
  const auto message = [&](const TilePassProblem& p, const machine::Machine& on) {
    return test::error_of<UsageError>([&] { plan_tile_pass(p, on); });
  };
  EXPECT_TRUE(
      test::says(message({{1, 2, 2, 1}, 3}, machine::host(1)), "passes of structured maps run on tiled"));
  for (const TilePassProblem& p : std::vector<TilePassProblem>{
           {{0, 2, 2, 1}, 3}, {{1, 0, 2, 1}, 3}, {{1, 2, 0, 1}, 3}, {{1, 2, 2, 0}, 3}, {{1, 2, 2, 1}, 0}})
    EXPECT_TRUE(test::says(message(p, m), "is empty"));
  EXPECT_TRUE(test::says(message({{1, 4, 2, 1, 2}, 3}, m), "groups of 2^2 features, not 4 × 2"));
  EXPECT_TRUE(test::says(message({{1, 2, 2, 1, 2}, 3}, m), "groups of 2^2 features, not 2 × 2"));
  EXPECT_TRUE(test::says(message({{1, 1U << 17, 1U << 17, 1, 17}, 3}, m), "17 butterfly factors"));
  EXPECT_TRUE(test::says(message({{1, 2, 2, 1, 1, false, 3}, 3}, m), "features of 3 numbers"));
  EXPECT_TRUE(test::says(message({{1, 2, 2, 1, 0, false, 2}, 3}, m), "features of 2 numbers"));
  EXPECT_TRUE(test::says(message({{1, 2, 2, 1}, 3, {Type::bf16, Type::f32}}, m), "f32 or f16"));
  EXPECT_TRUE(test::says(message({{1, 2, 2, 1}, 3, {}, TilePassProduct::gradients}, m), "computed together"));
  EXPECT_TRUE(
      test::says(message({{1, 2, 2, 1, 1}, 3, {}, TilePassProduct::input_gradient}, m), "computed together"));
}

}  // namespace
}  // namespace tessera::ops
