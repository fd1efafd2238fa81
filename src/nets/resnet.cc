#include <fmt/format.h>
#include <tessera/convolution.h>
#include <tessera/error.h>
#include <tessera/resnet.h>
#include <tessera/vision.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/names.h"

namespace tessera::graph {
namespace {

constexpr base::Names<Shortcut, 2> kShortcuts{"shortcut", {"projection", "padding"}};

struct PublishedResnet {
  uint32_t depth;
  bool is_bottleneck;
  std::array<uint32_t, 4> blocks;
};
constexpr PublishedResnet kPublishedResnets[] = {{18, false, {2, 2, 2, 2}},
                                                 {34, false, {3, 4, 6, 3}},
                                                 {50, true, {3, 4, 6, 3}},
                                                 {101, true, {3, 4, 23, 3}},
                                                 {152, true, {3, 8, 36, 3}}};
constexpr uint32_t kDeepestResnet = 1202;

bool has_block_calls(const ResnetOptions& options) { return options.block_calls || options.recompute; }

void check_resnet(const ResnetConfig& config, const ResnetOptions& options, Value images) {
  constexpr size_t kMostStages = 8;
  constexpr uint32_t kMostChannels = 1 << 16;
  const auto require = [](bool holds, const std::string& what) {
    if (!holds) throw UsageError("ResNet: " + what);
  };
  require(images.shape().size() == 4,
          fmt::format("images are {}; they must be [samples, height, width, channels]",
                      to_string(images.type())));
  require(!config.blocks.empty() && config.blocks.size() <= kMostStages,
          fmt::format("{} stages; 1 to {} are possible", config.blocks.size(), kMostStages));
  require(std::ranges::count(config.blocks, 0U) == 0, "a stage without blocks");
  require(config.width >= 1 && config.width <= kMostChannels,
          fmt::format("a width of {}; 1 to {} are possible", config.width, kMostChannels));
  require(config.classes >= 1, "no classes");
  require(config.momentum >= 0 && config.momentum <= 1,
          fmt::format("a momentum of running statistics of {}; it must be from 0 to 1", config.momentum));
  require(!has_block_calls(options) || !options.dynamic || options.patterns.empty(),
          "blocks whose patterns may change are not functions, and cannot be computed again: leave out one");
}

/// A block that becomes a function: the values that its call passes to it, and the running statistics that
/// follow its results.
struct CalledBlock {
  std::shared_ptr<Graph> function = std::make_shared<Graph>();
  std::vector<Value> given = {}, followed = {};
};

struct BlockFunction {
  uint32_t stride;
  std::vector<TensorType> types;  ///< types of the values that it takes
  std::shared_ptr<const Graph> graph;
};

class ResnetBuilder {
 public:
  ResnetBuilder(Graph& graph, const ResnetConfig& config, const ResnetOptions& options)
      : graph_(graph), config_(config), options_(options) {}

  Resnet build(Value images) {
    if (options_.numbers.partials) graph_.set_partial_sums({options_.numbers.partials});
    Value x = stem(read(images));
    for (size_t stage = 0; stage < config_.blocks.size(); ++stage)
      for (uint32_t i = 0; i < config_.blocks[stage]; ++i)
        x = block(x, fmt::format("layer{}.{}", stage + 1, i), config_.width << stage,
                  stage > 0 && i == 0 ? 2 : 1);
    require_known_patterns();
    const Value features = reshape(adaptive_average_pool(x, {1, 1}), {x.shape()[0], x.type().cols()});
    const Value logits = classified(features);
    set_running();
    return {features, logits, std::move(kernels_)};
  }

 private:
  /// Converts a value to the type in which products take it.
  Value read(Value x) const { return cast(x, options_.numbers.products); }

  Value stem(Value x) {
    if (config_.is_for_small_images)
      return relu(normalised(convolved(x, "conv1", config_.width, 3, 1), "bn1"));
    x = relu(normalised(convolved(x, "conv1", config_.width, 7, 2), "bn1"));
    return max_pool(x, {.window = {3}, .stride = {2}, .before = {1}, .after = {1}});
  }

  Value block(Value x, const std::string& name, uint32_t width, uint32_t stride) {
    if (!has_block_calls(options_)) return computed(x, name, width, stride);
    block_.emplace();
    block_->given.push_back(x);
    const Value inside = block_->function->input("x", x.type());
    block_->function->output("y", computed(inside, name, width, stride));
    const CalledBlock made = std::move(*block_);
    block_.reset();
    const std::vector<Value> results =
        graph_.call(shared(made.function, made.given, stride), made.given, {.recompute = options_.recompute});
    // Statistics come before "y", by their names.
    for (size_t i = 0; i < made.followed.size(); ++i) follow(made.followed[i], results.at(i));
    return results.back();
  }

  /// Blocks whose values have the same types share one function.
  std::shared_ptr<const Graph> shared(const std::shared_ptr<const Graph>& made,
                                      const std::vector<Value>& given, uint32_t stride) {
    std::vector<TensorType> types;
    types.reserve(given.size());
    for (const Value& value : given) types.push_back(value.type());
    for (const BlockFunction& known : functions_)
      if (known.stride == stride && known.types == types) return known.graph;
    functions_.push_back({stride, std::move(types), made});
    return made;
  }

  /// A value of the graph as an operand of a block: inside a function, an input of the function.
  Value taken(Value value) {
    if (!block_) return value;
    block_->given.push_back(value);
    return block_->function->input(fmt::format("parameter{}", block_->given.size() - 1), value.type());
  }

  Value computed(Value x, const std::string& name, uint32_t width, uint32_t stride) {
    Value y = x;
    const auto add = [&](uint32_t number, uint32_t outputs, uint32_t kernel, uint32_t step) {
      y = normalised(convolved(y, fmt::format("{}.conv{}", name, number), outputs, kernel, step),
                     fmt::format("{}.bn{}", name, number));
    };
    if (config_.is_bottleneck) {
      constexpr uint32_t kExpansion = 4;
      add(1, width, 1, 1);
      y = relu(y);
      add(2, width, 3, stride);
      y = relu(y);
      add(3, width * kExpansion, 1, 1);
    } else {
      add(1, width, 3, stride);
      y = relu(y);
      add(2, width, 3, 1);
    }
    return relu(y + shortcut(x, name + ".downsample", y.type().cols(), stride));
  }

  Value shortcut(Value x, const std::string& name, uint32_t outputs, uint32_t stride) {
    const uint32_t channels = x.type().cols();
    if (stride == 1 && channels == outputs) return x;
    if (config_.shortcut == Shortcut::projection)
      return normalised(convolved(x, name + ".0", outputs, 1, stride), name + ".1");
    if (stride > 1) x = average_pool(x, {.window = {1}, .stride = {stride}});
    return pad(x, 3, 0, outputs - channels);
  }

  Value convolved(Value x, const std::string& name, uint32_t outputs, uint32_t kernel, uint32_t stride) {
    const uint32_t channels = x.type().cols(), taps = kernel * kernel;
    kernels_[name + ".weight"] = {outputs, channels, kernel, kernel};
    const Convolution window{
        .kernel = {kernel, kernel}, .stride = {stride, stride}, .padding = {kernel / 2, kernel / 2}};
    return convolution(x, taken(weight(name + ".weight", outputs, taps * channels, taps)), {}, window);
  }

  /// Normal, so that gradients of dense weights keep their size (He et al. 2015). The values of sparse
  /// weights are not larger: norms make up for the size, and steps change outputs of smaller sums relatively
  /// more. So outputs change with each step as they do in a dense network (Dey et al. 2024).
  Value weight(const std::string& name, uint32_t outputs, uint32_t inputs, uint32_t taps) {
    const double deviation = std::sqrt(2.0 / (double{1} * outputs * taps));
    const Type type = options_.numbers.parameters;
    const auto sparse = options_.patterns.find(name);
    if (sparse == options_.patterns.end())
      return read(graph_.parameter(name, {outputs, inputs}, Initial::normal(deviation), type));
    ++used_patterns_;
    const Pattern& pattern = sparse->second;
    if (pattern.rows != outputs || pattern.cols != inputs || pattern.blocks() == 0)
      throw UsageError(
          fmt::format("ResNet: the pattern of '{}' is {} × {} with {} blocks; the weight is {} × {}", name,
                      pattern.rows, pattern.cols, pattern.blocks(), outputs, inputs));
    const auto capacity = options_.dynamic ? std::optional(pattern.blocks()) : std::nullopt;
    return read(graph_.sparse_parameter(name, pattern, Initial::normal(deviation), type, capacity));
  }

  Value normalised(Value x, const std::string& name) {
    const Shape channels = {x.type().cols()};
    const Type type = options_.numbers.parameters;
    const Value factor = taken(graph_.parameter(name + ".weight", channels, Initial::constant(1), type));
    const Value added = taken(graph_.parameter(name + ".bias", channels, {}, type));
    const Value mean = graph_.parameter(name + ".running_mean", channels);
    const Value variance = graph_.parameter(name + ".running_var", channels, Initial::constant(1));
    if (!options_.training)
      return batch_norm(x, taken(mean), taken(variance), factor, added, config_.epsilon);
    const BatchNorm of_batch = batch_norm_of_batch(x, factor, added, config_.epsilon, options_.norm_replicas);
    follow(mean, of_batch.mean);
    follow(variance, of_batch.variance);
    return of_batch.y;
  }

  /// Statistics of a function are results of its calls, as a function has no state.
  void follow(Value running, Value of_batch) {
    if (block_) {
      block_->function->output(fmt::format("statistic{:02}", block_->followed.size()), of_batch);
      block_->followed.push_back(running);
    } else {
      followed_.emplace_back(running, of_batch);
    }
  }

  /// Takes the means over replicas one after another, so that they become one collective.
  void set_running() {
    if (options_.replicas > 1)
      for (auto& [running, of_batch] : followed_) of_batch = mean_over_replicas(of_batch);
    for (const auto& [running, of_batch] : followed_)
      graph_.assign(running, running * (1 - config_.momentum) + of_batch * config_.momentum);
  }

  /// Uniform initial values up to ±1/√features, as those of torch.nn.Linear.
  Value classified(Value features) {
    const uint32_t inputs = features.type().cols();
    const Initial initial = Initial::uniform(1 / std::sqrt(inputs));
    const Type type = options_.numbers.parameters;
    const Value factors = read(graph_.parameter("fc.weight", {config_.classes, inputs}, initial, type));
    const Value added = read(graph_.parameter("fc.bias", {config_.classes}, initial, type));
    return cast(linear(features, factors, added), Type::f32);
  }

  void require_known_patterns() const {
    if (used_patterns_ == options_.patterns.size()) return;
    for (const auto& [name, pattern] : options_.patterns)
      if (!kernels_.contains(name))
        throw UsageError(
            fmt::format("ResNet: there is a pattern of '{}', which is not a weight of a convolution", name));
  }

  Graph& graph_;
  const ResnetConfig& config_;
  const ResnetOptions& options_;
  std::map<std::string, Shape> kernels_;
  size_t used_patterns_ = 0;
  std::optional<CalledBlock> block_;  ///< the block to which operations are being added
  std::vector<BlockFunction> functions_;
  std::vector<std::pair<Value, Value>> followed_;  ///< running statistics, and the statistics of the batch
};

}  // namespace

std::string_view name_of(Shortcut shortcut) { return kShortcuts.of(shortcut); }
Shortcut shortcut_named(std::string_view name) { return kShortcuts.named(name); }

ResnetConfig ResnetConfig::of_depth(uint32_t depth) {
  for (const PublishedResnet& published : kPublishedResnets)
    if (published.depth == depth)
      return {.blocks = {published.blocks.begin(), published.blocks.end()},
              .is_bottleneck = published.is_bottleneck};
  if (depth < 8 || depth > kDeepestResnet || depth % 6 != 2)
    throw UsageError(
        fmt::format("unknown depth {} of a ResNet (choose from 18, 34, 50, 101, 152, or for images of 32² "
                    "from 8 to {} in steps of 6, such as 20)",
                    depth, kDeepestResnet));
  return {.blocks = std::vector<uint32_t>(3, (depth - 2) / 6),
          .width = 16,
          .is_bottleneck = false,
          .is_for_small_images = true,
          .shortcut = Shortcut::padding,
          .classes = 10};
}

Resnet resnet(Graph& graph, Value images, const ResnetConfig& config, const ResnetOptions& options) {
  check_resnet(config, options, images);
  return ResnetBuilder(graph, config, options).build(images);
}

Value normalised_pixels(Value pixels, const std::vector<double>& mean, const std::vector<double>& deviation) {
  const uint32_t channels = pixels.type().cols();
  if (pixels.type().type != Type::u8 || mean.size() != channels || deviation.size() != channels)
    throw UsageError(
        fmt::format("normalised_pixels: {} with {} means and {} deviations; it takes u8 with one "
                    "of each for each channel",
                    to_string(pixels.type()), mean.size(), deviation.size()));
  constexpr double kMost = std::numeric_limits<float>::max();
  std::vector<float> of_pixels, factors;
  for (uint32_t c = 0; c < channels; ++c) {
    if (!(std::abs(mean[c]) <= kMost))
      throw UsageError(fmt::format("normalised_pixels: a mean of {}; it must be finite in FP32", mean[c]));
    if (!(deviation[c] >= 1 / kMost && deviation[c] <= kMost))
      throw UsageError(fmt::format(
          "normalised_pixels: a deviation of {}; it must be positive, and finite in FP32 as its reciprocal",
          deviation[c]));
    of_pixels.push_back(static_cast<float>(mean[c]));
    factors.push_back(static_cast<float>(1 / deviation[c]));
  }
  Graph& graph = pixels.owner();
  const Value middle = graph.constant("", {channels}, std::move(of_pixels));
  return (cast(pixels, Type::f32) - middle) * graph.constant("", {channels}, std::move(factors));
}

}  // namespace tessera::graph
