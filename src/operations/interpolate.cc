// Values between the elements of images, and their gradient.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/vision.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "operations/image_windows.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

using ops::Taps;
using ops::Windows;
using Mode = Interpolation::Mode;
using PositionRounding = Interpolation::Rounding;

constexpr std::pair<const char*, Mode> kModes[] = {
    {"nearest", Mode::nearest}, {"linear", Mode::linear}, {"cubic", Mode::cubic}};
constexpr std::pair<const char*, Coordinates> kCoordinates[] = {
    {"half_pixel", Coordinates::half_pixel},
    {"pytorch_half_pixel", Coordinates::pytorch_half_pixel},
    {"half_pixel_symmetric", Coordinates::half_pixel_symmetric},
    {"align_corners", Coordinates::align_corners},
    {"asymmetric", Coordinates::asymmetric}};
constexpr std::pair<const char*, PositionRounding> kRoundings[] = {{"floor", PositionRounding::floor},
                                                                   {"ceil", PositionRounding::ceil},
                                                                   {"half_down", PositionRounding::half_down},
                                                                   {"half_up", PositionRounding::half_up}};

template <class T, size_t count>
T named(const std::pair<const char*, T> (&all)[count], const Node& node, const char* attribute) {
  const std::string name = node.text(attribute, all[0].first);
  std::string names;
  for (const auto& [known, value] : all) {
    if (name == known) return value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", known);
  }
  throw UsageError(fmt::format("interpolate: unknown {} '{}' (choose from {})", attribute, name, names));
}

template <class T, size_t count>
std::string name_of(const std::pair<const char*, T> (&all)[count], T value) {
  return std::ranges::find(all, value, [](const auto& each) { return each.second; })->first;
}

std::string factor_name(size_t dimension) { return fmt::format("factor_{}", dimension); }

/// Where outputs lie.
struct Places {
  uint32_t size, outputs;
  Mode mode;
  Coordinates coordinates;
  PositionRounding rounding;
  double cubic;
  double scale;   ///< elements for each output
  double factor;  ///< outputs for each element
  bool divides;

  Places(const Node& node, uint32_t of_size, uint32_t of_outputs, size_t dimension)
      : size(of_size),
        outputs(of_outputs),
        mode(named(kModes, node, "mode")),
        coordinates(named(kCoordinates, node, "coordinates")),
        rounding(named(kRoundings, node, "rounding")),
        cubic(node.number("cubic", -0.75)),
        divides(node.integer("divides", 0) != 0) {
    factor = node.number(factor_name(dimension), 0.0);
    scale = factor > 0 ? 1 / factor : static_cast<double>(size) / outputs;
    if (!(factor > 0)) factor = static_cast<double>(outputs) / size;
    if (coordinates == Coordinates::align_corners) scale = outputs > 1 ? (size - 1.0) / (outputs - 1.0) : 0;
  }

  double place(uint32_t i) const {
    switch (coordinates) {
      case Coordinates::align_corners:
      case Coordinates::asymmetric: return i * scale;
      case Coordinates::pytorch_half_pixel: return outputs > 1 ? (i + 0.5) * scale - 0.5 : 0;
      case Coordinates::half_pixel: return (i + 0.5) * scale - 0.5;
      case Coordinates::half_pixel_symmetric: return offset() + (i + 0.5) * scale - 0.5;
    }
    return i;
  }
  /// How far half_pixel_symmetric moves outputs.
  double offset() const { return 0.5 * size * (1 - outputs / (factor * size)); }

  double nearest(uint32_t i) const {
    const float exact = place_in_f32(static_cast<float>(i));
    switch (rounding) {
      case PositionRounding::floor: return std::floor(exact);
      case PositionRounding::ceil: return std::ceil(exact);
      case PositionRounding::half_down: return std::ceil(exact - 0.5F);
      case PositionRounding::half_up: return std::round(exact);
    }
    return exact;
  }
  /// As elsewhere: it decides which element is nearest.
  float place_in_f32(float i) const {
    const float step = static_cast<float>(scale), by = static_cast<float>(factor);
    const float elements = static_cast<float>(size), results = static_cast<float>(outputs);
    const auto half = [&] { return (divides ? (i + 0.5F) / by : (i + 0.5F) * step) - 0.5F; };
    switch (coordinates) {
      case Coordinates::align_corners: return static_cast<float>(i * scale);
      case Coordinates::asymmetric:
        if (!divides) return i * step;
        return std::abs(by * elements - results) < 1e-3F ? i * elements / results : i / by;
      case Coordinates::pytorch_half_pixel: return outputs > 1 ? half() : 0;
      case Coordinates::half_pixel: return half();
      case Coordinates::half_pixel_symmetric:
        return static_cast<float>(elements / 2 * (1 - results / (by * elements)) + (i + 0.5) / by - 0.5);
    }
    return i;
  }
};

/// The weight of an element at a distance from a place (Keys 1981).
double cubic_weight(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((x - 5) * x + 8) * x * a - 4 * a : 0;
}

/// Elements from `first` on, with weights; those beyond the ends count as the first and the last.
Taps interpolate_window_of(const Places& p, int64_t first, const std::vector<double>& weights) {
  const auto clamped = [&](int64_t at) { return std::clamp(at, int64_t{0}, int64_t{p.size} - 1); };
  const int64_t begin = clamped(first), end = clamped(first + static_cast<int64_t>(weights.size()) - 1) + 1;
  Taps window{static_cast<uint32_t>(begin), static_cast<uint32_t>(end - begin),
              std::vector<double>(static_cast<size_t>(end - begin))};
  for (size_t t = 0; t < weights.size(); ++t)
    window.weights[static_cast<size_t>(clamped(first + static_cast<int64_t>(t)) - begin)] += weights[t];
  return window;
}

Windows interpolate_windows_of(const Places& p) {
  Windows windows{p.size};
  for (uint32_t i = 0; i < p.outputs; ++i) {
    if (p.mode == Mode::nearest) {
      windows.of.push_back(interpolate_window_of(p, static_cast<int64_t>(p.nearest(i)), {1}));
      continue;
    }
    const double at = p.mode == Mode::linear ? std::clamp(p.place(i), 0.0, p.size - 1.0) : p.place(i);
    const double low = std::floor(at), rest = at - low;
    const auto first = static_cast<int64_t>(low);
    if (p.mode == Mode::linear)
      windows.of.push_back(interpolate_window_of(p, first, {1 - rest, rest}));
    else
      windows.of.push_back(
          interpolate_window_of(p, first - 1,
                                {cubic_weight(rest + 1, p.cubic), cubic_weight(rest, p.cubic),
                                 cubic_weight(1 - rest, p.cubic), cubic_weight(2 - rest, p.cubic)}));
  }
  return windows;
}

ImageWindows interpolate_windows_of(const Node& node, const Shape& from, const Shape& to) {
  std::vector<Windows> all;
  for (size_t d = 0; d < from.size(); ++d)
    all.push_back(interpolate_windows_of(Places(node, from[d], to[d], d)));
  return image_windows(std::move(all));
}

Shape wanted_sizes(const Node& node) {
  const std::vector<int64_t>& sizes = node.list("sizes");
  return {sizes.begin(), sizes.end()};
}

/// Infers the type of the result, or of the image whose gradient is the result.
Types infer_interpolate(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const Shape from = spatial_sizes(s, x);
  require_float(s, x);
  const std::vector<int64_t>& sizes = s.attributes.list("sizes");
  const auto is_size = [](int64_t size) { return size >= 1 && size <= std::numeric_limits<int32_t>::max(); };
  if (sizes.size() != from.size() || !std::ranges::all_of(sizes, is_size))
    throw UsageError(fmt::format("{}: sizes of [{}] for {} dimensions; they must be at least 1", s.operation,
                                 fmt::join(sizes, ", "), from.size()));
  for (size_t d = 0; d < from.size(); ++d) {
    require_windows(s.operation, static_cast<uint64_t>(sizes[d]), 4);
    require_windows(s.operation, from[d], 4);
    const double factor = s.attributes.number(factor_name(d), 0.0);
    const bool is_factor = factor >= 0 && std::isfinite(factor);
    const Places places(s.attributes, from[d], static_cast<uint32_t>(sizes[d]), d);
    constexpr double kMostScale = 1 << 30;
    if (!is_factor || !(places.scale >= 0 && places.scale <= kMostScale) ||
        !(std::abs(places.cubic) <= kMostScale))
      throw UsageError(fmt::format("{}: a factor of {} and a cubic coefficient of {} are not possible",
                                   s.operation, is_factor ? 1 / places.scale : factor, places.cubic));
  }
  return {with_spatial_sizes(x, wanted_sizes(s.attributes))};
}

ImageWindows interpolate_forward_of(const Node& node, const TensorType& x) {
  return interpolate_windows_of(node, sizes_of_image(x), wanted_sizes(node));
}
ImageWindows gradient_of(const Node& node, const TensorType& dy) {
  return interpolate_windows_of(node, wanted_sizes(node), sizes_of_image(dy)).transposed();
}

template <ImageWindows (*windows)(const Node&, const TensorType&)>
std::vector<Array> interpolate_reference(const Evaluation& e) {
  return {weighted_sums(*e.inputs[0], e.input_type(0), windows(e.node, e.input_type(0)))};
}

template <ImageWindows (*windows)(const Node&, const TensorType&)>
void lower_interpolate(Lowering& l, const Node& node) {
  lower_windows(l, node, ops::Pooling::weighted_sum, windows(node, l.graph().type(node.inputs[0])));
}

template <ImageWindows (*windows)(const Node&, const TensorType&)>
std::vector<Value> decompose_interpolate(const Decomposition& d) {
  const Value x = d.inputs[0];
  return {reshape(decomposed_sums(x, windows(d.node, x.type())),
                  with_spatial_sizes(x.type(), wanted_sizes(d.node)).shape)};
}

/// Applies the operation of the opposite direction, between the same sizes.
Gradients apply_other(const Differentiation& d, const char* operation) {
  Attributes attributes = d.node.attributes;
  const Shape sizes = sizes_of_image(d.input(0).type());
  attributes["sizes"] = as_integers(sizes);
  return {d.graph.apply(operation, {*d.dy[0]}, std::move(attributes))[0]};
}

std::vector<Case> interpolate_cases() {
  const auto use = [](Shape shape, std::vector<int64_t> sizes, Attributes attributes, Type type = Type::f32) {
    attributes["sizes"] = std::move(sizes);
    return Case{.inputs = {{type, std::move(shape), {}, {}}}, .attributes = std::move(attributes)};
  };
  const auto text = [](const char* value) { return Attribute(std::string(value)); };
  return {use({2, 4, 5, 3}, {8, 10}, {{"mode", text("linear")}}),
          use({2, 4, 5, 3}, {8, 10}, {{"mode", text("nearest")}, {"coordinates", text("asymmetric")}}),
          use({2, 5, 6, 7}, {7, 4}, {{"mode", text("linear")}, {"coordinates", text("align_corners")}}),
          use({1, 5, 4, 17}, {3, 9}, {{"mode", text("nearest")}, {"rounding", text("half_down")}}),
          use({1, 5, 4, 6}, {3, 3},
              {{"mode", text("nearest")},
               {"coordinates", text("half_pixel_symmetric")},
               {"factor_1", 0.8},
               {"divides", int64_t{1}}}),
          use({2, 4, 5, 3}, {7, 6}, {{"mode", text("cubic")}}),
          use({2, 6, 3}, {9}, {{"mode", text("linear")}, {"factor_0", 1.4}}),
          use({2, 3, 3, 4}, {1, 5}, {{"mode", text("linear")}, {"coordinates", text("pytorch_half_pixel")}}),
          use({2, 3, 4, 9}, {5, 6}, {{"mode", text("linear")}}, Type::f16),
          use({2, 3, 4, 9}, {5, 6}, {{"mode", text("linear")}}, Type::bf16)};
}

std::vector<Case> interpolate_gradient_cases() {
  std::vector<Case> all = interpolate_cases();
  for (Case& c : all) {
    const Shape sizes = sizes_of_image(c.inputs[0]);
    const Node node{.attributes = c.attributes};
    c.inputs[0] = with_spatial_sizes(c.inputs[0], wanted_sizes(node));
    c.attributes["sizes"] = as_integers(sizes);
  }
  return all;
}

constexpr Operation kInterpolate[] = {
    {.name = "interpolate",
     .infer = infer_interpolate,
     .gradient = [](const Differentiation& d) { return apply_other(d, "interpolate_gradient"); },
     .reference = interpolate_reference<interpolate_forward_of>,
     .layouts = same_layouts,
     .lower = lower_interpolate<interpolate_forward_of>,
     .cases = interpolate_cases,
     .traits = {.keeps_samples = elements_keep_samples},
     .decompose = decompose_interpolate<interpolate_forward_of>,
     .lowers_on = lowers_on_hosts},
    {.name = "interpolate_gradient",
     .infer = infer_interpolate,
     .gradient = [](const Differentiation& d) { return apply_other(d, "interpolate"); },
     .reference = interpolate_reference<gradient_of>,
     .layouts = same_layouts,
     .lower = lower_interpolate<gradient_of>,
     .cases = interpolate_gradient_cases,
     .traits = {.keeps_samples = elements_keep_samples},
     .decompose = decompose_interpolate<gradient_of>,
     .lowers_on = lowers_on_hosts}};

}  // namespace

std::span<const Operation> interpolate_operations() { return kInterpolate; }

Value interpolate(Value x, const Interpolation& how) {
  const size_t dimensions = x.shape().size() < 3 ? 1 : x.shape().size() - 2;
  const auto number = [&](const auto& of, size_t d) { return of.size() == 1 ? of[0] : of.at(d); };
  std::vector<int64_t> sizes(how.sizes.begin(), how.sizes.end());
  if (sizes.size() == 1) sizes.resize(dimensions, sizes[0]);
  Attributes attributes = {{"sizes", std::move(sizes)},
                           {"mode", name_of(kModes, how.mode)},
                           {"coordinates", name_of(kCoordinates, how.coordinates)}};
  if (how.mode == Mode::nearest && how.divides) attributes["divides"] = int64_t{1};
  if (how.mode == Mode::nearest) attributes["rounding"] = name_of(kRoundings, how.rounding);
  if (how.mode == Mode::cubic) attributes["cubic"] = how.cubic;
  if (!how.factors.empty() && how.factors.size() != 1 && how.factors.size() != dimensions)
    throw UsageError(
        fmt::format("interpolate: there are {} factors for {} dimensions", how.factors.size(), dimensions));
  for (size_t d = 0; !how.factors.empty() && d < dimensions; ++d)
    if (number(how.factors, d) != 0) attributes[factor_name(d)] = number(how.factors, d);
  return x.owner().apply("interpolate", {x}, std::move(attributes))[0];
}

}  // namespace tessera::graph
