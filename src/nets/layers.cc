#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/layers.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <span>
#include <utility>

#include "base/names.h"
#include "base/random.h"
#include "operations/unfused.h"

namespace tessera::graph {
namespace {

constexpr base::Names<LayerStructure, 9> kStructures{"structure",
                                                     {"dense", "butterfly", "bpbp", "pixelfly", "fastfood",
                                                      "circulant", "low-rank", "monarch", "block-butterfly"}};
constexpr base::Names<Form, 2> kForms{"form", {"fused", "unfused"}};
// Found on grey-scale images with Adam and rates of 0.0003, 0.001 and 0.003.
constexpr double kBpbpRate = 3;
constexpr double kMonarchRate = 4;
constexpr double kBlockButterflyRate = 1;
// A step of the first factor changes all outputs, a step of the second only the outputs of its row.
constexpr double kLowRankFirstRate = 0.1;
constexpr double kLowRankSecondRate = 3;
// Streams of random numbers, separate from the streams of a graph's operations.
constexpr uint32_t kValues = 0x6C617900;
constexpr uint32_t kPlaces = 0x6C617901;
constexpr uint32_t kLengths = 0x6C617902;
constexpr uint32_t kSigns = 0x6C617903;

/// The length of a vector of n normal numbers, from a single one (Wilson and Hilferty's approximation).
double chi(uint32_t n, double normal) {
  const double spread = 2.0 / (9.0 * n);
  return std::sqrt(n * std::max(0.0, std::pow(1 - spread + normal * std::sqrt(spread), 3)));
}

/// Builds one layer.
class LayerBuilder {
 public:
  LayerBuilder(Graph& graph, std::string name, Value x, uint32_t outputs, const LayerOptions& options)
      : graph_(graph),
        name_(std::move(name)),
        x_(x),
        inputs_(x.type().cols()),
        outputs_(outputs),
        options_(options) {}

  Layer build() {
    switch (options_.structure) {
      case LayerStructure::dense: return finish(linear(x_, dense("weight", outputs_, inputs_)));
      case LayerStructure::butterfly: return butterfly_layer();
      case LayerStructure::bpbp: return bpbp_layer();
      case LayerStructure::pixelfly: return pixelfly_layer();
      case LayerStructure::fastfood: return fastfood_layer();
      case LayerStructure::circulant: return circulant_layer();
      case LayerStructure::low_rank: return finish(low_rank(options_.scaled));
      case LayerStructure::monarch: return monarch_layer();
      case LayerStructure::block_butterfly: return block_butterfly_layer();
    }
    return finish(x_);
  }

 private:
  Layer finish(Value y) {
    layer_.y = y;
    return std::move(layer_);
  }

  /// A parameter with normally distributed values from a stream of their own.
  Value normal(const std::string& what, Shape shape, double deviation, double lr_scale) {
    TensorType type{Type::f32, std::move(shape), {}, {}};
    std::vector<float> values(type.elements());
    stream(kValues).fill_normal(values);
    for (float& value : values) value *= static_cast<float>(deviation);
    return add(what, type.shape, std::move(values), lr_scale);
  }
  Value add(const std::string& what, const Shape& shape, std::vector<float> values, double lr_scale) {
    layer_.parameters.push_back(
        graph_.parameter(name_ + "." + what, shape, Initial::from(std::move(values))));
    layer_.lr_scales.push_back(options_.scaled ? lr_scale : 1);
    return layer_.parameters.back();
  }
  base::RandomStream stream(uint32_t purpose) const {
    return base::RandomStream(options_.seed, static_cast<uint32_t>(layer_.parameters.size()), purpose);
  }

  Value dense(const std::string& what, uint32_t outputs, uint32_t inputs, double lr_scale = 1) {
    return normal(what, {outputs, inputs}, 1 / std::sqrt(inputs), lr_scale);
  }

  /// If scaled, rotations by random angles, which keep the length of every vector; otherwise normal values.
  Value twiddle(const std::string& what, const Shape& shape, double lr_scale) {
    if (!options_.scaled) return normal(what, shape, std::sqrt(0.5), lr_scale);
    std::vector<float> values(TensorType{Type::f32, shape, {}, {}}.elements());
    std::vector<float> angles(values.size() / 4);
    stream(kValues).fill_symmetric(angles);
    for (size_t i = 0; i < angles.size(); ++i) {
      const float angle = std::numbers::pi_v<float> * angles[i];
      const float rotation[] = {std::cos(angle), -std::sin(angle), std::sin(angle), std::cos(angle)};
      std::ranges::copy(rotation, values.begin() + 4 * static_cast<int64_t>(i));
    }
    return add(what, shape, std::move(values), lr_scale);
  }

  /// A butterfly with tied factors, which train to better accuracies than untied factors.
  Value butterfly_of(const std::string& what, Value x, uint32_t outputs, double lr_scale) {
    const Butterfly shape{.inputs = x.type().cols(), .outputs = outputs, .tied = true};
    return butterfly(x, twiddle(what, {shape.stacks(), 4 * (shape.size() - 1)}, lr_scale), shape,
                     options_.form);
  }

  Layer butterfly_layer() {
    const Value y = butterfly_of("twiddle", x_, outputs_, 1);
    return finish(y + add("butterfly_bias", {outputs_}, std::vector<float>(outputs_), 1));
  }

  static std::vector<uint32_t> bit_reversal(uint32_t size) {
    std::vector<uint32_t> places(size);
    for (uint32_t i = 1, bits = size >> 1; i < size; ++i)
      places[i] = (places[i / 2] / 2) | (i % 2 == 1 ? bits : 0);
    return places;
  }

  Layer bpbp_layer() {
    const uint32_t n = Butterfly{inputs_, outputs_}.size();
    const std::vector<uint32_t> places = bit_reversal(n);
    const Value half = butterfly_of("twiddle1", permute_features(with_features(x_, n), places), n, kBpbpRate);
    return finish(butterfly_of("twiddle2", permute_features(half, places), outputs_, kBpbpRate));
  }

  /// Unless scaled, both factors have the same deviation, so that the product is smaller for larger ranks.
  Value low_rank(bool scaled) {
    const double r = options_.rank, alike = 1 / std::sqrt(r * inputs_);
    const double first = scaled ? 1 / std::sqrt(inputs_) : alike;
    const double second = scaled ? 1 / std::sqrt(r) : alike;
    const Value v = normal("v", {options_.rank, inputs_}, first, scaled ? kLowRankFirstRate : 1);
    const Value u = normal("u", {outputs_, options_.rank}, second, scaled ? kLowRankSecondRate : 1);
    return linear(linear(x_, v), u);
  }

  Layer pixelfly_layer() {
    Pattern pattern = flat_butterfly(outputs_, inputs_, options_.block_size, options_.butterfly_size);
    const Value y = block_sparse("weight", x_, std::move(pattern), 1);
    return finish(y + low_rank(false));
  }

  /// x · Wᵀ with a W that keeps the size of activations, on average over its rows.
  Value block_sparse(const std::string& what, Value x, Pattern pattern, double lr_scale) {
    const uint32_t b = pattern.block_size;
    const double row = static_cast<double>(pattern.blocks()) * b / pattern.block_rows();
    std::vector<float> values(pattern.blocks() * b * b);
    stream(kValues).fill_normal(values);
    for (float& value : values) value /= static_cast<float>(std::sqrt(row));
    if (options_.form == Form::unfused) {
      const Value blocks =
          add(what, unfused_block_shape(pattern), unfused_block_values(pattern, values), lr_scale);
      return unfused_block_product(x, blocks, pattern);
    }
    layer_.parameters.push_back(
        graph_.sparse_parameter(name_ + "." + what, std::move(pattern), Initial::from(std::move(values))));
    layer_.lr_scales.push_back(options_.scaled ? lr_scale : 1);
    return linear(x, layer_.parameters.back());
  }

  Layer block_butterfly_layer() {
    Value y = x_;
    uint32_t i = 0;
    for (Pattern& pattern : block_butterfly(outputs_, inputs_, options_.block_size))
      y = block_sparse(fmt::format("factor{}", ++i), y, std::move(pattern), kBlockButterflyRate);
    return finish(y);
  }

  Layer circulant_layer() {
    const uint32_t size = std::max(inputs_, outputs_);
    const Value c = normal("c", {size}, 1 / std::sqrt(inputs_), 1);
    return finish(circulant(x_, c, outputs_));
  }

  /// Rows are as long as rows of a normal matrix, which the layer then approximates (Le et al. 2013).
  Value unfused_fastfood(const Fastfood& shape) {
    const uint32_t n = shape.size(), stacks = shape.stacks();
    std::vector<float> s(uint64_t{n} * stacks), g(s.size()), b(s.size());
    stream(kLengths).fill_normal(s);
    stream(kValues).fill_normal(g);
    stream(kSigns).fill_symmetric(b);
    for (float& sign : b) sign = std::copysign(1.0F, sign);
    for (uint32_t stack = 0; stack < stacks; ++stack) {
      const std::span<const float> row = std::span(g).subspan(uint64_t{stack} * n, n);
      const double norm = std::sqrt(std::inner_product(row.begin(), row.end(), row.begin(), 0.0));
      for (float& length : std::span(s).subspan(uint64_t{stack} * n, n))
        length = static_cast<float>(chi(n, length) / norm);
    }
    const Shape sizes = {stacks, n};
    const Value scale = add("s", sizes, std::move(s), 1), gain = add("g", sizes, std::move(g), 1);
    return fastfood(x_, scale, gain, add("b", sizes, std::move(b), 1), shape, options_.form);
  }

  Layer fastfood_layer() {
    Fastfood shape{.inputs = inputs_, .outputs = outputs_};
    const uint32_t n = shape.size(), stacks = shape.stacks();
    shape.permutation.resize(uint64_t{n} * stacks);
    base::RandomSequence random(stream(kPlaces));
    for (uint32_t s = 0; s < stacks; ++s) {
      const std::span<uint32_t> row = std::span(shape.permutation).subspan(uint64_t{s} * n, n);
      std::iota(row.begin(), row.end(), 0);
      random.shuffle(row);
    }
    if (options_.scaled) {
      const Value s = normal("s", {stacks, n}, 1, 1);
      const Value g = normal("g", {stacks, n}, 1, 1);
      return finish(fastfood(x_, s, g, normal("b", {stacks, n}, 1, 1), shape, options_.form));
    }
    return finish(unfused_fastfood(shape));
  }

  /// The divisor of a size that is nearest to its square root.
  static uint32_t blocks_of(uint32_t size) {
    auto blocks = static_cast<uint32_t>(std::sqrt(size));
    while (size % blocks != 0) --blocks;
    return blocks;
  }

  Layer monarch_layer() {
    const uint32_t k = blocks_of(inputs_), p = inputs_ / k, l = blocks_of(outputs_), s = outputs_ / l;
    // The features between the factors fill whole blocks of both.
    const uint32_t q = l * ((p + l - 1) / l), r = k * q / l;
    const Value first = normal("blkdiag1", {k, 1, q * p}, 1 / std::sqrt(p), kMonarchRate);
    const Value second = normal("blkdiag2", {1, l, s * r}, 1 / std::sqrt(r), kMonarchRate);
    const Value half = kronecker(x_, first, {k, q, p, 1});
    const Kronecker outer{1, s, r, l};
    return finish(options_.form == Form::unfused ? unfused_kronecker(half, second, outer)
                                                 : kronecker(half, second, outer));
  }

  Graph& graph_;
  std::string name_;
  Value x_;
  uint32_t inputs_;
  uint32_t outputs_;
  const LayerOptions& options_;
  Layer layer_;
};

}  // namespace

std::string_view name_of(LayerStructure structure) { return kStructures.of(structure); }
std::string_view name_of(Form form) { return kForms.of(form); }
Form form_named(std::string_view name) { return kForms.named(name); }
LayerStructure layer_structure_named(std::string_view name) { return kStructures.named(name); }

Layer linear_layer(Graph& graph, const std::string& name, Value x, uint32_t outputs,
                   const LayerOptions& options) {
  if (outputs == 0) throw UsageError(fmt::format("{}: a layer without outputs", name));
  if (options.rank == 0) throw UsageError(fmt::format("{}: a rank of 0; it must be at least 1", name));
  return LayerBuilder(graph, name, x, outputs, options).build();
}

}  // namespace tessera::graph
