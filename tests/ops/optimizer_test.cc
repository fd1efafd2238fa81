// Plans of steps of optimizers.
#include "ops/map/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "support/error_of.h"

namespace tessera::ops {
namespace {

TEST(OptimizerErrorTest, SaysWhatIsWrong) {
  const machine::Machine host = machine::host(1);
  const auto message = [&](const auto& problem) {
    return test::error_of<UsageError>([&] { plan(problem, host); });
  };
  EXPECT_TRUE(test::says(message(SgdProblem{.nesterov = true}), "needs a momentum"));
  EXPECT_TRUE(test::says(message(AdamProblem{.epsilon = 0}), "epsilon is 0: it must be positive"));
  EXPECT_TRUE(test::says(message(AdamProblem{.beta2 = 1}), "betas are 0.9 and 1"));
  EXPECT_TRUE(test::says(message(AdamProblem{.weight = Type::u8}), "u8"));
}

/// A layer of ten neurons on three of many tiles, as a readout is.
TEST(OptimizerPlan, DoesNotSpreadAtThePriceOfMuchCode) {
  const machine::Machine machine = machine::find("gc200");
  program::Program program;
  const Builder builder(program, machine);
  const uint32_t rows = 5881, cols = 10;
  const auto of_weight = [&](const char* name) {
    std::vector<program::MappedBox> mapping;
    for (uint32_t i = 0; i < 3; ++i) mapping.push_back({{0, rows, 4 * i, i < 2 ? 4U : 2U}, 700 + i});
    return builder.temporary(name, Type::f32, rows, cols, std::move(mapping));
  };
  const std::vector<Operand> operands = {of_weight("gradient"),
                                         builder.temporary("lr", Type::f32, 1, 1),
                                         builder.temporary("step", Type::u32, 1, 1),
                                         of_weight("first"),
                                         of_weight("second"),
                                         of_weight("weight")};
  const MapPlan chosen = plan(builder, AdamProblem{.rows = rows, .cols = cols}, operands);
  EXPECT_LE(chosen.chosen.exchange_code_bytes, machine.tile_bytes / 32);
  EXPECT_TRUE(std::ranges::any_of(chosen.candidates, [](const PlanCandidate& candidate) {
    return candidate.rejected.find("of exchange code on a tile") != std::string::npos;
  })) << to_string(chosen.candidates);
}

}  // namespace
}  // namespace tessera::ops
