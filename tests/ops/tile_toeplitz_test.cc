// Toeplitz and circulant matrices on tiles: compared with float64, at the cost that plans promise.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ops/bound_operands.h"
#include "ops/run_on_tiles.h"
#include "ops/structured/tiles/toeplitz.h"
#include "support/error_of.h"
#include "support/toy_machine.h"

namespace tessera::ops {
namespace {

using program::Role;

class ToeplitzRun {
 public:
  ToeplitzRun(const TileToeplitzProblem& problem, const machine::Machine& m)
      : p_(problem),
        machine_(m),
        c_(random_elements(p_.parameters, type(), 1)),
        x_(random_elements(uint64_t{p_.inputs} * p_.n, type(), 2)),
        dy_(random_elements(uint64_t{p_.outputs} * p_.n, type(), 3)) {}

  void expect_right() {
    const TileToeplitzPlan plan = plan_tile_toeplitz(p_, machine_);
    program::Program program;
    const Builder b(program, machine_);
    const auto samples = [&](const char* name, Role role, uint32_t features, const std::vector<float>& of) {
      return operands_.bind(b.external(name, role, type(), p_.rows(features), p_.cols(features)), of);
    };
    const auto parameter = [&](const char* name, Role role, const std::vector<float>& of) {
      const auto purpose = role == Role::input ? program::Purpose::parameter : program::Purpose::gradient;
      return operands_.bind(b.external(name, role, type(), 1, p_.parameters, {}, purpose), of);
    };
    TileToeplitzOperands o{.x = samples("x", Role::input, p_.inputs, x_),
                           .y = samples("y", p_.gradients ? Role::input : Role::output, p_.outputs,
                                        p_.gradients ? dy_ : std::vector<float>{}),
                           .parameter = parameter("c", Role::input, c_)};
    if (p_.gradients && p_.input_gradient) o.dx = samples("dx", Role::output, p_.inputs, {});
    if (p_.gradients && p_.parameter_gradient) o.parameter_gradient = parameter("dc", Role::output, {});
    program.set_main(build_tile_toeplitz(b, p_, plan.partition, o));
    operands_.run(std::move(program), machine_, plan.chosen.seconds);
    compare(o);
  }

 private:
  Type type() const { return p_.numbers.operands; }

  size_t place(uint32_t feature, uint32_t sample, uint32_t features) const {
    return p_.sample_rows ? size_t{sample} * features + feature : size_t{feature} * p_.n + sample;
  }

  void compare(const TileToeplitzOperands& o) const {
    std::vector<double> y(dy_.size()), dx(x_.size()), dc(c_.size());
    for (uint32_t i = 0; i < p_.outputs; ++i)
      for (uint32_t j = 0; j < p_.inputs; ++j) {
        const uint32_t parameter = p_.places[i + p_.inputs - 1 - j];
        for (uint32_t s = 0; s < p_.n; ++s) {
          const size_t out = place(i, s, p_.outputs), in = place(j, s, p_.inputs);
          y[out] += double{c_[parameter]} * x_[in];
          dx[in] += double{c_[parameter]} * dy_[out];
          dc[parameter] += double{dy_[out]} * x_[in];
        }
      }
    if (!p_.gradients) operands_.expect_near(o.y, y);
    if (o.dx) operands_.expect_near(*o.dx, dx);
    if (o.parameter_gradient) operands_.expect_near(*o.parameter_gradient, dc);
  }

  TileToeplitzProblem p_;
  machine::Machine machine_;
  std::vector<float> c_, x_, dy_;
  BoundOperands operands_{type()};
};

std::vector<TileToeplitzProblem> problems() {
  return {TileToeplitzProblem::toeplitz(17, 17, 5), TileToeplitzProblem::toeplitz(9, 21, 7),
          TileToeplitzProblem::toeplitz(1, 1, 1), TileToeplitzProblem::circulant(16, 16, 16, 6),
          TileToeplitzProblem::circulant(29, 13, 8, 4)};
}

TEST(TileToeplitz, IsRightAtItsPlansCost) {
  for (TileToeplitzProblem p : problems())
    for (const uint32_t tiles : {1U, 24U})
      for (const TiledNumbers& numbers : kNumbers)
        for (const bool gradients : {false, true}) {
          SCOPED_TRACE(fmt::format("{} × {} of {}, {} tiles, {}, gradients {}", p.outputs, p.inputs,
                                   p.parameters, tiles, name_of(numbers.operands), gradients));
          p.numbers = numbers;
          p.gradients = gradients;
          p.sample_rows = tiles > 1;
          ToeplitzRun(p, testing::toy_machine(tiles, 1 << 20)).expect_right();
        }
}

TEST(TileToeplitz, GradientsMayBeLeftOut) {
  for (TileToeplitzProblem p : problems())
    for (const bool input : {false, true}) {
      p.gradients = true;
      p.input_gradient = input;
      p.parameter_gradient = !input;
      ToeplitzRun(p, testing::toy_machine(7, 1 << 20)).expect_right();
    }
}

TEST(TileToeplitz, RunsOnIpus) {
  for (const char* name : {"gc200", "bow"})
    for (const bool gradients : {false, true}) {
      TileToeplitzProblem p = TileToeplitzProblem::circulant(128, 128, 128, 8);
      p.gradients = gradients;
      ToeplitzRun(p, machine::find(name)).expect_right();
    }
}

TEST(TileToeplitz, RejectsWhatCannotBe) {
  const auto message = [](const TileToeplitzProblem& p, const machine::Machine& m = testing::toy_machine(4)) {
    return test::error_of<UsageError>([&] { plan_tile_toeplitz(p, m); });
  };
  const TileToeplitzProblem possible = TileToeplitzProblem::toeplitz(3, 4, 2);
  EXPECT_EQ(message(possible), "(no error)");
  EXPECT_TRUE(test::says(message(possible, machine::host(1)), "are dense products on tiles"));
  TileToeplitzProblem few = possible, outside = possible;
  few.places.pop_back();
  EXPECT_TRUE(test::says(message(few), "5 diagonals of 6 parameters do not make a matrix of 4 × 3"));
  outside.places[1] = 6;
  EXPECT_TRUE(test::says(message(outside), "6 diagonals of 6 parameters do not make a matrix of 4 × 3"));
  TileToeplitzProblem no_samples = possible, no_inputs = possible, no_outputs = possible;
  no_samples.n = 0;
  no_inputs.inputs = 0, no_inputs.places.resize(no_inputs.diagonals());
  no_outputs.outputs = 0, no_outputs.places.resize(no_outputs.diagonals());
  for (const TileToeplitzProblem& p : {no_samples, no_inputs, no_outputs})
    EXPECT_TRUE(test::says(message(p), "do not make a matrix"));
}

}  // namespace
}  // namespace tessera::ops
