// Operands of a tile program bound to memory, for tests that build one step, run it and compare what it
// wrote.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/numbers.h"
#include "ops/operand.h"

namespace tessera::ops {

class BoundOperands {
 public:
  explicit BoundOperands(Type type) : type_(type) {}

  /// Binds an operand to values, or to NaN where there are none: an output.
  Operand bind(const Operand& operand, std::vector<float> values) {
    if (values.empty()) values.assign(operand.box.elements(), NAN);
    memory_.push_back(kernels::as_type(values, type_));
    bindings_.push_back({operand.variable, memory_.back().data(), operand.cols(), 1});
    return operand;
  }

  /// Runs a program, which must take what its plan promised.
  void run(program::Program program, const machine::Machine& m, const program::PhaseTimes& promised) {
    const engine::Profile profile = engine::Engine(compiler::compile(std::move(program), m)).run(bindings_);
    const double cycles = promised.scaled(m.clock_hz).total();
    EXPECT_NEAR(profile.cycles.total(), cycles, 1e-9 * cycles);
  }

  void expect_near(const Operand& operand, const std::vector<double>& expected) const {
    size_t i = 0;
    while (bindings_[i].variable != operand.variable) ++i;
    const std::vector<float> found = kernels::as_floats(memory_[i], type_);
    ASSERT_EQ(found.size(), expected.size());
    double largest = 1;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    const double tolerance = 16 * epsilon_of(type_) * largest;
    for (size_t e = 0; e < found.size(); ++e)
      ASSERT_NEAR(found[e], expected[e], tolerance) << "element " << e;
  }

 private:
  Type type_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<engine::Binding> bindings_;
};

}  // namespace tessera::ops
