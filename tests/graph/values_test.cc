// The meaning of values, however a program stores them: as a weight, in place, in a shared array.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/error.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "networks.h"
#include "operations/list.h"
#include "sparse/pattern.h"
#include "support/error_of.h"
#include "support/random_choices.h"

namespace tessera::graph {
namespace {

using test::error_of;
using test::says;

TEST(Weights, MayBeInputsWhichStayAsTheyAre) {
  Graph g;
  const Value x = g.input("x", {5, 40}), w = g.input("w", {10, 40});
  g.output("y", linear(x, w));
  const WideArrays inputs = random_inputs(g);
  expect_like_float64(g, inputs);
  Session session(g, Machine::host(2));
  Arrays arrays = narrowed(inputs);
  const std::vector<float> before = arrays["w"];
  std::vector<float> y(50);
  session.run(std::vector<Tensor>{{"x", arrays["x"].data()}, {"w", arrays["w"].data()}, {"y", y.data()}});
  EXPECT_EQ(arrays["w"], before);
  EXPECT_NE(y, std::vector<float>(50));
}

TEST(Weights, MayBeComputedOnManyPaths) {
  Graph g;
  Value w = g.input("w", {3, 4});
  for (int i = 0; i < 100; ++i) w = (w + w) * 0.5;
  g.output("y", linear(g.input("x", {5, 4}), w));
  expect_like_float64(g);
}

TEST(Weights, ThatAreSparseHaveTheirFormWithoutAProduct) {
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 64, 48, 0.1, 1, 3});
  Graph g;
  const Value w = g.sparse_parameter("w", pattern, Initial::normal(1));
  linear(g.input("x", {5, 48}), w);
  const Value other = g.parameter("other", {4}, Initial::constant(1));
  const Value loss = sum(other * other);
  g.output("loss", loss);
  add_training(loss);
  for (const char* machine : {"host", "bow"}) {
    Session session(g, Machine::find(machine, 2));
    EXPECT_EQ(session.get("w").size(), pattern.blocks());
    EXPECT_EQ(session.pattern("w").col_indices, pattern.col_indices);
    session.run(narrowed(WideArrays{{"x", Array(5 * 48)}, {"lr", {0.5}}}));
  }
}

/// A result of numbers.
double result_of(const Operation& operation, const std::vector<double>& of) {
  Graph g;
  std::vector<Value> inputs;
  WideArrays arrays, state;
  for (size_t i = 0; i < of.size(); ++i) {
    const std::string name = "x" + std::to_string(i);
    inputs.push_back(g.input(name, {1, 1}));
    arrays[name] = {of[i]};
  }
  g.output("y", g.apply(operation.name, inputs, operation.cases()[0].attributes)[0]);
  return evaluate(g, arrays, state).at("y")[0];
}

TEST(Elementwise, KeepsZerosWhereItsFunctionDoes) {
  Graph g;
  const Value sparse = g.sparse_parameter(
      "w", sparse::generate_pattern({PatternKind::random, 16, 16, 0.5, 4, 1}), Initial::normal(1));
  for (const Operation& operation : elementwise_operations()) {
    const auto keeps = [&](const std::vector<bool>& padded) {
      return operation.traits.keeps_zeros != nullptr && operation.traits.keeps_zeros(padded);
    };
    if (operation.least_inputs == 1) {
      EXPECT_EQ(keeps({true}), result_of(operation, {0}) == 0) << operation.name;
      const std::string error =
          error_of<UsageError>([&] { g.apply(operation.name, {sparse}, operation.cases()[0].attributes); });
      EXPECT_EQ(error == "(no error)", keeps({true})) << operation.name << ": " << error;
      continue;
    }
    for (double x : {-1.5, 0.25, 2.0}) {
      if (keeps({true, true})) {
        EXPECT_EQ(result_of(operation, {0, 0}), 0) << operation.name;
      }
      if (keeps({true, false})) {
        EXPECT_EQ(result_of(operation, {0, x}), 0) << operation.name;
      }
      if (keeps({false, true})) {
        EXPECT_EQ(result_of(operation, {x, 0}), 0) << operation.name;
      }
    }
  }
}

TEST(Updates, LeaveOldValuesToThoseWhoReadThem) {
  Graph g;
  const Value w = g.parameter("w", {10, 40}, Initial::normal(1)), s = g.state("s", w.type());
  const Value loss = mean(square(linear(g.input("x", {5, 40}), w)));
  g.output("loss", loss);
  add_training(loss, {.optimizer = Adam{.epsilon = 1e-2}});
  g.output("w before", w);
  g.output("transpose", transpose(w));
  g.output("gradient", g.find("w.gradient"));
  g.assign(s, w);
  WideArrays inputs = random_inputs(g);
  inputs["lr"] = {0.5}, inputs["step"] = {1};
  expect_like_float64(g, inputs);
}

TEST(Updates, GiveGradientsThatAreAssigned) {
  Graph g;
  const Value w = g.parameter("w", {10, 40}, Initial::normal(1)), s = g.state("s", w.type());
  const Value loss = mean(square(linear(g.input("x", {5, 40}), w)));
  g.output("loss", loss);
  add_training(loss);
  g.assign(s, g.find("w.gradient"));
  WideArrays inputs = random_inputs(g);
  inputs["lr"] = {0.5};
  expect_like_float64(g, inputs);
}

TEST(Updates, WithoutAssignmentChangeNothing) {
  Graph g;
  const Value w = g.parameter("w", {3, 4}, Initial::normal(1));
  g.output("y", g.apply("sgd", {g.input("gradient", {3, 4}), g.input("lr", Shape{}), w})[0]);
  expect_like_float64(g);
}

TEST(State, IsSetAtOnce) {
  Graph g;
  const TensorType type{Type::f32, {3, 4}, {}, {}};
  const Value a = g.state("a", type, Initial::normal(1)), b = g.state("b", type, Initial::normal(1));
  const Value c = g.state("c", type);
  g.assign(a, b);
  g.assign(b, a);
  g.assign(c, a);
  g.output("sum", a + b);
  expect_like_float64(g, {});
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.assign(c, b); }), "c: it is set already"));
}

TEST(Sessions, ThatShareParametersMayStoreThemOtherwise) {
  Graph training;
  const Value w = training.parameter("w", {7, 5}, Initial::normal(1));
  const Value loss = mean(square(permute_features(w, {4, 3, 2, 1, 0})));
  training.output("loss", loss);
  add_training(loss);
  Graph evaluation;
  const Value same = evaluation.parameter("w", {7, 5});
  evaluation.output("y", linear(evaluation.input("x", {2, 5}), same) + sum(same));
  Session owner(training, Machine::host(2)), shared(evaluation, owner);
  WideArrays inputs = random_inputs(evaluation), state = widened(owner.state());
  const Array expected = evaluate(evaluation, inputs, state).at("y");
  const std::vector<float> found = shared.run(narrowed(inputs)).at("y");
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4);
  EXPECT_TRUE(says(error_of<UsageError>([&] { Session(evaluation, shared); }), "give the one that has them"));
}

TEST(Sessions, ChangePatternsBetweenRunsOfOtherThreads) {
  const Pattern patterns[] = {sparse::generate_pattern({PatternKind::random, 64, 48, 0.25, 8, 3}),
                              sparse::generate_pattern({PatternKind::random, 64, 48, 0.25, 8, 4})};
  Graph g;
  const Value w = g.sparse_parameter("w", patterns[0], Initial::constant(1), Type::f32,
                                     patterns[0].blocks() + patterns[1].blocks());
  g.output("y", linear(g.input("x", {3, 48}), w));
  const Arrays inputs = narrowed(random_inputs(g));
  Session session(g, Machine::host(2));
  const std::vector<float> first = session.run(inputs).at("y");
  // Blocks that both patterns have keep their values, and new ones are 0: only these remain.
  session.set_pattern("w", patterns[1]);
  session.set_pattern("w", patterns[0]);
  const std::vector<float> common = session.run(inputs).at("y");
  EXPECT_NE(first, common);
  constexpr int kTimes = 300;
  std::atomic<int> changes = 0;
  std::atomic<bool> done = false;
  std::thread other([&] {
    for (; !done; ++changes)
      for (const Pattern& pattern : patterns) session.set_pattern("w", pattern);
  });
  for (int i = 0; i < kTimes || changes < kTimes; ++i) ASSERT_EQ(session.run(inputs).at("y"), common);
  done = true;
  other.join();
}

TEST(Sessions, TakeNewPatternsInEveryProduct) {
  for (const uint32_t block : {1U, 8U}) {
    const Pattern patterns[] = {sparse::generate_pattern({PatternKind::random, 64, 48, 0.25, block, 3}),
                                sparse::generate_pattern({PatternKind::random, 64, 48, 0.25, block, 4})};
    const auto graph_of = [&](const Pattern& pattern, std::optional<uint64_t> capacity) {
      Graph g;
      const Value x = g.input("x", {3, 48});
      const Value w = g.sparse_parameter("w", pattern, Initial::normal(1), Type::f32, capacity);
      const Value loss = sum(square(linear(x, w)));
      g.output("loss", loss);
      const auto found = gradients(loss, {x, w});
      g.output("dx", *found[0]);
      g.output("dw", *found[1]);
      return g;
    };
    for (const char* machine : {"host", "bow"}) {
      SCOPED_TRACE(fmt::format("block {}, {}", block, machine));
      const Graph g = graph_of(patterns[0], 2 * std::max(patterns[0].blocks(), patterns[1].blocks()));
      Session session(g, Machine::find(machine, 2));
      const WideArrays inputs = random_inputs(g);
      session.run(narrowed(inputs));
      session.set_pattern("w", patterns[1]);
      const std::vector<float> w(patterns[1].blocks() * block * block, 0.5F);
      session.set("w", w);
      const Graph fresh = graph_of(patterns[1], {});
      WideArrays state = {{"w", Array(w.begin(), w.end())}};
      const Arrays found = session.run(narrowed(inputs));
      expect_each_near(found, evaluate(fresh, inputs, state), 1e-4);
    }
  }
}

/// A sparse matrix or its transpose as one factor of a product, with some number of matrices as the other.
struct SparseFactor {
  explicit SparseFactor(uint64_t seed) {
    test::Random random(seed);
    is_left = random.coin(), transposes_matrix = random.coin(), transposes_dense = random.coin();
    const auto size = [&] { return 16 + 8 * random.below(4); };
    const uint32_t m = size(), k = size(), n = 1 + random.below(20), b = random.one_of({1U, 4U, 8U});
    const auto stored = [](uint32_t rows, uint32_t cols, bool is_transposed) {
      return is_transposed ? Shape{cols, rows} : Shape{rows, cols};
    };
    shape = is_left ? stored(m, k, transposes_matrix) : stored(k, m, transposes_matrix);
    matrix.pattern = sparse::generate_pattern({PatternKind::random, shape[0], shape[1], 0.4, b, seed});
    for (uint64_t i = 0; i < matrix.pattern.blocks() * b * b; ++i) matrix.values.push_back(random.value());
    const uint64_t most = uint64_t{shape[0] / b} * (shape[1] / b);
    if (random.coin()) capacity = std::min(matrix.pattern.blocks() + 3, most);
    for (uint32_t i = random.below(3); i > 0; --i) leading.push_back(1 + random.below(3));
    dense = with_leading(is_left ? stored(k, n, transposes_dense) : stored(n, k, transposes_dense));
  }

  Shape with_leading(Shape of) const {
    of.insert(of.begin(), leading.begin(), leading.end());
    return of;
  }

  /// The product and its gradients, with the matrix as it is or as a dense one.
  Graph graph(bool is_sparse) const {
    Graph g;
    const Value x = g.input("x", dense);
    const Value w =
        is_sparse ? g.sparse_parameter("w", matrix.pattern, Initial::from(matrix.values), Type::f32, capacity)
                  : g.parameter("w", shape, Initial::from(sparse::to_dense(matrix)));
    const Value factor = is_sparse || leading.empty() ? w : expand(w, with_leading(shape));
    const Value y = is_left ? matmul(factor, x, transposes_matrix, transposes_dense)
                            : matmul(x, factor, transposes_dense, transposes_matrix);
    g.output("y", y);
    const auto found = gradients(sum(square(y)), {x, w});
    g.output("dx", *found[0]);
    g.output("dw", *found[1]);
    return g;
  }

  SparseMatrix matrix;
  std::optional<uint64_t> capacity;
  Shape shape, leading, dense;
  bool is_left = false, transposes_matrix = false, transposes_dense = false;
};

TEST(Products, OfSparseFactorsAreThoseOfDenseOnes) {
  for (uint64_t seed = 0; seed < 32; ++seed) {
    const SparseFactor factor(seed);
    const Graph graph = factor.graph(true), dense = factor.graph(false);
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, to_string(graph)));
    const WideArrays inputs = random_inputs(graph);
    const std::vector<float> w = sparse::to_dense(factor.matrix);
    const std::vector<float>& values = factor.matrix.values;
    WideArrays of_dense = {{"w", Array(w.begin(), w.end())}};
    WideArrays of_sparse = {{"w", Array(values.begin(), values.end())}};
    const WideArrays exact = evaluate(graph, inputs, of_sparse);
    WideArrays expected = evaluate(dense, inputs, of_dense);
    const Array dw = expected.extract("dw").mapped();
    expect_each_near(exact, expected, 1e-9);
    // The gradient of the matrix, where it has elements.
    SparseMatrix gradient = factor.matrix, is_stored = factor.matrix;
    gradient.values = narrowed(exact.at("dw"));
    std::ranges::fill(is_stored.values, 1.0F);
    const std::vector<float> found = sparse::to_dense(gradient), stored = sparse::to_dense(is_stored);
    for (size_t i = 0; i < dw.size(); ++i)
      EXPECT_NEAR(found[i], dw[i] * stored[i], 1e-4 * std::max(1.0, std::abs(dw[i]))) << "element " << i;
    for (const Machine& machine : {Machine::host(2), Machine::find("bow").with("tiles", 12)})
      expect_each_near(Session(graph, machine).run(narrowed(inputs)), exact, 1e-4);
  }
}

TEST(Products, OfTwoSparseFactorsAreRefused) {
  Graph g;
  const Value w = g.sparse_parameter("w", sparse::generate_pattern({PatternKind::random, 8, 8, 0.5, 1, 1}));
  const auto refuses = [&](const auto& call) {
    EXPECT_TRUE(says(error_of<UsageError>(call), "beside a sparse matrix the other factor is dense"));
  };
  refuses([&] { matmul(w, w); });
  refuses([&] { matmul(w, g.input("x", {8})); });
  EXPECT_TRUE(says(error_of<UsageError>([&] { matmul(g.input("y", {3, 7}), w); }), "does not match"));
}

TEST(Gradients, AreRefusedWhereThereAreNone) {
  Graph g;
  const Value w = g.parameter("w", {3, 4}, Initial::normal(1));
  const Value gradient = *gradients(sum(relu(w)), {w})[0];
  EXPECT_TRUE(says(error_of<UsageError>([&] { gradients(sum(gradient * gradient), {w}); }),
                   "relu_gradient(…) has no gradient"));
  const std::vector<Value> both = g.apply("cross_entropy", {w, g.input("labels", {3}, Type::u32)});
  EXPECT_TRUE(
      says(error_of<UsageError>([&] { gradients(sum(both[1]), {w}); }), "cross_entropy: its second output"));
}

TEST(Replicas, HaveArraysForAllTheirRows) {
  Graph g;
  const Value x = g.input("x", {3, 8}), w = g.parameter("w", {4, 8}, Initial::normal(1));
  const Value y = linear(x, w), loss = mean(square(y));
  g.output("y", y);
  g.output("loss", loss);
  add_training(loss, {.replicas = 4});
  Session session(g, Machine::find("m2000").with("tiles", 8));
  for (const ArrayType& array : session.arrays()) {
    const std::map<std::string, Shape> shapes = {{"x", {12, 8}}, {"y", {12, 4}}, {"loss", {}}, {"lr", {}}};
    EXPECT_EQ(array.type.shape, shapes.at(array.name));
    EXPECT_EQ(array.is_input, array.name != "y" && array.name != "loss");
  }
  const Arrays inputs =
      narrowed(WideArrays{{"x", random_values({Type::f32, {12, 8}, {}, {}}, -1, 1, 1, 5, 0)}, {"lr", {0.5}}});
  EXPECT_EQ(session.run(inputs).at("y").size(), 48);
}

TEST(Replicas, TakeMeansOfMeans) {
  Graph g;
  const Value x = g.input("x", {2, 8});
  Value y = mean_over_replicas(x);
  y = mean_over_replicas(y);
  g.output("y", y);
  g.replicate(2);
  const Arrays inputs =
      narrowed(WideArrays{{"x", random_values({Type::f32, {4, 8}, {}, {}}, -1, 1, 1, 5, 0)}});
  const std::vector<float>& given = inputs.at("x");
  const std::vector<float> found =
      Session(g, Machine::find("m2000").with("chips", 2).with("tiles", 8)).run(inputs).at("y");
  for (size_t i = 0; i < 16; ++i) EXPECT_FLOAT_EQ(found[i], (given[i] + given[i + 16]) / 2);
}

TEST(Replicas, TakeAllMeansThatCanBeTakenAtOnceInOneCollective) {
  Graph g;
  const Value x = g.input("x", {2, 8}), z = g.input("z", {3, 4});
  for (const Value& value : {x, relu(x), z, square(z)})
    g.output("mean " + std::to_string(value.id), mean_over_replicas(value));
  g.replicate(2);
  const Session session(g, Machine::find("m2000").with("chips", 2).with("tiles", 8));
  uint32_t collectives = 0;
  const std::string program = session.program();
  for (size_t at = 0; (at = program.find("all-reduce", at)) != std::string::npos; ++at) ++collectives;
  EXPECT_EQ(collectives, 1u) << program;
}

/// Batch norm of a group's rows, with the gradient through their mean.
TEST(Replicas, TakeMeansInGroups) {
  const auto centred = [](uint32_t replicas, uint32_t rows, uint32_t group) {
    Graph g;
    const Value x = g.input("x", {rows, 4}), w = g.parameter("w", {4}, Initial::constant(1));
    const Value scaled = x * w;
    const Value all = replicas == 1 ? mean(scaled, {0}) : mean_over_replicas(mean(scaled, {0}), group);
    g.output("y", scaled - all);
    const Value loss = mean(square(scaled - all) * x);
    g.output("loss", loss);
    add_training(loss, {.replicas = replicas});
    return g;
  };
  const TensorType all_rows{Type::f32, {8, 4}, {}, {}};
  const WideArrays inputs = {{"x", random_values(all_rows, -1, 1, 1, 5, 0)}, {"lr", {0.5}}};
  WideArrays trained = {{"w", {1, 1, 1, 1}}};
  const WideArrays found = evaluate(centred(4, 2, 2), inputs, trained);
  // Two graphs of four rows are the two groups of a graph of four replicas.
  WideArrays mean_of_both = {{"w", {0, 0, 0, 0}}};
  for (size_t half = 0; half < 2; ++half) {
    WideArrays own = inputs, w = {{"w", {1, 1, 1, 1}}};
    const Array& x = inputs.at("x");
    own["x"].assign(x.begin() + static_cast<ptrdiff_t>(half * 16),
                    x.begin() + static_cast<ptrdiff_t>(half * 16 + 16));
    const WideArrays expected = evaluate(centred(1, 4, 0), own, w);
    for (size_t i = 0; i < 16; ++i) EXPECT_NEAR(found.at("y")[half * 16 + i], expected.at("y")[i], 1e-12);
    for (size_t i = 0; i < 4; ++i) mean_of_both["w"][i] += w.at("w")[i] / 2;
  }
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(trained.at("w")[i], mean_of_both.at("w")[i], 1e-12);
  Session session(centred(4, 2, 2), Machine::find("m2000").with("tiles", 8));
  const Arrays run = session.run(narrowed(inputs));
  for (size_t i = 0; i < 32; ++i) EXPECT_NEAR(run.at("y")[i], found.at("y")[i], 1e-6);
  const std::vector<float> w = session.get("w");
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(w[i], trained.at("w")[i], 1e-6);
}

TEST(Replicas, AreWholeGroups) {
  const auto grouped = [](uint32_t group) {
    Graph g;
    const Value x = g.input("x", {1, 4});
    g.output("y", sum_over_replicas(x, group));
    g.output("z", sum_over_replicas(square(x), 1));
    g.replicate(4);
    return g;
  };
  const Machine machine = Machine::find("m2000").with("tiles", 4);
  EXPECT_USAGE_ERROR("sum_over_replicas: groups of 3 replicas, of which there are 4",
                     Session(grouped(3), machine));
  const Arrays inputs = {{"x", {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, 1, 2, 0, 3, -5, -8}}};
  const Arrays found = Session(grouped(2), machine).run(inputs);
  EXPECT_EQ(found.at("y"), (std::vector<float>{6, 8, 10, 12, 6, 8, 10, 12, -1, 1, -4, -6, -1, 1, -4, -6}));
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(found.at("z")[i], inputs.at("x")[i] * inputs.at("x")[i]);
}

/// A group's mean is not that of all replicas, whose parameters must stay equal.
TEST(Replicas, DoNotTakeStateFromGroups) {
  Graph g;
  const Value x = g.input("x", {1, 4}), w = g.parameter("w", {1, 4}, Initial::constant(1));
  g.assign(w, mean_over_replicas(x, 2));
  g.replicate(4);
  EXPECT_USAGE_ERROR("replicas would set it to values of their own",
                     Session(g, Machine::find("m2000").with("tiles", 4)));
}

TEST(Replicas, TakeMeansInEachMicroBatch) {
  Graph g;
  const Value x = g.input("x", {1, 4}), w = g.parameter("w", {1, 4}, Initial::constant(1));
  const Value loss = mean(square(mean_over_replicas(x) - w));
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 2, .replicas = 2});
  const WideArrays inputs = {{"x", {1, 2, 3, 4, 5, 6, 7, 8, -1, -2, 1, 2, 0, 3, -5, -8}}, {"lr", {0.5}}};
  WideArrays state = {{"w", {1, 1, 1, 1}}};
  const double expected = evaluate(g, inputs, state).at("loss")[0];
  EXPECT_NEAR(expected, (1 + 1 + 1 + 4 + 2.25 + 12.25 + 0 + 1) / 8, 1e-12);
  Session session(g, Machine::find("m2000").with("chips", 2).with("tiles", 4));
  EXPECT_NEAR(session.run(narrowed(inputs)).at("loss")[0], expected, 1e-5);
}

TEST(Replicas, DrawRandomNumbersOfTheirOwn) {
  Graph g;
  const Value x = g.input("x", {4, 8});
  g.output("y", dropout(x, 0.5, g.input("step", {}, Type::u32), 7));
  g.replicate(2);
  Session session(g, Machine::find("m2000").with("chips", 2).with("tiles", 8));
  const WideArrays inputs = {{"x", Array(64, 1)}, {"step", {3}}};
  WideArrays state;
  const Array expected = evaluate(g, inputs, state).at("y");
  const std::vector<float> found = session.run(narrowed(inputs)).at("y");
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), found.begin(), found.end()));
  EXPECT_FALSE(std::equal(found.begin(), found.begin() + 32, found.begin() + 32));
}

TEST(Replicas, DoNotSetStateToValuesOfTheirOwn) {
  Graph g;
  const Value x = g.input("x", {3, 8}), s = g.state("s", x.type());
  g.assign(s, x);
  g.output("y", x + s);
  g.replicate(2);
  EXPECT_TRUE(says(error_of<UsageError>([&] { Session(g, Machine::find("m2000").with("chips", 2)); }),
                   "s: replicas would set it to values of their own"));
}

TEST(MicroBatches, HaveTheirRowsInInputsThatNothingUsesToo) {
  Graph g;
  const Value w = g.parameter("w", {8}, Initial::normal(1)), unused = g.input("unused", {3, 8});
  relu(unused);
  const Value loss = mean(square(g.input("x", {3, 8}) * w));
  g.output("loss", loss);
  add_training(loss, {.micro_batches = 2});
  Session session(g, Machine::host(1));
  EXPECT_EQ(session.graph().bound_type(unused.id).shape, (Shape{6, 8}));
  EXPECT_EQ(g.bound_type(unused.id).shape, (Shape{6, 8}));
  session.run(Arrays{{"x", std::vector<float>(48)}, {"unused", std::vector<float>(48)}, {"lr", {0.5F}}});
  EXPECT_EQ(relu(unused).shape(), (Shape{6, 8})) << "all of them";
  EXPECT_TRUE(says(error_of<UsageError>([&] { relu(loss); }), "is not a value of the graph any longer"));
}

TEST(Features, AreTakenToAllTilesEqually) {
  for (const auto& [rows, places, tiles] : {std::tuple{12U, 8U, 4U}, {16U, 4U, 32U}, {64U, 2U, 16U}}) {
    SCOPED_TRACE(::testing::Message() << places << " places, " << rows << " rows, " << tiles << " tiles");
    Graph g;
    const Value x = g.input("x", {rows, 64});
    std::vector<uint32_t> taken;
    for (uint32_t i = 0; i < places; ++i) taken.push_back(63 - 3 * (i % 20));
    g.output("y", relu(select_features(x, taken)));
    const uint64_t even = sizeof(float) * rows * (64 + 2 * places) / tiles;
    const RunCost cost = Session(g, Machine::find("bow").with("tiles", tiles)).cost();
    EXPECT_EQ(cost.tiles.size(), tiles);
    for (const auto& tile : cost.tiles) EXPECT_EQ(tile.at("activation"), even);
  }
}

TEST(Structured, TakesRowsOfFeaturesThatAreNotSparse) {
  Graph g;
  const Value c = g.parameter("c", {16});
  const Value scalar = g.input("scalar", Shape{}), integers = g.input("integers", {3, 16}, Type::u32);
  const Value matrix =
      g.sparse_parameter("matrix", sparse::generate_pattern({PatternKind::random, 16, 16, 0.5, 4, 1}));
  for (const Value& x : {scalar, matrix})
    EXPECT_TRUE(says(error_of<UsageError>([&] { circulant(x, c); }), "it must be [..., features]"));
  EXPECT_TRUE(says(error_of<UsageError>([&] { circulant(integers, c); }), "use f32, f16 or bf16"));
}

TEST(Graphs, RefuseValuesOfOthers) {
  Graph g, other;
  const Value w = g.parameter("w", {3, 4});
  for (int i = 0; i < 100; ++i) other.input(fmt::format("x{}", i), {2});
  const Value far = other.value(99);
  const auto refuses = [](const auto& use) {
    EXPECT_TRUE(says(error_of<UsageError>(use), "belongs to another graph"));
  };
  refuses([&] { gradients(sum(w), {far}); });
  refuses([&] { add_training(sum(w), {.frozen = {far}}); });
  refuses([&] { add_training(sum(w), {.groups = {{.parameters = {far}, .lr_scale = 2}}}); });
  refuses([&] { g.state("s", w.type(), {}, far); });
  refuses([&] { g.rename(far, "y"); });
  EXPECT_TRUE(says(error_of<UsageError>([] { add_training(Value{}); }), "a value of no graph"));
}

TEST(Graphs, RefuseWhatTheyDoNotHave) {
  Graph g;
  const Value x = g.input("x", {2});
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.replace_output("y", x); }), "no output 'y'"));
  g.output("y", x);
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.rename(x, "y"); }), "the name of an output"));
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.call(nullptr, {}); }), "there is no function"));
}

TEST(Graphs, RefuseTypesThatContradictThemselves) {
  const auto pattern =
      std::make_shared<const Pattern>(sparse::generate_pattern({PatternKind::random, 64, 48, 0.25, 8, 3}));
  Graph g;
  const Value w = g.parameter("w", {10, 40});
  const auto error = [&](const TensorType& type, std::optional<Value> of = {}) {
    return error_of<UsageError>([&] { g.state("s", type, {}, of); });
  };
  EXPECT_TRUE(says(error({Type::f32, {3, 4}, pattern, {}}), "the pattern is 64 × 48; the shape [3, 4]"));
  EXPECT_TRUE(says(error({Type::f32, {64, 48}, pattern, 1}), "its capacity is 1"));
  EXPECT_TRUE(says(error({Type::f32, {64, 48}, {}, 100}), "only a sparse value has a capacity"));
  EXPECT_TRUE(says(error({Type::f32, {3}, {}, {}}, w), "f32[3] cannot belong to w, which is f32[10, 40]"));
}

TEST(Graphs, RefuseSizesThatWrapAround) {
  Graph g;
  const Value half = g.input("half", {2, 3}), most = g.input("most", {0xFFFFFFFF});
  EXPECT_TRUE(says(error_of<UsageError>([&] { concatenate({most, g.input("six", {6})}, 0); }), "2^32 - 1"));
  EXPECT_TRUE(says(error_of<UsageError>([&] {
                     g.apply("reshape", {half}, {{"shape", std::vector<int64_t>{(int64_t{1} << 32) + 6}}});
                   }),
                   "a size of 4294967302"));
  EXPECT_EQ(reshape(most, {1, 0xFFFFFFFF}).type().elements(), 0xFFFFFFFF);
  EXPECT_TRUE(says(error_of<UsageError>([&] {
                     g.apply("expand", {half}, {{"shape", std::vector<int64_t>{-1, 3}}});
                   }),
                   "a size of -1"));
  relu(half);
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.repeat_for_micro_batches(1U << 31); }), "2^32 - 1 elements"));
  Graph replicated;
  const Value x = replicated.input("x", {2, 3});
  replicated.replicate(1U << 31);
  EXPECT_TRUE(says(error_of<UsageError>([&] { replicated.bound_type(x.id); }), "2^32 - 1 elements"));
}

TEST(Sessions, RefuseSparseInputs) {
  Graph g;
  const TensorType type{
      Type::f32,
      {64, 48},
      std::make_shared<const Pattern>(sparse::generate_pattern({PatternKind::random, 64, 48, 0.25, 8, 3})),
      {}};
  g.output("y", linear(g.input("x", {3, 48}), g.input("w", type)));
  for (const char* machine : {"host", "bow"})
    EXPECT_TRUE(says(error_of<UsageError>([&] { Session(g, Machine::find(machine)); }), "'w' is sparse"));
}

TEST(Functions, AreThoseThatWereCalled) {
  const auto function = std::make_shared<Graph>();
  const Value x = function->input("x", {3, 4});
  function->output("y", x * 2);
  Graph g;
  const Value y = g.call(function, {g.input("x", {3, 4})})[0];
  function->output("a", relu(x));
  g.output("y", y);
  const std::vector<Value> both = g.call(function, {y});
  ASSERT_EQ(both.size(), 2);
  g.output("a", both[0]);
  g.output("four", both[1]);
  expect_like_float64(g);
  EXPECT_TRUE(says(error_of<UsageError>([&] { function->call(function, {x}); }), "cannot call itself"));
}

TEST(Functions, HaveNoReplicas) {
  const auto function = std::make_shared<Graph>();
  function->output("y", relu(function->input("x", {3, 4})));
  function->replicate(2);
  Graph g;
  EXPECT_TRUE(says(error_of<UsageError>([&] {
                     g.call(function, {g.input("x", {3, 4})});
                   }),
                   "a function cannot have replicas"));
}

TEST(Functions, HaveNoMeansOverAStep) {
  const auto function = std::make_shared<Graph>();
  function->output("y", mean_over_step(function->input("x", Shape{})));
  Graph g;
  EXPECT_USAGE_ERROR("a function cannot have 'mean_over_step'", g.call(function, {g.input("x", Shape{})}));
}

/// Also within their loops.
TEST(Functions, HaveMeansOverReplicas) {
  const auto body = std::make_shared<Graph>(), function = std::make_shared<Graph>();
  body->output("y", mean_over_replicas(body->input("x", {2, 8})));
  const Loop twice{.count = 2, .carried = {{"x", "y"}}};
  function->output("y", function->loop(body, {function->input("x", {2, 8})}, twice)[0]);
  Graph g;
  const Value x = g.input("x", {2, 8});
  g.output("called", g.call(body, {x})[0]);
  g.output("again", g.call(body, {relu(x)})[0]);
  g.output("called loop", g.call(function, {x})[0]);
  g.output("loop", g.loop(body, {x}, twice)[0]);
  g.replicate(2);
  const WideArrays inputs = random_inputs(g);
  WideArrays state;
  const WideArrays expected = evaluate(g, inputs, state);
  const Array& given = inputs.at("x");
  for (const char* name : {"called", "called loop", "loop"})
    for (size_t i = 0; i < 16; ++i)
      for (const size_t replica : {0U, 16U})
        EXPECT_NEAR(expected.at(name)[replica + i], (given[i] + given[16 + i]) / 2, 1e-12) << name;
  for (const Machine& machine : {Machine::host(2), Machine::find("m2000").with("chips", 2).with("tiles", 8)})
    expect_each_near(Session(g, machine).run(narrowed(inputs)), expected, 1e-6);
}

TEST(Functions, HaveNoPartsOfValues) {
  const auto function = std::make_shared<Graph>();
  function->output("y", function->apply("shard", {function->input("x", {2, 8})})[0]);
  Graph g;
  EXPECT_USAGE_ERROR("a function that is called cannot have 'shard'",
                     g.call(function, {g.input("x", {2, 8})}));
}

TEST(Functions, NameNoStages) {
  const auto inner = std::make_shared<Graph>(), outer = std::make_shared<Graph>();
  inner->output("y", relu(inner->input("x", {3, 4})));
  outer->output("y", outer->call(inner, {outer->input("x", {3, 4})}, {.stage = 1})[0]);
  Graph g;
  const Value x = g.input("x", {3, 4});
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.call(outer, {x}); }), "a function cannot name stages"));
  EXPECT_EQ(g.loop(outer, {x}, {.count = 2}).size(), 1);
}

TEST(Updates, TakeARateThatIsAWeight) {
  Graph g;
  const Value rate = g.parameter("rate", {1, 1}, Initial::constant(0.5)), w = g.parameter("w", {3, 4});
  g.output("product", linear(g.input("x", {5, 1}), rate));
  g.output("updated", g.apply("sgd", {g.input("gradient", {3, 4}), rate, w})[0]);
  expect_like_float64(g);
}

/// A dynamic weight that later has fewer blocks.
struct Shrinking {
  Pattern many = sparse::generate_pattern({PatternKind::random, 64, 48, 0.5, 8, 3});
  Pattern few = sparse::generate_pattern({PatternKind::random, 64, 48, 0.1, 8, 4});

  Value weight(Graph& g, const std::string& name = "w") const {
    return g.sparse_parameter(name, many, Initial::normal(1), Type::f32, many.blocks());
  }
};

TEST(Sessions, ThatSharePatternsForgetOldGradients) {
  const Shrinking s;
  Graph training, evaluation;
  training.output("y", linear(training.input("x", {3, 48}), s.weight(training)));
  const Value w = s.weight(evaluation), x = evaluation.input("x", {3, 48});
  const Value gradient = *gradients(sum(square(linear(x, w))), {w})[0];
  evaluation.output("norm", evaluation.apply("sum_of_squares", {gradient}, {{"over", "all"}})[0]);
  const Value last = evaluation.state("last", w.type(), {}, w);
  evaluation.assign(last, gradient);
  const Arrays inputs = narrowed(random_inputs(evaluation));
  for (const char* machine : {"host", "bow"}) {
    SCOPED_TRACE(machine);
    Session owner(training, Machine::find(machine, 2)), shared(evaluation, owner);
    shared.run(inputs);
    const std::vector<float> before = shared.get("last");
    owner.set_pattern("w", s.few);
    Session fresh(evaluation, owner);
    const float expected = fresh.run(inputs).at("norm")[0];
    EXPECT_NEAR(shared.run(inputs).at("norm")[0], expected, 1e-5F * expected);
    EXPECT_EQ(shared.get("last"), fresh.get("last"));
    EXPECT_EQ(before.size(), s.many.blocks() * 64);
  }
}

TEST(Sessions, ThatSharePatternsMoveTheirOwnState) {
  const Shrinking s;
  Graph training, evaluation;
  training.output("y", linear(training.input("x", {3, 48}), s.weight(training)));
  const Value w = s.weight(evaluation);
  evaluation.output("y", linear(evaluation.input("x", {3, 48}), w));
  evaluation.state("kept", w.type(), Initial::constant(2), w);
  for (const char* machine : {"host", "bow"}) {
    Session owner(training, Machine::find(machine, 2)), shared(evaluation, owner);
    owner.set_pattern("w", s.few);
    shared.run(narrowed(random_inputs(evaluation)));
    const std::vector<float> kept = shared.get("kept");
    ASSERT_EQ(kept.size(), s.few.blocks() * 64);
    std::set<std::pair<uint32_t, uint32_t>> known;
    for (uint32_t row = 0; row < s.many.block_rows(); ++row)
      for (uint64_t i = s.many.crow_indices[row]; i < s.many.crow_indices[row + 1]; ++i)
        known.emplace(row, s.many.col_indices[i]);
    for (uint32_t row = 0; row < s.few.block_rows(); ++row)
      for (uint64_t i = s.few.crow_indices[row]; i < s.few.crow_indices[row + 1]; ++i)
        EXPECT_EQ(kept[i * 64], known.contains({row, s.few.col_indices[i]}) ? 2 : 0) << machine;
  }
}

TEST(Sessions, DoNotMixPatternsThatMayDiffer) {
  const Shrinking s;
  Graph g;
  const Value first = s.weight(g, "first"), second = s.weight(g, "second"), x = g.input("x", {3, 48});
  g.output("y", linear(x, first) + linear(x, second));
  g.assign(first, second);
  for (const char* machine : {"host", "bow"})
    EXPECT_TRUE(says(error_of<UsageError>([&] { Session(g, Machine::find(machine, 2)); }),
                     "second: a sparse weight can only be combined"));
}

TEST(Sessions, HaveOutputsWithoutBlocks) {
  const Pattern none{64, 48, 8, std::vector<uint64_t>(9), {}};
  Graph g;
  const Value w = g.sparse_parameter("w", none, {}, Type::f32, 3);
  g.output("y", linear(g.input("x", {3, 48}), w));
  g.output("w itself", w);
  for (const char* machine : {"host", "bow"}) {
    Session session(g, Machine::find(machine, 2));
    const Arrays found = session.run(narrowed(random_inputs(g)));
    EXPECT_TRUE(found.at("w itself").empty());
    EXPECT_EQ(found.at("y"), std::vector<float>(3 * 64));
  }
}

TEST(Maxima, OfWhatIsNoNumberAreNone) {
  Graph g;
  const Value x = g.input("x", {2, 3});
  for (const std::vector<int>& dims : {std::vector<int>{}, {0}, {1}})
    g.output(fmt::format("max{}", dims.size() * 2 + (dims.empty() ? 0 : dims[0])), max(x, dims));
  const WideArrays inputs = {{"x", {NAN, 1, 2, 3, NAN, 5}}};
  WideArrays state;
  Session session(g, Machine::host(1));
  const Arrays found = session.run(narrowed(inputs));
  for (const auto& [name, expected] : evaluate(g, inputs, state))
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(std::isnan(found.at(name)[i]), std::isnan(expected[i])) << name << i;
}

TEST(Names, OfInputsAndOutputsDiffer) {
  Graph g;
  const Value x = g.input("x", {2, 2});
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.output("x", relu(x)); }), "has the name of an input"));
  g.output("y", x);
  EXPECT_TRUE(says(error_of<UsageError>([&] { g.input("y", {2, 2}); }), "has the name of an output"));
  Session session(g, Machine::host(1));
  EXPECT_EQ(session.run(Arrays{{"x", {1, 2, 3, 4}}}).at("y"), (std::vector<float>{1, 2, 3, 4}));
  float other = 0;
  EXPECT_TRUE(says(error_of<UsageError>([&] {
                     session.cost(std::vector<Tensor>{{"z", &other}});
                   }),
                   "'z' is neither an input nor an output"));
}

}  // namespace
}  // namespace tessera::graph
