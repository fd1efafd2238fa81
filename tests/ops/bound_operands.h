// Operands of a tile program bound to memory, for tests that build one step, run it and compare its results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/numbers.h"
#include "ops/operand.h"
#include "support/numbers.h"

namespace tessera::ops {

class BoundOperands {
 public:
  explicit BoundOperands(Type type) : type_(type) {}

  /// Binds an operand to values, or an output, without values, to NaN.
  Operand bind(const Operand& operand, std::vector<float> values) {
    if (values.empty()) values.assign(operand.box.elements(), NAN);
    memory_.push_back(kernels::as_type(values, type_));
    bindings_.push_back({operand.variable, memory_.back().data(), operand.cols(), 1});
    return operand;
  }

  /// Runs a program, and expects a dry run to have the same cycles; returns these.
  double run(program::Program program, const machine::Machine& m) {
    const engine::Engine engine(compiler::compile(std::move(program), m));
    const engine::Profile profile = engine.run(bindings_);
    EXPECT_EQ(profile.cycles.at, engine.run({}, {.dry = true}).cycles.at);
    return profile.cycles.total();
  }
  /// Runs a program, and expects the cycles that its plan predicts.
  void run(program::Program program, const machine::Machine& m, const program::PhaseTimes& promised) {
    const double cycles = promised.scaled(m.clock_hz).total();
    EXPECT_NEAR(run(std::move(program), m), cycles, 1e-9 * cycles);
  }

  std::vector<float> found(const Operand& operand) const {
    size_t i = 0;
    while (bindings_[i].variable != operand.variable) ++i;
    return kernels::as_floats(memory_[i], type_);
  }
  void expect_near(const Operand& operand, const std::vector<double>& expected) const {
    test::expect_near(found(operand), expected, 16 * epsilon_of(type_) * test::largest(expected, 1),
                      "result");
  }

 private:
  Type type_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<engine::Binding> bindings_;
};

}  // namespace tessera::ops
