// Many operations in one host program: a network's training step with chained operands.
#include <gtest/gtest.h>
#include <tessera/io.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "ops/map/elementwise.h"
#include "ops/sparse/host/spmm.h"
#include "program/program.h"
#include "support/error_of.h"
#include "support/numbers.h"

namespace tessera::ops {
namespace {

using program::Role;
using program::StepId;
using test::random_floats;

constexpr float kLearningRate = 0.125F;

/// A row-major matrix of doubles.
struct Matrix {
  uint32_t rows = 0;
  uint32_t cols = 0;
  std::vector<double> at;

  Matrix(uint32_t r, uint32_t c) : rows(r), cols(c), at(size_t{r} * c) {}
  double& operator()(uint32_t r, uint32_t c) { return at[size_t{r} * cols + c]; }
  double operator()(uint32_t r, uint32_t c) const { return at[size_t{r} * cols + c]; }
};

Matrix times(const Matrix& a, const Matrix& b) {
  Matrix out(a.rows, b.cols);
  for (uint32_t i = 0; i < a.rows; ++i)
    for (uint32_t k = 0; k < a.cols; ++k)
      for (uint32_t j = 0; j < b.cols; ++j) out(i, j) += a(i, k) * b(k, j);
  return out;
}

Matrix transposed(const Matrix& a) {
  Matrix out(a.cols, a.rows);
  for (uint32_t i = 0; i < a.rows; ++i)
    for (uint32_t j = 0; j < a.cols; ++j) out(j, i) = a(i, j);
  return out;
}

/// Calls visit(row, column, value) for each stored value inside the matrix.
template <class Values, class Visit>
void each_stored(const Pattern& p, Values& values, const Visit& visit) {
  size_t next = 0;
  for (uint32_t block_row = 0; block_row < p.block_rows(); ++block_row)
    for (uint64_t i = p.crow_indices[block_row]; i < p.crow_indices[block_row + 1]; ++i)
      for (uint32_t r = 0; r < p.block_size; ++r)
        for (uint32_t c = 0; c < p.block_size; ++c, ++next) {
          const uint32_t row = block_row * p.block_size + r, col = p.col_indices[i] * p.block_size + c;
          if (row < p.rows && col < p.cols) visit(row, col, values[next]);
        }
}

Matrix dense_of(const SparseMatrix& sparse) {
  Matrix out(sparse.pattern.rows, sparse.pattern.cols);
  each_stored(sparse.pattern, sparse.values,
              [&](uint32_t row, uint32_t col, float value) { out(row, col) = static_cast<double>(value); });
  return out;
}

Matrix matrix_of(const std::vector<float>& floats, uint32_t rows, uint32_t cols) {
  Matrix out(rows, cols);
  out.at.assign(floats.begin(), floats.end());
  return out;
}

/// How the weights of a network are stored.
struct Form {
  uint32_t block_size = 1;
  bool is_dynamic = false;
};

std::shared_ptr<PackedWeight> pack(const SparseMatrix& matrix, const Form& form) {
  if (!form.is_dynamic) return std::make_shared<PackedWeight>(prepack_weight(matrix, Type::f32));
  const Pattern& p = matrix.pattern;
  if (p.block_size == 1) {
    auto elements = sparse::PackedElements::dynamic(p.rows, p.cols, p.blocks() + 9, Type::f32);
    elements.set_matrix(matrix, base::serial_for);
    return std::make_shared<PackedWeight>(PackedWeight{std::move(elements), false});
  }
  sparse::PackedBlocks blocks(p, Type::f32, p.blocks() + 3);
  blocks.set_values(matrix.values, base::serial_for);
  return std::make_shared<PackedWeight>(PackedWeight{std::move(blocks), false});
}

/// One layer's weight in a program.
struct LayerWeight {
  SparseMatrix matrix;
  std::shared_ptr<PackedWeight> packed;
  std::shared_ptr<WeightIndex> index;
  Operand values;
  Operand gradient;
  std::vector<float> master;  ///< the binding: FP32 in packed order

  LayerWeight(SparseMatrix m, const Form& form, const Builder& b, const std::string& name)
      : matrix(std::move(m)), packed(pack(matrix, form)), index(std::make_shared<WeightIndex>(packed, name)) {
    const PackedShape shape = packed_shape(*packed);
    values = b.external(name, Role::inout, Type::f32, shape.rows, shape.cols);
    gradient = b.external("d" + name, Role::output, Type::f32, shape.rows, shape.cols);
    master.resize(shape.elements());
    std::memcpy(master.data(), packed->values(), master.size() * sizeof(float));
  }

  SparseMatrix unpacked(const std::vector<float>& order) const {
    SparseMatrix out = matrix;
    std::visit([&](const auto& form) { form.unpack(order, out.values); }, packed->form);
    return out;
  }
};

/// Y = W2 · relu(W1 · X + b), then the gradients of Σ (Y − T)² / 2, then W −= lr · dW.
class TwoLayers {
 public:
  static constexpr uint32_t kInputs = 70, kHidden = 52, kOutputs = 37, kColumns = 21;

  explicit TwoLayers(const Form& form, const machine::Machine& host)
      : builder_(program_, host),
        first_(generate({PatternKind::random, kHidden, kInputs, 0.4, form.block_size, 1}), form, builder_,
               "W1"),
        second_(generate({PatternKind::random, kOutputs, kHidden, 0.5, form.block_size, 2}), form, builder_,
                "W2") {
    const auto external = [&](const char* name, Role role, uint32_t rows, uint32_t cols) {
      return builder_.external(name, role, Type::f32, rows, cols);
    };
    const auto temporary = [&](const char* name, uint32_t rows) {
      return builder_.temporary(name, Type::f32, rows, kColumns);
    };
    x_ = external("X", Role::input, kInputs, kColumns);
    target_ = external("T", Role::input, kOutputs, kColumns);
    bias_ = external("b", Role::input, 1, kHidden);
    y_ = external("Y", Role::output, kOutputs, kColumns);
    const Operand hidden = temporary("H", kHidden), dy = temporary("dY", kOutputs);
    const Operand dh = temporary("dH", kHidden);
    add({.n = kColumns, .activation = Activation::relu, .bias = true}, first_,
        {.values = first_.values, .x = x_, .y = hidden, .bias = bias_, .metadata = {}, .scalars = {}});
    add({.n = kColumns}, second_, second_.values, hidden, y_);
    steps_.push_back(ops::add(builder_, BinaryProblem{kernels::Binary::sub, Type::f32, kOutputs, kColumns},
                              {y_, target_, dy}));
    add({.n = kColumns, .product = ProductKind::sddmm}, second_, second_.gradient, hidden, dy);
    add({.n = kColumns, .product = ProductKind::input_gradient}, second_, second_.values, dh, dy);
    steps_.push_back(ops::add(builder_,
                              BinaryProblem{kernels::Binary::relu_gradient, Type::f32, kHidden, kColumns},
                              {dh, hidden, dh}));
    add({.n = kColumns, .product = ProductKind::sddmm}, first_, first_.gradient, x_, dh);
    update(first_);
    update(second_);
    program_.set_main(program_.sequence(steps_));
    executable_ = compiler::compile(program_, host);
  }

  const program::Program& program() const { return program_; }

  struct Result {
    std::vector<float> y, w1, w2, dw1, dw2;
    bool operator==(const Result&) const = default;
  };

  Result run(uint32_t threads, bool reference = false) {
    Result r{std::vector<float>(kOutputs * kColumns, NAN), first_.master, second_.master,
             std::vector<float>(first_.master.size(), 0), std::vector<float>(second_.master.size(), 0)};
    std::vector<engine::Binding> bindings = {bind(x_, inputs_),
                                             bind(target_, targets_),
                                             bind(bias_, biases_),
                                             bind(y_, r.y),
                                             bind(first_.values, r.w1),
                                             bind(second_.values, r.w2),
                                             bind(first_.gradient, r.dw1),
                                             bind(second_.gradient, r.dw2)};
    for (const LayerWeight* layer : {&first_, &second_})
      for (const WeightIndex::Binding& array : layer->index->bindings())
        bindings.push_back({array.variable, const_cast<void*>(array.data), array.row_stride, 1});
    engine::Engine(executable_).run(bindings, {.threads = threads, .reference = reference});
    return r;
  }

  /// Compares every result with float64.
  void expect_right(const Result& r) const {
    const Matrix w1 = dense_of(first_.matrix), w2 = dense_of(second_.matrix);
    const Matrix x = matrix_of(inputs_, kInputs, kColumns);
    Matrix hidden = times(w1, x);
    for (uint32_t i = 0; i < kHidden; ++i)
      for (uint32_t j = 0; j < kColumns; ++j)
        hidden(i, j) = std::max(0.0, hidden(i, j) + static_cast<double>(biases_[i]));
    const Matrix y = times(w2, hidden);
    Matrix dy = y;
    for (size_t i = 0; i < dy.at.size(); ++i) dy.at[i] -= static_cast<double>(targets_[i]);
    Matrix dh = times(transposed(w2), dy);
    for (size_t i = 0; i < dh.at.size(); ++i)
      if (hidden.at[i] <= 0) dh.at[i] = 0;
    for (size_t i = 0; i < y.at.size(); ++i) EXPECT_NEAR(r.y[i], y.at[i], 2e-4) << "Y " << i;
    expect_weight(first_, r.dw1, r.w1, w1, times(dh, transposed(x)), "W1");
    expect_weight(second_, r.dw2, r.w2, w2, times(dy, transposed(hidden)), "W2");
  }

 private:
  void add(const ProductProblem& problem, LayerWeight& weight, const ProductOperands& operands) {
    const HostPlan plan = plan_host_product(*weight.packed, problem, builder_.machine());
    steps_.push_back(build_host_product(builder_, *weight.index, problem, plan, operands));
  }
  void add(const ProductProblem& problem, LayerWeight& weight, const Operand& values, const Operand& x,
           const Operand& y) {
    add(problem, weight, {.values = values, .x = x, .y = y, .bias = {}, .metadata = {}, .scalars = {}});
  }

  void update(const LayerWeight& weight) {
    const BinaryProblem step{kernels::Binary::add_scaled, Type::f32, weight.values.rows(),
                             weight.values.cols(), -kLearningRate};
    steps_.push_back(ops::add(builder_, step, {weight.values, weight.gradient, weight.values}));
  }

  static engine::Binding bind(const Operand& operand, std::vector<float>& floats) {
    return {operand.variable, floats.data(), operand.cols(), 1};
  }

  static void expect_weight(const LayerWeight& weight, const std::vector<float>& dw,
                            const std::vector<float>& w, const Matrix& before, const Matrix& gradient,
                            const char* name) {
    const SparseMatrix dw_at = weight.unpacked(dw), w_at = weight.unpacked(w);
    each_stored(dw_at.pattern, dw_at.values, [&](uint32_t r, uint32_t c, float value) {
      EXPECT_NEAR(value, gradient(r, c), 5e-4) << "d" << name << " (" << r << ", " << c << ")";
    });
    each_stored(w_at.pattern, w_at.values, [&](uint32_t r, uint32_t c, float value) {
      EXPECT_NEAR(value, before(r, c) - static_cast<double>(kLearningRate) * gradient(r, c), 2e-4)
          << name << " (" << r << ", " << c << ")";
    });
  }

  program::Program program_;
  Builder builder_;
  LayerWeight first_;
  LayerWeight second_;
  Operand x_, target_, bias_, y_;
  std::vector<float> inputs_ = random_floats(kInputs * kColumns, 3);
  std::vector<float> targets_ = random_floats(kOutputs * kColumns, 4);
  std::vector<float> biases_ = random_floats(kHidden, 5);
  std::vector<StepId> steps_;
  std::shared_ptr<const compiler::Executable> executable_;
};

class HostProgramTest : public ::testing::TestWithParam<Form> {};

TEST_P(HostProgramTest, ForwardBackwardAndUpdateAreThoseOfFloat64) {
  for (uint32_t threads : {1U, 2U}) {
    TwoLayers network(GetParam(), machine::host(threads));
    network.expect_right(network.run(threads));
  }
}

TEST_P(HostProgramTest, BitsDoNotDependOnTheNumberOfThreads) {
  TwoLayers network(GetParam(), machine::host(2));
  const TwoLayers::Result one = network.run(1), two = network.run(2);
  EXPECT_EQ(one.y, two.y);
  EXPECT_EQ(one.dw1, two.dw1);
  EXPECT_EQ(one.dw2, two.dw2);
  EXPECT_EQ(one.w1, two.w1);
  EXPECT_EQ(one.w2, two.w2);
}

TEST_P(HostProgramTest, TheReferenceAgrees) {
  TwoLayers network(GetParam(), machine::host(2));
  network.expect_right(network.run(2, true));
}

// Products without beta do not read their result, so liveness need not preserve it.
TEST_P(HostProgramTest, WithoutBetaWhatIsWrittenIsOnlyWritten) {
  const TwoLayers network(GetParam(), machine::host(2));
  size_t products = 0;
  for (const program::ComputeSet& set : network.program().compute_sets())
    for (const program::VertexGroup& group : set.groups) {
      const std::string name(group.codelet->name);
      if (name.find("spmm") == std::string::npos && name.find("sddmm") == std::string::npos) continue;
      ++products;
      const bool keeps_free_slots = GetParam().is_dynamic && GetParam().block_size > 1;
      for (const program::FieldSpec& field : group.codelet->fields) {
        if (field.name == "y") {
          EXPECT_EQ(field.access, program::Access::out) << name;
        }
        if (field.name == "dw") {
          EXPECT_EQ(field.access, keeps_free_slots ? program::Access::inout : program::Access::out) << name;
        }
      }
    }
  EXPECT_EQ(products, 5U);
}

INSTANTIATE_TEST_SUITE_P(Forms, HostProgramTest,
                         ::testing::Values(Form{1, false}, Form{1, true}, Form{4, false}, Form{16, false},
                                           Form{16, true}),
                         [](const auto& form) {
                           return "b" + std::to_string(form.param.block_size) +
                                  (form.param.is_dynamic ? "_dynamic" : "_static");
                         });

// Three products of one weight: the program has its index once per order.
TEST(HostProgram, ProductsOfOneWeightShareItsIndex) {
  const machine::Machine host = machine::host(2);
  program::Program program;
  const Builder builder(program, host);
  const auto packed = std::make_shared<const PackedWeight>(
      prepack_weight(generate({PatternKind::random, 64, 48, 0.3, 8, 1}), Type::f32));
  WeightIndex index(packed);
  const PackedShape shape = packed_shape(*packed);
  const auto add = [&](ProductKind product) {
    const ProductProblem problem{.n = 4, .product = product};
    build_host_product(builder, index, problem, plan_host_product(*packed, problem, host),
                       {.values = builder.temporary("values", Type::f32, shape.rows, shape.cols),
                        .x = builder.temporary("x", Type::f32, 48, 4),
                        .y = builder.temporary("y", Type::f32, 64, 4),
                        .bias = {},
                        .metadata = {},
                        .scalars = {}});
  };
  const auto indices = [&] {
    size_t count = 0;
    for (const program::Variable& variable : program.variables())
      count += variable.name.starts_with("W.") ? 1 : 0;
    return count;
  };
  add(ProductKind::forward);
  const size_t of_forward = indices();
  add(ProductKind::sddmm);
  add(ProductKind::forward);
  EXPECT_EQ(indices(), of_forward);
  add(ProductKind::input_gradient);
  EXPECT_GT(indices(), of_forward);
}

TEST(HostProgram, SaysWhichOperandIsWrong) {
  const machine::Machine host = machine::host(1);
  program::Program program;
  const Builder builder(program, host);
  const auto packed = std::make_shared<const PackedWeight>(
      prepack_weight(generate({PatternKind::random, 16, 24, 1.0, 8, 1}), Type::f16));
  WeightIndex index(packed);
  const PackedShape shape = packed_shape(*packed);
  const Operand values = builder.temporary("values", Type::f16, shape.rows, shape.cols);
  const Operand x = builder.temporary("x", Type::f32, 24, 4), y = builder.temporary("y", Type::f32, 16, 4);
  const auto message = [&](ProductProblem problem, const ProductOperands& operands) {
    const HostPlan plan = plan_host_product(*packed, problem, host);
    return test::error_of<UsageError>([&] { build_host_product(builder, index, problem, plan, operands); });
  };
  const ProductOperands right{.values = values, .x = x, .y = y, .bias = {}, .metadata = {}, .scalars = {}};
  ProductOperands wrong = right;
  wrong.x = y;
  EXPECT_TRUE(
      test::says(message({.n = 4}, wrong), "the operand X is 16 × 4 of f32; the operation needs 24 × 4"));
  EXPECT_TRUE(test::says(message({.n = 5}, right), "needs 24 × 5 of f32"));
  EXPECT_TRUE(test::says(message({.n = 4, .product = ProductKind::sddmm}, right), "the operand dW is"));
  EXPECT_TRUE(test::says(message({.n = 4, .bias = true}, right), "the product has a bias; pass its operand"));
  wrong = right;
  wrong.bias = y;
  EXPECT_TRUE(test::says(message({.n = 4}, wrong), "the product has no bias"));
  EXPECT_TRUE(test::says(message({.n = 4, .bias = true}, wrong), "the operand the bias is 16 × 4"));
  wrong = right;
  wrong.scalars = y;
  EXPECT_TRUE(test::says(message({.n = 4}, wrong), "the operand alpha and beta is"));
}

// beta · Y, with scalars computed by the program, and without scalars.
TEST(HostProgram, AddsToWhatWasThereWhereTheProblemSaysSo) {
  const machine::Machine host = machine::host(2);
  for (const uint32_t block_size : {1U, 8U})
    for (const bool uses_beta : {false, true}) {
      program::Program program;
      const Builder builder(program, host);
      const SparseMatrix matrix = generate({PatternKind::random, 20, 30, 0.5, block_size, 1});
      const auto packed = std::make_shared<const PackedWeight>(prepack_weight(matrix, Type::f32));
      WeightIndex index(packed);
      const PackedShape shape = packed_shape(*packed);
      const Operand values = builder.external("W", Role::input, Type::f32, shape.rows, shape.cols);
      const Operand x = builder.external("X", Role::input, Type::f32, 30, 3);
      const Operand y = builder.external("Y", uses_beta ? Role::inout : Role::output, Type::f32, 20, 3);
      const ProductProblem problem{.n = 3, .uses_beta = uses_beta};
      program.set_main(
          build_host_product(builder, index, problem, plan_host_product(*packed, problem, host),
                             {.values = values, .x = x, .y = y, .bias = {}, .metadata = {}, .scalars = {}}));
      std::vector<float> in = random_floats(90, 1), out(60, uses_beta ? 2.0F : NAN);
      const std::vector<engine::Binding> bindings = {
          {values.variable, const_cast<std::byte*>(packed->values()), values.cols(), 1},
          {x.variable, in.data(), 3, 1},
          {y.variable, out.data(), 3, 1}};
      engine::Engine(compiler::compile(program, host)).run(bindings);
      const Matrix expected = times(dense_of(matrix), matrix_of(in, 30, 3));
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_NEAR(out[i], expected.at[i] + (uses_beta ? 2 : 0), 1e-4) << block_size;
    }
}

}  // namespace
}  // namespace tessera::ops
