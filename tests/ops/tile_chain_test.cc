// Butterflies and Kronecker-sparse factors as chains of passes on tiles: compared with float64, at the cost
// that plans promise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/bound_operands.h"
#include "ops/run_on_tiles.h"
#include "ops/structured/tiles/chain.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using program::Role;

/// One element of a factor: out += sign · parameter · in.
struct Term {
  uint32_t out, in, parameter;
  double sign = 1;
};
using Stage = std::vector<Term>;

/// The factors as their definitions state them, for all stacks.
std::vector<Stage> stages_of(const TileChainProblem& p) {
  std::vector<Stage> stages;
  if (!p.butterfly) {
    const TilePass& f = p.factor;
    uint32_t at = 0;
    Stage& stage = stages.emplace_back();
    for (uint32_t i = 0; i < f.a; ++i)
      for (uint32_t t = 0; t < f.d; ++t)
        for (uint32_t r = 0; r < f.b; ++r)
          for (uint32_t q = 0; q < f.c; ++q)
            stage.push_back({(i * f.b + r) * f.d + t, (i * f.c + q) * f.d + t, at++});
    return stages;
  }
  const TileButterfly& s = *p.butterfly;
  const uint32_t size = 1U << s.levels;
  for (uint32_t block = 0; block < s.blocks; ++block)
    for (uint32_t level = 0; level < s.levels; ++level) {
      Stage& stage = stages.emplace_back();
      const bool decreasing = s.decreasing != (block % 2 == 1);
      const uint32_t stride = 1U << (decreasing ? s.levels - 1 - level : level);
      for (uint32_t stack = 0; stack < s.stacks; ++stack)
        for (uint32_t i = 0; i < size / 2; ++i) {
          const uint32_t low = i % stride, first = stack * size + 2 * (i - low) + low;
          uint32_t matrix = ((stack * s.blocks + block) * s.levels + level) * size / 2 + i;
          if (s.tied) matrix = stack * (size - 1) + stride - 1 + low;
          for (uint32_t e = 0; e < 4; ++e) {
            const uint32_t out = first + e / 2 * stride, in = first + e % 2 * stride, at = 4 * matrix + e;
            if (!s.complex) {
              stage.push_back({out, in, at});
              continue;
            }
            // (re + i·im) · (x + i·z)
            stage.push_back({2 * out, 2 * in, 2 * at});
            stage.push_back({2 * out, 2 * in + 1, 2 * at + 1, -1});
            stage.push_back({2 * out + 1, 2 * in, 2 * at + 1});
            stage.push_back({2 * out + 1, 2 * in + 1, 2 * at});
          }
        }
    }
  return stages;
}

/// Results in float64, of features as rows of n.
struct Reference {
  std::vector<double> y, dx, dparameter;

  Reference(const TileChainProblem& p, const std::vector<float>& w, const std::vector<float>& x,
            const std::vector<float>& dy)
      : dparameter(w.size()) {
    const uint32_t n = p.n, stacks = p.butterfly ? p.butterfly->stacks : 1;
    const uint32_t inputs =
        p.butterfly ? (stacks << p.butterfly->levels) * p.butterfly->width() : p.factor.inputs();
    const uint32_t outputs = p.butterfly ? inputs : p.factor.outputs(), size = inputs / stacks;
    const std::vector<Stage> stages = stages_of(p);
    std::vector<std::vector<double>> values = {std::vector<double>(size_t{inputs} * n)};
    for (uint32_t s = 0; s < stacks; ++s) std::copy(x.begin(), x.end(), values[0].begin() + s * size * n);
    for (const Stage& stage : stages) {
      std::vector<double> next(size_t{outputs} * n);
      for (const Term& t : stage)
        for (uint32_t j = 0; j < n; ++j)
          next[t.out * n + j] += t.sign * w[t.parameter] * values.back()[t.in * n + j];
      values.push_back(next);
    }
    y.assign(values.back().begin(), values.back().begin() + p.outputs * n);
    std::vector<double> gradient(size_t{outputs} * n);
    std::copy(dy.begin(), dy.end(), gradient.begin());
    for (size_t i = stages.size(); i-- > 0;) {
      std::vector<double> before(values[i].size());
      for (const Term& t : stages[i])
        for (uint32_t j = 0; j < n; ++j) {
          before[t.in * n + j] += t.sign * w[t.parameter] * gradient[t.out * n + j];
          dparameter[t.parameter] += t.sign * gradient[t.out * n + j] * values[i][t.in * n + j];
        }
      gradient = before;
    }
    dx.resize(size_t{p.inputs} * n);
    for (uint32_t s = 0; s < stacks; ++s)
      for (size_t i = 0; i < dx.size(); ++i) dx[i] += gradient[s * size * n + i];
  }
};

class ChainRun {
 public:
  ChainRun(const TileChainProblem& problem, const machine::Machine& m)
      : p_(problem),
        machine_(m),
        w_(random_elements(uint64_t{p_.parameter_rows()} * p_.parameter_cols(), type(), 1)),
        x_(random_elements(uint64_t{p_.inputs} * p_.n, type(), 2)),
        dy_(random_elements(uint64_t{p_.outputs} * p_.n, type(), 3)) {}

  void expect_right() {
    const TileChainPlan plan = plan_tile_chain(p_, machine_);
    program::Program program;
    const Builder b(program, machine_);
    const auto mapping = chain_parameter_mapping(p_, plan.partition);
    const auto matrix = [&](const char* name, Role role, uint32_t rows, const std::vector<float>& values) {
      return operands_.bind(b.external(name, role, type(), p_.rows(rows), p_.cols(rows)),
                            in_order(values, rows));
    };
    const auto parameter = [&](const char* name, Role role, program::Purpose purpose,
                               const std::vector<float>& values) {
      return operands_.bind(
          b.external(name, role, type(), p_.parameter_rows(), p_.parameter_cols(), mapping, purpose), values);
    };
    TileChainOperands o{
        .x = matrix("x", Role::input, p_.inputs, x_),
        .y = matrix("y", p_.gradients ? Role::input : Role::output, p_.outputs,
                    p_.gradients ? dy_ : std::vector<float>{}),
        .parameter = parameter("w", Role::input, program::Purpose::parameter, w_),
    };
    if (p_.gradients && p_.input_gradient) o.dx = matrix("dx", Role::output, p_.inputs, {});
    if (p_.gradients && p_.parameter_gradient)
      o.parameter_gradient = parameter("dw", Role::output, program::Purpose::gradient, {});
    program.set_main(build_tile_chain(b, p_, plan.partition, o));
    operands_.run(std::move(program), machine_, plan.chosen.seconds);

    const Reference reference(p_, w_, x_, dy_);
    if (!p_.gradients) operands_.expect_near(o.y, in_order(reference.y, p_.outputs));
    if (o.dx) operands_.expect_near(*o.dx, in_order(reference.dx, p_.inputs));
    if (o.parameter_gradient) operands_.expect_near(*o.parameter_gradient, reference.dparameter);
  }

 private:
  Type type() const { return p_.numbers.operands; }

  /// Features as rows in the problem's order.
  template <class T>
  std::vector<T> in_order(const std::vector<T>& values, uint32_t rows) const {
    if (!p_.sample_rows || values.empty()) return values;
    std::vector<T> transposed(values.size());
    for (uint32_t f = 0; f < rows; ++f)
      for (uint32_t j = 0; j < p_.n; ++j) transposed[j * rows + f] = values[f * p_.n + j];
    return transposed;
  }

  TileChainProblem p_;
  machine::Machine machine_;
  std::vector<float> w_, x_, dy_;
  BoundOperands operands_{type()};
};

TileChainProblem factor(const TilePass& pass, uint32_t inputs, uint32_t outputs, uint32_t n) {
  return {.factor = pass, .inputs = inputs, .outputs = outputs, .n = n};
}
TileChainProblem butterfly(const TileButterfly& of, uint32_t inputs, uint32_t outputs, uint32_t n) {
  return {.butterfly = of, .inputs = inputs, .outputs = outputs, .n = n};
}

std::vector<TileChainProblem> problems() {
  return {factor({2, 3, 5, 4}, 40, 24, 9),
          factor({1, 8, 8, 4}, 29, 31, 5),
          butterfly({5}, 32, 32, 9),
          butterfly({4, 1, 1, true}, 13, 11, 5),
          butterfly({3, 3}, 7, 20, 4),
          butterfly({4, 1, 2}, 16, 16, 6),
          butterfly({1}, 2, 2, 3),
          butterfly({4, 1, 1, false, true}, 16, 16, 5),
          butterfly({3, 2, 1, true, true}, 8, 13, 4),
          butterfly({5, 1, 1, false, false, true}, 64, 64, 9),
          butterfly({4, 2, 2, true, false, true}, 26, 38, 5),
          butterfly({3, 2, 1, true, true, true}, 16, 26, 4)};
}

TEST(TileChain, IsRightAtItsPlansCost) {
  for (TileChainProblem p : problems())
    for (const uint32_t tiles : {1U, 24U})
      for (const TiledNumbers& numbers : kNumbers)
        for (const bool gradients : {false, true}) {
          SCOPED_TRACE(fmt::format("{} to {} features, {} levels, {} tiles, {}, gradients {}", p.inputs,
                                   p.outputs, p.butterfly ? p.butterfly->levels : 0, tiles,
                                   name_of(numbers.operands), gradients));
          p.numbers = numbers;
          p.gradients = gradients;
          ChainRun(p, testing::toy_machine(tiles, 1 << 20)).expect_right();
        }
}

TEST(TileChain, SamplesMayBeRows) {
  for (TileChainProblem p : problems())
    for (const bool gradients : {false, true}) {
      p.sample_rows = true;
      p.gradients = gradients;
      ChainRun(p, testing::toy_machine(7, 1 << 20)).expect_right();
    }
}

TEST(TileChain, GradientsMayBeLeftOut) {
  for (TileChainProblem p : problems())
    for (const bool input : {false, true}) {
      p.gradients = true;
      p.input_gradient = input;
      p.parameter_gradient = !input;
      ChainRun(p, testing::toy_machine(7, 1 << 20)).expect_right();
    }
}

TEST(TileChain, RunsOnIpus) {
  for (const char* name : {"gc200", "bow"})
    for (const TiledNumbers& numbers : kNumbers)
      for (const bool gradients : {false, true})
        for (TileChainProblem p : {butterfly({8}, 256, 256, 8), factor({1, 16, 16, 16}, 256, 256, 8)}) {
          p.numbers = numbers;
          p.gradients = gradients;
          ChainRun(p, machine::find(name)).expect_right();
        }
}

TEST(TileChain, RejectsWhatCannotBe) {
  const auto message = [](const TileChainProblem& p, const machine::Machine& m) {
    return test::error_of<UsageError>([&] { plan_tile_chain(p, m); });
  };
  const machine::Machine m = testing::toy_machine(4);
  EXPECT_TRUE(
      test::says(message(butterfly({3}, 9, 8, 2), m), "9 to 8 features of 2 samples is not possible"));
  for (const TileChainProblem& p :
       {butterfly({3}, 0, 8, 2), butterfly({3}, 8, 0, 2), butterfly({3}, 8, 9, 2), butterfly({3}, 8, 8, 0),
        factor({1, 2, 3, 1}, 4, 2, 5), factor({1, 2, 3, 1}, 3, 3, 5)})
    EXPECT_TRUE(test::says(message(p, m), "samples is not possible"));
  EXPECT_TRUE(test::says(message(butterfly({0}, 1, 1, 2), m), "butterflies of 0 levels"));
  EXPECT_TRUE(test::says(message(butterfly({21}, 1, 1, 2), m), "butterflies of 21 levels"));
  EXPECT_TRUE(test::says(message(butterfly({3, 0}, 1, 1, 2), m), "0 stacks"));
  EXPECT_TRUE(test::says(message(butterfly({3, 1, 0}, 1, 1, 2), m), "0 blocks are not possible"));
  EXPECT_TRUE(
      test::says(message(butterfly({3, 1, 2, false, true}, 8, 8, 2), m), "2 blocks are not possible"));
  EXPECT_TRUE(test::says(message(butterfly({3}, 8, 8, 2), machine::host(1)), "run on tiled machines"));
}

}  // namespace
}  // namespace tessera::ops
