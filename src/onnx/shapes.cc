// Shapes and the order of elements.
#include <algorithm>
#include <numeric>
#include <utility>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Shape;
using graph::Value;

/// A value's elements in another shape.
Known reshaped(Call& call, const Known& x, Dims dims) {
  if (elements_of(dims) != elements_of(x.dims))
    refuse("{} does not have as many elements as {}", to_string(dims), to_string(x.dims));
  if (x.constant) return known(reshaped(*x.constant, std::move(dims)));
  Known y{x.type, std::move(dims), {}, x.value};
  if (y.dims.size() > graph::kMaxDimensions) return y;
  const Shape shape = as_shape(y.dims);
  if (x.value->shape() != shape) y.value = reshape(*x.value, shape);
  // A reshape that keeps the last two dimensions keeps the note that they are exchanged.
  const auto found = call.context.transposes.find(x.value->id);
  const Shape from = x.value->shape();  // of more dimensions than a graph has: merged
  const size_t rank = shape.size();
  if (found != call.context.transposes.end() && rank >= 2 && from.size() >= 2 &&
      std::equal(shape.end() - 2, shape.end(), from.end() - 2)) {
    Shape original = shape;
    std::swap(original[rank - 1], original[rank - 2]);
    if (found->second.type().elements() == y.value->type().elements())
      call.context.transposes.insert({y.value->id, reshape(found->second, original)});
  }
  return y;
}

Results reshape_to(Call& call) {
  const Dims& from = call[0].dims;
  Dims dims = call.integers(1);
  const bool keeps_zeros = call.integer("allowzero", 0) != 0;
  int64_t others = 1, open = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] == 0 && !keeps_zeros) {
      if (i >= from.size()) refuse("there is no dimension {} to copy of {}", i, to_string(from));
      dims[i] = from[i];
    }
    if (dims[i] < -1 || (dims[i] == -1 && open >= 0)) refuse("{} is not a shape", to_string(dims));
    if (dims[i] == -1)
      open = static_cast<int64_t>(i);
    else if (__builtin_mul_overflow(others, dims[i], &others))
      refuse("{} is too large", to_string(dims));
  }
  if (open >= 0) {
    const auto elements = static_cast<int64_t>(elements_of(from));
    if (others == 0 || elements % others != 0)
      refuse("{} does not fit the shape {}", to_string(from), to_string(dims));
    dims[static_cast<size_t>(open)] = elements / others;
  }
  return {reshaped(call, call[0], std::move(dims))};
}

Results flatten(Call& call) {
  const Dims& from = call[0].dims;
  int64_t axis = call.integer("axis", 1);
  if (axis < 0) axis += static_cast<int64_t>(from.size());
  if (axis < 0 || axis > static_cast<int64_t>(from.size())) refuse("there is no dimension {}", axis);
  const auto middle = from.begin() + axis;
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
  };
  return {reshaped(call, call[0], {product(from.begin(), middle), product(middle, from.end())})};
}

Results squeeze(Call& call) {
  const Dims& from = call[0].dims;
  std::vector<bool> dropped(from.size());
  if (const auto axes = call.integers_of(1, "axes"))
    for (const int64_t axis : *axes) dropped[Call::dimension(axis, from.size())] = true;
  else
    for (size_t i = 0; i < from.size(); ++i) dropped[i] = from[i] == 1;
  Dims dims;
  for (size_t i = 0; i < from.size(); ++i)
    if (!dropped[i])
      dims.push_back(from[i]);
    else if (from[i] != 1)
      refuse("dimension {} of {} cannot be left out", i, to_string(from));
  return {reshaped(call, call[0], std::move(dims))};
}

Results unsqueeze(Call& call) {
  const auto axes = call.integers_of(1, "axes");
  if (!axes) refuse("its axes are missing");
  const Dims& from = call[0].dims;
  if (axes->size() > kMostDimensions) refuse("{} more dimensions are not possible", axes->size());
  Dims dims(from.size() + axes->size());
  for (const size_t dim : Call::dimensions(*axes, 0, dims.size())) dims[dim] = 1;
  auto next = from.begin();
  for (int64_t& size : dims)
    if (size == 0) size = *next++;
  return {reshaped(call, call[0], std::move(dims))};
}

/// Dimensions that stay together, ignoring dimensions of size 1.
struct Run {
  int64_t first;
  uint32_t size;

  bool operator==(const Run& other) const = default;
};

std::vector<Run> runs_of(const Dims& dims, const std::vector<int64_t>& order) {
  std::vector<Run> runs;
  int64_t next = 0;  // the dimension that would continue the last run
  for (const int64_t d : order) {
    const auto size = static_cast<uint32_t>(dims[static_cast<size_t>(d)]);
    if (size == 1) continue;
    while (next < d && dims[static_cast<size_t>(next)] == 1) ++next;
    if (!runs.empty() && d == next)
      runs.back().size *= size;
    else
      runs.push_back({d, size});
    next = d + 1;
  }
  return runs;
}

uint32_t length_of(const std::vector<Run>& runs, size_t begin, size_t end) {
  uint32_t size = 1;
  for (size_t i = begin; i < end; ++i) size *= runs[i].size;
  return size;
}

/// Permutes a value with more dimensions than a graph supports: merges dimensions that stay together, and if
/// these are still too many, permutes in several steps.
Value permuted(const Known& x, const std::vector<int64_t>& order) {
  const std::vector<Run> wanted = runs_of(x.dims, order);
  std::vector<Run> now = wanted;
  std::ranges::sort(now, {}, &Run::first);
  const auto at = [](const std::vector<Run>& runs, const Run& run) {
    return static_cast<size_t>(std::ranges::find(runs, run) - runs.begin());
  };
  Value y = *x.value;
  if (now.size() <= graph::kMaxDimensions) {
    Shape shape;
    std::vector<int> dims;
    for (const Run& run : now) shape.push_back(run.size);
    for (const Run& run : wanted) dims.push_back(static_cast<int>(at(now, run)));
    return permute(y.shape() == shape ? y : reshape(y, shape), dims);
  }
  for (size_t i = 0; i < now.size(); ++i) {
    const size_t begin = at(now, wanted[i]);
    if (begin == i) continue;
    size_t count = 1;
    while (begin + count < now.size() && now[begin + count] == wanted[i + count]) ++count;
    const size_t end = begin + count;
    const Shape shape = {length_of(now, 0, i), length_of(now, i, begin), length_of(now, begin, end),
                         length_of(now, end, now.size())};
    y = permute(reshape(y, shape), {0, 2, 1, 3});
    std::rotate(now.begin() + static_cast<int64_t>(i), now.begin() + static_cast<int64_t>(begin),
                now.begin() + static_cast<int64_t>(end));
  }
  return y;
}

Results transpose_values(Call& call) {
  const Known& x = call[0];
  const size_t rank = x.dims.size();
  const std::vector<int64_t> order = call.permutation(rank);
  Known y{x.type, {}, {}, {}};
  for (const int64_t d : order) y.dims.push_back(x.dims[static_cast<size_t>(d)]);
  if (std::ranges::is_sorted(order)) return {x};
  if (!x.constant && rank > graph::kMaxDimensions) {
    y.value = permuted(x, order);
    return {y};
  }
  const Value from = call.value(0);
  y.value = permute(from, {order.begin(), order.end()});
  std::vector<int> other(order.begin(), order.end());
  std::swap(other[rank - 1], other[rank - 2]);
  if (other.back() == static_cast<int>(rank) - 1)  // the last dimension is still the last
    call.context.transposes.insert(
        {y.value->id, std::ranges::is_sorted(other) ? from : permute(from, other)});
  return {y};
}

/// The value in the shape that it is broadcast to.
Known expanded(Call& call, const Known& x, const Dims& dims) {
  if (dims == x.dims) return x;
  if (elements_of(dims) == elements_of(x.dims)) return reshaped(call, x, dims);
  const Value from = call.value_of(x);
  Shape shape = as_shape(x.dims);
  shape.insert(shape.begin(), dims.size() - shape.size(), 1);
  return known(expand(reshape(from, shape), as_shape(dims)), x.type);
}

Results expand_to(Call& call) {
  return {expanded(call, call[0], common_dims(call[0].dims, call.integers(1)))};
}

Results tile(Call& call) {
  const std::vector<int64_t>& times = call.integers(1);
  const Dims& from = call[0].dims;
  if (times.size() != from.size()) refuse("{} repeats of {} dimensions", times.size(), from.size());
  Value x = call.value(0);
  constexpr int64_t kMost = 1 << 16;  // values that one operation concatenates
  for (size_t d = 0; d < from.size(); ++d) {
    if (times[d] < 1 || times[d] > kMost) refuse("{} repeats are not possible", times[d]);
    if (times[d] == 1) continue;
    if (x.shape()[d] == 1) {
      Shape shape = x.shape();
      shape[d] = static_cast<uint32_t>(times[d]);
      x = expand(x, shape);
    } else {
      call.context.spend(static_cast<uint64_t>(times[d]));
      x = concatenate(std::vector<Value>(static_cast<size_t>(times[d]), x), static_cast<uint32_t>(d));
    }
  }
  return {known(x, call[0].type)};
}

Results concatenate_values(Call& call) {
  std::vector<Value> parts;
  const size_t axis = call.axis(call[0].dims.size());
  for (size_t i = 0; i < call.size(); ++i)
    if (elements_of(call[i].dims) > 0) parts.push_back(call.value(i));
  if (parts.empty()) return {call[0]};
  if (parts.size() == 1) return {known(parts[0], call[0].type)};
  return {known(concatenate(parts, static_cast<uint32_t>(axis)), call[0].type)};
}

Results split_value(Call& call) {
  const Dims& from = call[0].dims;
  const size_t axis = call.axis(from.size(), 0);
  const auto count = static_cast<int64_t>(call.node.output_size());
  std::vector<int64_t> sizes;
  if (const auto given = call.integers_of(1, "split")) {
    sizes = *given;
  } else {
    const int64_t each = (from[axis] + count - 1) / std::max<int64_t>(count, 1);
    for (int64_t i = 0; i < count; ++i) sizes.push_back(std::clamp<int64_t>(from[axis] - i * each, 0, each));
  }
  if (static_cast<int64_t>(sizes.size()) != count) refuse("{} sizes for {} parts", sizes.size(), count);
  Results parts;
  int64_t begin = 0;
  const Value x = call.value(0);
  for (const int64_t size : sizes) {
    if (size < 0 || size > from[axis] - begin)
      refuse("parts of {} do not fit dimension {} of {}", to_string(sizes), axis, to_string(from));
    if (size == 0) {
      Dims none = from;
      none[axis] = 0;
      parts.push_back(known(of_numbers({}, std::move(none), call[0].type)));
      continue;
    }
    const bool is_all = size == from[axis];
    const auto first = static_cast<uint32_t>(begin), end = static_cast<uint32_t>(begin + size);
    parts.push_back(known(is_all ? x : slice(x, static_cast<uint32_t>(axis), first, end), call[0].type));
    begin += size;
  }
  if (begin != from[axis])
    refuse("parts of {} are not all of dimension {} of {}", to_string(sizes), axis, to_string(from));
  return parts;
}

/// [batch, channels, …] with blocks of channels as neighbours in space.
Results depth_to_space(Call& call) {
  const Known& x = call[0];
  const int64_t b = call.integer("blocksize");
  if (x.dims.size() != 4 || b < 1 || b > 1 << 12 || x.dims[1] % (b * b) != 0)
    refuse("blocks of {} are not possible for {}", b, to_string(x.dims));
  const int64_t n = x.dims[0], c = x.dims[1] / (b * b), h = x.dims[2], w = x.dims[3];
  const Value v = call.value(0);
  const auto u = [](int64_t size) { return static_cast<uint32_t>(size); };
  // In two steps of five dimensions each: columns of blocks, then their rows.
  if (call.text("mode", "DCR") == "DCR") {
    const Value first = permute(reshape(v, {u(n * b), u(b), u(c), u(h), u(w)}), {0, 2, 3, 4, 1});
    const Value second = permute(reshape(first, {u(n), u(b), u(c), u(h), u(w * b)}), {0, 2, 3, 1, 4});
    return {known(reshape(second, {u(n), u(c), u(h * b), u(w * b)}), x.type)};
  }
  const Value first = permute(reshape(v, {u(n * c * b), u(b), u(h), u(w)}), {0, 2, 3, 1});
  const Value second = permute(reshape(first, {u(n * c), u(b), u(h), u(w * b)}), {0, 2, 1, 3});
  return {known(reshape(second, {u(n), u(c), u(h * b), u(w * b)}), x.type)};
}

Results space_to_depth(Call& call) {
  const Known& x = call[0];
  const int64_t b = call.integer("blocksize");
  if (x.dims.size() != 4 || b < 1 || b > 1 << 12 || x.dims[2] % b != 0 || x.dims[3] % b != 0)
    refuse("blocks of {} are not possible for {}", b, to_string(x.dims));
  const auto u = [](int64_t size) { return static_cast<uint32_t>(size); };
  const uint32_t n = u(x.dims[0]), c = u(x.dims[1]), h = u(x.dims[2] / b), w = u(x.dims[3] / b), f = u(b);
  if (call.text("mode", "DCR") == "CRD") {
    const Value rows = permute(reshape(call.value(0), {n * c, h, f, w * f}), {0, 2, 1, 3});
    const Value cols = permute(reshape(rows, {n * c * f, h, w, f}), {0, 3, 1, 2});
    return {known(reshape(cols, {n, c * f * f, h, w}), x.type)};
  }
  const Value rows = permute(reshape(call.value(0), {n, c, h, f, w * f}), {0, 3, 1, 2, 4});
  const Value cols = permute(reshape(rows, {n * f, c, h, w, f}), {0, 4, 1, 2, 3});
  return {known(reshape(cols, {n, u(b * b) * c, h, w}), x.type)};
}

Results shape_of_value(Call& call) {
  const Dims& dims = call[0].dims;
  const auto rank = static_cast<int64_t>(dims.size());
  const auto place = [&](const char* name, int64_t otherwise) {
    const int64_t at = call.integer(name, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t begin = place("start", 0), end = std::max(begin, place("end", rank));
  return {known(integers({dims.begin() + begin, dims.begin() + end}, {end - begin}))};
}

Results size_of_value(Call& call) {
  return {known(integers({static_cast<int64_t>(elements_of(call[0].dims))}, {}))};
}

constexpr Operator kShapesOperators[] = {{"Concat", concatenate_values, kAnyNumber},
                                         {"DepthToSpace", depth_to_space},
                                         {"Expand", expand_to, 2},
                                         {"Flatten", flatten},
                                         {"Reshape", reshape_to, 2},
                                         {"Shape", shape_of_value},
                                         {"Size", size_of_value},
                                         {"SpaceToDepth", space_to_depth},
                                         {"Split", split_value, 2},
                                         {"Squeeze", squeeze, 2},
                                         {"Tile", tile, 2},
                                         {"Transpose", transpose_values},
                                         {"Unsqueeze", unsqueeze, 2}};

}  // namespace

std::span<const Operator> shape_operators() { return kShapesOperators; }

}  // namespace tessera::onnx
