// Fastfood on tiles: compared with float64, at the cost that its plan promises.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "ops/bound_operands.h"
#include "ops/run_on_tiles.h"
#include "ops/structured/tiles/fastfood.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using program::Role;
using Vector = std::vector<double>;

/// Of one sample.
struct Reference {
  Vector y, dx;
  std::vector<Vector> parameters;

  Reference(const TileFastfoodProblem& p, const std::vector<std::vector<float>>& w, const Vector& x,
            const Vector& dy)
      : y(p.outputs), dx(p.inputs), parameters(3, Vector(p.features())) {
    for (uint32_t stack = 0; stack < p.stacks; ++stack) {
      const uint32_t first = stack * p.size();
      const auto weight = [&](size_t of, uint32_t i) { return double{w[of][first + i]}; };
      const auto each = [&](const auto& value_of) {
        Vector v(p.size());
        for (uint32_t i = 0; i < p.size(); ++i) v[i] = value_of(i);
        return v;
      };
      const auto place = [&](uint32_t i) { return p.permutation[first + i]; };
      const Vector in = each([&](uint32_t i) { return i < p.inputs ? x[i] : 0; });
      const Vector first_mix = hadamard(each([&](uint32_t i) { return weight(2, i) * in[i]; }));
      const Vector permuted = each([&](uint32_t i) { return first_mix[place(i)]; });
      const Vector mixed = hadamard(each([&](uint32_t i) { return weight(1, i) * permuted[i]; }));
      const Vector out = each([&](uint32_t i) { return first + i < p.outputs ? dy[first + i] : 0; });
      const Vector d_mixed = hadamard(each([&](uint32_t i) { return weight(0, i) * out[i]; }));
      Vector back(p.size());
      for (uint32_t i = 0; i < p.size(); ++i) back[place(i)] = weight(1, i) * d_mixed[i];
      const Vector d_in = hadamard(back);
      for (uint32_t i = 0; i < p.size(); ++i) {
        if (first + i < p.outputs) y[first + i] = weight(0, i) * mixed[i];
        if (i < p.inputs) dx[i] += weight(2, i) * d_in[i];
        parameters[0][first + i] = out[i] * mixed[i];
        parameters[1][first + i] = d_mixed[i] * permuted[i];
        parameters[2][first + i] = d_in[i] * in[i];
      }
    }
  }

 private:
  static Vector hadamard(const Vector& v) {
    Vector sums(v.size());
    for (uint32_t i = 0; i < v.size(); ++i)
      for (uint32_t j = 0; j < v.size(); ++j) sums[i] += std::popcount(i & j) % 2 == 0 ? v[j] : -v[j];
    for (double& sum : sums) sum /= std::sqrt(static_cast<double>(v.size()));
    return sums;
  }
};

class FastfoodRun {
 public:
  FastfoodRun(const TileFastfoodProblem& problem, const machine::Machine& m) : p_(problem), machine_(m) {
    x_ = random_elements(uint64_t{p_.inputs} * p_.n, type(), 2);
    dy_ = random_elements(uint64_t{p_.outputs} * p_.n, type(), 3);
    for (uint64_t seed : {4, 5, 6}) w_.push_back(random_elements(p_.features(), type(), seed));
  }

  void expect_right() {
    const TileFastfoodPlan plan = plan_tile_fastfood(p_, machine_);
    program::Program program;
    const Builder b(program, machine_);
    const auto samples = [&](const char* name, Role role, uint32_t features, const std::vector<float>& of) {
      return operands_.bind(b.external(name, role, type(), p_.rows(features), p_.cols(features)), of);
    };
    const auto parameter = [&](const char* name, Role role, const std::vector<float>& of) {
      const auto purpose = role == Role::input ? program::Purpose::parameter : program::Purpose::gradient;
      return operands_.bind(b.external(name, role, type(), p_.stacks, p_.size(), {}, purpose), of);
    };
    TileFastfoodOperands o{.x = samples("x", Role::input, p_.inputs, x_),
                           .y = samples("y", p_.gradients ? Role::input : Role::output, p_.outputs,
                                        p_.gradients ? dy_ : std::vector<float>{}),
                           .parameters = {}};
    for (size_t i = 0; i < 3; ++i) o.parameters.push_back(parameter("w", Role::input, w_[i]));
    if (p_.gradients && p_.input_gradient) o.dx = samples("dx", Role::output, p_.inputs, {});
    for (size_t i = 0; p_.gradients && p_.parameter_gradients && i < 3; ++i)
      o.parameter_gradients.push_back(parameter("dw", Role::output, {}));
    program.set_main(build_tile_fastfood(b, p_, plan.partition, o));
    operands_.run(std::move(program), machine_, plan.chosen.seconds);
    compare(o);
  }

 private:
  Type type() const { return p_.numbers.operands; }

  size_t place(uint32_t sample, uint32_t feature, uint32_t features) const {
    return p_.sample_rows ? size_t{sample} * features + feature : size_t{feature} * p_.n + sample;
  }

  void compare(const TileFastfoodOperands& o) const {
    std::vector<Vector> sums(3, Vector(p_.features()));
    Vector y(dy_.size()), dx(x_.size());
    for (uint32_t j = 0; j < p_.n; ++j) {
      Vector of_x(p_.inputs), of_dy(p_.outputs);
      for (uint32_t f = 0; f < p_.inputs; ++f) of_x[f] = x_[place(j, f, p_.inputs)];
      for (uint32_t f = 0; f < p_.outputs; ++f) of_dy[f] = dy_[place(j, f, p_.outputs)];
      const Reference r(p_, w_, of_x, of_dy);
      for (uint32_t f = 0; f < p_.inputs; ++f) dx[place(j, f, p_.inputs)] = r.dx[f];
      for (uint32_t f = 0; f < p_.outputs; ++f) y[place(j, f, p_.outputs)] = r.y[f];
      for (size_t i = 0; i < 3; ++i)
        for (uint32_t f = 0; f < p_.features(); ++f) sums[i][f] += r.parameters[i][f];
    }
    if (!p_.gradients) operands_.expect_near(o.y, y);
    if (o.dx) operands_.expect_near(*o.dx, dx);
    for (size_t i = 0; i < o.parameter_gradients.size(); ++i)
      operands_.expect_near(o.parameter_gradients[i], sums[i]);
  }

  TileFastfoodProblem p_;
  machine::Machine machine_;
  std::vector<float> x_, dy_;
  std::vector<std::vector<float>> w_;
  BoundOperands operands_{type()};
};

TileFastfoodProblem problem(uint32_t levels, uint32_t stacks, uint32_t inputs, uint32_t outputs, uint32_t n) {
  TileFastfoodProblem p{.levels = levels, .stacks = stacks, .inputs = inputs, .outputs = outputs, .n = n};
  for (uint32_t i = 0; i < p.features(); ++i) p.permutation.push_back((5 * i + 3 + i / p.size()) % p.size());
  return p;
}

TEST(TileFastfood, IsRightAtItsPlansCost) {
  for (TileFastfoodProblem p : {problem(4, 1, 16, 16, 5), problem(5, 2, 27, 50, 9), problem(1, 3, 2, 6, 4)})
    for (const uint32_t tiles : {1U, 24U})
      for (const TiledNumbers& numbers : kNumbers)
        for (const bool gradients : {false, true}) {
          SCOPED_TRACE(fmt::format("{} levels, {} stacks, {} tiles, {}, gradients {}", p.levels, p.stacks,
                                   tiles, name_of(numbers.operands), gradients));
          p.numbers = numbers;
          p.gradients = gradients;
          p.sample_rows = tiles > 1;
          FastfoodRun(p, testing::toy_machine(tiles, 1 << 20)).expect_right();
        }
}

TEST(TileFastfood, RunsOnIpus) {
  for (const char* name : {"gc200", "bow"})
    for (const bool gradients : {false, true}) {
      TileFastfoodProblem p = problem(7, 1, 128, 128, 8);
      p.gradients = gradients;
      FastfoodRun(p, machine::find(name)).expect_right();
    }
}

TEST(TileFastfood, GradientsMayBeLeftOut) {
  for (const bool input : {false, true}) {
    TileFastfoodProblem p = problem(4, 2, 11, 29, 5);
    p.gradients = true;
    p.input_gradient = input;
    p.parameter_gradients = !input;
    FastfoodRun(p, testing::toy_machine(7, 1 << 20)).expect_right();
  }
}

TEST(TileFastfood, RejectsWhatCannotBe) {
  const auto message = [](const TileFastfoodProblem& p) {
    return test::error_of<UsageError>([&] { plan_tile_fastfood(p, testing::toy_machine(4)); });
  };
  EXPECT_EQ(message(problem(3, 2, 8, 16, 2)), "(no error)");
  TileFastfoodProblem few = problem(3, 1, 8, 8, 2);
  few.permutation.pop_back();
  EXPECT_TRUE(test::says(message(few), "a permutation of 7 is not possible"));
  TileFastfoodProblem none = problem(3, 1, 8, 8, 2), many = none;
  none.levels = 0, none.permutation.resize(1), none.inputs = none.outputs = 1;
  many.levels = 21, many.permutation.resize(many.features());
  EXPECT_TRUE(test::says(message(none), "0 levels"));
  EXPECT_TRUE(test::says(message(many), "21 levels"));
  for (const TileFastfoodProblem& p :
       {problem(3, 0, 8, 8, 2), problem(3, 1, 0, 8, 2), problem(3, 1, 9, 8, 2), problem(3, 1, 8, 0, 2),
        problem(3, 1, 8, 9, 2), problem(3, 1, 8, 8, 0)})
    EXPECT_TRUE(test::says(message(p), "is not possible"));
}

}  // namespace
}  // namespace tessera::ops
