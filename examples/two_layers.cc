// Trains a network of a sparse and a dense layer, one step being one tile program: both forward products,
// softmax with cross-entropy, all gradients, and momentum. Weights and velocities are state that stays on the
// machine.
//
//   example_two_layers [--machine host|bow|…] [--steps 100]
//
// Losses are compared with the losses of a float64 reference. It uses the library's own headers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "arguments.h"
#include "base/random.h"
#include "compiler/compile.h"
#include "engine/session.h"
#include "machine/model/machine.h"
#include "ops/map/elementwise.h"
#include "ops/map/optimizer.h"
#include "ops/map/softmax.h"
#include "ops/sparse/host/spmm.h"
#include "ops/tiles/product.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"

namespace {

using namespace tessera;
using namespace tessera::ops;
using program::Purpose;
using program::Role;

constexpr uint32_t kInputs = 256;
constexpr uint32_t kHidden = 512;
constexpr uint32_t kClasses = 10;
constexpr uint32_t kBatch = 64;
constexpr float kLr = 0.003F;
constexpr float kMomentum = 0.9F;
constexpr uint32_t kUsualSteps = 100;
/// Tolerance of losses: rounding errors of FP32 sums grow a little from step to step.
constexpr double kTolerance = 1e-3;

/// A weight, where it lies in the program, and its three products.
class Layer {
 public:
  Layer(const Builder& builder, std::string name, SparseMatrix weight, bool dense)
      : builder_(builder), name_(std::move(name)), weight_(std::move(weight)), dense_(dense) {
    builder.is_host() ? place_on_host() : place_on_tiles();
  }

  const std::string& name() const { return name_; }
  const SparseMatrix& weight() const { return weight_; }

  program::StepId forward(const Operand& x, const Operand& y, Activation activation) {
    return add(ProductKind::forward, values_, x, y, activation);
  }
  program::StepId input_gradient(const Operand& dx, const Operand& dy) {
    return add(ProductKind::input_gradient, values_, dx, dy);
  }
  program::StepId weight_gradient(const Operand& x, const Operand& dy) {
    return add(ProductKind::sddmm, gradient_, x, dy);
  }
  program::StepId update(const Operand& lr) const {
    return ops::add(builder_,
                    SgdProblem{.rows = values_.rows(), .cols = values_.cols(), .momentum = kMomentum},
                    {gradient_, lr, velocity_, values_});
  }

  /// The weight's values as the program stores them.
  std::vector<float> stored() const {
    if (!builder_.is_host()) return order_.stored_weight(weight_);
    std::vector<float> values(values_.box.elements());
    std::memcpy(values.data(), packed_->values(), values.size() * sizeof(float));
    return values;
  }

 private:
  void place_on_host() {
    packed_ = std::make_shared<PackedWeight>(prepack_weight(weight_, Type::f32));
    index_ = std::make_unique<WeightIndex>(packed_, name_);
    const PackedShape shape = packed_shape(*packed_);
    place({shape.rows, shape.cols, {}});
  }

  /// Gradients are planned for values that lie as the forward product wants them.
  void place_on_tiles() {
    const ForcedKnobs unsliced = {{"m_slices", 1}, {"n_slices", 1}};
    plans_[ProductKind::forward] =
        plan_tile_product(weight_.pattern, problem_of(ProductKind::forward), builder_.machine(),
                          dense_ ? unsliced : ForcedKnobs{}, nullptr, activations());
    const TileProductPlan& forward = plans_[ProductKind::forward];
    for (ProductKind product : {ProductKind::input_gradient, ProductKind::sddmm})
      plans_[product] = plan_tile_product(weight_.pattern, problem_of(product), builder_.machine(), {},
                                          &forward, activations());
    order_.layouts = forward.layouts;
    order_.dense = dense_;
    order_.block_order = forward.layouts.values.blocks;
    place(forward.layouts.values);
  }

  void place(const OperandLayout& layout) {
    values_ = builder_.add(name_, Role::state, Type::f32, layout, Purpose::parameter);
    velocity_ = builder_.add(name_ + ".velocity", Role::state, Type::f32, layout, Purpose::optimizer);
    gradient_ = builder_.add("d" + name_, Role::temporary, Type::f32, layout, Purpose::gradient);
  }

  ProductProblem problem_of(ProductKind product, Activation activation = Activation::none) const {
    return {
        .n = kBatch, .dense = dense_ && !builder_.is_host(), .product = product, .activation = activation};
  }

  /// Between layers matrices are spread over all tiles, row by row.
  LayoutChoices activations() const {
    const auto linear = [&](uint32_t rows) {
      return matrix_layout(rows, kBatch, program::map_linearly(rows, kBatch, builder_.machine().tiles));
    };
    return {.x = {linear(weight_.pattern.cols)}, .y = {linear(weight_.pattern.rows)}};
  }

  program::StepId add(ProductKind product, const Operand& values, const Operand& x, const Operand& y,
                      Activation activation = Activation::none) {
    const ProductProblem problem = problem_of(product, activation);
    const ProductOperands operands{
        .values = values, .x = x, .y = y, .bias = {}, .metadata = {}, .scalars = {}};
    if (!builder_.is_host())
      return build(builder_, weight_.pattern, problem, plans_.at(product), operands).step;
    const HostPlan plan = plan_host_product(*packed_, problem, builder_.machine());
    return build_host_product(builder_, *index_, problem, plan, operands);
  }

  const Builder& builder_;
  std::string name_;
  SparseMatrix weight_;
  bool dense_;
  Operand values_, velocity_, gradient_;
  std::shared_ptr<PackedWeight> packed_;  ///< on a host
  std::unique_ptr<WeightIndex> index_;
  std::map<ProductKind, TileProductPlan> plans_;  ///< on tiles
  TileProductProgram order_;                      ///< of stored values
};

/// One step of training: inputs and labels in, losses out.
struct TrainingStep {
  explicit TrainingStep(const machine::Machine& machine, SparseMatrix first_weight,
                        SparseMatrix second_weight)
      : builder(program, machine),
        first(builder, "W1", std::move(first_weight), false),
        second(builder, "W2", std::move(second_weight), true) {
    x = builder.external("X", Role::input, Type::f32, kInputs, kBatch);
    labels = builder.external("labels", Role::input, Type::u32, 1, kBatch);
    lr = builder.external("lr", Role::input, Type::f32, 1, 1);
    loss = builder.external("loss", Role::output, Type::f32, 1, kBatch);
    const auto activation = [&](const char* name, uint32_t rows) {
      return builder.temporary(name, Type::f32, rows, kBatch);
    };
    const Operand hidden = activation("H", kHidden), d_hidden = activation("dH", kHidden);
    const Operand logits = activation("logits", kClasses), d_logits = activation("dlogits", kClasses);
    program.set_main(builder.sequence(
        {first.forward(x, hidden, Activation::relu), second.forward(hidden, logits, Activation::none),
         add(builder, SoftmaxCrossEntropyProblem{kClasses, kBatch, 1.0F / kBatch},
             {logits, labels, d_logits, loss}),
         second.weight_gradient(hidden, d_logits), second.input_gradient(d_hidden, d_logits),
         add(builder, BinaryProblem{kernels::Binary::relu_gradient, Type::f32, kHidden, kBatch},
             {d_hidden, hidden, d_hidden}),
         first.weight_gradient(x, d_hidden), first.update(lr), second.update(lr)}));
  }

  program::Program program;
  Builder builder;
  Layer first, second;
  Operand x, labels, lr, loss;
};

/// The same network in float64.
class Reference {
 public:
  Reference(const SparseMatrix& first, const SparseMatrix& second)
      : first_(first, kHidden, kInputs), second_(second, kClasses, kHidden) {}

  /// One step; returns the mean loss.
  double step(const std::vector<float>& inputs, const std::vector<uint32_t>& labels) {
    const std::vector<double> x(inputs.begin(), inputs.end());
    std::vector<double> hidden = first_.times(x);
    for (double& h : hidden) h = std::max(0.0, h);
    std::vector<double> d_logits = second_.times(hidden);
    double loss = 0;
    for (uint32_t j = 0; j < kBatch; ++j) loss += softmax(d_logits, j, labels[j]) / kBatch;
    std::vector<double> d_hidden = second_.transposed_times(d_logits);
    for (size_t i = 0; i < hidden.size(); ++i)
      if (hidden[i] <= 0) d_hidden[i] = 0;
    second_.update(d_logits, hidden);
    first_.update(d_hidden, x);
    return loss;
  }

 private:
  /// Replaces the logits of a column by their gradient; returns the loss.
  static double softmax(std::vector<double>& logits, uint32_t j, uint32_t label) {
    double sum = 0;
    for (uint32_t i = 0; i < kClasses; ++i) sum += std::exp(logits[i * kBatch + j]);
    const double loss = std::log(sum) - logits[label * kBatch + j];
    for (uint32_t i = 0; i < kClasses; ++i) {
      double& logit = logits[i * kBatch + j];
      logit = (std::exp(logit) / sum - (i == label ? 1 : 0)) / kBatch;
    }
    return loss;
  }

  /// The stored elements of a weight, with their velocities.
  class Weight {
   public:
    Weight(const SparseMatrix& matrix, uint32_t rows, uint32_t cols) : rows_(rows), cols_(cols) {
      const std::vector<float> dense = sparse::to_dense(matrix);
      const std::vector<float> stored =
          sparse::to_dense({matrix.pattern, std::vector<float>(matrix.values.size(), 1.0F)});
      for (uint32_t i = 0; i < dense.size(); ++i)
        if (stored[i] != 0) elements_.push_back({i / cols, i % cols, static_cast<double>(dense[i]), 0});
    }

    std::vector<double> times(const std::vector<double>& x) const {
      std::vector<double> y(size_t{rows_} * kBatch);
      for (const Element& e : elements_)
        for (uint32_t j = 0; j < kBatch; ++j) y[e.row * kBatch + j] += e.value * x[e.col * kBatch + j];
      return y;
    }
    std::vector<double> transposed_times(const std::vector<double>& dy) const {
      std::vector<double> dx(size_t{cols_} * kBatch);
      for (const Element& e : elements_)
        for (uint32_t j = 0; j < kBatch; ++j) dx[e.col * kBatch + j] += e.value * dy[e.row * kBatch + j];
      return dx;
    }
    void update(const std::vector<double>& dy, const std::vector<double>& x) {
      for (Element& e : elements_) {
        double gradient = 0;
        for (uint32_t j = 0; j < kBatch; ++j) gradient += dy[e.row * kBatch + j] * x[e.col * kBatch + j];
        e.velocity = double{kMomentum} * e.velocity + gradient;
        e.value -= double{kLr} * e.velocity;
      }
    }

   private:
    struct Element {
      uint32_t row, col;
      double value, velocity;
    };
    uint32_t rows_, cols_;
    std::vector<Element> elements_;
  };

  Weight first_, second_;
};

/// Random values scaled to keep the variance of activations.
SparseMatrix initialised(Pattern pattern, double inputs_of_a_row, uint64_t seed) {
  std::vector<float> values = sparse::random_values(pattern, seed);
  const auto scale = static_cast<float>(std::sqrt(3 / inputs_of_a_row));
  for (float& value : values) value *= scale;
  return {std::move(pattern), std::move(values)};
}

/// Inputs in one cluster per class.
struct Data {
  Data() : inputs(size_t{kInputs} * kBatch), labels(kBatch) {
    std::vector<float> centres(size_t{kInputs} * kClasses);
    base::RandomStream(1, 0, 1).fill_symmetric(centres);
    base::RandomStream(1, 0, 2).fill_symmetric(inputs);
    for (uint32_t j = 0; j < kBatch; ++j) {
      labels[j] = j % kClasses;
      for (uint32_t i = 0; i < kInputs; ++i) inputs[i * kBatch + j] += centres[i * kClasses + labels[j]];
    }
  }
  std::vector<float> inputs;
  std::vector<uint32_t> labels;
};

void write_weight(engine::Session& session, const Layer& layer) {
  std::vector<float> values = layer.stored();
  const program::Variable& variable =
      session.executable().program->variable(session.executable().program->find(layer.name()));
  session.write(layer.name(), {reinterpret_cast<std::byte*>(values.data()), Type::f32, variable.rows,
                               variable.cols, variable.cols});
}

void print_memory(const compiler::Executable& executable) {
  // Gradients are temporaries, so there are none if that step is in the forward pass.
  fmt::print("memory by purpose, bytes in total; temporaries at the step with the most of them:\n");
  for (const auto& [purpose, bytes] : executable.memory.total_purposes)
    fmt::print("  {:<12} {}\n", purpose, bytes);
}

int train(const std::string& machine_name, uint32_t steps) {
  const machine::Machine machine = machine::find(machine_name);
  constexpr double kDensity = 1.0 / 8;
  const SparseMatrix first =
      initialised(sparse::generate_pattern({PatternKind::random, kHidden, kInputs, kDensity, 16, 1}),
                  kDensity * kInputs, 2);
  const SparseMatrix second =
      initialised(sparse::full_pattern(kClasses, kHidden, sparse::kDenseBlockSize), kHidden, 3);
  TrainingStep step(machine, first, second);
  engine::Session session(compiler::compile(step.program, machine));
  write_weight(session, step.first);
  write_weight(session, step.second);
  print_memory(session.executable());

  Data data;
  float lr = kLr;
  std::vector<float> losses(kBatch);
  const std::vector<engine::Binding> bindings = {{step.x.variable, data.inputs.data(), kBatch, 1},
                                                 {step.labels.variable, data.labels.data(), kBatch, 1},
                                                 {step.lr.variable, &lr, 1, 1},
                                                 {step.loss.variable, losses.data(), kBatch, 1}};
  Reference reference(first, second);
  double largest = 0, first_loss = 0, last_loss = 0;
  bool agrees = true;
  engine::Profile profile;
  for (uint32_t i = 0; i < steps; ++i) {
    profile = session.run(bindings);
    double mean = 0;
    for (float loss : losses) mean += static_cast<double>(loss) / kBatch;
    const double expected = reference.step(data.inputs, data.labels);
    const double difference = std::abs(mean - expected) / std::max(1e-2, expected);
    agrees = agrees && difference <= kTolerance;  // false for NaN, which max() would pass over
    largest = std::max(largest, difference);
    if (i == 0) first_loss = mean;
    last_loss = mean;
    if (i % 20 == 0 || i + 1 == steps)
      fmt::print("step {:>3}: loss {:.6f}, float64 {:.6f}\n", i, mean, expected);
  }
  if (machine.kind == machine::Kind::tiled)
    fmt::print("a step takes {:.0f} cycles on {}\n", profile.cycles.total(), machine.name);
  fmt::print("losses differ from float64 by {:.1e} of themselves at most: {}\n", largest,
             agrees ? "verified" : "WRONG");
  const bool learns = steps < kUsualSteps || last_loss < first_loss / 2;
  if (!learns)
    fmt::print("the loss did not fall to half: {:.6f} at first, {:.6f} at last\n", first_loss, last_loss);
  return agrees && learns ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run(
      {.program = "example_two_layers", .options = {{"--machine", "NAME"}, {"--steps", "COUNT"}}}, argc, argv,
      [](const example::Arguments& arguments) {
        return train(arguments.text("--machine", "host"), arguments.count("--steps", kUsualSteps));
      });
}
