// Convolutions, compared with their definition.
#include <gtest/gtest.h>
#include <tessera/convolution.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "graph/operation.h"
#include "networks.h"
#include "operations/window.h"
#include "sparse/blocks/packed_blocks.h"
#include "sparse/generate.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/number_of.h"
#include "support/random_choices.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

/// A convolution of two dimensions, with its weight in PyTorch's order.
struct Layer {
  Shape image;  ///< [samples, height, width, channels]
  uint32_t outputs = 1;
  Convolution of;
  std::vector<uint32_t> output_padding = {};

  uint32_t own_channels() const { return image[3] / of.groups; }
  Shape weight_shape() const { return {outputs, own_channels(), of.kernel[0], of.kernel[1]}; }
  Shape transposed_weight_shape() const {
    return {image[3], outputs / of.groups, of.kernel[0], of.kernel[1]};
  }
  int64_t at(const std::vector<uint32_t>& sizes, size_t d, int64_t otherwise) const {
    return sizes.empty() ? otherwise : sizes[d];
  }
  int64_t stride(size_t d) const { return at(of.stride, d, 1); }
  int64_t dilation(size_t d) const { return at(of.dilation, d, 1); }
  int64_t before(size_t d) const { return at(of.padding, d, 0); }
  int64_t after(size_t d) const { return of.padding.size() > 2 ? of.padding[2 + d] : before(d); }
  int64_t place(size_t d, int64_t out, int64_t tap) const {
    return out * stride(d) + tap * dilation(d) - before(d);
  }
};

std::vector<float> numbers(const Shape& shape, uint32_t stream) {
  return narrowed(random_values({Type::f32, shape, {}, {}}, -1, 1, 1, 7, stream));
}

/// Calls visit(sample, out row, out column, tap row, tap column, row, column) for all elements in the image.
template <class Visit>
void each_tap(const Layer& l, const Shape& image, const Shape& out, const Visit& visit) {
  for (int64_t n = 0; n < image[0]; ++n)
    for (int64_t y = 0; y < out[1]; ++y)
      for (int64_t x = 0; x < out[2]; ++x)
        for (int64_t i = 0; i < l.of.kernel[0]; ++i)
          for (int64_t j = 0; j < l.of.kernel[1]; ++j) {
            const int64_t row = l.place(0, y, i), col = l.place(1, x, j);
            if (row >= 0 && row < image[1] && col >= 0 && col < image[2]) visit(n, y, x, i, j, row, col);
          }
}

size_t place_in(const Shape& shape, int64_t a, int64_t b, int64_t c, int64_t d) {
  return static_cast<size_t>(((a * shape[1] + b) * shape[2] + c) * shape[3] + d);
}

std::vector<double> defined(const Layer& l, const std::vector<float>& x, const std::vector<float>& w,
                            const std::vector<float>& bias, const Shape& out) {
  std::vector<double> y(TensorType{Type::f32, out, {}, {}}.elements());
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i % l.outputs];
  const uint32_t own = l.own_channels(), own_outputs = l.outputs / l.of.groups;
  each_tap(l, l.image, out, [&](auto n, auto oy, auto ox, auto i, auto j, auto row, auto col) {
    for (uint32_t k = 0; k < l.outputs; ++k)
      for (uint32_t c = 0; c < own; ++c)
        y[place_in(out, n, oy, ox, k)] += double{w[place_in(l.weight_shape(), k, c, i, j)]} *
                                          x[place_in(l.image, n, row, col, k / own_outputs * own + c)];
  });
  return y;
}

std::vector<double> defined_transpose(const Layer& l, const std::vector<float>& x,
                                      const std::vector<float>& w, const std::vector<float>& bias,
                                      const Shape& out) {
  std::vector<double> y(TensorType{Type::f32, out, {}, {}}.elements());
  for (size_t i = 0; i < y.size(); ++i) y[i] = bias[i % l.outputs];
  const uint32_t own = l.own_channels(), own_outputs = l.outputs / l.of.groups;
  // The window slides over the result.
  each_tap(l, out, l.image, [&](auto n, auto iy, auto ix, auto i, auto j, auto row, auto col) {
    for (uint32_t c = 0; c < l.image[3]; ++c)
      for (uint32_t k = 0; k < own_outputs; ++k)
        y[place_in(out, n, row, col, c / own * own_outputs + k)] +=
            double{w[place_in(l.transposed_weight_shape(), c, k, i, j)]} * x[place_in(l.image, n, iy, ix, c)];
  });
  return y;
}

std::vector<Layer> layers() {
  return {{{2, 6, 7, 4}, 5, {.kernel = {3, 3}, .padding = {1, 1}}},
          {{1, 8, 9, 6}, 4, {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0, 2, 1}}},
          {{2, 9, 8, 4},
           6,
           {.kernel = {2, 3}, .stride = {1, 2}, .padding = {2, 1}, .dilation = {3, 2}, .groups = 2}},
          {{2, 5, 5, 6}, 6, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 6}},
          {{1, 5, 7, 3}, 12, {.kernel = {2, 2}, .stride = {2, 1}, .groups = 3}},
          {{2, 4, 3, 8}, 7, {.kernel = {1, 1}}},
          {{2, 7, 5, 8}, 7, {.kernel = {1, 1}, .stride = {2, 2}}},
          {{2, 15, 14, 36}, 40, {.kernel = {3, 3}, .padding = {1, 1}}},
          {{3, 14, 13, 33}, 38, {.kernel = {3, 3}, .padding = {1, 0, 2, 1}}}};
}

/// A graph of one layer, and its results by definition.
struct Built {
  Graph graph;
  WideArrays inputs, expected;
};

Built built(const Layer& l, bool transposed) {
  Built b;
  const Shape given = transposed ? l.transposed_weight_shape() : l.weight_shape();
  const std::vector<float> x = numbers(l.image, 0), w = numbers(given, 1), bias = numbers({l.outputs}, 2);
  const uint32_t taps = l.of.kernel[0] * l.of.kernel[1];
  const Value image = b.graph.input("x", l.image);
  const Value weight =
      b.graph.parameter("w", {given[0], taps * given[1]}, Initial::from(convolution_weight(w, given)));
  const Value own = b.graph.parameter("bias", {l.outputs}, Initial::from(bias));
  const Value y = transposed ? transposed_convolution(image, weight, own, l.of, l.output_padding)
                             : convolution(image, weight, own, l.of);
  b.graph.output("y", y);
  b.inputs["x"] = {x.begin(), x.end()};
  b.expected["y"] = (transposed ? defined_transpose : defined)(l, x, w, bias, y.shape());
  return b;
}

void expect_as_defined(const Built& b) {
  WideArrays state = widened(initial_state(b.graph));
  expect_near(evaluate(b.graph, b.inputs, state), b.expected, 1e-12);
  for (const uint32_t threads : {1U, 2U})
    expect_near(Session(b.graph, Machine::host(threads)).run(narrowed(b.inputs)), b.expected, 1e-5);
}

TEST(Convolution, IsAsDefined) {
  for (const Layer& l : layers()) {
    SCOPED_TRACE(to_string(TensorType{Type::f32, l.weight_shape(), {}, {}}));
    expect_as_defined(built(l, false));
  }
}

TEST(Convolution, TransposedIsAsDefined) {
  std::vector<Layer> all = layers();
  for (size_t i = 0; i < all.size(); ++i) {
    Layer& l = all[i];
    SCOPED_TRACE(to_string(TensorType{Type::f32, l.transposed_weight_shape(), {}, {}}));
    if (i % 2 == 1)
      l.output_padding = {static_cast<uint32_t>(l.stride(0)) - 1, static_cast<uint32_t>(l.stride(1)) - 1};
    expect_as_defined(built(l, true));
  }
}

TEST(Convolution, OfOneDimension) {
  Graph g;
  const Value x = g.input("x", {2, 9, 3}), w = g.parameter("w", {5, 9}, Initial::normal(1));
  const Convolution of{.kernel = {3}, .stride = {2}, .padding = {1}};
  const Value wide =
      convolution(reshape(x, {2, 1, 9, 3}), w, {}, {.kernel = {1, 3}, .stride = {1, 2}, .padding = {0, 1}});
  g.output("line", convolution(x, w, {}, of));
  g.output("image", wide);
  WideArrays state = widened(initial_state(g));
  const WideArrays results = evaluate(g, {{"x", random_values(x.type(), -1, 1, 1, 3, 0)}}, state);
  EXPECT_EQ(wide.shape(), (Shape{2, 1, 5, 5}));
  EXPECT_EQ(results.at("line"), results.at("image"));
}

TEST(Convolution, InGroupsIsOneOfASingleGroupAmongZeros) {
  const Layer l{{2, 5, 6, 16}, 24, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 4}};
  for (const uint32_t block_size : {1U, 4U, 8U}) {
    SCOPED_TRACE(block_size);
    Graph g;
    const std::vector<float> w = convolution_weight(numbers(l.weight_shape(), 1), l.weight_shape());
    const Value x = g.input("x", l.image);
    const SparseMatrix whole = ungrouped_convolution_weight(w, 24, 16, 9, 4, block_size);
    Convolution single = l.of;
    single.groups = 1;
    g.output("grouped", convolution(x, g.parameter("w", {24, 36}, Initial::from(w)), {}, l.of));
    g.output("whole",
             convolution(x, g.sparse_parameter("v", whole.pattern, Initial::from(whole.values)), {}, single));
    WideArrays state = widened(initial_state(g));
    const WideArrays results = evaluate(g, {{"x", random_values(x.type(), -1, 1, 1, 3, 0)}}, state);
    expect_near(WideArrays{{"y", results.at("whole")}}, {{"y", results.at("grouped")}}, 1e-12);
  }
}

Convolution random_window(test::Random& random, uint32_t most_padding) {
  Convolution window;
  for (int d = 0; d < 2; ++d) {
    window.kernel.push_back(1 + random.below(3));
    window.stride.push_back(1 + random.below(2));
    window.padding.push_back(random.below(most_padding + 1));
    window.dilation.push_back(1 + random.below(2));
  }
  return window;
}

/// A layer with any window, whose groups consist of whole blocks.
Layer random_groups(test::Random& random, uint32_t block_size) {
  const uint32_t groups = random.one_of({2U, 3U, 4U});
  const auto several_blocks = [&] {
    return groups * block_size * (2 + random.below(block_size == 1 ? 4 : 1));
  };
  Layer l{{1 + random.below(2), 5 + random.below(4), 5 + random.below(4), several_blocks()},
          several_blocks(),
          {}};
  l.of = random_window(random, 1);
  l.of.groups = groups;
  return l;
}

/// A layer with any window, in a single group.
Layer random_layer(test::Random& random) {
  const auto some = [&] { return 8 * (1 + random.below(5)); };
  Layer l{{1 + random.below(3), 6 + random.below(16), 6 + random.below(16), some()}, some(), {}};
  l.of = random_window(random, 2);
  if (random.below(4) > 0) return l;
  // Often the window that Winograd's products take, with enough channels for them.
  l.image[3] += 24, l.outputs += 24;
  l.of.kernel = {3, 3};
  l.of.stride = l.of.dilation = {1, 1};
  return l;
}

/// The sizes of a layer's weight as a matrix.
Shape matrix_of(const Layer& l, bool transposed) {
  const Shape given = transposed ? l.transposed_weight_shape() : l.weight_shape();
  return {given[0], given[1] * given[2] * given[3]};
}

Value applied(const Layer& l, bool transposed, Value x, Value w, std::optional<Value> bias) {
  return transposed ? transposed_convolution(x, w, bias, l.of) : convolution(x, w, bias, l.of);
}

/// Outputs a result, and the gradients of its weighted sum as "dNAME".
void output_with_gradients(Graph& g, const Value& y, const std::vector<Value>& by) {
  g.output("y", y);
  const auto found = gradients(sum(y * g.input("dy", y.shape())), by);
  for (size_t i = 0; i < by.size(); ++i) g.output("d" + g.info(by[i].id).name, *found[i]);
}

/// A layer after a ReLU, with its gradients.
Graph after_relu(const Layer& l, bool transposed, const std::optional<Pattern>& pattern) {
  Graph g;
  const Value x = g.input("x", l.image);
  const Value w = pattern ? g.sparse_parameter("w", *pattern, Initial::normal(0.3))
                          : g.parameter("w", matrix_of(l, transposed), Initial::normal(0.3));
  output_with_gradients(g, applied(l, transposed, relu(x), w, {}), {x, w});
  return g;
}

void expect_near_float64_on_hosts(const Graph& g) {
  const WideArrays inputs = random_inputs(g);
  WideArrays state = widened(initial_state(g));
  const WideArrays expected = evaluate(g, inputs, state);
  for (const uint32_t threads : {1U, 2U})
    expect_near(Session(g, Machine::host(threads)).run(narrowed(inputs)), expected, 1e-4, 1);
}

/// Compares this number of random layers and their gradients with float64.
void expect_near_float64_with_gradients(bool transposed, uint64_t count) {
  for (uint64_t seed = 0; seed < count; ++seed) {
    test::Random random(seed);
    const Layer l = random_layer(random);
    const Shape matrix = matrix_of(l, transposed);
    const uint32_t block_size = random.one_of({1U, 4U, 8U});
    std::optional<Pattern> pattern;
    if (seed % 2 == 1)
      pattern = sparse::generate_pattern({PatternKind::random, matrix[0], matrix[1], 0.4, block_size, seed});
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", blocks of " << (pattern ? block_size : 0)
                                    << ", image " << to_string(TensorType{Type::f32, l.image, {}, {}})
                                    << ", weight "
                                    << to_string(TensorType{Type::f32, l.weight_shape(), {}, {}}));
    expect_near_float64_on_hosts(after_relu(l, transposed, pattern));
  }
}

TEST(Convolution, AgreesWithFloat64WithItsGradients) {
  expect_near_float64_with_gradients(false, test::number_of_cases(16, 96));
}

TEST(Convolution, TransposedAgreesWithFloat64WithItsGradients) {
  expect_near_float64_with_gradients(true, test::number_of_cases(8, 96));
}

/// A layer with any strides: smaller than the kernel, so that taps overlap, or larger, so that some elements
/// of the images are under no tap.
Layer random_strides(test::Random& random) {
  const auto some = [&] { return 8 * (1 + random.below(4)); };
  Layer l{{1 + random.below(3), 9 + random.below(12), 9 + random.below(12), some()}, some(), {}};
  for (int d = 0; d < 2; ++d) {
    l.of.kernel.push_back(1 + random.below(5));
    l.of.stride.push_back(1 + random.below(5));
    l.of.dilation.push_back(random.below(4) == 0 ? 2U : 1U);
  }
  for (int side = 0; side < 4; ++side) l.of.padding.push_back(random.below(4));
  return l;
}

/// A layer with a sparse weight, and the gradient of its images.
Graph with_gradient_of_images(const Layer& l, const Pattern& pattern, std::optional<uint64_t> capacity) {
  Graph g;
  const Value x = g.input("x", l.image);
  const Value w = g.sparse_parameter("w", pattern, Initial::normal(0.3), Type::f32, capacity);
  output_with_gradients(g, convolution(x, w, {}, l.of), {x});
  return g;
}

TEST(Convolution, GradientsOfImagesUnderAnyStridesAgreeWithFloat64) {
  const uint64_t count = test::number_of_cases(24, 192);
  for (uint64_t seed = 0; seed < count; ++seed) {
    test::Random random(seed);
    const Layer l = random_strides(random);
    const Shape matrix = matrix_of(l, false);
    const uint32_t block_size = random.one_of({1U, 4U, 8U});
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", blocks of " << block_size << ", image "
                                    << to_string(TensorType{Type::f32, l.image, {}, {}}) << ", weight "
                                    << to_string(TensorType{Type::f32, l.weight_shape(), {}, {}}));
    const Pattern pattern =
        sparse::generate_pattern({PatternKind::random, matrix[0], matrix[1], 0.3, block_size, seed});
    const auto capacity = random.coin() ? std::optional(pattern.blocks() + 1) : std::nullopt;
    expect_near_float64_on_hosts(with_gradient_of_images(l, pattern, capacity));
  }
}

/// Far from any real network, but allowed.
TEST(Convolution, GradientsOfImagesUnderExtremeWindowsAgreeWithFloat64) {
  const uint32_t far = 1 << 16;
  const Layer layers[] = {{{1, 4, 4, 16}, 16, {.kernel = {1, 1}, .stride = {far, far}}},
                          {{2, 5, 4, 8}, 16, {.kernel = {3, 2}, .stride = {far, 1}}},
                          {{2, 5, 6, 8}, 16, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {9, 4}}},
                          {{1, 3, 40, 8}, 8, {.kernel = {2, 5}, .stride = {7, 2}, .padding = {0, 1, 6, 3}}}};
  for (const Layer& l : layers)
    for (const uint32_t block_size : {1U, 8U}) {
      SCOPED_TRACE(testing::Message() << "blocks of " << block_size << ", image "
                                      << to_string(TensorType{Type::f32, l.image, {}, {}}));
      const Shape matrix = matrix_of(l, false);
      expect_near_float64_on_hosts(
          with_gradient_of_images(l, sparse::full_pattern(matrix[0], matrix[1], block_size), {}));
    }
}

/// A layer with its gradients.
template <class WeightOf>
Graph with_gradients(const Layer& l, bool transposed, const WeightOf& weight_of) {
  Graph g;
  const Value x = g.input("x", l.image), w = weight_of(g);
  const Value bias = g.parameter("bias", {l.outputs}, Initial::from(numbers({l.outputs}, 2)));
  output_with_gradients(g, applied(l, transposed, x, w, bias), {x, w, bias});
  return g;
}

void expect_like_dense_groups(const Layer& l, bool transposed, uint32_t block_size, uint64_t seed) {
  const uint32_t taps = l.of.kernel[0] * l.of.kernel[1];
  const Shape matrix = matrix_of(l, transposed);
  const Pattern pattern =
      sparse::generate_pattern({PatternKind::random, matrix[0], matrix[1], 0.5, block_size, seed});
  const SparseMatrix own{pattern, sparse::random_values(pattern, seed)};
  const Graph grouped = with_gradients(l, transposed, [&](Graph& g) {
    return g.parameter("w", matrix, Initial::from(sparse::to_dense(own)));
  });
  const Graph whole = with_gradients(l, transposed, [&](Graph& g) {
    const SparseMatrix weight = ungrouped_convolution_weight(own, {l.of.groups, taps});
    EXPECT_EQ(weight.values, own.values);
    return g.sparse_parameter("w", weight.pattern, Initial::from(weight.values));
  });
  const WideArrays inputs = random_inputs(grouped);
  WideArrays state = widened(initial_state(grouped));
  WideArrays expected = evaluate(grouped, inputs, state);
  const std::vector<float> dw = sparse::values_at(pattern, narrowed(expected.at("dw")));
  expected["dw"] = {dw.begin(), dw.end()};
  state = widened(initial_state(whole));
  expect_near(evaluate(whole, inputs, state), expected, 1e-6, 1);
  const uint32_t tiles = transposed ? 32 : 12;  // strides make images larger
  for (const Machine& machine :
       {Machine::host(1), Machine::host(2), Machine::find("bow").with("tiles", tiles)}) {
    SCOPED_TRACE(machine.name());
    expect_near(Session(whole, machine).run(narrowed(inputs)), expected, 1e-4, 1);
  }
}

void expect_random_groups_like_dense_ones(bool transposed, uint64_t count) {
  for (uint64_t seed = 0; seed < count; ++seed) {
    test::Random random(seed);
    const uint32_t block_size = random.one_of({1U, 4U, 8U});
    const Layer l = random_groups(random, block_size);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", blocks of " << block_size << ", " << l.of.groups
                                    << " groups, weight "
                                    << to_string(TensorType{Type::f32, l.weight_shape(), {}, {}}));
    expect_like_dense_groups(l, transposed, block_size, seed);
  }
}

TEST(Convolution, InGroupsTakesSparseWeights) { expect_random_groups_like_dense_ones(false, 24); }

TEST(Convolution, TransposedInGroupsTakesSparseWeights) { expect_random_groups_like_dense_ones(true, 12); }

/// The whole weight of a layer in groups, with a number of blocks that depends on a seed.
SparseMatrix whole_weight(const Layer& l, bool transposed, uint64_t seed) {
  const Shape matrix = matrix_of(l, transposed);
  const Pattern own = sparse::generate_pattern({PatternKind::random, matrix[0], matrix[1], 0.4, 4, seed});
  return ungrouped_convolution_weight({own, sparse::random_values(own, seed)},
                                      {l.of.groups, l.of.kernel[0] * l.of.kernel[1]});
}

/// The results of a layer whose weight may have any pattern within its groups.
Value of_dynamic_groups(Graph& g, const Layer& l, bool transposed, const SparseMatrix& weight) {
  const Shape matrix = matrix_of(l, transposed);
  const Value w = g.sparse_parameter("w", weight.pattern, Initial::from(weight.values), Type::f32,
                                     uint64_t{matrix[0]} / 4 * (matrix[1] / 4));
  return applied(l, transposed, g.input("x", l.image), w, {});
}

TEST(Convolution, PatternsMayChangeWithinGroups) {
  for (const bool transposed : {false, true})
    for (const uint32_t size : {1U, 3U}) {
      SCOPED_TRACE(testing::Message() << "transposed " << transposed << ", kernel " << size);
      const Layer l{
          {2, 5, 6, 16}, 24, {.kernel = {size, size}, .padding = {size / 2, size / 2}, .groups = 2}};
      const SparseMatrix first = whole_weight(l, transposed, 1), second = whole_weight(l, transposed, 2);
      Graph g, other;
      g.output("y", of_dynamic_groups(g, l, transposed, first));
      other.output("y", of_dynamic_groups(other, l, transposed, second));
      const WideArrays inputs = random_inputs(g);
      WideArrays state = widened(initial_state(other));
      const WideArrays expected = evaluate(other, inputs, state);
      for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12)}) {
        Session session(g, machine);
        session.set_pattern("w", second.pattern);
        session.set("w", second.values);
        const Pattern across = sparse::full_pattern(first.pattern.rows, first.pattern.cols, 4);
        EXPECT_TRUE(says(error_of<UsageError>([&] { session.set_pattern("w", across); }),
                         "w: the new pattern has a block that is not of one of the 2 groups"));
        EXPECT_EQ(session.pattern("w"), second.pattern);
        expect_near(session.run(narrowed(inputs)), expected, 1e-4, 1);
      }
    }
}

void expect_gradients_of_images_to_follow_patterns(const Layer& l) {
  for (const uint32_t block_size : {1U, 8U, 16U}) {
    SCOPED_TRACE(testing::Message() << "blocks of " << block_size);
    const auto pattern_of = [&](double density, uint64_t seed) {
      return sparse::generate_pattern({PatternKind::random, l.outputs,
                                       l.of.kernel[0] * l.of.kernel[1] * l.image[3], density, block_size,
                                       seed});
    };
    const Pattern first = pattern_of(0.3, 1), fewer = pattern_of(0.1, 2), more = pattern_of(0.5, 3);
    const auto graph_of = [&](const Pattern& pattern) {
      Graph g;
      const Value x = g.input("x", l.image);
      const Value w = g.sparse_parameter("w", pattern, Initial::from(sparse::random_values(pattern, 4)),
                                         Type::f32, more.blocks() + 3);
      const Value y = convolution(x, w, {}, l.of);
      g.output("dx", *gradients(sum(square(y)), {x})[0]);
      return g;
    };
    const Graph g = graph_of(first);
    const WideArrays inputs = random_inputs(g);
    Session session(g, Machine::host(2));
    for (const Pattern& pattern : {first, fewer, more, first}) {
      session.set_pattern("w", pattern);
      session.set("w", sparse::random_values(pattern, 4));
      const Graph other = graph_of(pattern);
      WideArrays state = widened(initial_state(other));
      expect_near(session.run(narrowed(inputs)), evaluate(other, inputs, state), 1e-4, 1);
    }
  }
}

TEST(Convolution, GradientsOfImagesFollowPatterns) {
  expect_gradients_of_images_to_follow_patterns({{2, 5, 6, 32}, 16, {.kernel = {3, 3}, .padding = {1, 1}}});
}

TEST(Convolution, GradientsOfImagesUnderStridesFollowPatterns) {
  expect_gradients_of_images_to_follow_patterns(
      {{2, 8, 32, 32}, 16, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}});
  expect_gradients_of_images_to_follow_patterns({{2, 7, 6, 32}, 16, {.kernel = {1, 1}, .stride = {2, 2}}});
  expect_gradients_of_images_to_follow_patterns(
      {{3, 9, 11, 16}, 32, {.kernel = {4, 2}, .stride = {3, 1}, .padding = {2, 0}}});
}

TEST(Convolution, PatternsOfMicroBatchesStayWithinGroups) {
  const Layer l{{2, 5, 6, 16}, 24, {.kernel = {3, 3}, .padding = {1, 1}, .groups = 2}};
  const SparseMatrix first = whole_weight(l, false, 1), second = whole_weight(l, false, 2);
  Graph g;
  const Value loss = mean(square(of_dynamic_groups(g, l, false, first)));
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 2});
  Session session(g, Machine::host(2));
  session.set_pattern("w", second.pattern);
  EXPECT_THROW(session.set_pattern("w", sparse::full_pattern(24, 144, 4)), UsageError);
  EXPECT_EQ(session.pattern("w"), second.pattern);
}

TEST(Convolution, TransposedOfSinglePositionsIsAProduct) {
  Graph g;
  const Value x = g.input("x", {2, 3, 4, 8});
  g.output("y", transposed_convolution(x, g.parameter("w", {8, 5}), {}, {.kernel = {1, 1}}));
  ASSERT_EQ(g.nodes().size(), 1U);
  EXPECT_EQ(g.nodes()[0].operation->name, "linear_input_gradient");
}

/// A weight with blocks of 8 and, if it is dynamic, capacity for two more.
Value weight_of(Graph& g, const char* name, uint32_t outputs, uint32_t cols, Layers kind) {
  if (kind == Layers::dense) return g.parameter(name, {outputs, cols}, Initial::normal(0.2));
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, outputs, cols, 0.4, 8, 3});
  const auto capacity = kind == Layers::dynamic ? std::optional(pattern.blocks() + 2) : std::nullopt;
  return g.sparse_parameter(name, pattern, Initial::normal(0.3), Type::f32, capacity);
}

/// The operations of a graph on a host.
std::multiset<std::string> operations_on_host(const Graph& g) {
  std::multiset<std::string> names;
  const auto operations = Session(g, Machine::host(2)).cost().operations;
  for (const OperationCost& cost : operations) names.insert(cost.operation);
  return names;
}

TEST(Convolution, TakesItsPanelsFromImagesOnHosts) {
  for (const Layers kind : {Layers::dense, Layers::sparse}) {
    Graph g;
    const Value x = g.input("x", {2, 9, 9, 8});
    const Value w = weight_of(g, "w", 16, 72, kind);
    g.output("y", relu(convolution(x, w, {}, {.kernel = {3, 3}, .stride = {2, 2}})));
    EXPECT_EQ(operations_on_host(g), std::multiset<std::string>{"convolution"});
  }
}

TEST(Convolution, GradientsOfWeightsTakeTheirPanelsFromImagesOnHosts) {
  for (const Layers kind : {Layers::dense, Layers::sparse}) {
    Graph g;
    const Value x = g.input("x", {3, 9, 9, 8});
    const Value w = weight_of(g, "w", 16, 72, kind);
    const Value y = convolution(x, w, {}, {.kernel = {3, 3}, .stride = {2, 1}, .padding = {1, 0}});
    g.output("dw", *gradients(sum(y * y), {w})[0]);
    EXPECT_FALSE(operations_on_host(g).contains("patches"));
  }
}

TEST(Convolution, TransposedStoresNothingOfWhatWindowsSeeOnHosts) {
  for (const Layers kind : {Layers::dense, Layers::sparse}) {
    Graph g;
    const Value x = g.input("x", {3, 5, 4, 16});
    const Value w = weight_of(g, "w", 16, 72, kind);
    const Value y =
        transposed_convolution(x, w, {}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}, {1, 0});
    EXPECT_EQ(y.shape(), (Shape{3, 10, 7, 8}));
    g.output("y", y);
    const auto found = gradients(sum(y * y), {x, w});
    g.output("dx", *found[0]);
    g.output("dw", *found[1]);
    const std::multiset<std::string> found_operations = operations_on_host(g);
    for (const char* stores : {"patches", "fold"}) EXPECT_FALSE(found_operations.contains(stores)) << stores;
  }
}

TEST(Convolution, HasNoSecondDerivativesByItsWeight) {
  Graph g;
  const Value x = g.input("x", {2, 5, 6, 4}), w = g.parameter("w", {8, 36}, Initial::normal(1));
  const Value y = convolution(x, w, {}, {.kernel = {3, 3}});
  const Value dw = *gradients(sum(square(y)), {w})[0];
  EXPECT_TRUE(says(error_of<UsageError>([&] { gradients(sum(square(dw)), {w}); }),
                   "convolution_weight_gradient(…) has no gradient"));
}

TEST(Convolution, TrainingStoresNothingOfWhatWindowsSeeOnHosts) {
  for (const Layers kind : {Layers::dense, Layers::sparse, Layers::dynamic}) {
    Graph g;
    const Value x = g.input("x", {3, 9, 9, 8});
    const Convolution same{.kernel = {3, 3}, .padding = {1, 1}};
    Value y = relu(convolution(x, weight_of(g, "first", 16, 72, kind), {}, same));
    y = relu(convolution(y, weight_of(g, "second", 24, 144, kind), {}, same));
    y = convolution(y, weight_of(g, "last", 16, 216, kind), {}, {.kernel = {3, 3}, .stride = {2, 2}});
    const Value loss = mean(square(y));
    g.output("loss", loss);
    add_training(loss, {.optimizer = Sgd{.momentum = 0.9}});
    const std::multiset<std::string> found = operations_on_host(g);
    for (const char* passed_over : {"patches", "fold", "relu_gradient"})
      EXPECT_FALSE(found.contains(passed_over)) << passed_over;
  }
}

/// Two layers and a loss, trained for a step.
TEST(Convolution, IsTrained) {
  for (const Layers kind : {Layers::dense, Layers::sparse, Layers::dynamic}) {
    Graph g;
    const Value x = g.input("x", {3, 6, 6, 8}), labels = g.input("labels", {3}, Type::u32);
    const Convolution of{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    const Value w = weight_of(g, "w", 16, 72, kind);
    const Value h = relu(convolution(x, w, g.parameter("b", {16}), of));
    const Value d = convolution(h, g.parameter("d", {16, 9}, Initial::normal(0.3)), {},
                                {.kernel = {3, 3}, .padding = {1, 1}, .groups = 16});
    const Value loss = cross_entropy(layer(g, "last", mean(d, {1, 2}), 10, Layers::dense), labels);
    g.output("loss", loss);
    add_training(loss, {.optimizer = Sgd{.momentum = 0.9}});
    const WideArrays inputs = {
        {"x", random_values(x.type(), -1, 1, 1, 3, 0)}, {"labels", {1, 7, 4}}, {"lr", {0.25}}};
    WideArrays state = widened(initial_state(g));
    for (const Machine& machine : {Machine::host(2), Machine::find("bow")}) {
      Session session(g, machine);
      WideArrays own = state;
      for (int step = 0; step < 2; ++step) {
        const WideArrays expected = evaluate(g, inputs, own);
        expect_near(session.run(narrowed(inputs)), expected, 1e-4);
      }
      expect_near(Arrays{{"w", session.get("w")}}, {{"w", own.at("w")}}, 1e-4);
    }
  }
}

TEST(Convolution, RefusesWhatDoesNotMatch) {
  Graph g;
  const Value x = g.input("x", {2, 5, 6, 4}), w = g.parameter("w", {8, 36});
  const Value sparse_w =
      g.sparse_parameter("s", sparse::generate_pattern({PatternKind::random, 8, 18, 0.5, 1, 3}));
  const auto refuses = [](const char* text, const auto& call) {
    EXPECT_TRUE(says(error_of<UsageError>(call), text)) << text;
  };
  const Convolution three{.kernel = {3, 3}};
  refuses("convolution: the stride [2] needs a size for each of 2 dimensions", [&] {
    convolution(x, w, {}, {.kernel = {3, 3}, .stride = {2}});
  });
  refuses("the stride is [0, 1]; it must be 2 sizes from 1", [&] {
    convolution(x, w, {}, {.kernel = {3, 3}, .stride = {0, 1}});
  });
  refuses("a window over 7 positions does not fit the 5 with padding", [&] {
    convolution(x, w, {}, {.kernel = {7, 3}});
  });
  refuses("a window of 1 dimensions over [2, 5, 6, 4]", [&] { convolution(x, w, {}, {.kernel = {3}}); });
  refuses("does not match the weight f32[8, 36]", [&] { convolution(x, w, {}, {.kernel = {3, 2}}); });
  refuses("3 groups of f32[2, 5, 6, 4]", [&] { convolution(x, w, {}, {.kernel = {3, 3}, .groups = 3}); });
  refuses("it must have 36 columns", [&] { convolution(x, sparse_w, {}, {.kernel = {3, 3}, .groups = 2}); });
  const Value whole = g.sparse_parameter("whole", sparse::full_pattern(8, 36, 1));
  refuses("and blocks of each output's own group alone", [&] {
    convolution(x, whole, {}, {.kernel = {3, 3}, .groups = 2});
  });
  const Value across = g.sparse_parameter("across", sparse::full_pattern(4, 36, 1));
  refuses("transposed_convolution: 2 groups of f32[2, 5, 6, 4] with the sparse weight f32[4, 36]", [&] {
    transposed_convolution(x, across, {}, {.kernel = {3, 3}, .groups = 2});
  });
  refuses("with the weight f32[8, 36]: it must have a row for each channel, and columns for 9 taps", [&] {
    transposed_convolution(x, w, {}, {.kernel = {3, 3}});
  });
  refuses("and columns for 9 taps", [&] {
    transposed_convolution(x, g.parameter("few", {4, 10}), {}, {.kernel = {3, 3}});
  });
  refuses("a weight of 8 × 18 in blocks of 4 has no 2 groups of 9 taps", [&] {
    ungrouped_convolution_weight({sparse::full_pattern(8, 18, 4), std::vector<float>(160)}, {2, 9});
  });
  refuses("2 groups of f32[2, 5, 6, 4]", [&] { convolution(x, w, {}, {.kernel = {3, 3}, .groups = 2}); });
  refuses("must have blocks of each of 2 groups alone", [&] {
    Attributes attributes = attributes_of("convolution", three);
    attributes["groups"] = int64_t{2};
    g.apply("convolution", {x, whole}, attributes);
  });
  refuses("patches: the window has 2 groups", [&] { patches(x, {.kernel = {3, 3}, .groups = 2}); });
  refuses("a window over f32[2, 9, 9, 1] has other positions", [&] { fold(x, {.kernel = {2, 2}}, {9, 9}); });
  refuses("is not the positions and taps", [&] { fold(x, three, {9, 9}); });
  refuses("would be -", [&] {
    transposed_convolution(x, g.parameter("t", {4, 9 * 2}), {}, {.kernel = {3, 3}, .padding = {9, 9}});
  });
  refuses("an output padding of 2 with a stride of 1", [&] {
    transposed_convolution(x, g.parameter("u", {4, 9 * 2}), {}, three, {0, 2});
  });
  refuses("35 values are not [2, 2, 3, 3]", [&] {
    convolution_weight(std::vector<float>(35), {2, 2, 3, 3});
  });
}

}  // namespace
}  // namespace tessera::graph
