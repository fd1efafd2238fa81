// The largest element or the mean of windows of images.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <tessera/gradients.h>
#include <tessera/vision.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "operations/image_windows.h"
#include "operations/list.h"

namespace tessera::graph {
namespace {

using ops::Taps;
using ops::Windows;

constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max();

/// Windows along one dimension, as attributes have them.
struct Sliding {
  int64_t size, window, stride, before, after, dilation;
  bool ceil;

  int64_t extent() const { return (window - 1) * dilation + 1; }
  int64_t padded() const { return size + before + after; }
  int64_t outputs() const {
    const int64_t rest = padded() - extent() + (ceil ? stride - 1 : 0);
    if (rest < 0) return 0;
    const int64_t count = rest / stride + 1;
    return ceil && (count - 1) * stride >= size + before ? count - 1 : count;
  }
};

std::vector<Sliding> sliding_of(const Node& node, const Shape& sizes) {
  const size_t count = sizes.size();
  const std::vector<int64_t> window = list_or(node, "window", count, 0),
                             stride = list_or(node, "stride", count, 1),
                             padding = list_or(node, "padding", 2 * count, 0),
                             dilation = list_or(node, "dilation", count, 1);
  if (window.size() != count || stride.size() != count || padding.size() != 2 * count ||
      dilation.size() != count)
    throw UsageError(
        fmt::format("pooling: a window of [{}], stride of [{}], padding of [{}] and dilation of [{}] "
                    "do not fit {} dimensions",
                    fmt::join(window, ", "), fmt::join(stride, ", "), fmt::join(padding, ", "),
                    fmt::join(dilation, ", "), count));
  std::vector<Sliding> all;
  for (size_t d = 0; d < count; ++d)
    all.push_back({sizes[d], window[d], stride[d], padding[d], padding[count + d], dilation[d],
                   node.integer("ceil", 0) != 0});
  return all;
}

void check_pooling(const Sliding& s) {
  const auto is_size = [](int64_t number, int64_t least) { return number >= least && number <= kMostSize; };
  if (!is_size(s.window, 1) || !is_size(s.stride, 1) || !is_size(s.dilation, 1))
    throw UsageError(
        fmt::format("pooling: a window of {}, a stride of {} and a dilation of {} must be at least 1 "
                    "and less than 2^31",
                    s.window, s.stride, s.dilation));
  if (!is_size(s.before, 0) || !is_size(s.after, 0) || std::max(s.before, s.after) >= s.extent())
    throw UsageError(
        fmt::format("pooling: a padding of {} and {} must be at least 0, and less than the {} "
                    "elements that a window extends over",
                    s.before, s.after, s.extent()));
  if (s.outputs() < 1)
    throw UsageError(
        fmt::format("pooling: windows that extend over {} elements do not fit {} with a padding of {} and {}",
                    s.extent(), s.size, s.before, s.after));
}

/// Windows of the elements within the dimension. A mean has contiguous elements, of which some may not count.
Windows pooling_windows_of(const Sliding& s, bool is_mean, bool counts_padding) {
  Windows windows{static_cast<uint32_t>(s.size), is_mean ? 1 : static_cast<uint32_t>(s.dilation)};
  for (int64_t i = 0; i < s.outputs(); ++i) {
    const int64_t begin = i * s.stride - s.before;
    const auto taps_below = [&](int64_t end) {
      return std::clamp((end - begin + s.dilation - 1) / s.dilation, int64_t{0}, s.window);
    };
    const int64_t first = begin < 0 ? (-begin + s.dilation - 1) / s.dilation : 0, end = taps_below(s.size);
    Taps window{static_cast<uint32_t>(std::max(int64_t{0}, begin + first * s.dilation))};
    if (first < end) {
      window.count = static_cast<uint32_t>(is_mean ? (end - first - 1) * s.dilation + 1 : end - first);
      window.weights.resize(is_mean ? window.count : 0);
      const auto all = static_cast<double>(counts_padding ? taps_below(s.size + s.after) : end - first);
      for (size_t t = 0; t < window.weights.size(); t += static_cast<size_t>(s.dilation))
        window.weights[t] = 1 / all;
    }
    windows.of.push_back(std::move(window));
  }
  return windows;
}

Windows adaptive(uint32_t size, uint32_t outputs) {
  Windows windows{size};
  for (uint64_t i = 0; i < outputs; ++i) {
    const auto begin = static_cast<uint32_t>(i * size / outputs),
               end = static_cast<uint32_t>(((i + 1) * size + outputs - 1) / outputs);
    windows.of.push_back({begin, end - begin, std::vector<double>(end - begin, 1.0 / (end - begin))});
  }
  return windows;
}

bool is_adaptive(const Node& node) { return node.attributes.contains("sizes"); }

ImageWindows pooling_windows_of(const Node& node, const Shape& sizes, bool is_mean) {
  std::vector<Windows> all;
  if (is_adaptive(node)) {
    for (size_t d = 0; d < sizes.size(); ++d)
      all.push_back(adaptive(sizes[d], static_cast<uint32_t>(node.list("sizes")[d])));
  } else {
    for (const Sliding& s : sliding_of(node, sizes))
      all.push_back(pooling_windows_of(s, is_mean, node.integer("counts_padding", 1) != 0));
    // A divisor for all dimensions together is applied to the first.
    if (const int64_t divisor = node.integer("divisor", 0); divisor != 0)
      for (size_t d = 0; d < all.size(); ++d)
        for (Taps& window : all[d].of)
          for (double& weight : window.weights)
            if (weight != 0) weight = d == 0 ? 1 / static_cast<double>(divisor) : 1;
  }
  if (!is_mean)
    for (Windows& windows : all)
      for (Taps& window : windows.of) window.weights.clear();
  return image_windows(std::move(all));
}

Shape output_sizes(const Signature& s, const Shape& sizes) {
  Shape outputs;
  const bool is_mean = s.operation.starts_with("average_pool");
  if (is_adaptive(s.attributes)) {
    const std::vector<int64_t>& wanted = s.attributes.list("sizes");
    if (wanted.size() != sizes.size() ||
        !std::ranges::all_of(wanted, [](int64_t size) { return size >= 1 && size <= kMostSize; }))
      throw UsageError(fmt::format("{}: sizes of [{}] for {} dimensions; they must be at least 1",
                                   s.operation, fmt::join(wanted, ", "), sizes.size()));
    outputs.assign(wanted.begin(), wanted.end());
    for (size_t d = 0; d < sizes.size(); ++d)
      require_windows(s.operation, outputs[d], is_mean ? sizes[d] / outputs[d] + 2 : 0);
    return outputs;
  }
  for (const Sliding& each : sliding_of(s.attributes, sizes)) {
    check_pooling(each);
    const auto weights = static_cast<uint64_t>(is_mean ? std::min(each.extent(), each.size) : 0);
    require_windows(s.operation, static_cast<uint64_t>(each.outputs()), weights);
    outputs.push_back(static_cast<uint32_t>(each.outputs()));
  }
  return outputs;
}

/// The sizes of the image whose gradient it is.
Shape sizes_of_gradient(const Node& node) {
  const std::vector<int64_t>& sizes = node.list("size");
  return {sizes.begin(), sizes.end()};
}

Types infer_pooling(const Signature& s) {
  const TensorType& x = s.inputs[0];
  const Shape sizes = spatial_sizes(s, x);
  require_float(s, x);
  s.attributes.integer("counts_padding", 1);
  if (const int64_t divisor = s.attributes.integer("divisor", 0); divisor < 0 || divisor > kMostSize)
    throw UsageError(fmt::format("{}: a divisor of {} must be at least 1", s.operation, divisor));
  return {with_spatial_sizes(x, output_sizes(s, sizes))};
}

// Maxima.

ImageWindows maxima_of(const Node& node, const TensorType& x) {
  return pooling_windows_of(node, sizes_of_image(x), false);
}

Types infer_pooling_gradient(const Signature& s) {
  const TensorType& x = s.inputs[1];
  require_type(s, s.inputs[0], "dy", infer_pooling({s.operation, {x}, s.attributes})[0]);
  return {x};
}

std::vector<Value> decompose_maxima(const Decomposition& d) {
  const Value x = d.inputs[0];
  const ImageWindows windows = maxima_of(d.node, x.type());
  const Shape sizes = windows.down.size == 1 && x.shape().size() == 3
                          ? Shape{windows.across.outputs()}
                          : Shape{windows.down.outputs(), windows.across.outputs()};
  return {reshape(decomposed_largest(x, windows), with_spatial_sizes(x.type(), sizes).shape)};
}

/// Decomposes the gradient as the gradient of the decomposition.
std::vector<Value> decompose_pooling_gradient(const Decomposition& d) {
  const Value x = d.inputs[1];
  const Value y = reshape(decomposed_largest(x, maxima_of(d.node, x.type())), d.inputs[0].shape());
  const std::optional<Value> gradient = gradients(sum(y * d.inputs[0]), {x})[0];
  return {gradient ? *gradient : less(x, x)};  // 0 where all windows lie in padding
}

// Means.

ImageWindows means_of(const Node& node, const TensorType& x) {
  return pooling_windows_of(node, sizes_of_image(x), true);
}

TensorType image_of_gradient(const Node& node, const TensorType& dy) {
  return with_spatial_sizes(dy, sizes_of_gradient(node));
}

Types infer_mean_gradient(const Signature& s) {
  const TensorType& dy = s.inputs[0];
  const Shape outputs = spatial_sizes(s, dy);
  const std::vector<int64_t>& size = s.attributes.list("size");
  if (size.size() != outputs.size() ||
      !std::ranges::all_of(size, [](int64_t of) { return of >= 1 && of <= kMostSize; }))
    throw UsageError(fmt::format("{}: [{}] are not sizes of an image of {} dimensions", s.operation,
                                 fmt::join(size, ", "), outputs.size()));
  const TensorType x = image_of_gradient(s.attributes, dy),
                   y = infer_pooling({s.operation, {x}, s.attributes})[0];
  require_type(s, dy, "dy", y);
  return {x};
}

ImageWindows windows_of_gradient(const Node& node, const TensorType& dy) {
  return means_of(node, image_of_gradient(node, dy)).transposed();
}

std::vector<Case> pooling_cases() {
  using List = std::vector<int64_t>;
  const auto use = [](Shape shape, Attributes attributes, Type type = Type::f32) {
    return Case{.inputs = {{type, std::move(shape), {}, {}}}, .attributes = std::move(attributes)};
  };
  std::vector<Case> cases = {
      use({2, 6, 8, 5}, {{"window", List{2, 2}}, {"stride", List{2, 2}}}),
      use({2, 7, 6, 19}, {{"window", List{3, 3}}, {"stride", List{2, 2}}, {"padding", List{1, 1, 1, 1}}}),
      use({1, 7, 8, 4}, {{"window", List{3, 2}},
                         {"stride", List{2, 3}},
                         {"padding", List{1, 0, 0, 1}},
                         {"ceil", int64_t{1}}}),
      use({2, 9, 7, 3}, {{"window", List{2, 3}}, {"dilation", List{3, 2}}, {"padding", List{1, 2, 0, 2}}}),
      use({3, 11, 6}, {{"window", List{4}}, {"stride", List{3}}}),
      use({2, 2, 6, 3}, {{"window", List{3, 3}}, {"stride", List{2, 2}}, {"ceil", int64_t{1}}}),
      use({2, 5, 7, 3}, {{"sizes", List{3, 4}}}),
      use({2, 4, 3}, {{"sizes", List{6}}})};
  for (Type type : {Type::f16, Type::bf16})
    cases.push_back(use({2, 5, 5, 9}, {{"window", List{3, 3}}, {"stride", List{2, 2}}}, type));
  return cases;
}

std::vector<Case> mean_cases() {
  std::vector<Case> all = pooling_cases();
  Case without = all[1], divided = all[2];
  without.attributes["counts_padding"] = int64_t{0};
  divided.attributes["divisor"] = int64_t{5};
  all.insert(all.end(), {without, divided});
  return all;
}

TensorType result_of(const Case& c) {
  const Node node{.attributes = c.attributes};
  return infer_pooling({"pooling", c.inputs, node})[0];
}

std::vector<Case> pooling_gradient_cases() {
  std::vector<Case> all = pooling_cases();
  for (Case& c : all) {
    c.inputs = {result_of(c), c.inputs[0]};
    c.differentiable = false;  // the derivative by x is 0 wherever there is one
  }
  return all;
}

std::vector<Case> mean_gradient_cases() {
  std::vector<Case> all = mean_cases();
  for (Case& c : all) {
    const Shape sizes = sizes_of_image(c.inputs[0]);
    c.inputs = {result_of(c)};
    c.attributes["size"] = as_integers(sizes);
  }
  return all;
}

Attributes with_size(const Node& node, const TensorType& x) {
  Attributes attributes = node.attributes;
  const Shape sizes = sizes_of_image(x);
  attributes["size"] = as_integers(sizes);
  return attributes;
}

constexpr Operation kPooling[] = {
    {.name = "max_pool",
     .infer = infer_pooling,
     .gradient =
         [](const Differentiation& d) {
           return Gradients{d.graph.apply("max_pool_gradient", {*d.dy[0], d.input(0)}, d.node.attributes)[0]};
         },
     .reference =
         [](const Evaluation& e) {
           return std::vector<Array>{
               largest_of(*e.inputs[0], e.input_type(0), maxima_of(e.node, e.input_type(0)))};
         },
     .layouts = same_layouts,
     .lower =
         [](Lowering& l, const Node& node) {
           lower_windows(l, node, ops::Pooling::maximum, maxima_of(node, l.graph().type(node.inputs[0])));
         },
     .cases = pooling_cases,
     .traits = {.keeps_samples = elements_keep_samples},
     .decompose = decompose_maxima,
     .lowers_on = lowers_on_hosts},
    {.name = "max_pool_gradient",
     .least_inputs = 2,
     .most_inputs = 2,
     .infer = infer_pooling_gradient,
     .reference =
         [](const Evaluation& e) {
           return std::vector<Array>{largest_gradient(*e.inputs[0], *e.inputs[1], e.input_type(1),
                                                      maxima_of(e.node, e.input_type(1)))};
         },
     .layouts = same_layouts,
     .lower =
         [](Lowering& l, const Node& node) {
           lower_windows(l, node, ops::Pooling::maximum_gradient,
                         maxima_of(node, l.graph().type(node.inputs[1])));
         },
     .cases = pooling_gradient_cases,
     .traits = {.keeps_samples = [](const Divided& divided) { return divided.are_all(); }},
     .decompose = decompose_pooling_gradient,
     .lowers_on = lowers_on_hosts},
    {.name = "average_pool",
     .infer = infer_pooling,
     .gradient =
         [](const Differentiation& d) {
           return Gradients{
               d.graph.apply("average_pool_gradient", {*d.dy[0]}, with_size(d.node, d.input(0).type()))[0]};
         },
     .reference =
         [](const Evaluation& e) {
           return std::vector<Array>{
               weighted_sums(*e.inputs[0], e.input_type(0), means_of(e.node, e.input_type(0)))};
         },
     .layouts = same_layouts,
     .lower =
         [](Lowering& l, const Node& node) {
           lower_windows(l, node, ops::Pooling::weighted_sum, means_of(node, l.graph().type(node.inputs[0])));
         },
     .cases = mean_cases,
     .traits = {.keeps_samples = elements_keep_samples},
     .decompose =
         [](const Decomposition& d) {
           const Value x = d.inputs[0];
           return std::vector<Value>{reshape(decomposed_sums(x, means_of(d.node, x.type())),
                                             infer_pooling({"average_pool", {x.type()}, d.node})[0].shape)};
         },
     .lowers_on = lowers_on_hosts},
    {.name = "average_pool_gradient",
     .infer = infer_mean_gradient,
     .gradient =
         [](const Differentiation& d) {
           Attributes attributes = d.node.attributes;
           attributes.erase("size");
           return Gradients{d.graph.apply("average_pool", {*d.dy[0]}, std::move(attributes))[0]};
         },
     .reference =
         [](const Evaluation& e) {
           return std::vector<Array>{
               weighted_sums(*e.inputs[0], e.input_type(0), windows_of_gradient(e.node, e.input_type(0)))};
         },
     .layouts = same_layouts,
     .lower =
         [](Lowering& l, const Node& node) {
           lower_windows(l, node, ops::Pooling::weighted_sum,
                         windows_of_gradient(node, l.graph().type(node.inputs[0])));
         },
     .cases = mean_gradient_cases,
     .traits = {.keeps_samples = elements_keep_samples},
     .decompose =
         [](const Decomposition& d) {
           const Value dy = d.inputs[0];
           return std::vector<Value>{reshape(decomposed_sums(dy, windows_of_gradient(d.node, dy.type())),
                                             image_of_gradient(d.node, dy.type()).shape)};
         },
     .lowers_on = lowers_on_hosts}};

/// One number for each dimension.
std::vector<int64_t> for_each(const std::vector<uint32_t>& numbers, size_t dimensions) {
  if (numbers.size() == 1) return std::vector<int64_t>(dimensions, numbers[0]);
  return {numbers.begin(), numbers.end()};
}

Attributes pooling_attributes_of(Value x, const Pooling& of) {
  const size_t dimensions = x.shape().size() < 3 ? 1 : x.shape().size() - 2;
  const auto or_zeros = [&](const std::vector<uint32_t>& numbers) {
    return for_each(numbers.empty() ? std::vector<uint32_t>{0} : numbers, dimensions);
  };
  Attributes attributes = {{"window", for_each(of.window, dimensions)},
                           {"stride", for_each(of.stride.empty() ? of.window : of.stride, dimensions)}};
  std::vector<int64_t> padding = or_zeros(of.before);
  const std::vector<int64_t> after = or_zeros(of.after);
  padding.insert(padding.end(), after.begin(), after.end());
  if (std::ranges::any_of(padding, [](int64_t size) { return size != 0; }))
    attributes["padding"] = std::move(padding);
  if (!of.dilation.empty()) attributes["dilation"] = for_each(of.dilation, dimensions);
  if (of.ceil) attributes["ceil"] = int64_t{1};
  return attributes;
}

Value adaptive_pool(const char* operation, Value x, const std::vector<uint32_t>& sizes) {
  const size_t dimensions = x.shape().size() < 3 ? 1 : x.shape().size() - 2;
  return x.owner().apply(operation, {x}, {{"sizes", for_each(sizes, dimensions)}})[0];
}

}  // namespace

std::span<const Operation> pooling_operations() { return kPooling; }

Value max_pool(Value x, const Pooling& of) {
  return x.owner().apply("max_pool", {x}, pooling_attributes_of(x, of))[0];
}

Value average_pool(Value x, const Pooling& of, bool counts_padding, std::optional<uint32_t> divisor) {
  if (divisor && *divisor == 0) throw UsageError("average_pool: the divisor is 0; it must be at least 1");
  Attributes attributes = pooling_attributes_of(x, of);
  if (!counts_padding) attributes["counts_padding"] = int64_t{0};
  if (divisor) attributes["divisor"] = int64_t{*divisor};
  return x.owner().apply("average_pool", {x}, std::move(attributes))[0];
}

Value adaptive_max_pool(Value x, const std::vector<uint32_t>& sizes) {
  return adaptive_pool("max_pool", x, sizes);
}

Value adaptive_average_pool(Value x, const std::vector<uint32_t>& sizes) {
  return adaptive_pool("average_pool", x, sizes);
}

}  // namespace tessera::graph
