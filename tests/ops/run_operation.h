// Runs a planned operation on arrays, and checks that the plan's predictions are exact.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/random.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/element.h"
#include "ops/expect_kept.h"
#include "ops/map/map.h"

namespace tessera::ops {

/// A caller's array, row-major or column-major, with a gap after each row (column).
class Array {
 public:
  static constexpr uint32_t kGap = 3;

  Array(Type type, uint32_t rows, uint32_t cols, bool column_major) : type_(type), rows_(rows), cols_(cols) {
    row_stride_ = column_major ? 1 : cols + kGap;
    col_stride_ = column_major ? rows + kGap : 1;
    bytes_.resize((size_t{rows} + kGap) * (cols + kGap) * size_of(type), std::byte{0xFF});
  }

  static Array random(Type type, uint32_t rows, uint32_t cols, bool column_major, uint64_t seed) {
    Array array(type, rows, cols, column_major);
    const base::RandomStream stream(seed);
    for (uint32_t r = 0; r < rows; ++r)
      for (uint32_t c = 0; c < cols; ++c)
        kernels::set_number(array.view(), r, c, 4 * stream.symmetric(uint64_t{r} * cols + c));
    return array;
  }

  void set(uint32_t row, uint32_t col, double value) { kernels::set_number(view(), row, col, value); }
  double at(uint32_t row, uint32_t col) const { return kernels::number_at(view(), row, col); }
  Type type() const { return type_; }
  uint32_t rows() const { return rows_; }
  uint32_t cols() const { return cols_; }
  engine::Binding bind(program::VariableId variable) {
    return {variable, bytes_.data(), row_stride_, col_stride_};
  }
  program::FieldView view() const {
    return {const_cast<std::byte*>(bytes_.data()), type_, rows_, cols_, row_stride_, col_stride_};
  }

 private:
  Type type_;
  uint32_t rows_;
  uint32_t cols_;
  int64_t row_stride_ = 0;
  int64_t col_stride_ = 1;
  std::vector<std::byte> bytes_;
};

/// Expects the plan's costs to equal the costs of one run of each step of the executable.
inline void expect_kept(const MapPlan& plan, const compiler::Executable& executable) {
  program::PhaseTimes cycles;
  for (const program::PhaseTimes& set : executable.set_cycles) cycles += set;
  for (const compiler::Exchange& copy : executable.copies) cycles += copy.cost.cycles;
  expect_kept(plan.chosen, executable, cycles);
}

inline MapOperation operation_of(const MapOperation& operation) { return operation; }

/// The executable of a builder's program that is one step.
inline std::shared_ptr<const compiler::Executable> executable_of(const Builder& builder,
                                                                 program::StepId step) {
  builder.program().set_main(step);
  return compiler::compile(builder.program(), builder.whole_machine());
}

/// Runs with `arrays` as the operands in order.
inline void run_with(std::shared_ptr<const compiler::Executable> executable,
                     const std::vector<Operand>& operands, const std::vector<Array*>& arrays) {
  ASSERT_EQ(operands.size(), arrays.size());
  std::vector<engine::Binding> bindings;
  for (size_t i = 0; i < arrays.size(); ++i) bindings.push_back(arrays[i]->bind(operands[i].variable));
  engine::Engine(std::move(executable)).run(bindings);
}

/// Plans, builds, compiles and runs; `arrays` are the operands in order.
template <class Problem>
void run_operation(const Problem& problem, const machine::Machine& machine,
                   const std::vector<Array*>& arrays) {
  const MapPlan made = plan(problem, machine);
  program::Program program;
  const Builder builder(program, machine);
  const std::vector<Operand> operands = add_externals(builder, operation_of(problem), made.partition);
  const auto executable = executable_of(builder, build(builder, problem, made, operands));
  expect_kept(made, *executable);
  run_with(executable, operands, arrays);
}

/// Checks that every element is within one rounding to `type`, plus `absolute`, of the expected number, or is
/// NaN or infinite like the rounded number.
inline void expect_numbers(const Array& out, Type type,
                           const std::function<double(uint32_t, uint32_t)>& wanted, double absolute = 0) {
  constexpr double kLeastHalf = 0x1p-25;    // half of the least subnormal FP16
  constexpr double kLeastOverflow = 65520;  // rounded to FP16
  for (uint32_t r = 0; r < out.rows(); ++r)
    for (uint32_t c = 0; c < out.cols(); ++c) {
      const double expected = wanted(r, c);
      if (!std::isfinite(expected) || (type == Type::f16 && std::abs(expected) >= kLeastOverflow)) {
        const double limit = std::isfinite(expected) ? std::copysign(INFINITY, expected) : expected;
        ASSERT_TRUE(out.at(r, c) == limit || (std::isnan(limit) && std::isnan(out.at(r, c))))
            << out.at(r, c) << " at (" << r << ", " << c << "), expected " << limit;
        continue;
      }
      ASSERT_NEAR(out.at(r, c), expected,
                  0.51 * epsilon_of(type) * std::abs(expected) + kLeastHalf + absolute)
          << "(" << r << ", " << c << ")";
    }
}

}  // namespace tessera::ops
