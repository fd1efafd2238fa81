// Several steps of optimizers, against loops in float64.
#include "ops/map/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "base/half.h"
#include "ops/map_settings.h"
#include "support/error_of.h"

namespace tessera::ops {
namespace {

constexpr uint32_t kSteps = 5;
constexpr float kLr = 0.03125F;

double rounded(Type type, double value) {
  std::byte bytes[8];
  kernels::store_number(type, bytes, static_cast<double>(static_cast<float>(value)));
  return kernels::load_number(type, bytes);
}

/// One element: its weight and what the optimizer keeps for it.
struct Element {
  double weight = 0;
  double first = 0;
  double second = 0;
};

/// torch.optim.SGD
void sgd_step(const SgdProblem& p, double g, Element& e) {
  g += static_cast<double>(p.decay) * e.weight;
  if (p.momentum != 0) {
    e.first = static_cast<double>(p.momentum) * e.first + g;
    g = p.nesterov ? g + static_cast<double>(p.momentum) * e.first : e.first;
  }
  e.weight = rounded(p.weight, e.weight - static_cast<double>(kLr) * g);
}

/// torch.optim.Adam and AdamW
void adam_step(const AdamProblem& p, uint32_t step, double g, Element& e) {
  const double decay = static_cast<double>(p.decay), lr = static_cast<double>(kLr);
  const double beta1 = static_cast<double>(p.beta1), beta2 = static_cast<double>(p.beta2);
  if (p.decoupled)
    e.weight *= 1 - lr * decay;
  else
    g += decay * e.weight;
  e.first = beta1 * e.first + (1 - beta1) * g;
  e.second = beta2 * e.second + (1 - beta2) * g * g;
  const double first = e.first / (1 - std::pow(beta1, step));
  const double root = std::sqrt(e.second) / std::sqrt(1 - std::pow(beta2, step));
  e.weight = rounded(p.weight, e.weight - lr * first / (root + static_cast<double>(p.epsilon)));
}

class OptimizerTest : public MapTest {
 protected:
  /// Runs kSteps steps of the problem, whose states and weight are the last operands, and compares them after
  /// each with `reference`, which is given the step's number from 1.
  template <class Problem>
  void run(const Problem& problem, size_t states, bool has_step,
           const std::function<void(uint32_t, double, Element&)>& reference) {
    const MapPlan made = plan(problem, machine());
    program::Program program;
    const BuiltOperation built = build(program, problem, made, machine());
    program.set_main(built.step);
    const auto executable = compiler::compile(program, machine());
    expect_kept(made, *executable);
    const engine::Engine engine(executable);

    Array lr(Type::f32, 1, 1, false), step(Type::u32, 1, 1, false);
    lr.set(0, 0, kLr);
    Array first = zeros(), second = zeros();
    Array weight = random(problem.weight, 1);
    clear_padding(weight);
    std::vector<Element> elements(size_t{rows()} * cols());
    for_each([&](uint32_t r, uint32_t c) { elements[r * cols() + c].weight = weight.at(r, c); });
    for (uint32_t i = 1; i <= kSteps; ++i) {
      SCOPED_TRACE(fmt::format("step {}, seeds 1 and {}", i, 10 + i));
      Array gradient = random(problem.gradient, 10 + i);
      clear_padding(gradient);
      step.set(0, 0, i);
      std::vector<Array*> arrays = {&gradient, &lr};
      if (has_step) arrays.push_back(&step);
      if (states > 0) arrays.push_back(&first);
      if (states > 1) arrays.push_back(&second);
      arrays.push_back(&weight);
      std::vector<engine::Binding> bindings;
      for (size_t a = 0; a < arrays.size(); ++a) bindings.push_back(arrays[a]->bind(built.operands.at(a)));
      engine.run(bindings);
      for_each([&](uint32_t r, uint32_t c) { reference(i, gradient.at(r, c), elements[r * cols() + c]); });
      expect_elements(elements, problem.weight, states, first, second, weight);
    }
  }

 private:
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (uint32_t r = 0; r < rows(); ++r)
      for (uint32_t c = 0; c < cols(); ++c) visit(r, c);
  }
  Array zeros() const {
    Array made = unset(Type::f32);
    for_each([&](uint32_t r, uint32_t c) { made.set(r, c, 0); });
    return made;
  }
  static bool is_padding(uint32_t row, uint32_t col) { return (row + col) % 5 == 4; }
  void clear_padding(Array& array) const {
    for_each([&](uint32_t r, uint32_t c) {
      if (is_padding(r, c)) array.set(r, c, 0);
    });
  }

  // Weights of 16 bits may round to a neighbour in each step.
  void expect_elements(const std::vector<Element>& elements, Type type, size_t states, const Array& first,
                       const Array& second, const Array& weight) const {
    const double error = 64 * epsilon_of(Type::f32) + (type == Type::f32 ? 0 : kSteps * 4 * epsilon_of(type));
    for_each([&](uint32_t r, uint32_t c) {
      const Element& e = elements[r * cols() + c];
      ASSERT_NEAR(weight.at(r, c), e.weight, error) << "weight (" << r << ", " << c << ")";
      if (is_padding(r, c)) {
        ASSERT_EQ(weight.at(r, c), 0);
      }
      if (states > 0) {
        ASSERT_NEAR(first.at(r, c), e.first, 4 * error) << "(" << r << ", " << c << ")";
      }
      if (states > 1) {
        ASSERT_NEAR(second.at(r, c), e.second, 4 * error) << "(" << r << ", " << c << ")";
      }
    });
  }
};

constexpr std::pair<Type, Type> kTypes[] = {
    {Type::f32, Type::f32}, {Type::f32, Type::f16}, {Type::bf16, Type::bf16}, {Type::f16, Type::f32}};

TEST_P(OptimizerTest, SgdIsPyTorchs) {
  for (const auto& [weight, gradient] : kTypes)
    for (const float momentum : {0.0F, 0.875F})
      for (const float decay : {0.0F, 0.0625F})
        for (const bool nesterov : {false, true}) {
          if (nesterov && momentum == 0) continue;
          SCOPED_TRACE(fmt::format("{} by {}, momentum {}, decay {}, Nesterov {}", name_of(weight),
                                   name_of(gradient), momentum, decay, nesterov));
          const SgdProblem problem{weight, gradient, rows(), cols(), momentum, decay, nesterov};
          run(problem, momentum == 0 ? 0 : 1, false,
              [&](uint32_t, double g, Element& e) { sgd_step(problem, g, e); });
        }
}

TEST_P(OptimizerTest, AdamIsPyTorchs) {
  for (const auto& [weight, gradient] : kTypes)
    for (const float decay : {0.0F, 0.0625F})
      for (const bool decoupled : {false, true}) {
        SCOPED_TRACE(fmt::format("{} by {}, decay {}, decoupled {}", name_of(weight), name_of(gradient),
                                 decay, decoupled));
        const AdamProblem problem{.weight = weight,
                                  .gradient = gradient,
                                  .rows = rows(),
                                  .cols = cols(),
                                  .decay = decay,
                                  .decoupled = decoupled};
        run(problem, 2, true, [&](uint32_t i, double g, Element& e) { adam_step(problem, i, g, e); });
      }
}

INSTANTIATE_TEST_SUITE_P(Settings, OptimizerTest, ::testing::ValuesIn(map_settings()), name_of_setting);

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
  const uint32_t rows = 1471, cols = 10;
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
