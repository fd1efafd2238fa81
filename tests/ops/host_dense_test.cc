// Products with a dense weight in panels, compared with float64.
#include "ops/dense/host/host_dense.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "base/isa.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "kernels/common/window.h"
#include "ops/dense/host/slice.h"
#include "ops/map/optimizer.h"
#include "ops/run_operation.h"
#include "ops/split.h"
#include "support/activations.h"
#include "support/error_of.h"
#include "support/every_isa.h"
#include "support/fixed_machines.h"
#include "support/number_of.h"

namespace tessera::ops {
namespace {

using program::Role;

constexpr float kRate = 0.25F, kMomentum = 0.875F, kDecay = 0.125F;

/// Shape of X: a row for each of the batch, or images under a window.
uint32_t rows_of_x(const HostDenseProblem& p) { return p.window ? images_of(p).rows : p.n; }
uint32_t cols_of_x(const HostDenseProblem& p) { return p.window ? images_of(p).cols : p.k; }

/// All operands of a product and of the update of its weight, in arrays with gaps between their rows.
struct Arrays {
  HostDenseProblem problem;
  Array w, x, y, bias, relu, velocity, moment, weight;
  std::vector<Array*> all = {&w, &x, &y, &bias, &relu, &velocity, &moment, &weight};

  Arrays(const HostDenseProblem& p, uint64_t seed)
      : problem(p),
        w(in_panels(p, p.weights, seed)),
        x(Array::random(p.values, rows_of_x(p), cols_of_x(p), false, seed + 1)),
        y(Array::random(p.values, p.n, p.m, false, seed + 2)),
        bias(Array::random(Type::f32, 1, p.m, false, seed + 3)),
        relu(Array::random(p.values, rows_of_x(p), cols_of_x(p), false, seed + 4)),
        velocity(in_panels(p, Type::f32, seed + 5)),
        moment(in_panels(p, Type::f32, seed + 6)),
        weight(in_panels(p, p.weights, seed + 7)) {
    for (uint32_t r = 0; r < moment.rows(); ++r)
      for (uint32_t c = 0; c < moment.cols(); ++c) moment.set(r, c, std::abs(moment.at(r, c)));
  }
  Arrays(const Arrays&) = delete;

  static Array in_panels(const HostDenseProblem& p, Type type, uint64_t seed) {
    const PanelLayout layout = p.layout();
    Array panels = Array::random(type, layout.rows(), layout.cols(), false, seed);
    for (uint32_t row = p.m; row < layout.rows() * PanelLayout::kRows; ++row)
      for (uint32_t c = 0; c < p.k; ++c) set_in_panels(panels, row, c, 0);
    return panels;
  }
  static void set_in_panels(Array& panels, uint32_t row, uint32_t col, double value) {
    panels.set(row / PanelLayout::kRows, col * PanelLayout::kRows + row % PanelLayout::kRows, value);
  }
  double w_at(uint32_t row, uint32_t col) const {
    return w.at(row / PanelLayout::kRows, col * PanelLayout::kRows + row % PanelLayout::kRows);
  }
};

/// The operands of a product as external variables of a program, bound to arrays.
struct Bound {
  HostDenseOperands operands;
  std::vector<engine::Binding> bindings;

  Bound(const Builder& b, Arrays& a) {
    const HostDenseProblem& p = a.problem;
    const bool forward = p.product == ProductKind::forward, sddmm = p.product == ProductKind::sddmm;
    const bool input = p.product == ProductKind::input_gradient;
    operands.w = add(b, "w", !sddmm ? Role::input : p.adds ? Role::inout : Role::output, p.weights, a.w);
    operands.x = add(b, "x", input ? Role::output : Role::input, p.values, a.x);
    operands.y = add(b, "y", forward ? Role::output : Role::input, p.values, a.y);
    if (p.bias) operands.bias = add(b, "bias", Role::input, Type::f32, a.bias);
    if (p.relu) operands.relu = add(b, "relu", Role::input, p.values, a.relu);
  }
  Operand add(const Builder& b, const char* name, Role role, Type type, Array& array) {
    const Operand operand = b.external(name, role, type, array.rows(), array.cols());
    bindings.push_back(array.bind(operand.variable));
    return operand;
  }
};

/// Runs several operations of one program on `threads` threads.
void run(Arrays& arrays, uint32_t threads,
         const std::function<program::StepId(const Builder&, Bound&)>& build) {
  const machine::Machine machine = machine::host(threads);
  program::Program program;
  const Builder builder(program, machine);
  Bound bound(builder, arrays);
  program.set_main(build(builder, bound));
  engine::Engine(compiler::compile(program, machine)).run(bound.bindings);
}

/// A plan with this number of parts, whatever it costs.
HostDensePlan plan_of_parts(const HostDenseProblem& p, uint32_t panel_parts, uint32_t col_parts) {
  const bool forward = p.product == ProductKind::forward, input = p.product == ProductKind::input_gradient;
  HostDensePlan plan;
  plan.partition.panel_begin = split_evenly(PanelLayout{input ? cols_of_x(p) : p.m, 0}.rows(), panel_parts);
  const uint32_t grain = input && p.window ? p.window->out_positions() : forward ? 1 : PanelLayout::kRows;
  plan.partition.col_begin = split_evenly(p.product == ProductKind::sddmm ? p.k : p.n, col_parts, grain);
  return plan;
}

void multiply(Arrays& arrays, uint32_t panel_parts, uint32_t col_parts) {
  run(arrays, panel_parts * col_parts, [&](const Builder& b, Bound& bound) {
    return build_host_dense(b, arrays.problem, plan_of_parts(arrays.problem, panel_parts, col_parts),
                            bound.operands);
  });
}

/// Operands are below 4: rounding of a sum of `terms` products in FP32, and of gelu's approximation.
double tolerance(uint32_t terms) { return 16.0 * (terms + 2) * epsilon_of(Type::f32) + 1e-5; }

/// An element of X as a matrix, also if X has the elements under a window.
double x_at(const Arrays& arrays, uint32_t row, uint32_t col) {
  if (!arrays.problem.window) return arrays.x.at(row, col);
  const kernels::Window& w = *arrays.problem.window;
  const uint32_t channels = cols_of_x(arrays.problem), tap = col / channels;
  const int64_t y = w.row(row / w.out_width % w.out_height, tap / w.kernel_width);
  const int64_t x = w.col(row % w.out_width, tap % w.kernel_width);
  if (!w.has_row(y) || !w.has_col(x)) return 0;
  const int64_t place = (int64_t{row / w.out_positions()} * w.height + y) * w.width + x;
  return arrays.x.at(static_cast<uint32_t>(place), col % channels);
}

void expect_product(const Arrays& before, const Arrays& after) {
  const HostDenseProblem& p = before.problem;
  if (p.product == ProductKind::forward)
    return expect_numbers(
        after.y, p.values,
        [&](uint32_t j, uint32_t i) {
          double sum = p.bias ? before.bias.at(0, i) : 0;
          for (uint32_t c = 0; c < p.k; ++c) sum += before.x.at(j, c) * before.w_at(i, c);
          return test::activated(p.activation, sum);
        },
        tolerance(p.k));
  if (p.product == ProductKind::input_gradient)
    return expect_numbers(
        after.x, p.values,
        [&](uint32_t j, uint32_t c) {
          double sum = 0;
          for (uint32_t i = 0; i < p.m; ++i) sum += before.y.at(j, i) * before.w_at(i, c);
          return p.relu && before.relu.at(j, c) <= 0 ? 0 : sum;
        },
        tolerance(p.m));
  expect_numbers(
      after.w, p.weights,
      [&](uint32_t panel, uint32_t at) {
        const uint32_t i = panel * PanelLayout::kRows + at % PanelLayout::kRows;
        const uint32_t c = at / PanelLayout::kRows;
        if (i >= p.m) return 0.0;
        double sum = p.adds ? before.w_at(i, c) : 0;
        for (uint32_t j = 0; j < p.n; ++j) sum += before.y.at(j, i) * x_at(before, j, c);
        return sum;
      },
      tolerance(p.n));
}

/// An input gradient whose X are the elements under a window.
void expect_folded(const Arrays& before, const Arrays& after) {
  const HostDenseProblem& p = before.problem;
  const kernels::Window& w = *p.window;
  const uint32_t channels = cols_of_x(p);
  const auto sum_at = [&](uint32_t place, uint32_t c) {
    double sum = 0;
    for (uint32_t tap = 0; tap < w.taps(); ++tap) {
      const int64_t y = w.out_row(place % w.positions() / w.width, tap / w.kernel_width);
      const int64_t x = w.out_col(place % w.width, tap % w.kernel_width);
      if (y < 0 || x < 0) continue;
      const int64_t position = (int64_t{place / w.positions()} * w.out_height + y) * w.out_width + x;
      for (uint32_t i = 0; i < p.m; ++i)
        sum += before.y.at(static_cast<uint32_t>(position), i) * before.w_at(i, tap * channels + c);
    }
    return p.relu && before.relu.at(place, c) <= 0 ? 0 : sum;
  };
  expect_numbers(after.x, p.values, sum_at, tolerance(p.m * w.taps()));
}

/// Whether two arrays hold the same bits, NaN aside.
void expect_same(const Arrays& a, const Arrays& b) {
  for (size_t i = 0; i < a.all.size(); ++i)
    for (uint32_t r = 0; r < a.all[i]->rows(); ++r)
      for (uint32_t c = 0; c < a.all[i]->cols(); ++c)
        ASSERT_EQ(a.all[i]->at(r, c), b.all[i]->at(r, c)) << "array " << i << " (" << r << ", " << c << ")";
}

HostDenseProblem random_problem(std::mt19937_64& dice) {
  const auto below = [&](uint32_t end) { return static_cast<uint32_t>(dice() % end); };
  constexpr uint32_t kBatches[] = {1, 2, 8, 24, 37, 50, 64, 390};
  constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16, Type::bf16};
  HostDenseProblem p{.m = 1 + below(140), .k = 1 + below(140), .n = kBatches[below(8)]};
  if (below(4) == 0) p.m = 10;
  if (below(8) == 0) p.k = 1030 + below(100);
  if (below(8) == 0) p.m = 1030 + below(100);
  p.weights = kTypes[below(4)];
  p.values = kTypes[below(4)];
  p.product = static_cast<ProductKind>(below(3));
  if (p.product == ProductKind::forward) {
    p.bias = below(2) != 0;
    p.activation = test::kActivations.begin()[below(test::kActivations.size())];
  }
  p.relu = p.product == ProductKind::input_gradient && below(2) != 0;
  p.adds = p.product == ProductKind::sddmm && below(2) != 0;
  return p;
}

std::string describe(const HostDenseProblem& p, uint64_t seed) {
  return fmt::format("seed {}: {} {} × {}, n = {}, {} and {}, bias {}, activation {}, relu {}, adds {}", seed,
                     name_of(p.product), p.m, p.k, p.n, name_of(p.weights), name_of(p.values), p.bias,
                     static_cast<int>(p.activation), p.relu, p.adds);
}

/// Expects `expect_right` of the arrays before and after a product, and the same bits where threads divide
/// its panels or its columns.
void expect_right_on_threads(const HostDenseProblem& problem, uint64_t seed, uint32_t threads,
                             void (*expect_right)(const Arrays& before, const Arrays& after)) {
  SCOPED_TRACE(describe(problem, seed));
  const Arrays before(problem, seed);
  Arrays alone(problem, seed), by_panels(problem, seed), by_columns(problem, seed);
  multiply(alone, 1, 1);
  expect_right(before, alone);
  multiply(by_panels, threads, 1);
  expect_same(alone, by_panels);
  multiply(by_columns, 1, threads);
  expect_same(alone, by_columns);
}

TEST(HostDense, AgreesWithFloat64AndHasTheSameBitsOnTwoThreads) {
  for (uint64_t seed = 1; seed <= test::number_of_cases(14, 60); ++seed) {
    std::mt19937_64 dice(seed);
    const HostDenseProblem problem = random_problem(dice);
    expect_right_on_threads(problem, seed, 2, expect_product);
    if (HasFailure()) return;
  }
}

/// Sets the number of positions of a window whose sizes are set.
void set_positions(kernels::Window& w) {
  w.out_height = (w.height + w.top - (w.kernel_height - 1) * w.dilation_down - 1) / w.stride_down + 1;
  w.out_width = (w.width + w.left - (w.kernel_width - 1) * w.dilation_across - 1) / w.stride_across + 1;
}

/// An input gradient under a window; a batch is several images, or a part of a large one.
HostDenseProblem random_fold(std::mt19937_64& dice, bool is_large) {
  const auto from = [&](uint32_t least, uint32_t count) {
    return least + static_cast<uint32_t>(dice() % count);
  };
  kernels::Window w{.height = from(5, 14), .width = from(5, 18), .kernel_height = from(1, 3)};
  w.kernel_width = from(1, 3);
  w.stride_down = from(1, 3), w.stride_across = from(1, 3);
  if (is_large) w.height = 24, w.width = 25, w.stride_down = w.stride_across = 1;
  w.dilation_down = from(1, 2), w.dilation_across = from(1, 2);
  w.top = from(0, 3), w.left = from(0, 3);
  set_positions(w);
  HostDenseProblem p{.m = from(1, 50), .product = ProductKind::input_gradient};
  p.k = from(1, 40) * w.taps();
  p.n = from(2, is_large ? 1 : 4) * w.out_positions();
  if (!is_large && from(0, 6) == 0) p.m = from(1030, 30), p.k = from(1, 4) * w.taps();
  p.relu = from(0, 2) != 0;
  p.window = w;
  return p;
}

TEST(HostDense, AddsToImagesUnderAWindowInTheSameOrderOnTwoThreads) {
  for (uint64_t seed = 1; seed <= test::number_of_cases(16, 60); ++seed) {
    std::mt19937_64 dice(seed);
    const HostDenseProblem problem = random_fold(dice, seed % 4 == 0);
    expect_right_on_threads(problem, seed, 2, expect_folded);
    if (HasFailure()) return;
  }
}

/// Images are read in place, or their elements under the window are copied, in several passes.
TEST(HostDense, WeightGradientsUnderAWindowAgreeWithFloat64OnTwoThreads) {
  for (uint64_t seed = 1; seed <= test::number_of_cases(12, 60); ++seed) {
    std::mt19937_64 dice(seed);
    HostDenseProblem problem = random_fold(dice, seed % 4 == 0);
    problem.product = ProductKind::sddmm;
    problem.relu = false;
    problem.adds = seed % 3 == 0;
    if (seed % 5 == 0) problem.m = 16 * (1 + problem.m / 16);
    expect_right_on_threads(problem, seed, 2, expect_product);
    if (HasFailure()) return;
  }
}

/// A weight gradient whose images have few channels and taps that overlap: rows of images are copied. Passes
/// begin within rows.
HostDenseProblem random_few_channels(std::mt19937_64& dice) {
  const auto from = [&](uint32_t least, uint32_t count) {
    return least + static_cast<uint32_t>(dice() % count);
  };
  kernels::Window w{.height = from(9, 20), .width = from(7, 60), .kernel_height = from(1, 5)};
  w.kernel_width = from(3, 4);
  w.stride_down = from(1, w.kernel_height), w.stride_across = from(1, w.kernel_width);
  w.dilation_down = from(1, 2);
  w.top = from(0, 3), w.left = from(0, 3);
  set_positions(w);
  HostDenseProblem p{.m = from(1, 70), .product = ProductKind::sddmm};
  p.k = from(2, 6) * w.taps();
  p.n = from(1, 4) * w.out_positions();
  p.window = w;
  return p;
}

TEST(HostDense, WeightGradientsOfImagesOfFewChannelsAgreeWithFloat64OnTwoThreads) {
  for (uint64_t seed = 1; seed <= test::number_of_cases(8, 40); ++seed) {
    std::mt19937_64 dice(seed);
    HostDenseProblem problem = random_few_channels(dice);
    problem.adds = seed % 2 == 0;
    if (seed % 3 == 0) problem.m = 16 * (1 + problem.m / 16);
    if (seed % 4 == 0) problem.values = Type::bf16;
    expect_right_on_threads(problem, seed, 2, expect_product);
    if (HasFailure()) return;
  }
}

/// Several passes, groups of panels and parts of a batch.
TEST(HostDense, Bf16AgreesWithFloat64OnEveryInstructionSet) {
  const HostDenseProblem problems[] = {
      {.m = 300, .k = 1111, .n = 45, .activation = Activation::gelu, .bias = true},
      {.m = 700, .k = 64, .n = 530},
      {.m = 16, .k = 513, .n = 1},
      {.m = 1111, .k = 300, .n = 45, .product = ProductKind::input_gradient, .relu = true},
      {.m = 96, .k = 700, .n = 530, .product = ProductKind::input_gradient},
      {.m = 300, .k = 45, .n = 1111, .product = ProductKind::sddmm, .adds = true},
      {.m = 45, .k = 530, .n = 33, .product = ProductKind::sddmm}};
  test::on_every_isa([&] {
    for (HostDenseProblem problem : problems) {
      problem.weights = problem.values = Type::bf16;
      expect_right_on_threads(problem, 1, 3, expect_product);
    }
  });
}

/// Padding beyond the weight's rows does not contribute, whatever the activations hold.
TEST(HostDense, KeepsPaddingZeroBesideInfinities) {
  HostDenseProblem problem{.m = 10, .k = 21, .n = 5, .product = ProductKind::sddmm};
  for (const bool adds : {false, true}) {
    problem.adds = adds;
    Arrays arrays(problem, 1);
    arrays.x.set(2, 3, std::numeric_limits<double>::infinity());
    multiply(arrays, 1, 1);
    for (uint32_t row = 10; row < 16; ++row) EXPECT_EQ(arrays.w_at(row, 3), 0);
    EXPECT_TRUE(std::isinf(arrays.w_at(0, 3)));
  }
}

template <class T>
Operand constant(const Builder& b, const char* name, Type type, T value) {
  const auto contents = std::make_shared<T>(value);
  return b.constant(name, type, 1, 1, {contents, reinterpret_cast<std::byte*>(contents.get())});
}

/// The weight gradient, and Adam or momentum on the weight: as two steps, or strip by strip.
program::StepId update(const Builder& b, Bound& bound, Arrays& a, const HostDensePlan& plan, bool adam,
                       bool by_strips) {
  const PanelLayout layout = a.problem.layout();
  const Type type = a.problem.weights;
  const SgdProblem sgd{type, type, layout.rows(), layout.cols(), kMomentum, kDecay};
  const AdamProblem with_moments{type, type, layout.rows(), layout.cols()};
  std::vector<Operand> operands = {constant(b, "rate", Type::f32, kRate)};
  if (adam) operands.push_back(constant(b, "step", Type::u32, uint32_t{3}));
  if (adam) operands.push_back(bound.add(b, "first", Role::inout, Type::f32, a.velocity));
  operands.push_back(bound.add(b, "velocity", Role::inout, Type::f32, adam ? a.moment : a.velocity));
  operands.push_back(bound.add(b, "weight", Role::inout, type, a.weight));
  const MapOperation operation = adam ? operation_of(with_moments) : operation_of(sgd);
  if (by_strips) return build_host_dense_strips(b, a.problem, plan, bound.operands, {operation, 0, operands});
  const program::StepId gradient = build_host_dense(b, a.problem, plan, bound.operands);
  operands.insert(operands.begin(), bound.operands.w);
  return b.sequence({gradient, build_map(b, operation, plan_map(b, operation, operands), operands)});
}

TEST(HostDense, StripsUpdateTheWeightAsTwoStepsDo) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 dice(seed);
    HostDenseProblem problem = random_problem(dice);
    problem.product = ProductKind::sddmm;
    problem.relu = problem.bias = false;
    problem.activation = Activation::none;
    problem.adds = seed % 2 == 0;
    if (seed > 6)
      problem.weights = Type::f32, problem.m = 300 + 7 * static_cast<uint32_t>(seed), problem.k = 517;
    const bool adam = seed % 3 == 0;
    SCOPED_TRACE(describe(problem, seed));
    Arrays two_steps(problem, seed);
    run(two_steps, 1, [&](const Builder& b, Bound& bound) {
      return update(b, bound, two_steps, plan_of_parts(problem, 1, 1), adam, false);
    });
    for (const auto& [panel_parts, col_parts] : {std::pair(1U, 1U), std::pair(2U, 1U), std::pair(1U, 3U)}) {
      Arrays strips(problem, seed);
      run(strips, panel_parts * col_parts, [&](const Builder& b, Bound& bound) {
        return update(b, bound, strips, plan_of_parts(problem, panel_parts, col_parts), adam, true);
      });
      if (!problem.adds) strips.w = two_steps.w;  // strips leave no gradient
      expect_same(two_steps, strips);
    }
    if (HasFailure()) return;
  }
}

/// A weight gradient that suits Winograd's products: of 4 images of 12 × 10 positions.
HostDenseProblem winograd_gradient(uint32_t m, uint32_t channels) {
  kernels::Window w{.height = 13, .width = 12, .kernel_height = 3, .kernel_width = 3, .top = 1};
  set_positions(w);
  HostDenseProblem p{.m = m, .k = channels * w.taps(), .product = ProductKind::sddmm};
  p.n = 4 * w.out_positions();
  p.window = w;
  return p;
}

TEST(HostDense, WinogradsWeightGradientsHaveTheSameBitsByPanelsAndStrips) {
  HostDenseProblem problem = winograd_gradient(33, 33);
  for (const bool adds : {false, true}) {
    problem.adds = adds;
    SCOPED_TRACE(describe(problem, 1));
    const Arrays before(problem, 1);
    Arrays alone(problem, 1), by_panels(problem, 1), two_steps(problem, 1), strips(problem, 1);
    multiply(alone, 1, 1);
    expect_product(before, alone);
    multiply(by_panels, 3, 1);
    expect_same(alone, by_panels);
    run(two_steps, 1, [&](const Builder& b, Bound& bound) {
      return update(b, bound, two_steps, plan_of_parts(problem, 1, 1), false, false);
    });
    run(strips, 2, [&](const Builder& b, Bound& bound) {
      return update(b, bound, strips, plan_of_parts(problem, 2, 1), false, true);
    });
    if (!adds) strips.w = two_steps.w;  // strips leave no gradient
    expect_same(two_steps, strips);
  }
}

/// A part of the columns, and a gradient without contiguous rows.
TEST(HostDense, MultipliesTapByTapWhatWinogradsProductsCannotTake) {
  const HostDenseProblem problem = winograd_gradient(2, 520);
  const Arrays before(problem, 1);
  Arrays by_columns(problem, 1), transposed(problem, 1);
  multiply(by_columns, 1, 2);
  expect_product(before, by_columns);
  transposed.y = Array(problem.values, problem.n, problem.m, true);
  for (uint32_t r = 0; r < problem.n; ++r)
    for (uint32_t c = 0; c < problem.m; ++c) transposed.y.set(r, c, before.y.at(r, c));
  multiply(transposed, 1, 1);
  expect_product(before, transposed);
}

TEST(HostDense, StoresAndLoadsPanels) {
  const PanelLayout layout{21, 3};
  EXPECT_EQ(layout.rows(), 2U);
  EXPECT_EQ(layout.cols(), 48U);
  std::vector<float> w(21 * 3), panels(layout.elements(), -1), loaded(w.size());
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<float>(i + 1);
  layout.store<float>(row_major(static_cast<const float*>(w.data()), 3), panels.data());
  EXPECT_EQ(panels[16 * 2 + 5], w[5 * 3 + 2]);
  EXPECT_EQ(panels[48 + 16 + 4], w[20 * 3 + 1]);
  EXPECT_EQ(panels[48 + 16 + 5], 0);
  layout.load(panels.data(), row_major(loaded.data(), 3));
  EXPECT_EQ(loaded, w);
}

TEST(HostDense, PlansOneThreadForSmallProducts) {
  const machine::Machine machine = tessera::testing::avx512_host();
  const auto partition = [&](const HostDenseProblem& p) { return plan_host_dense(p, machine).partition; };
  EXPECT_EQ(partition({.m = 10, .k = 32, .n = 4}).tiles_used(), 1U);
  EXPECT_EQ(partition({.m = 1024, .k = 1024, .n = 50}).tiles_used(), 4U);
  // Ten outputs are one panel: threads take parts of the batch, or of the weight's columns.
  EXPECT_EQ(partition({.m = 10, .k = 2048, .n = 128}).col_parts(), 4U);
  EXPECT_EQ(partition({.m = 10, .k = 2048, .n = 128, .product = ProductKind::sddmm}).col_parts(), 4U);
  // Images of few channels have threads of their own.
  kernels::Window same{.height = 56, .width = 56, .out_height = 56, .out_width = 56};
  same.kernel_height = same.kernel_width = 3, same.top = same.left = 1;
  const HostDenseProblem folded{
      .m = 16, .k = 144, .n = 8 * 3136, .product = ProductKind::input_gradient, .window = same};
  EXPECT_EQ(partition(folded).col_parts(), 4U);
}

TEST(HostDense, RejectsWhatAProductLacks) {
  using test::error_of;
  const machine::Machine machine = machine::host(1);
  const auto error = [&](const HostDenseProblem& p) {
    return error_of([&] { plan_host_dense(p, machine); });
  };
  EXPECT_EQ(error({.m = 4, .k = 4, .n = 4, .weights = Type::u8}),
            "a product with a weight of u8 is not possible: use f32, f16 or bf16");
  EXPECT_EQ(error({.m = 4, .k = 4, .n = 4, .product = ProductKind::sddmm, .bias = true}),
            "a weight gradient takes neither a bias nor an activation");
  EXPECT_EQ(error({.m = 4, .k = 4, .n = 4, .relu = true}), "only an input gradient takes a ReLU");
  EXPECT_EQ(error({.m = 4, .k = 4, .n = 4, .values = Type::f16, .arrays = HostDenseProblem::Arrays()}),
            "matrices with any strides are in f32, not in f16");
  EXPECT_EQ(error({.m = 4,
                   .k = 4,
                   .n = 4,
                   .product = ProductKind::input_gradient,
                   .bias = true,
                   .window = kernels::Window{.height = 2, .width = 2, .out_height = 2, .out_width = 2}}),
            "an input gradient of images is in f32, in rows, and takes a ReLU alone");
}

}  // namespace
}  // namespace tessera::ops
