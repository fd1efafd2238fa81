#include "operations/image_windows.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace tessera::graph {
namespace {

using ops::Taps;
using ops::Windows;

/// The windows along a dimension of size 1, as images with one row have.
Windows of_one() { return {1, 1, {{0, 1, {1.0}}}}; }

Windows transposed_of(const Windows& w) {
  Windows result{w.outputs(), 1, std::vector<Taps>(w.size)};
  for (uint32_t i = 0; i < w.outputs(); ++i)
    for (uint32_t t = 0; t < w.of[i].count; ++t) {
      Taps& of = result.of[w.of[i].first + t];
      if (of.count == 0) of.first = i;
      of.weights.resize(i - of.first);  // the windows between lack this element
      of.weights.push_back(w.of[i].weights[t]);
      of.count = static_cast<uint32_t>(of.weights.size());
    }
  return result;
}

/// Sizes of the elements' index in an array.
struct ImageLayout {
  uint64_t samples, channels;
  const ImageWindows& windows;

  ImageLayout(const TensorType& x, const ImageWindows& of)
      : samples(x.shape.front()), channels(x.shape.back()), windows(of) {}
  uint64_t pixels() const { return uint64_t{windows.down.size} * windows.across.size; }
  uint64_t outputs() const { return uint64_t{windows.down.outputs()} * windows.across.outputs(); }
  /// Calls visit(window of rows, window of columns, first element of its sample, its output).
  template <class Visit>
  void each(const Visit& visit) const {
    for (uint64_t n = 0, out = 0; n < samples; ++n)
      for (const Taps& i : windows.down.of)
        for (const Taps& j : windows.across.of) {
          for (uint64_t c = 0; c < channels; ++c)
            visit(i, j, n * pixels() * channels + c, out * channels + c);
          ++out;
        }
  }
  /// The position of a window's element in a channel of a sample.
  uint64_t at(const Taps& i, uint32_t a, const Taps& j, uint32_t b) const {
    const uint64_t row = i.first + uint64_t{a} * windows.down.step;
    return (row * windows.across.size + j.first + uint64_t{b} * windows.across.step) * channels;
  }
  template <class Visit>
  void each_element(const Taps& i, const Taps& j, const Visit& visit) const {
    for (uint32_t a = 0; a < i.count; ++a)
      for (uint32_t b = 0; b < j.count; ++b) visit(a, b, at(i, a, j, b));
  }
};

/// Whether a window has an element that counts.
bool has(const Taps& window, uint32_t tap) {
  return tap < window.count && (window.weights.empty() || window.weights[tap] != 0);
}

/// The weight of a pair of taps, rounded as constants hold it.
float tap_weight(const Taps& i, uint32_t a, const Taps& j, uint32_t b) {
  return static_cast<float>(i.weights[a] * j.weights[b]);
}

Value constant(Value with, Shape shape, double value) {
  TensorType type{with.type().type, std::move(shape), {}, {}};
  const auto elements = type.elements();
  return with.owner().constant("", type.shape, std::vector<float>(elements, static_cast<float>(value)),
                               type.type);
}

/// [channels, outputs · taps]: the elements of each window, with a substitute for elements that it lacks.
Value elements_of(Value x, const ImageWindows& w, double outside) {
  const uint32_t channels = x.type().cols(), pixels = x.type().rows();
  const uint32_t down = w.down.taps(), across = w.across.taps();
  std::vector<int64_t> places;
  for (uint32_t n = 0; n < x.shape().front(); ++n)
    for (const Taps& i : w.down.of)
      for (const Taps& j : w.across.of)
        for (uint32_t a = 0; a < down; ++a)
          for (uint32_t b = 0; b < across; ++b) {
            const bool is_there = has(i, a) && has(j, b);
            const int64_t row = int64_t{n} * w.down.size + i.first + int64_t{a} * w.down.step;
            places.push_back(is_there ? row * w.across.size + j.first + int64_t{b} * w.across.step
                                      : int64_t{pixels});
          }
  std::vector<Value> from = {transpose(reshape(x, {pixels, channels}))};
  if (std::ranges::find(places, int64_t{pixels}) != places.end())
    from.push_back(constant(x, {channels, 1}, outside));
  return x.owner().apply("select_features", from,
                         {{"places", std::move(places)}, {"neighbours", int64_t{down} * across}})[0];
}

/// The weight of each element that elements_of() returns for one sample.
std::vector<float> weights_of(const ImageWindows& w) {
  std::vector<float> weights;
  for (const Taps& i : w.down.of)
    for (const Taps& j : w.across.of)
      for (uint32_t a = 0; a < w.down.taps(); ++a)
        for (uint32_t b = 0; b < w.across.taps(); ++b) {
          const bool is_there = has(i, a) && has(j, b);
          weights.push_back(is_there ? tap_weight(i, a, j, b) : 0.0F);
        }
  return weights;
}

/// The result of decompositions if all windows lie in padding, which does not depend on x.
std::optional<Value> if_empty(Value x, const ImageWindows& w, double value) {
  if (w.down.taps() > 0 && w.across.taps() > 0) return {};
  return constant(x, {x.shape().front() * w.down.outputs() * w.across.outputs(), x.type().cols()}, value);
}

}  // namespace

ImageWindows ImageWindows::transposed() const { return {transposed_of(down), transposed_of(across)}; }

void require_windows(std::string_view operation, uint64_t outputs, uint64_t weights) {
  constexpr uint64_t kMost = uint64_t{1} << 26, kOfWindow = 4;  // numbers; they take half a gigabyte
  if (outputs > kMost / (weights + kOfWindow))
    throw UsageError(fmt::format("{}: {} windows with {} weights along a dimension are too many", operation,
                                 outputs, weights));
}

Shape spatial_sizes(const Signature& s, const TensorType& x) {
  if (x.pattern || x.shape.size() < 3 || x.shape.size() > 4)
    throw UsageError(
        fmt::format("{}: x is {}; it must be [N, length, channels] or [N, height, width, channels]",
                    s.operation, to_string(x)));
  return sizes_of_image(x);
}

TensorType with_spatial_sizes(const TensorType& x, const Shape& sizes) {
  TensorType y = x;
  std::ranges::copy(sizes, y.shape.begin() + 1);
  return y;
}

ImageWindows image_windows(std::vector<Windows> of_dimensions) {
  if (of_dimensions.size() == 1) return {of_one(), std::move(of_dimensions[0])};
  return {std::move(of_dimensions.at(0)), std::move(of_dimensions.at(1))};
}

Array largest_of(const Array& x, const TensorType& type, const ImageWindows& windows) {
  const ImageLayout layout(type, windows);
  Array y(layout.samples * layout.outputs() * layout.channels, -std::numeric_limits<double>::infinity());
  layout.each([&](const Taps& i, const Taps& j, uint64_t from, uint64_t to) {
    layout.each_element(i, j, [&](uint32_t, uint32_t, uint64_t at) {
      if (x[from + at] > y[to] || std::isnan(x[from + at])) y[to] = x[from + at];
    });
  });
  return y;
}

Array largest_gradient(const Array& dy, const Array& x, const TensorType& type, const ImageWindows& windows) {
  const ImageLayout layout(type, windows);
  Array dx(x.size());
  layout.each([&](const Taps& i, const Taps& j, uint64_t from, uint64_t to) {
    std::optional<uint64_t> first;
    layout.each_element(i, j, [&](uint32_t, uint32_t, uint64_t at) {
      if (!first || x[from + at] > x[*first] || std::isnan(x[from + at])) first = from + at;
    });
    if (first) dx[*first] += dy[to];
  });
  return dx;
}

Array weighted_sums(const Array& x, const TensorType& type, const ImageWindows& windows) {
  const ImageLayout layout(type, windows);
  Array y(layout.samples * layout.outputs() * layout.channels);
  layout.each([&](const Taps& i, const Taps& j, uint64_t from, uint64_t to) {
    layout.each_element(i, j, [&](uint32_t a, uint32_t b, uint64_t at) {
      if (has(i, a) && has(j, b)) y[to] += tap_weight(i, a, j, b) * x[from + at];
    });
  });
  return y;
}

Value decomposed_largest(Value x, const ImageWindows& w) {
  constexpr double kNone = -std::numeric_limits<double>::infinity();
  if (const auto none = if_empty(x, w, kNone)) return *none;
  const uint32_t channels = x.type().cols(), taps = w.down.taps() * w.across.taps();
  const Value all = elements_of(x, w, kNone);
  const uint32_t outputs = all.type().cols() / taps;
  const Value most = x.owner().apply("max", {reshape(all, {channels * outputs, taps})},
                                     {{"over", "columns"}, {"ties", "first"}})[0];
  return transpose(reshape(most, {channels, outputs}));
}

Value decomposed_sums(Value x, const ImageWindows& w) {
  if (const auto none = if_empty(x, w, 0)) return *none;
  const uint32_t taps = w.down.taps() * w.across.taps();
  Value all = elements_of(cast(x, Type::f32), w, 0);
  std::vector<float> weights = weights_of(w);
  const auto is_same = [&](float weight) { return weight == 0 || weight == weights.front(); };
  const bool are_same = std::ranges::all_of(weights, is_same);
  const double factor = are_same ? weights.front() : 1;
  if (!are_same) {
    const size_t of_sample = weights.size();
    for (uint32_t n = 1; n < x.shape().front(); ++n)
      weights.insert(weights.end(), weights.begin(), weights.begin() + static_cast<int64_t>(of_sample));
    all = all * all.owner().constant("", {all.type().cols()}, std::move(weights));
  }
  const Value sums = sum_neighbours(all, taps);
  return cast(transpose(factor == 1 ? sums : sums * factor), x.type().type);
}

void lower_windows(Lowering& l, const Node& node, ops::Pooling kind, const ImageWindows& windows) {
  const TensorType& x = l.graph().type(node.inputs.back());
  std::vector<ops::Operand> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) operands.push_back(l.input(i));
  operands.push_back(l.output(0));
  l.add(ops::PoolProblem{kind, x.type, x.shape.front(), x.cols(), windows.down, windows.across,
                         l.is_transposed()},
        operands);
}

std::vector<int64_t> list_or(const Node& node, const char* name, size_t count, int64_t otherwise) {
  return node.attributes.contains(name) ? node.list(name) : std::vector<int64_t>(count, otherwise);
}

}  // namespace tessera::graph
