#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/bert.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "base/names.h"
#include "operations/constants.h"

namespace tessera::graph {
namespace {

struct NamedSize {
  std::string_view name;
  uint32_t layers, hidden;
};
constexpr NamedSize kSizes[] = {{"tiny", 2, 128},   {"mini", 4, 256},  {"small", 4, 512},
                                {"medium", 8, 512}, {"base", 12, 768}, {"large", 24, 1024}};
constexpr uint32_t kHeadSize = 64;
constexpr std::array<std::string_view, 3> kAverages = {"token", "sequence", "pack"};

void require_size(bool fits, std::string_view what, uint64_t size, std::string_view must) {
  if (!fits) throw UsageError(fmt::format("BERT: {} is {}; it must be {}", what, size, must));
}

void check_stages(const BertConfig& config, const BertOptions& options) {
  const std::vector<uint32_t>& stages = options.layer_stages;
  const std::vector<uint32_t>& feed_forward = options.feed_forward_stages;
  if (stages.empty() && (!feed_forward.empty() || options.head_with_last_layer))
    throw UsageError("BERT: parts of layers or the head share stages with layers, and layers have none");
  if (stages.empty()) return;
  if (options.dynamic)
    throw UsageError(
        "BERT: layers whose patterns may change are not functions, and have no stages: leave out one");
  require_size(stages.size() == config.num_hidden_layers, "the number of layers with a stage", stages.size(),
               fmt::format("the number of layers, {}", config.num_hidden_layers));
  require_size(feed_forward.empty() || feed_forward.size() == stages.size(),
               "the number of feed-forward parts with a stage", feed_forward.size(),
               fmt::format("the number of layers, {}", stages.size()));
  uint32_t before = 0;
  const auto follow = [&](uint32_t stage, std::string_view what) {
    require_size(stage == before || stage == before + 1, fmt::format("the stage of a {}", what), stage,
                 fmt::format("the stage of the {} before or the next one, {} or {}",
                             feed_forward.empty() ? "layer" : "part", before, before + 1));
    before = stage;
  };
  for (size_t i = 0; i < stages.size(); ++i) {
    follow(stages[i], "layer");
    if (!feed_forward.empty()) follow(feed_forward[i], "feed-forward part");
  }
}

void check(const BertConfig& config, const BertBatch& batch, const BertOptions& options) {
  check_stages(config, options);
  require_size(config.num_attention_heads > 0 && config.hidden_size % config.num_attention_heads == 0,
               "num_attention_heads", config.num_attention_heads,
               fmt::format("a divisor of hidden_size, {}", config.hidden_size));
  require_size(batch.tokens <= config.max_position_embeddings, "the number of tokens", batch.tokens,
               fmt::format("at most max_position_embeddings, {}", config.max_position_embeddings));
  require_size(batch.sequences > 0 && batch.sequences <= batch.tokens, "the number of sequences in a pack",
               batch.sequences, fmt::format("1 to its tokens, {}", batch.tokens));
  require_size(batch.predictions <= batch.tokens, "the number of predictions in a pack", batch.predictions,
               fmt::format("at most its tokens, {}", batch.tokens));
  for (const double p : {config.hidden_dropout_prob, config.attention_probs_dropout_prob})
    if (!(p >= 0 && p < 1))
      throw UsageError(fmt::format("BERT: a dropout probability is {}; it must be in [0, 1)", p));
  const uint64_t predictions = uint64_t{batch.packs} * batch.predictions;
  require_size(options.head_slices > 0 && predictions % options.head_slices == 0, "head_slices",
               options.head_slices, fmt::format("a divisor of the predictions of a batch, {}", predictions));
}

enum class Features : uint8_t { none, hidden, intermediate };

/// A parameter of a layer: its name after the layer's prefix, its size, and the initial value of vectors.
struct LayerParameter {
  std::string_view name;
  Features outputs = Features::hidden;
  Features inputs = Features::none;
  double initial = 0;
};
/// In the order in which a layer takes them.
constexpr LayerParameter kLayer[] = {
    {"attention.self.query.weight", Features::hidden, Features::hidden},
    {"attention.self.query.bias"},
    {"attention.self.key.weight", Features::hidden, Features::hidden},
    {"attention.self.key.bias"},
    {"attention.self.value.weight", Features::hidden, Features::hidden},
    {"attention.self.value.bias"},
    {"attention.output.dense.weight", Features::hidden, Features::hidden},
    {"attention.output.dense.bias"},
    {"attention.output.LayerNorm.weight", Features::hidden, Features::none, 1},
    {"attention.output.LayerNorm.bias"},
    {"intermediate.dense.weight", Features::intermediate, Features::hidden},
    {"intermediate.dense.bias", Features::intermediate},
    {"output.dense.weight", Features::hidden, Features::intermediate},
    {"output.dense.bias"},
    {"output.LayerNorm.weight", Features::hidden, Features::none, 1},
    {"output.LayerNorm.bias"},
};

/// The first parameters belong to attention, the others to the feed-forward part.
constexpr size_t kAttentionParameters = 10;

/// The part of a layer that a function computes.
enum class LayerPart : uint8_t { whole, attention, feed_forward };

/// Applies dropout to hidden values in a training step; without a step, returns them unchanged.
Value drop_out(Value x, const BertConfig& config, std::optional<Value> step, uint64_t seed) {
  return step && config.hidden_dropout_prob > 0 ? dropout(x, config.hidden_dropout_prob, *step, seed) : x;
}

/// A layer of the encoder, on values of any graph.
class EncoderLayer {
 public:
  /// Takes the parameters of the part that is computed; the feed-forward part needs no ids.
  EncoderLayer(const BertConfig& config, uint64_t seed, std::vector<Value> parameters,
               std::optional<Value> sequence_ids, std::optional<Value> step)
      : config_(config), seed_(seed), parameters_(std::move(parameters)), ids_(sequence_ids), step_(step) {}

  Value of(Value x, LayerPart part) {
    if (part != LayerPart::feed_forward) x = attended(x);
    return part == LayerPart::attention ? x : fed_forward(x);
  }

 private:
  Value attended(Value x) {
    const Value q = product(x), k = product(x), v = product(x);
    Attention how{.heads = config_.num_attention_heads, .query_ids = ids_, .key_ids = ids_, .seed = seed_};
    if (step_) how.dropout = config_.attention_probs_dropout_prob, how.step = step_;
    return normalised(x + dropped(product(attention(q, k, v, how))));
  }
  Value fed_forward(Value x) {
    const Value wide = gelu(product(x));
    return normalised(x + dropped(product(wide)));
  }

  Value next() { return parameters_.at(next_++); }
  Value product(Value x) {
    const Value weight = next();
    return linear(x, weight, next());
  }
  Value normalised(Value x) {
    const Value weight = next();
    return layer_norm(x, weight, next(), config_.layer_norm_eps);
  }
  Value dropped(Value x) const { return drop_out(x, config_, step_, seed_); }

  const BertConfig& config_;
  uint64_t seed_;
  std::vector<Value> parameters_;
  size_t next_ = 0;
  std::optional<Value> ids_, step_;
};

/// Each prediction's fraction of the average to which it belongs; 0 for positions without a label.
Value weights_of(Value labels, std::optional<Value> sequence_ids, PackedAverage average) {
  Graph& graph = labels.owner();
  const Value counts = cast(not_equal(labels, whole_number(graph, kIgnoredLabel)), Type::f32);
  const auto at_least_one = [&](Value number) { return maximum(number, graph.constant("", {}, {1})); };
  const uint32_t packs = labels.shape()[0], each = labels.shape()[1];
  if (average == PackedAverage::pack) return counts / at_least_one(sum(counts, {1}, true));
  if (average == PackedAverage::token || !sequence_ids) return counts;
  const Value same = cast(
      equal(reshape(*sequence_ids, {packs, each, 1}), reshape(*sequence_ids, {packs, 1, each})), Type::f32);
  return counts / at_least_one(sum(same * reshape(counts, {packs, 1, each}), {2}));
}

/// The sum of weighted losses of rows, divided by the sum of the weights of a whole step.
Value average_of(Value losses, Value weights) {
  Graph& graph = losses.owner();
  const Value all = mean_over_step(sum(weights));
  const Value zero = graph.constant("", {}, {0}), one = graph.constant("", {}, {1});
  return sum(losses * weights) / where(equal(all, zero), one, all);
}

class BertBuilder {
 public:
  BertBuilder(Graph& graph, const BertConfig& config, const BertBatch& batch, const BertOptions& options)
      : graph_(graph), config_(config), batch_(batch), options_(options) {}

  Bert build() {
    if (options_.numbers.partials) graph_.set_partial_sums({options_.numbers.partials});
    Bert bert;
    bert.hidden = encoder(embeddings());
    require_known_patterns();
    const Value tokens = reshape(bert.hidden, {batch_.packs * batch_.tokens, config_.hidden_size});
    add_next_sentence(bert, tokens);
    bert.loss = bert.next_sentence_loss;
    if (head_stage()) place_stages();
    if (batch_.predictions == 0) return bert;
    add_masked_lm(bert, tokens);
    bert.loss = *bert.masked_lm_loss + bert.next_sentence_loss;
    return bert;
  }

 private:
  Value input(const char* name, uint32_t each) { return graph_.input(name, {batch_.packs, each}, Type::u32); }
  /// Converts a parameter to the type in which products read it.
  Value read(Value parameter) const { return cast(parameter, options_.numbers.products); }
  Value parameter(const std::string& name, Shape shape, const Initial& initial) {
    return graph_.parameter(name, std::move(shape), initial, options_.numbers.parameters);
  }
  Value table(const std::string& name, Shape shape) {
    return parameter(name, std::move(shape), Initial::normal(config_.initializer_range));
  }
  Value weight(const std::string& name, Shape shape) { return read(table(name, std::move(shape))); }
  Value bias(const std::string& name, uint32_t size) { return read(parameter(name, {size}, {})); }
  Value product(Value x, const std::string& name, uint32_t outputs) {
    const Value w = weight(name + ".weight", {outputs, x.shape().back()});
    return linear(x, w, bias(name + ".bias", outputs));
  }
  Value scale(const std::string& name) {
    return read(parameter(name, {config_.hidden_size}, Initial::constant(1)));
  }

  Value embeddings() {
    const std::string of = "bert.embeddings.";
    const Value ids = input("input_ids", batch_.tokens), types = input("token_type_ids", batch_.tokens);
    const Value positions = input("position_ids", batch_.tokens);
    sequence_ids_ = input("sequence_ids", batch_.tokens);
    const uint32_t hidden = config_.hidden_size;
    words_ = table(of + "word_embeddings.weight", {config_.vocab_size, hidden});
    const Value place = table(of + "position_embeddings.weight", {config_.max_position_embeddings, hidden});
    const Value type = table(of + "token_type_embeddings.weight", {config_.type_vocab_size, hidden});
    const Value x =
        read(embedding(ids, *words_)) + read(embedding(types, type)) + read(embedding(positions, place));
    const Value w = scale(of + "LayerNorm.weight");
    const Value y = layer_norm(x, w, bias(of + "LayerNorm.bias", hidden), config_.layer_norm_eps);
    return drop_out(y, config_, options_.step, options_.seed);
  }

  Value encoder(Value x) {
    for (uint32_t i = 0; i < config_.num_hidden_layers; ++i) x = layer(x, i);
    return x;
  }

  std::optional<uint32_t> head_stage() const {
    const auto& stages =
        options_.feed_forward_stages.empty() ? options_.layer_stages : options_.feed_forward_stages;
    if (stages.empty() || stages.back() == 0) return {};
    return options_.head_with_last_layer ? stages.back() : stages.back() + 1;
  }

  /// The head's stage lies where the embeddings are.
  void place_stages() {
    std::vector<uint32_t> places(*head_stage());
    std::iota(places.begin(), places.end(), 0);
    places.push_back(0);
    graph_.place_stages(std::move(places));
  }

  Value layer(Value x, uint32_t number) {
    const std::vector<Value> parameters = parameters_of_layer(fmt::format("bert.encoder.layer.{}.", number));
    if (options_.dynamic)
      return EncoderLayer(config_, options_.seed, parameters, sequence_ids_, options_.step)
          .of(x, LayerPart::whole);
    std::optional<uint32_t> stage, feed_forward;
    if (!options_.layer_stages.empty()) stage = feed_forward = options_.layer_stages[number];
    if (!options_.feed_forward_stages.empty()) feed_forward = options_.feed_forward_stages[number];
    if (stage == feed_forward) return call(LayerPart::whole, x, parameters, stage);
    const auto second = parameters.begin() + kAttentionParameters;
    x = call(LayerPart::attention, x, {parameters.begin(), second}, stage);
    return call(LayerPart::feed_forward, x, {second, parameters.end()}, feed_forward);
  }

  /// Calls of the same part whose parameters have the same types share one function.
  Value call(LayerPart part, Value x, const std::vector<Value>& parameters, std::optional<uint32_t> stage) {
    std::vector<TensorType> types;
    for (const Value& parameter : parameters) types.push_back(parameter.type());
    auto known = std::ranges::find(functions_, types, &Function::types);
    if (known == functions_.end())
      known = functions_.insert(known, {types, function_of(part, types, x.type())});
    std::vector<Value> given = {x};
    if (part != LayerPart::feed_forward) given.push_back(*sequence_ids_);
    if (draws(part)) given.push_back(*options_.step);
    given.insert(given.end(), parameters.begin(), parameters.end());
    return graph_.call(known->graph, given, {.stage = stage, .recompute = options_.recompute_layers})[0];
  }

  bool draws(LayerPart part) const {
    return options_.step && (part != LayerPart::feed_forward || config_.hidden_dropout_prob > 0);
  }

  std::shared_ptr<const Graph> function_of(LayerPart part, const std::vector<TensorType>& types,
                                           const TensorType& x) const {
    auto function = std::make_shared<Graph>();
    const Value in = function->input("x", x);
    std::optional<Value> sequences, step;
    if (part != LayerPart::feed_forward) sequences = function->input("sequence_ids", sequence_ids_->type());
    if (draws(part)) step = function->input("step", {}, Type::u32);
    const size_t first = part == LayerPart::feed_forward ? kAttentionParameters : 0;
    std::vector<Value> parameters;
    for (size_t i = 0; i < types.size(); ++i)
      parameters.push_back(function->input(std::string(kLayer[first + i].name), types[i]));
    function->output("y", EncoderLayer(config_, options_.seed, parameters, sequences, step).of(in, part));
    return function;
  }

  std::vector<Value> parameters_of_layer(const std::string& layer) {
    std::vector<Value> parameters;
    for (const LayerParameter& each : kLayer) {
      const std::string name = layer + std::string(each.name);
      const uint32_t outputs = number_of(each.outputs);
      parameters.push_back(each.inputs == Features::none
                               ? read(parameter(name, {outputs}, Initial::constant(each.initial)))
                               : encoder_weight(name, outputs, number_of(each.inputs)));
    }
    return parameters;
  }
  uint32_t number_of(Features features) const {
    return features == Features::intermediate ? config_.intermediate_size : config_.hidden_size;
  }

  Value encoder_weight(const std::string& name, uint32_t outputs, uint32_t inputs) {
    const auto sparse = options_.patterns.find(name);
    if (sparse == options_.patterns.end()) return weight(name, {outputs, inputs});
    ++used_patterns_;
    const Pattern& pattern = sparse->second;
    if (pattern.rows != outputs || pattern.cols != inputs)
      throw UsageError(fmt::format("BERT: the pattern of '{}' is {} × {}; the weight is {} × {}", name,
                                   pattern.rows, pattern.cols, outputs, inputs));
    const auto capacity = options_.dynamic ? std::optional(pattern.blocks()) : std::nullopt;
    return read(graph_.sparse_parameter(name, pattern, Initial::normal(config_.initializer_range),
                                        options_.numbers.parameters, capacity));
  }

  void require_known_patterns() const {
    if (used_patterns_ == options_.patterns.size()) return;
    for (const auto& [name, pattern] : options_.patterns)
      if (!graph_.contains(name))
        throw UsageError(
            fmt::format("BERT: there is a pattern of '{}', which is not a weight of the encoder", name));
    throw UsageError(
        "BERT: a pattern is given for a parameter that is not a weight of the encoder's products");
  }

  /// The rows of tokens at positions counted within each pack. A position beyond its pack, which would be a
  /// row of the next pack, becomes an index beyond all rows.
  Value rows_at(Value tokens, Value places) {
    const uint32_t packs = batch_.packs, each = places.shape()[1];
    std::vector<float> first(packs);
    for (uint32_t p = 0; p < packs; ++p) first[p] = static_cast<float>(uint64_t{p} * batch_.tokens);
    const Value starts = graph_.constant("", {packs, 1}, std::move(first), Type::u32);
    const Value is_inside = less(places, whole_number(graph_, batch_.tokens)), own = places + starts;
    const Value rows = where(is_inside, own, whole_number(graph_, packs * batch_.tokens));
    return graph_.apply("embedding", {reshape(rows, {packs * each}), tokens},
                        {{"size", int64_t{batch_.tokens}}})[0];
  }

  void add_next_sentence(Bert& bert, Value tokens) {
    const uint32_t count = batch_.packs * batch_.sequences;
    const Value places = input("cls_positions", batch_.sequences);
    const Value labels = input("next_sentence_labels", batch_.sequences);
    bert.pooled = tanh(product(rows_at(tokens, places), "bert.pooler.dense", config_.hidden_size));
    bert.next_sentence_logits = product(bert.pooled, "cls.seq_relationship", 2);
    const Value losses = cross_entropy(bert.next_sentence_logits, reshape(labels, {count}), rowwise());
    const Value weights = weights_of(labels, {}, options_.average);
    bert.next_sentence_loss = average_of(losses, reshape(weights, {count}));
  }

  void add_masked_lm(Bert& bert, Value tokens) {
    const uint32_t count = batch_.packs * batch_.predictions;
    const Value places = input("masked_lm_positions", batch_.predictions);
    const Value labels = input("masked_lm_labels", batch_.predictions);
    const Value ids =
        reshape(rows_at(cast(reshape(*sequence_ids_, {batch_.packs * batch_.tokens, 1}), Type::f32), places),
                {batch_.packs, batch_.predictions});
    const Value weights = reshape(weights_of(labels, ids, options_.average), {count});
    const Value flat_labels = reshape(labels, {count});
    const std::string of = "cls.predictions.";
    const Value rows = rows_at(tokens, places);
    const std::vector<Value> parameters = {
        weight(of + "transform.dense.weight", {config_.hidden_size, config_.hidden_size}),
        bias(of + "transform.dense.bias", config_.hidden_size),
        scale(of + "transform.LayerNorm.weight"),
        bias(of + "transform.LayerNorm.bias", config_.hidden_size),
        read(*words_),
        bias(of + "bias", config_.vocab_size)};
    const Value losses =
        head_stage() || options_.head_slices > 1
            ? losses_of_head(rows, flat_labels, parameters)
            : cross_entropy(*(bert.masked_lm_logits = logits_of(rows, parameters)), flat_labels, rowwise());
    bert.masked_lm_loss = average_of(losses, weights);
  }

  Value logits_of(Value rows, const std::vector<Value>& p) const {
    const Value x = layer_norm(gelu(linear(rows, p[0], p[1])), p[2], p[3], config_.layer_norm_eps);
    return linear(x, p[4], p[5]);
  }

  /// Computed in slices and on a stage, if there are several of them. With one slice there is no loop, as a
  /// loop would sum the gradients of its only pass.
  Value losses_of_head(Value rows, Value labels, const std::vector<Value>& parameters) {
    const uint32_t slices = options_.head_slices, each = rows.shape()[0] / slices;
    const auto body = std::make_shared<Graph>();
    const Value own_rows = body->input("rows", {each, config_.hidden_size}, rows.type().type);
    const Value own_labels = body->input("labels", {each}, Type::u32);
    std::vector<Value> own;
    for (const Value& parameter : parameters)
      own.push_back(body->input(fmt::format("parameter{}", own.size()), parameter.type()));
    body->output("losses", cross_entropy(logits_of(own_rows, own), own_labels, rowwise()));
    std::vector<Value> given = {rows, labels};
    given.insert(given.end(), parameters.begin(), parameters.end());
    if (slices == 1) return graph_.call(body, given, {.stage = head_stage()})[0];
    return graph_.loop(
        body, given,
        {.count = slices, .indexed = {"rows", "labels"}, .stacked = {"losses"}, .stage = head_stage()})[0];
  }

  static CrossEntropyOptions rowwise() {
    return {.ignored = kIgnoredLabel, .reduction = LossReduction::none};
  }

  struct Function {
    std::vector<TensorType> types;
    std::shared_ptr<const Graph> graph;
  };

  Graph& graph_;
  const BertConfig& config_;
  const BertBatch& batch_;
  const BertOptions& options_;
  std::optional<Value> words_, sequence_ids_;
  std::vector<Function> functions_;  ///< of layers and their parts
  size_t used_patterns_ = 0;
};

}  // namespace

BertConfig BertConfig::named(std::string_view name) {
  for (const NamedSize& size : kSizes)
    if (size.name == name)
      return {.hidden_size = size.hidden,
              .num_hidden_layers = size.layers,
              .num_attention_heads = size.hidden / kHeadSize,
              .intermediate_size = 4 * size.hidden};
  std::vector<std::string_view> names;
  for (const NamedSize& size : kSizes) names.push_back(size.name);
  throw UsageError(fmt::format("unknown size '{}' of BERT (choose from {})", name, fmt::join(names, ", ")));
}

std::string_view name_of(PackedAverage average) { return kAverages.at(static_cast<size_t>(average)); }

PackedAverage packed_average_named(std::string_view name) {
  return static_cast<PackedAverage>(base::position_of(kAverages, name, "average of losses"));
}

Bert bert_for_pretraining(Graph& graph, const BertConfig& config, const BertBatch& batch,
                          const BertOptions& options) {
  check(config, batch, options);
  return BertBuilder(graph, config, batch, options).build();
}

}  // namespace tessera::graph
