// BERT on packed sequences: a pack gives what its sequences give one by one.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <tessera/bert.h>
#include <tessera/estimate.h>
#include <tessera/gradients.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "networks.h"
#include "sparse/generate.h"
#include "support/error_of.h"
#include "support/number_of.h"

namespace tessera::graph {
namespace {

constexpr BertConfig kConfig = {.vocab_size = 40,
                                .hidden_size = 24,
                                .num_hidden_layers = 2,
                                .num_attention_heads = 2,
                                .intermediate_size = 48,
                                .max_position_embeddings = 32,
                                .initializer_range = 0.4};

/// Tokens of a sequence, its predicted tokens, and whether its second sentence is the next one.
struct Sequence {
  std::vector<double> tokens, types, places, labels;
  double is_next = 0;
};

Sequence sequence(uint32_t length, uint32_t predictions, uint32_t seed) {
  const base::RandomStream random(seed, 0, 0);
  Sequence s;
  for (uint32_t i = 0; i < length; ++i) {
    s.tokens.push_back(random.word(i) % kConfig.vocab_size);
    s.types.push_back(i > length / 2 ? 1 : 0);
  }
  for (uint32_t i = 0; i < predictions; ++i) {
    s.places.push_back((1 + 2 * i) % length);
    s.labels.push_back(random.word(100 + i) % kConfig.vocab_size);
  }
  s.is_next = seed % 2;
  return s;
}

const std::vector<Sequence>& sequences() {
  static const std::vector<Sequence> all = {sequence(5, 1, 1), sequence(9, 4, 2), sequence(7, 2, 3),
                                            sequence(6, 3, 4)};
  return all;
}

using Packs = std::vector<std::vector<size_t>>;

/// A batch of packs of sequences, by their numbers; the rest is padding.
struct PackedBatch {
  using Rows = std::pair<size_t, size_t>;  ///< the first one, and their number

  BertBatch sizes;
  WideArrays arrays;
  std::vector<Rows> begins;  ///< by sequence: its tokens in the batch, its predictions, its pair of sentences
  std::vector<Rows> predictions;
  std::vector<Rows> pairs;

  explicit PackedBatch(const Packs& packs, BertBatch of, const std::vector<Sequence>& all = sequences())
      : sizes(of), begins(all.size()), predictions(all.size()), pairs(all.size()) {
    sizes.packs = static_cast<uint32_t>(packs.size());
    for (size_t p = 0; p < packs.size(); ++p) {
      size_t begin = 0, id = 0;
      for (const size_t number : packs[p]) {
        const Sequence& s = all[number];
        begins[number] = {p * sizes.tokens + begin, s.tokens.size()};
        predictions[number] = {arrays["masked_lm_labels"].size(), s.labels.size()};
        pairs[number] = {arrays["next_sentence_labels"].size(), 1};
        add("cls_positions", static_cast<double>(begin));
        add("next_sentence_labels", s.is_next);
        for (size_t i = 0; i < s.places.size(); ++i) {
          add("masked_lm_positions", static_cast<double>(begin) + s.places[i]);
          add("masked_lm_labels", s.labels[i]);
        }
        ++id;
        for (size_t i = 0; i < s.tokens.size(); ++i) {
          add("input_ids", s.tokens[i]);
          add("token_type_ids", s.types[i]);
          add("position_ids", static_cast<double>(i));
          add("sequence_ids", static_cast<double>(id));
        }
        begin += s.tokens.size();
      }
      for (const char* name : {"input_ids", "token_type_ids", "position_ids", "sequence_ids"})
        arrays[name].resize((p + 1) * sizes.tokens);
      arrays["cls_positions"].resize((p + 1) * sizes.sequences);
      arrays["masked_lm_positions"].resize((p + 1) * sizes.predictions);
      arrays["next_sentence_labels"].resize((p + 1) * sizes.sequences, kIgnoredLabel);
      arrays["masked_lm_labels"].resize((p + 1) * sizes.predictions, kIgnoredLabel);
    }
  }

  void add(const char* name, double value) { arrays[name].push_back(value); }
};

const BertBatch kPack = {.tokens = 29, .sequences = 4, .predictions = 12};
PackedBatch packed() { return PackedBatch({{0, 1, 2, 3}}, kPack); }
PackedBatch apart() {
  return PackedBatch({{0}, {1}, {2}, {3}}, {.tokens = 9, .sequences = 1, .predictions = 4});
}

struct Network {
  Graph graph;
  Bert bert;

  explicit Network(const BertBatch& batch, BertOptions options = {}, const BertConfig& config = kConfig) {
    bert = bert_for_pretraining(graph, config, batch, options);
    graph.output("loss", bert.loss);
    graph.output("next_sentence_loss", bert.next_sentence_loss);
    graph.output("masked_lm_loss", *bert.masked_lm_loss);
  }
  void output_gradients() {
    std::vector<Value> parameters;
    for (ValueId id = 0; id < graph.values().size(); ++id)
      if (graph.info(id).kind == Kind::parameter) parameters.push_back(graph.value(id));
    const auto found = gradients(bert.loss, parameters);
    for (size_t i = 0; i < found.size(); ++i)
      graph.output("gradient of " + graph.info(parameters[i].id).name, *found[i]);
  }
};

/// With biases and scales as after some training.
WideArrays new_state_of(const Graph& graph) {
  WideArrays all = widened(initial_state(graph, 5));
  for (auto& [name, values] : all)
    for (size_t i = 0; i < values.size(); ++i) values[i] += 0.1 * std::sin(static_cast<double>(i));
  return all;
}

/// The same for all graphs of kConfig.
WideArrays state_of(const Graph& graph) {
  static const WideArrays state = new_state_of(graph);
  return state;
}

/// The results of a batch, with hidden states by sequence.
WideArrays results_of(const PackedBatch& batch, BertOptions options) {
  Network network(batch.sizes, options);
  network.graph.output("hidden", network.bert.hidden);
  network.output_gradients();
  WideArrays state = state_of(network.graph), found = evaluate(network.graph, batch.arrays, state);
  const Array hidden = found.extract("hidden").mapped();
  for (size_t s = 0; s < sequences().size(); ++s) {
    const auto begin = hidden.begin() + static_cast<int64_t>(batch.begins[s].first * kConfig.hidden_size);
    found[fmt::format("hidden of {}", s)] = {
        begin, begin + static_cast<int64_t>(batch.begins[s].second * kConfig.hidden_size)};
  }
  return found;
}

TEST(Bert, PacksGiveWhatTheirSequencesGiveApart) {
  for (const PackedAverage average : {PackedAverage::token, PackedAverage::sequence}) {
    SCOPED_TRACE(name_of(average));
    const WideArrays expected = results_of(apart(), {.average = average});
    EXPECT_GT(expected.size(), 40U);
    for (const Packs& packs : {Packs{{0, 1, 2, 3}}, Packs{{3, 1, 0, 2}}, Packs{{1, 0}, {2, 3}}})
      expect_near(results_of(PackedBatch(packs, kPack), {.average = average}), expected, 1e-10, 1e-2);
  }
}

TEST(Bert, AveragesDiffer) {
  std::set<double> losses;
  const PackedBatch batch({{0, 2}, {1, 3}}, kPack);
  for (const PackedAverage average : {PackedAverage::token, PackedAverage::sequence, PackedAverage::pack})
    losses.insert(std::round(1e6 * results_of(batch, {.average = average}).at("masked_lm_loss")[0]));
  EXPECT_EQ(losses.size(), 3U);
}

/// The same sequences apart, packed as if they were one, and packed with masks.
TEST(Bert, WithoutMasksTheLossIsWrong) {
  PackedBatch naive = packed();
  for (double& id : naive.arrays.at("sequence_ids")) id = std::min(id, 1.0);
  const double alone = results_of(apart(), {}).at("loss")[0];
  const double masked = results_of(packed(), {}).at("loss")[0];
  const double wrong = results_of(naive, {}).at("loss")[0];
  fmt::print("loss apart {:.4f}, packed naively {:.4f}, packed with masks {:.4f}\n", alone, wrong, masked);
  EXPECT_NEAR(masked, alone, 1e-10 * alone);
  EXPECT_GT(std::abs(wrong - alone), 0.01 * alone);
}

/// Neither padding to a pack's length nor places for other sequences change the results of a single sequence,
/// which fills its row and has no ignored label.
TEST(Bert, APackOfOneIsNoPacking) {
  const BertOptions options = {.average = PackedAverage::sequence};
  for (size_t s = 0; s < sequences().size(); ++s) {
    SCOPED_TRACE(fmt::format("sequence {}", s));
    const BertBatch own = {.tokens = static_cast<uint32_t>(sequences()[s].tokens.size()),
                           .predictions = static_cast<uint32_t>(sequences()[s].labels.size())};
    const WideArrays expected = results_of(PackedBatch(Packs{{s}}, own), options);
    EXPECT_GT(expected.size(), 40U);
    expect_near(results_of(PackedBatch(Packs{{s}}, kPack), options), expected, 1e-10, 1e-2);
  }
}

/// Losses of all micro-batches and replicas are divided once, by the total number of terms.
TEST(Bert, StepsOverMicroBatchesAndReplicasAreThoseOfTheWholeBatch) {
  const Packs packs = {{0, 1}, {2}, {3}, {1, 0, 3}};
  for (const PackedAverage average : {PackedAverage::token, PackedAverage::sequence, PackedAverage::pack}) {
    PackedBatch batch(packs, kPack);
    Network whole(batch.sizes, {.average = average});
    add_training(whole.bert.loss, {.optimizer = Sgd{}});
    batch.arrays["lr"] = {0.5};
    WideArrays expected_state = state_of(whole.graph);
    const WideArrays expected = evaluate(whole.graph, batch.arrays, expected_state);
    for (const auto& [micro_batches, replicas] : {std::pair(4U, 1U), {1U, 4U}, {2U, 2U}}) {
      SCOPED_TRACE(
          fmt::format("{}: {} micro-batches, {} replicas", name_of(average), micro_batches, replicas));
      BertBatch own = batch.sizes;
      own.packs = 4 / micro_batches / replicas;
      Network part(own, {.average = average});
      add_training(part.bert.loss,
                   {.optimizer = Sgd{}, .micro_batches = micro_batches, .replicas = replicas});
      WideArrays state = state_of(part.graph);
      expect_near(evaluate(part.graph, batch.arrays, state), expected, 1e-10);
      expect_near(state, expected_state, 1e-10);
    }
  }
}

/// A session's arrays in the types of their values.
class TypedArrays {
 public:
  TypedArrays(const Session& session, const WideArrays& inputs) {
    for (const ArrayType& array : session.arrays()) {
      std::vector<std::byte>& bytes = bytes_[array.name];
      bytes.resize(array.type.bytes());
      if (array.is_input)
        for (size_t i = 0; i < array.type.elements(); ++i)
          store(array.type.type, bytes.data() + i * size_of(array.type.type), inputs.at(array.name)[i]);
      tensors_.push_back({array.name, bytes.data()});
    }
  }
  std::span<const Tensor> tensors() const { return tensors_; }
  std::vector<float> floats(const std::string& name) const {
    const std::vector<std::byte>& bytes = bytes_.at(name);
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  static void store(Type type, std::byte* to, double value) {
    const auto number = static_cast<float>(value);
    const auto whole = static_cast<uint32_t>(type == Type::f32 ? 0 : value);
    std::memcpy(to, type == Type::f32 ? static_cast<const void*>(&number) : &whole, sizeof(float));
  }

  std::map<std::string, std::vector<std::byte>> bytes_;
  std::vector<Tensor> tensors_;
};

/// Trains on a batch for some steps, with dropout if it `drops`.
void expect_trains_as_in_float64(const Machine& machine, BertOptions options, bool drops,
                                 const TrainingOptions& training, uint32_t steps) {
  PackedBatch batch({{0, 1}, {3, 2}}, kPack);
  BertBatch own = batch.sizes;
  own.packs /= training.micro_batches;
  Graph graph;
  if (drops) options.step = graph.input("step", {}, Type::u32);
  const Bert bert = bert_for_pretraining(graph, kConfig, own, options);
  graph.output("loss", bert.loss);
  add_training(bert.loss, training);
  Session session(graph, machine);
  WideArrays state = state_of(graph);
  for (auto& [name, values] : widened(session.state())) state.try_emplace(name, values);
  session.set_state(narrowed(state));
  batch.arrays["lr"] = {0.05};
  for (double step = 1; step <= steps; ++step) {
    batch.arrays["step"].assign(training.micro_batches, step);
    const double expected = evaluate(graph, batch.arrays, state).at("loss")[0];
    TypedArrays arrays(session, batch.arrays);
    session.run(arrays.tensors());
    EXPECT_NEAR(arrays.floats("loss")[0], expected, 2e-5 * expected);
  }
  expect_near(session.state(), state, 2e-3, 1e-2);
}

TEST(Bert, TrainsOnMachinesAsInFloat64) {
  for (const bool drops : {false, true})
    for (const bool on_tiles : {false, true}) {
      SCOPED_TRACE(fmt::format("dropout {}, tiles {}", drops, on_tiles));
      const Machine machine = on_tiles ? Machine::find("gc200").with("tiles", 24) : Machine::host(2);
      // Gradients of keys' biases are 0 except for rounding, which an optimizer that normalises them would
      // magnify.
      expect_trains_as_in_float64(machine, {.head_slices = 2}, drops,
                                  {.optimizer = Sgd{.momentum = 0.9}, .micro_batches = on_tiles ? 1U : 2U},
                                  2);
    }
}

using RowsByName = std::map<std::string, std::vector<float>>;

/// Results of a batch by rows; the rows of a sequence can be set to 0.
class RowResults {
 public:
  RowResults(const BertConfig& config, const PackedBatch& batch, const WideArrays& inputs,
             const Machine& machine, uint32_t threads)
      : batch_(batch) {
    Graph graph;
    const Bert bert = bert_for_pretraining(graph, config, batch.sizes);
    const auto losses = [&](Value logits, const char* labels) {
      return cross_entropy(logits, reshape(graph.find(labels), {logits.shape()[0]}),
                           {.ignored = kIgnoredLabel, .reduction = LossReduction::none});
    };
    graph.output("hidden", bert.hidden);
    graph.output("masked_lm_logits", bert.masked_lm_logits.value());
    graph.output("masked_lm_losses", losses(bert.masked_lm_logits.value(), "masked_lm_labels"));
    graph.output("next_sentence_logits", bert.next_sentence_logits);
    graph.output("next_sentence_losses", losses(bert.next_sentence_logits, "next_sentence_labels"));
    Session session(graph, machine, {.threads = threads});
    session.set_state(narrowed(new_state_of(graph)));
    TypedArrays arrays(session, inputs);
    session.run(arrays.tensors());
    for (const auto& [name, id] : graph.outputs()) rows_[name] = arrays.floats(name);
  }

  RowsByName without(size_t sequence) const {
    RowsByName others = rows_;
    const BertBatch& sizes = batch_.sizes;
    const auto clear = [&](const char* name, uint32_t each, const PackedBatch::Rows& rows) {
      std::vector<float>& values = others.at(name);
      const size_t width = values.size() / (size_t{sizes.packs} * each);
      std::fill_n(values.begin() + static_cast<int64_t>(rows.first * width), rows.second * width, 0.0F);
    };
    clear("hidden", sizes.tokens, batch_.begins[sequence]);
    for (const char* name : {"masked_lm_logits", "masked_lm_losses"})
      clear(name, sizes.predictions, batch_.predictions[sequence]);
    for (const char* name : {"next_sentence_logits", "next_sentence_losses"})
      clear(name, sizes.sequences, batch_.pairs[sequence]);
    return others;
  }
  const RowsByName& all() const { return rows_; }

 private:
  const PackedBatch& batch_;
  RowsByName rows_;
};

/// Expects all other sequences to have the same bits, whatever the tokens of one sequence and the number of
/// threads, and returns their results. That sequence must not be the first of its pack, as unused places of
/// predictions point to the first token.
RowsByName expect_untouched(const BertConfig& config, const PackedBatch& batch, size_t changed,
                            uint32_t tiles) {
  SCOPED_TRACE(fmt::format("sequence {}, {} tiles", changed, tiles));
  WideArrays inputs = batch.arrays;
  const auto [begin, length] = batch.begins[changed];
  for (size_t i = 0; i < length; ++i)
    inputs.at("input_ids")[begin + i] = static_cast<double>(i % config.vocab_size);
  const Machine machine = Machine::host(tiles);
  const RowResults before(config, batch, batch.arrays, machine, tiles);
  const RowResults after(config, batch, inputs, machine, 1);
  const RowsByName others = before.without(changed), others_after = after.without(changed);
  for (const auto& [name, rows] : others) {
    SCOPED_TRACE(name);
    EXPECT_TRUE(others_after.at(name) == rows);
    EXPECT_FALSE(after.all().at(name) == before.all().at(name));
  }
  return others;
}

TEST(Bert, SequencesOfAPackDoNotTouchEachOther) {
  const std::vector<float> hidden = expect_untouched(kConfig, packed(), 1, 1).at("hidden");
  for (const uint32_t tiles : {2U, 3U})
    EXPECT_EQ(expect_untouched(kConfig, packed(), 1, tiles).at("hidden"), hidden);
}

constexpr BertConfig kLongConfig = {.vocab_size = kConfig.vocab_size,
                                    .hidden_size = 64,
                                    .num_hidden_layers = 2,
                                    .num_attention_heads = 2,
                                    .intermediate_size = 128,
                                    .max_position_embeddings = 512,
                                    .initializer_range = 0.2};

/// Two packs of 512 tokens, whose sequences begin and end within blocks of 16 tokens; the second has padding.
PackedBatch long_packs() {
  const std::vector<uint32_t> lengths = {150, 203, 97, 62, 31, 256, 219};
  std::vector<Sequence> all;
  for (const uint32_t length : lengths)
    all.push_back(sequence(length, length / 8, static_cast<uint32_t>(all.size()) + 1));
  return PackedBatch({{0, 1, 2, 3}, {4, 5, 6}}, {.tokens = 512, .sequences = 4, .predictions = 80}, all);
}

TEST(Bert, SequencesOfLongPacksDoNotTouchEachOther) {
  const PackedBatch batch = long_packs();
  for (const size_t changed : {1U, 3U, 6U})
    for (const uint32_t tiles : {1U, 2U, 3U}) expect_untouched(kLongConfig, batch, changed, tiles);
}

/// The cycles of attention on tiles, in an estimate.
double attention_cycles(const RunCost& cost) {
  double cycles = 0;
  for (const auto* operations : {&cost.operations, &cost.in_functions})
    for (const OperationCost& operation : *operations)
      if (operation.kind == OperationKind::attention && operation.cycles.contains("compute"))
        cycles += operation.cycles.at("compute");
  return cycles;
}

TEST(Bert, EstimatesWithIdsSkipWhatCannotAttend) {
  const PackedBatch batch(
      {{0, 1, 2, 3}}, {.tokens = 512, .sequences = 4, .predictions = 76},
      {sequence(128, 19, 1), sequence(128, 19, 2), sequence(128, 19, 3), sequence(128, 19, 4)});
  Network network(batch.sizes, {}, kLongConfig);
  add_training(network.bert.loss, {.optimizer = Sgd{}});
  const Machine machine = Machine::find("gc200").with("tiles", 128);
  const auto with = [&](std::vector<uint32_t> ids) {
    const std::vector<Tensor> known = {{"sequence_ids", ids.data(), ids.size()}};
    return estimate(network.graph, machine, {.inputs = known});
  };
  const Array& ids = batch.arrays.at("sequence_ids");
  const RunCost whole = estimate(network.graph, machine), packed = with({ids.begin(), ids.end()});
  const double most = attention_cycles(whole);
  EXPECT_GT(most, 0);
  EXPECT_NEAR(attention_cycles(with(std::vector<uint32_t>(512, 1))), most, 1e-6 * most);
  EXPECT_LT(attention_cycles(packed), 0.75 * most);
  EXPECT_LT(packed.seconds, whole.seconds);
}

/// Also where another pack has a token.
TEST(Bert, RefusesPlacesBeyondTheirPack) {
  const PackedBatch batch({{0, 1}, {2, 3}}, kPack);
  for (const auto& [name, each] :
       {std::pair("masked_lm_positions", kPack.predictions), {"cls_positions", kPack.sequences}})
    for (const auto& [entry, place] : {std::pair(0U, 29.0), {each, 4294967295.0}}) {
      SCOPED_TRACE(fmt::format("{} {} of {}", entry, place, name));
      Network network(batch.sizes);
      WideArrays inputs = batch.arrays, state = state_of(network.graph);
      inputs.at(name).at(entry) = place;
      EXPECT_THROW(evaluate(network.graph, inputs, state), UsageError);
      Session session(network.graph, Machine::host(2));
      TypedArrays arrays(session, inputs);
      EXPECT_USAGE_ERROR(fmt::format("comes from '{}' is not one of a dimension of 29", name),
                         session.run(arrays.tensors()));
    }
}

TEST(Bert, SlicesOfTheHeadGiveTheSame) {
  const WideArrays expected = results_of(packed(), {});
  expect_near(results_of(packed(), {.head_slices = 3}), expected, 1e-10, 1e-2);
}

/// Feed-forward parts one stage after their attention, beside the head, and with all layers after a stage
/// that has only embeddings.
const std::vector<BertOptions>& divided_layers() {
  static const std::vector<BertOptions> all = {
      {.layer_stages = {0, 1}, .feed_forward_stages = {1, 1}},
      {.layer_stages = {0, 1}, .feed_forward_stages = {0, 2}, .head_with_last_layer = true},
      {.layer_stages = {1, 1}, .feed_forward_stages = {1, 2}, .head_with_last_layer = true},
      {.layer_stages = {0, 1}, .head_with_last_layer = true},
  };
  return all;
}

TEST(Bert, LayersInPartsGiveTheSame) {
  const WideArrays expected = results_of(packed(), {});
  for (const BertOptions& options : divided_layers())
    expect_near(results_of(packed(), options), expected, 1e-12, 1e-2);
}

/// A layer whose parts share a stage stays one function.
TEST(Bert, OnlyPartsOnDifferentStagesAreApart) {
  for (const BertOptions& options : divided_layers()) {
    const Network network(kPack, options);
    const std::vector<Node>& nodes = network.graph.nodes();
    // The layers, one more for the layer in parts, and the loop of the head.
    EXPECT_EQ(std::ranges::count_if(nodes, [](const Node& node) { return node.body != nullptr; }),
              options.feed_forward_stages.empty() ? 3 : 4);
  }
  const Network alike(kPack, {.layer_stages = {0, 1}, .feed_forward_stages = {0, 1}});
  EXPECT_EQ(alike.graph.stage_places(), (std::vector<uint32_t>{0, 1, 0}));
  const Network beside(kPack, divided_layers()[1]);
  EXPECT_EQ(beside.graph.stage_places(), (std::vector<uint32_t>{0, 1, 0}));
}

TEST(Bert, LayersInPartsTrainInPipelines) {
  const Machine machine = Machine::find("m2000").with("chips", 2).with("tiles", 24);
  for (const uint32_t number : {0U, 1U, 2U})
    for (const bool drops : {false, true}) {
      if (!test::takes_half(2 * number + (drops ? 1 : 0))) continue;
      SCOPED_TRACE(fmt::format("{}, dropout {}", number, drops));
      BertOptions options = divided_layers()[number];
      options.recompute_layers = drops;
      expect_trains_as_in_float64(machine, options, drops,
                                  {.optimizer = Sgd{.momentum = 0.9},
                                   .micro_batches = 2,
                                   .pipeline = {PipelineKind::one_forward_one_backward}},
                                  1);
    }
}

TEST(Bert, TakesSparseWeights) {
  const std::string name = "bert.encoder.layer.1.intermediate.dense.weight";
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 48, 24, 0.5, 4, 3});
  for (const bool dynamic : {false, true}) {
    Network network(packed().sizes, {.patterns = {{name, pattern}}, .dynamic = dynamic});
    const TensorType& type = network.graph.find(name).type();
    ASSERT_TRUE(type.pattern);
    EXPECT_EQ(*type.pattern, pattern);
    EXPECT_EQ(type.capacity.has_value(), dynamic);
    add_training(network.bert.loss);
    PackedBatch batch = packed();
    batch.arrays["lr"] = {0.1};
    WideArrays state = widened(initial_state(network.graph, 3)), before = state;
    EXPECT_TRUE(std::isfinite(evaluate(network.graph, batch.arrays, state).at("loss")[0]));
    EXPECT_NE(state.at(name), before.at(name));
  }
}

/// Named numbers train like FP32, and 16-bit parameters and moments take half of the memory.
TEST(Bert, TrainsWithPublishedNumbers) {
  PackedBatch batch = packed();
  batch.arrays["lr"] = {0.01};
  std::map<std::string, std::map<std::string, uint64_t>> bytes;
  std::vector<float> of_fp32;
  for (const char* name : {"fp32", "bf16", "mlperf-v1", "mlperf-v2", "mlperf-slides"}) {
    SCOPED_TRACE(name);
    const Numbers numbers = numbers_named(name);
    Network network(batch.sizes, {.numbers = numbers});
    EXPECT_EQ(network.bert.hidden.type().type, numbers.products);
    // Betas of the submission to MLPerf 2.0: with a larger beta2, FP16 does not hold second moments.
    TrainingOptions training{.optimizer = Lamb{.beta1 = 0.55, .beta2 = 0.885}};
    set_numbers(training, numbers);
    add_training(network.bert.loss, training);
    const std::string parameter = "bert.encoder.layer.0.output.dense.weight";
    EXPECT_EQ(network.graph.find(parameter).type().type, numbers.parameters);
    EXPECT_EQ(network.graph.find(parameter + ".second_moment").type().type, numbers.state);
    Session session(network.graph, Machine::host(2), {.seed = 3});
    bytes[name] = session.cost().bytes;
    std::vector<float> losses;
    for (double step = 1; step <= 8; ++step) {
      batch.arrays["step"] = {step};
      TypedArrays arrays(session, batch.arrays);
      session.run(arrays.tensors());
      losses.push_back(arrays.floats("loss")[0]);
    }
    if (of_fp32.empty()) of_fp32 = losses;
    EXPECT_LT(losses.back(), losses.front());
    for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], of_fp32[i], 0.1F * of_fp32[i]) << i;
  }
  EXPECT_NEAR(bytes["mlperf-v1"]["parameter"], bytes["fp32"]["parameter"] / 2,
              bytes["fp32"]["parameter"] / 20);
  EXPECT_NEAR(bytes["mlperf-v2"]["optimizer"], bytes["fp32"]["optimizer"] / 2,
              bytes["fp32"]["optimizer"] / 20);
  EXPECT_USAGE_ERROR("unknown numbers 'fp8' (choose from fp32, bf16, mlperf-v1, mlperf-v2, mlperf-slides)",
                     numbers_named("fp8"));
}

TEST(Bert, RefusesWhatDoesNotFit) {
  const auto refuses = [](const std::string& what, const BertConfig& config, const BertBatch& batch,
                          const BertOptions& options = {}) {
    Graph graph;
    const std::string error =
        test::error_of<UsageError>([&] { bert_for_pretraining(graph, config, batch, options); });
    EXPECT_TRUE(test::says(error, what)) << error;
  };
  BertConfig odd = kConfig;
  odd.num_attention_heads = 5;
  refuses("num_attention_heads is 5", odd, kPack);
  for (const double p : {-0.1, 1.0, std::numeric_limits<double>::quiet_NaN()})
    for (const auto of : {&BertConfig::hidden_dropout_prob, &BertConfig::attention_probs_dropout_prob}) {
      BertConfig config = kConfig;
      config.*of = p;
      refuses(fmt::format("a dropout probability is {}; it must be in [0, 1)", p), config, kPack);
    }
  refuses("at most max_position_embeddings, 32", kConfig, {.tokens = 33});
  refuses("1 to its tokens, 8", kConfig, {.tokens = 8, .sequences = 0});
  refuses("the number of predictions in a pack is 9", kConfig, {.tokens = 8, .predictions = 9});
  refuses("head_slices is 5", kConfig, kPack, {.head_slices = 5});
  refuses("the stage of a layer is 2; it must be the stage of the layer before or the next one, 0 or 1",
          kConfig, kPack, {.layer_stages = {0, 2}});
  refuses(
      "the stage of a feed-forward part is 0; it must be the stage of the part before or the next one, 1 or "
      "2",
      kConfig, kPack, {.layer_stages = {0, 1}, .feed_forward_stages = {0, 0}});
  refuses("the number of feed-forward parts with a stage is 1; it must be the number of layers, 2", kConfig,
          kPack, {.layer_stages = {0, 1}, .feed_forward_stages = {1}});
  refuses("and layers have none", kConfig, kPack, {.feed_forward_stages = {0, 1}});
  refuses("and layers have none", kConfig, kPack, {.head_with_last_layer = true});
  const Pattern pattern = sparse::generate_pattern({PatternKind::random, 48, 24, 0.5, 4, 3});
  refuses("the weight is 24 × 24", kConfig, kPack,
          {.patterns = {{"bert.encoder.layer.0.attention.self.query.weight", pattern}}});
  refuses("is not a weight of the encoder", kConfig, kPack, {.patterns = {{"bert.pooler", pattern}}});
  EXPECT_TRUE(test::says(test::error_of<UsageError>([] { BertConfig::named("huge"); }),
                         "unknown size 'huge' of BERT (choose from tiny, mini"));
  EXPECT_EQ(BertConfig::named("large").num_attention_heads, 16U);
  EXPECT_EQ(packed_average_named("sequence"), PackedAverage::sequence);
}

}  // namespace
}  // namespace tessera::graph
