// What a window over images sees, and the reverse: codelets on hosts, gathered rows elsewhere.
#include "ops/map/patches.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

#include "lower/lowering.h"
#include "operations/list.h"
#include "operations/window.h"

namespace tessera::graph {
namespace {

using kernels::Window;

void require_images(const Signature& s) {
  require_float(s, s.inputs[0]);
  require_dense(s);
}

/// The window of a node over an image.
Window patches_window_of(const Node& node, const Shape& image) {
  return window_over(node.operation->name, node, image);
}

Types infer_patches(const Signature& s) {
  require_images(s);
  TensorType y = s.inputs[0];
  const Window window = window_over(s.operation, s.attributes, y.shape);
  y.shape = positions_of(y.shape, window, window.taps() * y.cols());
  return {y};
}

/// The image into which a value is folded.
Shape image_of(std::string_view operation, const Node& node, const TensorType& x) {
  const std::vector<int64_t>& sizes = node.list("size");
  const std::vector<int64_t>& kernel = node.list("kernel");
  uint64_t taps = 1;
  for (int64_t size : kernel) taps *= static_cast<uint64_t>(std::clamp<int64_t>(size, 1, UINT32_MAX));
  const bool are_sizes =
      std::ranges::all_of(sizes, [](int64_t size) { return size > 0 && size <= UINT32_MAX; });
  if (x.shape.size() != sizes.size() + 2 || !are_sizes || x.cols() % taps != 0)
    throw UsageError(fmt::format("{}: {} is not the positions and taps of an image of {} dimensions",
                                 operation, to_string(x), sizes.size()));
  Shape image = {x.shape[0]};
  for (int64_t size : sizes) image.push_back(static_cast<uint32_t>(size));
  image.push_back(static_cast<uint32_t>(x.cols() / taps));
  return image;
}
Shape image_of(const Node& node, const TensorType& x) { return image_of(node.operation->name, node, x); }

Types infer_fold(const Signature& s) {
  require_images(s);
  TensorType y = s.inputs[0];
  y.shape = image_of(s.operation, s.attributes, s.inputs[0]);
  const Window window = window_over(s.operation, s.attributes, y.shape);
  if (positions_of(y.shape, window, s.inputs[0].cols()) != s.inputs[0].shape)
    throw UsageError(fmt::format("{}: a window over {} has other positions than {}", s.operation,
                                 to_string(y), to_string(s.inputs[0])));
  return {y};
}

Attributes fold_attributes(Attributes window, const Shape& image) {
  window["size"] = std::vector<int64_t>(image.begin() + 1, image.end() - 1);
  return window;
}

Gradients patches_gradient(const Differentiation& d) {
  return {
      d.graph.apply("fold", {*d.dy[0]}, fold_attributes(window_attributes(d.node), d.input(0).shape()))[0]};
}

Gradients fold_gradient(const Differentiation& d) {
  return {d.graph.apply("patches", {*d.dy[0]}, window_attributes(d.node))[0]};
}

/// Calls visit(position of the result, tap, position of the image) for all that is within images.
template <class Visit>
void each_tap(const Window& w, uint32_t samples, const Visit& visit) {
  uint64_t at = 0;
  for (uint32_t n = 0; n < samples; ++n)
    for (uint32_t y = 0; y < w.out_height; ++y)
      for (uint32_t x = 0; x < w.out_width; ++x, ++at)
        for (uint32_t tap = 0; tap < w.taps(); ++tap) {
          const int64_t row = w.row(y, tap / w.kernel_width), col = w.col(x, tap % w.kernel_width);
          if (w.has_row(row) && w.has_col(col))
            visit(
                at, tap,
                (uint64_t{n} * w.height + static_cast<uint64_t>(row)) * w.width + static_cast<uint64_t>(col));
        }
}

std::vector<Array> patches_reference(const Evaluation& e) {
  const TensorType& image = e.input_type(0);
  const Window w = patches_window_of(e.node, image.shape);
  const uint32_t channels = image.cols();
  Array y(e.output_type(0).elements());
  each_tap(w, image.shape[0], [&](uint64_t at, uint32_t tap, uint64_t place) {
    for (uint32_t c = 0; c < channels; ++c)
      y[(at * w.taps() + tap) * channels + c] = (*e.inputs[0])[place * channels + c];
  });
  return {y};
}

std::vector<Array> fold_reference(const Evaluation& e) {
  const TensorType& image = e.output_type(0);
  const Window w = patches_window_of(e.node, image.shape);
  const uint32_t channels = image.cols();
  Array y(image.elements());
  each_tap(w, image.shape[0], [&](uint64_t at, uint32_t tap, uint64_t place) {
    for (uint32_t c = 0; c < channels; ++c)
      y[place * channels + c] += (*e.inputs[0])[(at * w.taps() + tap) * channels + c];
  });
  return {y};
}

/// The given rows of a matrix, one after the other; rows past the last are zeros. Groups of `neighbours` rows
/// are used together.
Value take_rows(Value x, std::vector<int64_t> rows, int64_t neighbours) {
  const TensorType& type = x.type();
  std::vector<Value> from = {transpose(x)};
  if (std::ranges::find(rows, int64_t{type.shape[0]}) != rows.end())
    from.push_back(x.graph->constant("", {type.cols(), 1}, std::vector<float>(type.cols()), type.type));
  return x.graph->apply("select_features", from,
                        {{"places", std::move(rows)}, {"neighbours", neighbours}})[0];
}

std::vector<Value> decompose_patches(const Decomposition& d) {
  const TensorType& image = d.inputs[0].type();
  const Window w = patches_window_of(d.node, image.shape);
  const uint32_t samples = image.shape[0], channels = image.cols();
  std::vector<int64_t> rows(uint64_t{samples} * w.out_positions() * w.taps(), image.rows());
  each_tap(w, samples, [&](uint64_t at, uint32_t tap, uint64_t place) {
    rows[at * w.taps() + tap] = static_cast<int64_t>(place);
  });
  const Value taken = take_rows(reshape(d.inputs[0], {image.rows(), channels}), std::move(rows), 1);
  return {reshape(transpose(taken), positions_of(image.shape, w, w.taps() * channels))};
}

std::vector<Value> decompose_fold(const Decomposition& d) {
  const TensorType& x = d.inputs[0].type();
  const Shape image = image_of(d.node, x);
  const Window w = patches_window_of(d.node, image);
  const uint32_t samples = image[0], channels = image.back();
  std::vector<std::vector<int64_t>> uses(uint64_t{samples} * w.positions());
  each_tap(w, samples, [&](uint64_t at, uint32_t tap, uint64_t place) {
    uses[place].push_back(static_cast<int64_t>(at * w.taps() + tap));
  });
  const size_t most =
      std::max<size_t>(std::ranges::max_element(uses, {}, &std::vector<int64_t>::size)->size(), 1);
  const uint32_t seen = x.rows() * w.taps();
  std::vector<int64_t> rows;
  for (const std::vector<int64_t>& of_place : uses) {
    rows.insert(rows.end(), of_place.begin(), of_place.end());
    rows.insert(rows.end(), most - of_place.size(), seen);
  }
  const Value taken =
      take_rows(reshape(d.inputs[0], {seen, channels}), std::move(rows), static_cast<int64_t>(most));
  const Value sums = most == 1 ? taken : sum_neighbours(taken, static_cast<uint32_t>(most));
  return {reshape(transpose(sums), image)};
}

ops::PatchesProblem patches_problem_of(Lowering& l, const Node& node, const Shape& image) {
  return {l.builder().type_of(l.input(0)), image[0], image.back(), patches_window_of(node, image),
          l.is_transposed()};
}

void lower_patches(Lowering& l, const Node& node) {
  l.add(patches_problem_of(l, node, l.graph().type(node.inputs[0]).shape), {l.input(0), l.output(0)});
}

void lower_fold(Lowering& l, const Node& node) {
  l.add(ops::FoldProblem{patches_problem_of(l, node, l.graph().type(node.outputs[0]).shape)},
        {l.input(0), l.output(0)});
}

bool patches_keeps_samples(const Divided& divided) { return divided.are_all(); }

struct Use {
  Type type;
  Shape image;
  Convolution window;
};

std::vector<Use> uses() {
  return {
      {Type::f32, {2, 5, 6, 3}, {.kernel = {3, 3}, .padding = {1, 1}}},
      {Type::f32, {2, 7, 9, 4}, {.kernel = {3, 2}, .stride = {2, 3}, .padding = {1, 0, 2, 1}}},
      {Type::f32, {3, 11, 5}, {.kernel = {3}, .padding = {2}, .dilation = {2}}},
      {Type::f32, {1, 6, 6, 8}, {.kernel = {1, 1}, .stride = {2, 2}}},
      {Type::f32, {2, 4, 4, 2}, {.kernel = {2, 2}, .stride = {3, 2}, .padding = {2, 3}, .dilation = {2, 3}}},
      {Type::f16, {2, 4, 9, 3}, {.kernel = {2, 3}, .stride = {1, 2}, .padding = {1, 1}}},
      {Type::bf16, {2, 8, 3}, {.kernel = {4}, .stride = {2}, .padding = {1}}}};
}

std::vector<Case> patches_cases() {
  std::vector<Case> cases;
  for (const Use& use : uses())
    cases.push_back(
        {.inputs = {{use.type, use.image, {}, {}}}, .attributes = attributes_of("patches", use.window)});
  return cases;
}

std::vector<Case> fold_cases() {
  std::vector<Case> cases;
  for (const Use& use : uses()) {
    const Node node{.attributes = attributes_of("fold", use.window)};
    const Window window = window_over("fold", node, use.image);
    cases.push_back(
        {.inputs = {{use.type, positions_of(use.image, window, window.taps() * use.image.back()), {}, {}}},
         .attributes = fold_attributes(node.attributes, use.image)});
  }
  return cases;
}

constexpr Operation kPatches[] = {{.name = "patches",
                                   .infer = infer_patches,
                                   .gradient = patches_gradient,
                                   .reference = patches_reference,
                                   .layouts = same_layouts,
                                   .lower = lower_patches,
                                   .cases = patches_cases,
                                   .traits = {.keeps_samples = patches_keeps_samples},
                                   .decompose = decompose_patches,
                                   .lowers_on = lowers_on_hosts},
                                  {.name = "fold",
                                   .infer = infer_fold,
                                   .gradient = fold_gradient,
                                   .reference = fold_reference,
                                   .layouts = same_layouts,
                                   .lower = lower_fold,
                                   .cases = fold_cases,
                                   .traits = {.keeps_samples = patches_keeps_samples},
                                   .decompose = decompose_fold,
                                   .lowers_on = lowers_on_hosts}};

}  // namespace

std::span<const Operation> patches_operations() { return kPatches; }

Value patches(Value x, const Convolution& window) {
  if (window.groups != 1)
    throw UsageError(fmt::format("patches: the window has {} groups; it must have one, as all see the same",
                                 window.groups));
  return x.owner().apply("patches", {x}, attributes_of("patches", window))[0];
}

Value fold(Value x, const Convolution& window, const Shape& sizes) {
  if (window.groups != 1)
    throw UsageError(
        fmt::format("fold: the window has {} groups; it must have one, as all see the same", window.groups));
  Attributes attributes = attributes_of("fold", window);
  attributes["size"] = as_integers(sizes);
  return x.owner().apply("fold", {x}, std::move(attributes))[0];
}

}  // namespace tessera::graph
