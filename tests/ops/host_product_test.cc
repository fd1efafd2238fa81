// Plans and programs of products on the host.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <vector>

#include "base/half.h"
#include "bound/product.h"
#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/run_operation.h"
#include "ops/sparse/host/adjoint.h"
#include "ops/sparse/host/spmm.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/every_isa.h"
#include "support/random_choices.h"

namespace tessera::ops {
namespace {

std::shared_ptr<const PackedWeight> pack(const SparseMatrix& matrix, Type type = Type::f32) {
  return std::make_shared<const PackedWeight>(matrix.pattern.block_size == 1
                                                  ? PackedWeight{sparse::PackedElements(matrix, type)}
                                                  : PackedWeight{sparse::PackedBlocks(matrix, type)});
}

SparseMatrix random_matrix(uint32_t m, uint32_t k, uint32_t block_size, double density = 0.2) {
  return generate({PatternKind::random, m, k, density, block_size, 7});
}

ProductKind product_of(bool transpose) {
  return transpose ? ProductKind::input_gradient : ProductKind::forward;
}

/// Expects the plan's prediction to equal the estimate of its program.
HostPlan expect_account(const std::shared_ptr<const PackedWeight>& weight, const ProductProblem& problem,
                        std::optional<size_t> index_arrays = {}, uint32_t threads = 2) {
  const machine::Machine host = machine::host(threads);
  HostPlan plan = plan_host_product(*weight, problem, host);
  HostProgram built = build_host_program(weight, problem, plan, host);
  EXPECT_EQ(built.index.size(), index_arrays.value_or(built.index.size()));
  const engine::Engine engine(compiler::compile(std::move(built.program), host));
  const engine::Profile profile = engine.run({}, {.dry = true});
  EXPECT_NEAR(profile.cycles.total() / host.clock_hz, plan.chosen.total(), 1e-9 * plan.chosen.total());
  return plan;
}

TEST(HostPlan, UsesNoMoreTilesThanTheMachineHas) {
  for (uint32_t threads : {1U, 2U, 3U, 8U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (ProductKind product : {ProductKind::forward, ProductKind::sddmm})
        for (uint32_t n : {0U, 1U, 17U, 512U, 700U}) {
          const auto weight = pack(random_matrix(100, 90, block_size));
          const HostPlan plan =
              plan_host_product(*weight, {.n = n, .product = product}, machine::host(threads));
          EXPECT_LE(plan.tiles_used(), threads);
          EXPECT_EQ(plan.partition.row_begin.front(), 0U);
          if (product == ProductKind::forward) {
            EXPECT_EQ(plan.partition.col_begin.back(), n);
          }
          EXPECT_TRUE(plan.chosen.rejected.empty());
        }
}

/// The program's scratch has equal rows, of whole cache lines.
TEST(HostPlan, CountsTheScratchOfItsProgram) {
  for (uint32_t threads : {1U, 2U, 3U})
    for (uint32_t block_size : {1U, 4U, 16U})
      for (ProductKind product : {ProductKind::forward, ProductKind::input_gradient, ProductKind::sddmm})
        for (uint32_t n : {1U, 17U, 512U}) {
          SCOPED_TRACE(
              fmt::format("{} threads, b = {}, {}, n = {}", threads, block_size, name_of(product), n));
          const machine::Machine host = machine::host(threads);
          const auto weight = pack(random_matrix(100, 90, block_size));
          const ProductProblem problem{.n = n, .product = product};
          const HostPlan plan = plan_host_product(*weight, problem, host);
          const HostProgram built = build_host_program(weight, problem, plan, host);
          uint64_t scratch = 0;
          for (const program::Variable& v : built.program.variables())
            if (v.role == program::Role::temporary) scratch += v.bytes();
          EXPECT_LE(plan.chosen.max_tile_bytes, scratch);
          if (plan.tiles_used() == 1) {
            EXPECT_GE(plan.chosen.max_tile_bytes + 60, scratch);
          }
        }
}

TEST(HostPlan, EveryRejectedCandidateSaysWhy) {
  const auto expect_reasons = [](const SparseMatrix& matrix, const ProductProblem& problem) {
    const HostPlan plan = plan_host_product(*pack(matrix), problem, machine::host(2));
    EXPECT_EQ(std::ranges::count_if(plan.candidates, [](const auto& c) { return c.rejected.empty(); }), 1);
    EXPECT_GE(plan.candidates.size(), 2U);
  };
  expect_reasons(random_matrix(512, 512, 16), {.n = 64});
  for (uint32_t block_size : {1U, 16U})
    expect_reasons(random_matrix(512, 2048, block_size), {.n = 512, .product = ProductKind::sddmm});
}

TEST(HostPlan, TakesForcedKnobsAndRefusesUnknownOnes) {
  const auto weight = pack(random_matrix(512, 512, 16));
  const HostPlan plan =
      plan_host_product(*weight, {.n = 64}, machine::host(2), {{"row_parts", 2}, {"col_parts", 1}});
  EXPECT_EQ(plan.partition.row_begin.size(), 3U);
  EXPECT_EQ(plan.partition.col_begin.size(), 2U);
  const std::string message = test::error_of<UsageError>([&] {
    plan_host_product(*weight, {.n = 64}, machine::host(2), {{"colour", 1}});
  });
  EXPECT_TRUE(test::says(message, "unknown knob 'colour'"));
  EXPECT_TRUE(test::says(message, "row_parts"));
  for (const auto& [name, value] :
       {std::pair{"panel_cols", -1}, {"panel_cols", 0}, {"copy_x", 2}, {"micro_rows", 300}})
    EXPECT_TRUE(test::says(test::error_of<UsageError>([&, n = name, v = value] {
                             plan_host_product(*weight, {.n = 64}, machine::host(2), {{n, v}});
                           }),
                           fmt::format("{}={}: this knob takes", name, value)));
}

TEST(HostPlan, TakesForcedKnobsOfAnSddmm) {
  const auto weight = pack(random_matrix(512, 512, 16));
  const ProductProblem sddmm{.n = 64, .product = ProductKind::sddmm};
  EXPECT_EQ(plan_host_product(*weight, sddmm, machine::host(2), {{"row_parts", 1}}).tiles_used(), 1U);
  const std::string message = test::error_of<UsageError>([&] {
    plan_host_product(*weight, sddmm, machine::host(2), {{"colour", 1}});
  });
  EXPECT_TRUE(test::says(message, "unknown knob 'colour'"));
  EXPECT_TRUE(test::says(message, "group_rows"));
  const HostPlan of_elements = plan_host_product(*pack(random_matrix(1024, 512, 1)), sddmm, machine::host(8),
                                                 {{"row_parts", 2}, {"col_parts", 2}});
  EXPECT_EQ(of_elements.partition.row_parts(), 2U);
  EXPECT_EQ(of_elements.partition.col_parts(), 1U);
}

/// Values rounded to BF16, m × k.
std::vector<double> dense_values(const SparseMatrix& matrix) {
  const Pattern& p = matrix.pattern;
  std::vector<double> values(size_t{p.rows} * p.cols);
  const uint32_t b = p.block_size;
  for (uint32_t row = 0; row < p.rows; ++row)
    for (uint64_t i = p.crow_indices[row / b]; i < p.crow_indices[row / b + 1]; ++i)
      for (uint32_t c = 0; c < b; ++c)
        if (const uint64_t col = p.col_indices[i] * b + c; col < p.cols)
          values[row * p.cols + col] =
              base::to_float(base::to_bfloat16(matrix.values[(i * b + row % b) * b + c]));
  return values;
}

/// W·X in float64, m × n, without the products with zeros of W.
std::vector<double> product_in_float64(const std::vector<double>& w, uint32_t m, const Array& x) {
  const uint32_t k = x.rows(), n = x.cols();
  std::vector<double> of_x(size_t{k} * n), sums(size_t{m} * n);
  for (uint32_t l = 0; l < k; ++l)
    for (uint32_t j = 0; j < n; ++j) of_x[size_t{l} * n + j] = x.at(l, j);
  for (uint32_t i = 0; i < m; ++i)
    for (uint32_t l = 0; l < k; ++l) {
      const double factor = w[size_t{i} * k + l];
      if (factor == 0) continue;
      for (uint32_t j = 0; j < n; ++j) sums[size_t{i} * n + j] += factor * of_x[size_t{l} * n + j];
    }
  return sums;
}

/// Runs a plan in a given number of parts on arrays; alpha is 1.
void run_in_parts(const std::shared_ptr<const PackedWeight>& weight, const ProductProblem& problem,
                  int row_parts, int col_parts, const HostLayouts& layouts, float beta, Array& x, Array& y) {
  machine::Machine host = machine::host(2);
  host.figures.bf16_flops_per_cycle = 1024;  // if this one has no such instructions, kernels do without
  const HostPlan plan = plan_host_product(*weight, problem, host,
                                          {{"row_parts", row_parts}, {"col_parts", col_parts}}, layouts);
  HostProgram built = build_host_program(weight, problem, plan, host);
  const float scalars[] = {1, beta};
  const PackedShape shape = packed_shape(*weight);
  const auto& values = std::get<sparse::PackedBlocks>(weight->form).values();
  const auto binding = [](program::VariableId variable, const void* data, int64_t row_stride) {
    return engine::Binding{variable, const_cast<void*>(data), row_stride, 1};
  };
  std::vector<engine::Binding> bindings = {
      binding(built.operands.values.variable, values.data(), shape.cols), x.bind(built.operands.x.variable),
      y.bind(built.operands.y.variable), binding(built.operands.scalars->variable, scalars, 2)};
  for (const WeightIndex::Binding& b : built.index)
    bindings.push_back(binding(b.variable, b.data, static_cast<int64_t>(b.row_stride)));
  engine::Engine(compiler::compile(std::move(built.program), host)).run(bindings);
}

TEST(HostProduct, Bf16AgreesWithFloat64AndHasTheSameBitsInParts) {
  struct Case {
    uint32_t block_size, m, k, n;
    float beta;
  };
  for (const Case& c : {Case{16, 200, 333, 150, 0}, {32, 300, 129, 67, 0.5F}, {16, 48, 2100, 300, 0}}) {
    const SparseMatrix matrix = random_matrix(c.m, c.k, c.block_size, 0.3);
    // In either layout the same numbers.
    const std::vector<double> sums =
        product_in_float64(dense_values(matrix), c.m, Array::random(Type::bf16, c.k, c.n, false, 1));
    const auto weight = pack(matrix, Type::bf16);
    const ProductProblem problem{
        .n = c.n, .type = Type::bf16, .activations = Type::bf16, .uses_beta = c.beta != 0};
    for (const Layout layout : {Layout::row_major, Layout::column_major})
      test::on_every_isa([&] {
        SCOPED_TRACE(fmt::format("b = {}, {} × {}, n = {}, column-major {}", c.block_size, c.m, c.k, c.n,
                                 layout == Layout::column_major));
        const bool column_major = layout == Layout::column_major;
        Array x = Array::random(Type::bf16, c.k, c.n, column_major, 1);
        const Array before = Array::random(Type::bf16, c.m, c.n, column_major, 2);
        Array whole = before;
        run_in_parts(weight, problem, 1, 1, {layout, layout}, c.beta, x, whole);
        expect_numbers(
            whole, Type::bf16,
            [&](uint32_t i, uint32_t j) {
              return (c.beta != 0 ? c.beta * before.at(i, j) : 0) + sums[size_t{i} * c.n + j];
            },
            16.0 * c.k * epsilon_of(Type::f32));
        for (const auto& [rows, cols] : {std::pair(2, 1), std::pair(1, 2)}) {
          Array parts = before;
          run_in_parts(weight, problem, rows, cols, {layout, layout}, c.beta, x, parts);
          for (uint32_t i = 0; i < c.m; ++i)
            for (uint32_t j = 0; j < c.n; ++j) ASSERT_EQ(parts.at(i, j), whole.at(i, j)) << i << ", " << j;
        }
      });
  }
}

TEST(HostPlan, RefusesActivationsInBf16WhereThereIsNoForm) {
  machine::Machine host = machine::host(2);
  host.figures.bf16_flops_per_cycle = 1024;
  const auto error = [&](uint32_t block_size, Type type, ProductKind product) {
    const ProductProblem problem{.n = 8, .type = type, .activations = Type::bf16, .product = product};
    return test::error_of<UsageError>(
        [&] { plan_host_product(*pack(random_matrix(64, 64, block_size), type), problem, host); });
  };
  const std::string forward = "no sparse forward product has activations of bf16 on this host: use f32";
  EXPECT_EQ(error(8, Type::bf16, ProductKind::forward), forward);
  EXPECT_EQ(error(1, Type::bf16, ProductKind::forward), forward);
  EXPECT_EQ(error(16, Type::f32, ProductKind::forward), forward);
  EXPECT_EQ(error(16, Type::bf16, ProductKind::sddmm),
            "no sparse SDDMM product has activations of bf16 on this host: use f32");
  host.figures.bf16_flops_per_cycle = 0;
  EXPECT_EQ(error(16, Type::bf16, ProductKind::forward), forward);
}

TEST(HostPlan, PredictsTheAccountOfTheExecutable) {
  for (uint32_t block_size : {1U, 4U, 16U})
    for (ProductKind product : {ProductKind::forward, ProductKind::sddmm})
      expect_account(pack(random_matrix(300, 200, block_size)), {.n = 70, .product = product});
}

// Weight gradients of a single chunk or row of blocks, divided along the columns, of which there may be few.
TEST(HostPlan, PredictsTheSumsOfColumnParts) {
  for (const uint32_t block_size : {1U, 16U})
    for (const uint32_t n : {70U, 4096U})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(fmt::format("b = {}, n = {}, adds {}", block_size, n, adds));
        const ProductProblem sddmm{.n = n, .product = ProductKind::sddmm, .uses_beta = adds};
        const HostPlan plan = expect_account(pack(random_matrix(16, 144, block_size)), sddmm, {}, 8);
        EXPECT_EQ(plan.partition.row_parts(), 1U);
      }
}

// A dynamic weight's plan and estimate know only the capacity.
TEST(HostPlan, PredictsTheAccountOfTransposesAndDynamicWeights) {
  for (uint32_t block_size : {4U, 16U})
    for (const bool is_dynamic : {false, true})
      for (const bool transpose : {false, true})
        for (uint32_t n : {3U, 70U}) {
          const SparseMatrix matrix = random_matrix(300, 200, block_size);
          const uint64_t capacity = matrix.pattern.blocks() + 7;
          const auto weight = std::make_shared<PackedWeight>(
              PackedWeight{is_dynamic ? sparse::PackedBlocks(matrix.pattern, Type::f32, capacity)
                                      : sparse::PackedBlocks(matrix.pattern, Type::f32)});
          expect_account(weight, {.n = n, .product = product_of(transpose)}, is_dynamic ? 3 : 0);
        }
}

// A dynamic weight's plan is for its capacity, whatever it holds.
TEST(HostPlan, PredictsTheAccountOfDynamicAndTransposedElements) {
  const SparseMatrix matrix = random_matrix(300, 200, 1);
  const auto fixed = pack(matrix);
  const auto dynamic = std::make_shared<const PackedWeight>(
      PackedWeight{sparse::PackedElements::dynamic(300, 200, matrix.pattern.blocks(), Type::f32)});
  for (const bool transpose : {false, true}) {
    SCOPED_TRACE(fmt::format("transposed {}", transpose));
    const ProductProblem problem{.n = 70, .product = product_of(transpose)};
    const double of_fixed = expect_account(fixed, problem).chosen.total();
    const double of_dynamic = expect_account(dynamic, problem).chosen.total();
    // Evenly spread elements cost about the same as an exact pattern with their number.
    if (!transpose) {
      EXPECT_NEAR(of_dynamic, of_fixed, 0.3 * of_fixed);
    }
  }
}

/// Without non-zeros, the result is only the bias after ReLU.
TEST(Spmm, EmptyMatricesGiveTheActivatedBias) {
  constexpr uint32_t kN = 3;
  for (const auto& [m, k, density] :
       {std::tuple{0U, 5U, 1.0}, {5U, 0U, 1.0}, {0U, 0U, 1.0}, {5U, 7U, 0.0}, {1U, 1U, 0.0}, {1U, 1U, 1.0}})
    for (uint32_t block_size : {1U, 8U})
      for (bool transpose : {false, true})
        for (bool has_epilogue : {false, true}) {
          SCOPED_TRACE(fmt::format("{} × {}, b = {}, density {}, transposed {}, epilogue {}", m, k,
                                   block_size, density, transpose, has_epilogue));
          const SparseMatrix matrix = random_matrix(m, k, block_size, density);
          const ProductProblem problem{.n = kN,
                                       .product = product_of(transpose),
                                       .activation = has_epilogue ? Activation::relu : Activation::none,
                                       .bias = has_epilogue};
          const uint32_t rows = transpose ? k : m;
          std::vector<float> x(size_t{k} * kN, transpose ? NAN : 2.0F);
          std::vector<float> y(size_t{m} * kN, transpose ? 2.0F : NAN);
          std::vector<float> bias(rows + 1);  // never null
          for (uint32_t r = 0; r < rows; ++r) bias[r] = 0.75F * static_cast<float>(r) - 1;
          bound::BoundProduct product(matrix, problem, machine::host(2));
          product.run({x.data(), kN, 1}, {y.data(), kN, 1}, {}, has_epilogue ? bias.data() : nullptr);
          const std::vector<float>& result = transpose ? x : y;
          const float sum = density == 1 && m == 1 ? 2 * matrix.values[0] : 0;
          for (size_t i = 0; i < result.size(); ++i)
            EXPECT_EQ(result[i], has_epilogue ? std::max(0.0F, sum + bias[i / kN]) : sum) << i;
        }
}

/// Without columns dW is 0; without rows or columns of W there is none.
TEST(Sddmm, OfEmptyMatricesIsTheEmptySum) {
  for (const auto& [m, k] : {std::pair{0U, 5U}, {5U, 0U}, {0U, 0U}, {1U, 1U}, {9U, 11U}})
    for (uint32_t block_size : {1U, 8U})
      for (double density : {0.0, 1.0})
        for (uint32_t n : {0U, 3U}) {
          SCOPED_TRACE(fmt::format("{} × {}, b = {}, density {}, n = {}", m, k, block_size, density, n));
          const SparseMatrix matrix = random_matrix(m, k, block_size, density);
          std::vector<float> x(size_t{k} * n, 2), dy(size_t{m} * n, 0.5F);
          bound::BoundProduct product(matrix, {.n = n, .product = ProductKind::sddmm}, machine::host(2));
          product.run({x.data(), n, 1}, {dy.data(), n, 1});
          const SparseMatrix dw{matrix.pattern, product.gradient()};
          ASSERT_EQ(dw.values.size(), matrix.values.size());
          const std::vector<float> dense = sparse::to_dense(dw);
          EXPECT_EQ(dense, std::vector<float>(size_t{m} * k, density == 1 ? static_cast<float>(n) : 0.0F));
        }
}

/// A window along one dimension.
struct RandomLine {
  uint32_t size, kernel, stride, before, dilation, out;

  explicit RandomLine(test::Random& random)
      : size(1 + random.below(9)),
        kernel(1 + random.below(5)),
        stride(1 + random.below(5)),
        before(random.below(6)),
        dilation(1 + random.below(3)) {
    const uint32_t covered = (kernel - 1) * dilation + 1, padded = size + before + random.below(3);
    out = (std::max(padded, covered) - covered) / stride + 1;
  }
};

/// An element of an image, a position of the window, and the tap under which the element is there.
using SeenElement = std::tuple<int64_t, int64_t, uint32_t>;

std::vector<SeenElement> seen_elements(const kernels::Window& w) {
  std::vector<SeenElement> all;
  for (uint32_t y = 0; y < w.out_height; ++y)
    for (uint32_t x = 0; x < w.out_width; ++x)
      for (uint32_t tap = 0; tap < w.taps(); ++tap) {
        const int64_t row = w.row(y, tap / w.kernel_width), col = w.col(x, tap % w.kernel_width);
        if (w.has_row(row) && w.has_col(col))
          all.emplace_back(row * w.width + col, int64_t{y} * w.out_width + x, tap);
      }
  std::ranges::sort(all);
  return all;
}

/// The elements to which an adjoint adds.
std::vector<SeenElement> seen_elements(const AdjointTaps& adjoint) {
  const kernels::Window &w = adjoint.window, &fold = adjoint.fold;
  std::vector<SeenElement> all;
  for (uint32_t y = 0; y < w.out_height; ++y)
    for (uint32_t x = 0; x < w.out_width; ++x)
      for (uint32_t i = 0; i < adjoint.places.of.size(); ++i) {
        const uint32_t phase = adjoint.places.of[i].phase, tap = adjoint.places.of[i].tap;
        const int64_t out_row = w.row(y, tap / w.kernel_width), out_col = w.col(x, tap % w.kernel_width);
        const int64_t row = fold.row(y, phase / fold.kernel_width);
        const int64_t col = fold.col(x, phase % fold.kernel_width);
        if (w.has_row(out_row) && w.has_col(out_col) && fold.has_row(row) && fold.has_col(col))
          all.emplace_back(row * fold.width + col, out_row * w.width + out_col, i);
      }
  std::ranges::sort(all);
  return all;
}

TEST(AdjointTaps, AddToWhatTheirWindowSees) {
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    test::Random random(seed);
    const RandomLine down(random), across(random);
    const kernels::Window w{.height = down.size,
                            .width = across.size,
                            .out_height = down.out,
                            .out_width = across.out,
                            .kernel_height = down.kernel,
                            .kernel_width = across.kernel,
                            .stride_down = down.stride,
                            .stride_across = across.stride,
                            .top = down.before,
                            .left = across.before,
                            .dilation_down = down.dilation,
                            .dilation_across = across.dilation};
    const AdjointTaps adjoint = adjoint_taps(w);
    ASSERT_EQ(seen_elements(adjoint), seen_elements(w));
    EXPECT_EQ(adjoint.window.out_height, adjoint.fold.out_height);
    EXPECT_EQ(adjoint.window.out_width, adjoint.fold.out_width);
    EXPECT_EQ(adjoint.places.phases, adjoint.fold.taps());
    EXPECT_EQ(adjoint.places.taps, adjoint.window.taps());
    EXPECT_LE(adjoint.places.phases, w.taps());
    EXPECT_LE(adjoint.places.taps, w.taps());
  }
}

TEST(AdjointTaps, HaveNoPhasesThatNoTapSees) {
  const AdjointTaps adjoint =
      adjoint_taps({.height = 4, .width = 4, .stride_down = 1 << 16, .stride_across = 1 << 16});
  EXPECT_EQ(adjoint.places.phases, 1U);
  EXPECT_FALSE(adjoint.adds_taps());
  EXPECT_FALSE(adjoint.gives_images());
  EXPECT_TRUE(adjoint_taps({.height = 4, .width = 4, .out_height = 4, .out_width = 4}).gives_images());
}

}  // namespace
}  // namespace tessera::ops
