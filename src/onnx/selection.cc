// Elements by their positions.
#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <utility>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Shape;
using graph::Value;

/// Positions of a slice with this step, as NumPy counts them.
std::vector<int64_t> slice_places(Call& call, int64_t size, int64_t begin, int64_t end, int64_t step) {
  if (step == 0) refuse("a step is 0");
  const auto from_start = [&](int64_t at) { return at < 0 ? std::max<int64_t>(at, -size) + size : at; };
  const int64_t least = step > 0 ? 0 : -1, most = step > 0 ? size : size - 1;
  begin = std::clamp(from_start(begin), step > 0 ? int64_t{0} : int64_t{-1}, most);
  end = end < -size ? least : std::clamp(from_start(end), least, most);
  std::vector<int64_t> places;
  if (step > 0 ? begin >= end : begin <= end) return places;
  const int64_t distance = std::abs(end - begin), width = step > 0            ? step
                                                          : step == INT64_MIN ? INT64_MAX
                                                                              : -step;
  const int64_t count = (distance - 1) / width + 1;
  call.context.spend(static_cast<uint64_t>(count));
  places.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) places.push_back(begin + i * step);
  return places;
}

Results slice_value(Call& call) {
  const std::vector<int64_t>&begins = call.integers(1), &ends = call.integers(2);
  const size_t rank = call[0].dims.size(), count = begins.size();
  if (ends.size() != count || (call.has(3) && call.integers(3).size() != count) ||
      (call.has(4) && call.integers(4).size() != count))
    refuse("its starts, ends, axes and steps are not equally many");
  Value x = call.value(0);
  const std::vector<size_t> cut =
      Call::dimensions(call.has(3) ? call.integers(3) : std::vector<int64_t>(), count, rank);
  for (size_t i = 0; i < count; ++i) {
    const size_t dim = cut[i];
    const auto size = static_cast<int64_t>(x.shape()[dim]);
    const int64_t step = call.has(4) ? call.integers(4)[i] : 1;
    if (step == 1 && begins[i] == 0 && ends[i] >= size) continue;
    const std::vector<int64_t> places = slice_places(call, size, begins[i], ends[i], step);
    if (places.empty()) {
      if (count > i + 1) refuse("a slice without elements of several dimensions is not possible");
      Dims dims(x.shape().begin(), x.shape().end());
      dims[dim] = 0;
      return {known(of_numbers({}, std::move(dims), call[0].type))};
    }
    x = taken(x, dim, places);
  }
  return {known(x, call[0].type)};
}

/// Converts indices that may count from the end to indices from the start.
Value from_start(Value ids, uint32_t size) {
  if (ids.type().type == Type::u32) return ids;
  const Value beyond = number_like(ids, size), zero = number_like(ids, 0);
  return where(less(ids, zero), ids + beyond, ids);
}

Dims gathered_dims(const Dims& from, size_t axis, const Dims& ids) {
  Dims dims(from.begin(), from.begin() + static_cast<int64_t>(axis));
  dims.insert(dims.end(), ids.begin(), ids.end());
  dims.insert(dims.end(), from.begin() + static_cast<int64_t>(axis) + 1, from.end());
  return dims;
}

/// Gathered elements in these dimensions; more dimensions than a graph supports stay merged.
Known gathered(Value elements, Dims dims, DataType type) {
  if (dims.size() <= graph::kMaxDimensions) elements = reshape(elements, as_shape(dims));
  return {type, std::move(dims), {}, elements};
}

Results gather_rows(Call& call) {
  const Known &x = call[0], &ids = call[1];
  const size_t axis = call.axis(x.dims.size(), 0);
  const auto size = static_cast<uint32_t>(x.dims[axis]);
  const Dims dims = gathered_dims(x.dims, axis, ids.dims);
  if (!ids.constant && x.constant && x.dims.size() == 2)
    call.context.leave(*x.constant, call.weight_name(), name_of(NoGain::not_a_product));
  if (!ids.constant && axis == 0 && x.dims.size() == 2) {
    const Value table = x.constant ? call.context.table_of(x.constant) : call.value(0);
    return {gathered(embedding(from_start(call.value(1), size), table), dims, x.type)};
  }
  Value y = call.value(0);
  if (ids.constant) {
    std::vector<int64_t> places = call.integers(1);
    if (places.empty()) return {known(of_numbers({}, dims, x.type))};
    call.context.spend(places.size());
    for (int64_t& place : places) place += place < 0 ? size : 0;
    y = taken(y, axis, places);
  } else {
    const Value places = from_start(call.value(1), size);
    const auto count = static_cast<uint32_t>(places.type().elements());
    y = index_select(y, static_cast<int>(axis), reshape(places, {count}));
  }
  return {gathered(y, dims, x.type)};
}

Results gather_elements(Call& call) {
  Value x = call.value(0);
  const size_t axis = call.axis(x.shape().size(), 0);
  const Value ids = from_start(call.value(1), x.shape()[axis]);
  if (ids.shape().size() != x.shape().size()) refuse("its indices have other dimensions than its data");
  for (size_t d = 0; d < x.shape().size(); ++d)
    if (d != axis && x.shape()[d] != ids.shape()[d]) {
      if (ids.shape()[d] > x.shape()[d]) refuse("its indices are beyond its data");
      x = slice(x, static_cast<uint32_t>(d), 0, ids.shape()[d]);
    }
  return {known(gather(x, static_cast<int>(axis), ids), call[0].type)};
}

/// Positions of indices [batch, …, depth] along one of their first dimensions, as a list.
Value batch_index(const Call& call, Value ids, size_t dim, const Shape& flat) {
  call.context.spend(flat[0]);
  uint64_t inner = 1;
  for (size_t d = dim + 1; d + 1 < ids.shape().size(); ++d) inner *= ids.shape()[d];
  std::vector<int64_t> places(flat[0]);
  for (uint64_t i = 0; i < places.size(); ++i) places[i] = static_cast<int64_t>(i / inner % ids.shape()[dim]);
  return whole_numbers(call.graph, places, flat, ids.type().type);
}

/// Combines indices of several dimensions into an index of the merged dimension; -1 if one is out of range.
struct RowsOfData {
  Value ids;  ///< a list
  uint32_t count;
};

/// `batches`: the first dimensions of the indices are those of the data, which they do not name.
RowsOfData rows_of_data(const Call& call, size_t batches = 0) {
  const Known &x = call[0], &ids = call[1];
  bool fit = ids.dims.size() > batches && x.dims.size() > batches && ids.dims.back() >= 1 &&
             ids.dims.back() <= static_cast<int64_t>(x.dims.size() - batches);
  for (size_t d = 0; fit && d < batches; ++d) fit = x.dims[d] == ids.dims[d];
  if (!fit) refuse("indices of {} are not possible for {}", to_string(ids.dims), to_string(x.dims));
  const auto depth = static_cast<size_t>(ids.dims.back());
  const auto last = static_cast<uint32_t>(ids.dims.size() - 1);
  const Value all = call.value(1);
  const Shape flat = {static_cast<uint32_t>(all.type().elements() / depth)};
  const auto index_of = [&](size_t d) {
    if (d < batches) return batch_index(call, all, d, flat);
    const auto at = static_cast<uint32_t>(d - batches);
    return reshape(slice(all, last, at, at + 1), flat);
  };
  std::optional<Value> place, fits;
  uint64_t rows = 1;
  for (size_t d = 0; d < batches + depth; ++d) {
    const auto size = static_cast<uint32_t>(x.dims[d]);
    const Value own = from_start(index_of(d), size);
    const Value fits_here = less(cast(own, Type::u32), number_like(cast(own, Type::u32), size));
    place = place ? *place * number_like(own, size) + own : own;
    fits = fits ? *fits * fits_here : fits_here;
    rows *= size;
    if (rows > INT32_MAX) refuse("indices of more than 2^31 rows are not possible");
  }
  const Value signed_place = cast(*place, Type::i32);
  return {where(cast(*fits, Type::i32), signed_place, number_like(signed_place, -1)),
          static_cast<uint32_t>(rows)};
}

/// Rows of the first dimensions.
Results gather_nd(Call& call) {
  const Known &x = call[0], &ids = call[1];
  const int64_t batches = call.integer("batch_dims", 0);
  if (batches < 0 || batches > static_cast<int64_t>(graph::kMaxDimensions))
    refuse("{} dimensions of batches are not possible", batches);
  const RowsOfData rows = rows_of_data(call, static_cast<size_t>(batches));
  const Value data = call.value(0);
  const auto width = static_cast<uint32_t>(data.type().elements() / rows.count);
  const Value y = embedding(rows.ids, reshape(data, {rows.count, width}));
  Dims dims(ids.dims.begin(), ids.dims.end() - 1);
  dims.insert(dims.end(), x.dims.begin() + batches + ids.dims.back(), x.dims.end());
  return {gathered(y, std::move(dims), x.type)};
}

/// Data [rows, features] reduced with updates: each row with the updates whose index names it.
Value reduced_rows(const Call& call, Value data, Value ids, Value updates, const std::string& reduction) {
  const uint32_t rows = data.shape()[0], count = ids.shape()[0],
                 width = static_cast<uint32_t>(data.type().elements() / rows);
  constexpr uint64_t kMostCompared = 1 << 27, kMostRows = 1 << 24;  // numbers that FP32 holds exactly
  if (rows > kMostRows || uint64_t{rows} * count > kMostCompared / width)
    refuse("{} rows and {} updates of {} are too many to reduce by '{}'", rows, count, width, reduction);
  call.context.spend(rows);
  call.count_work(rows, count, width);
  std::vector<float> numbers(rows);
  std::iota(numbers.begin(), numbers.end(), 0.0F);
  const Value places = call.graph.constant("", {rows, 1}, std::move(numbers));
  // An index beyond the rows raises an error here.
  const Value at = reshape(embedding(ids, places), {1, count, 1});
  const Value is_own = cast(equal(reshape(places, {rows, 1, 1}), at), data.type().type);
  const Value own = reshape(data, {rows, 1, width}), given = reshape(updates, {1, count, width});
  Value y = own;
  if (reduction == "max")
    y = maximum(own, max(where(is_own, given, own), {1}, true));
  else if (reduction == "min")
    y = minimum(own, min(where(is_own, given, own), {1}, true));
  else if (reduction == "mul")
    y = own * product_over(where(is_own, given, number_like(own, 1)), 1);
  else if (reduction == "add")
    y = own + sum(where(is_own, given, number_like(own, 0)), {1}, true);
  else
    refuse("a reduction by '{}' is not possible", reduction);
  return wrapped(reshape(y, data.shape()), call[0].type);
}

/// Data [rows, features] with updates in some rows, or reduced with these.
Value scattered(const Call& call, Value data, Value ids, Value updates) {
  const std::string reduction = call.text("reduction", "none");
  if (reduction == "none") return scatter(data, ids, updates);
  if (reduction != "add" || is_integer(data)) return reduced_rows(call, data, ids, updates, reduction);
  return data + scatter_add(updates, 0, ids, data.shape()[0]);
}

Results scatter_nd_values(Call& call) {
  const RowsOfData rows = rows_of_data(call);
  const Value data = call.value(0), updates = call.value(2);
  const auto width = static_cast<uint32_t>(data.type().elements() / rows.count);
  const uint32_t count = rows.ids.shape()[0];
  if (updates.type().elements() != uint64_t{count} * width)
    refuse("{} updates for {} rows of {}", updates.type().elements(), count, width);
  const Value y =
      scattered(call, reshape(data, {rows.count, width}), rows.ids, reshape(updates, {count, width}));
  return {known(reshape(y, data.shape()), call[0].type)};
}

/// The position of the element of `data` to which each index along a dimension belongs; -1 where it is none.
Value element_places(Call& call, Value data, size_t axis) {
  const Shape shape = call.value(1).shape();
  constexpr uint64_t kMost = 1 << 24;  // numbers that constants hold exactly
  if (data.type().elements() > kMost) refuse("{} has more than 2^24 elements", to_string(call[0].dims));
  call.context.spend(call.value(1).type().elements());
  std::vector<float> begins(call.value(1).type().elements());
  uint32_t step = 1, along = 1;
  uint64_t inner = 1;
  for (size_t d = shape.size(); d-- > 0; inner *= shape[d], step *= data.shape()[d]) {
    if (d == axis) along = step;
    for (uint64_t i = 0; d != axis && i < begins.size(); ++i)
      begins[i] += static_cast<float>(i / inner % shape[d] * step);
  }
  const Value own = cast(from_start(call.value(1), data.shape()[axis]), Type::i32);
  const Value first = call.graph.constant("", shape, std::move(begins), Type::i32);
  const Value none = number_like(own, -1), size = number_like(own, data.shape()[axis]);
  const Value place = first + own * number_like(own, along);
  return where(less(none, own), where(less(own, size), place, none), none);
}

Results scatter_elements(Call& call) {
  const Value data = call.value(0), updates = call.value(2);
  const Shape shape = call.value(1).shape();
  if (shape.size() != data.shape().size() || updates.shape() != shape)
    refuse("indices of {} and updates of {} do not fit data of {}", to_string(call[1].dims),
           to_string(call[2].dims), to_string(call[0].dims));
  const size_t axis = call.axis(shape.size(), 0);
  for (size_t d = 0; d < shape.size(); ++d)
    if (d != axis && shape[d] > data.shape()[d]) refuse("its indices are beyond its data");
  const auto as_list = [](Value x) { return reshape(x, {static_cast<uint32_t>(x.type().elements())}); };
  const Value y = scattered(call, as_list(data), as_list(element_places(call, data, axis)), as_list(updates));
  return {known(reshape(y, data.shape()), call[0].type)};
}

/// The elements of a dimension, and those that pad it.
std::vector<int64_t> places_around(int64_t size, int64_t before, int64_t after, const std::string& mode) {
  std::vector<int64_t> places;
  for (int64_t at = -before; at < size + after; ++at) {
    if (mode == "edge")
      places.push_back(std::clamp<int64_t>(at, 0, size - 1));
    else if (mode == "wrap")
      places.push_back((at % size + size) % size);
    else if (mode == "reflect" && before < size && after < size)
      places.push_back(size - 1 - std::abs(size - 1 - std::abs(at)));
    else if (mode == "reflect")
      refuse("padding of {} and {} by 'reflect' takes more elements than the {} that there are", before,
             after, size);
    else
      refuse("padding by '{}' is not possible", mode);
  }
  return places;
}

/// With `before` constants before a dimension, and `after` behind it.
Value with_constants(const Call& call, Value x, size_t dim, int64_t before, int64_t after, double value) {
  if (before <= 0 && after <= 0) return x;
  before = std::max<int64_t>(0, before);
  after = std::max<int64_t>(0, after);
  // The added constants take as much memory as the padding.
  Dims padded(x.shape().begin(), x.shape().end());
  padded[dim] += before + after;
  call.context.require_room(padded, call[0].type);
  if (call.context.weights != nullptr) call.context.spend(elements_of(padded) - x.type().elements());
  return pad(x, static_cast<uint32_t>(dim), static_cast<uint32_t>(before), static_cast<uint32_t>(after),
             value);
}

Results pad_value(Call& call) {
  Value x = call.value(0);
  const size_t rank = x.shape().size();
  const std::vector<int64_t>& pads = call.integers(1);
  std::vector<int64_t> axes;
  if (call.has(3))
    axes = call.integers(3);
  else
    for (size_t i = 0; i < rank; ++i) axes.push_back(static_cast<int64_t>(i));
  if (pads.size() != 2 * axes.size()) refuse("{} paddings for {} dimensions", pads.size(), axes.size());
  const std::string mode = call.text("mode", "constant");
  const double value = call.has(2) ? call.number_of(2) : 0;
  constexpr int64_t kMost = int64_t{1} << 31;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t dim = Call::dimension(axes[i], rank);
    const int64_t before = pads[i], after = pads[i + axes.size()];
    for (const int64_t each : {before, after})
      if (each < -kMost || each > kMost) refuse("a padding of {} is too large", each);
    // Elements that negative padding cuts off are not among those that the other end repeats.
    const int64_t size = x.shape()[dim], first = std::max<int64_t>(0, -before),
                  end = size - std::max<int64_t>(0, -after);
    if (first >= end) refuse("a padding of {} and {} leaves nothing of {}", before, after, size);
    const auto at = static_cast<uint32_t>(dim);
    if (first > 0 || end < size) x = slice(x, at, static_cast<uint32_t>(first), static_cast<uint32_t>(end));
    if (mode == "constant" || (before <= 0 && after <= 0)) {
      x = with_constants(call, x, dim, before, after, value);
      continue;
    }
    const int64_t kept = end - first, more_before = std::max<int64_t>(0, before),
                  more_after = std::max<int64_t>(0, after);
    call.context.spend(static_cast<uint64_t>(more_before + kept + more_after));
    x = taken(x, dim, places_around(kept, more_before, more_after, mode));
  }
  return {known(x, call[0].type)};
}

/// The middle of dimensions that are too long, and others between zeros.
Results crop_or_pad(Call& call) {
  const std::vector<int64_t>& sizes = call.integers(1);
  Value x = call.value(0);
  const size_t rank = x.shape().size();
  const std::vector<size_t> dims =
      Call::dimensions(call.integers_if("axes").value_or(std::vector<int64_t>{}), rank, rank);
  if (sizes.size() != dims.size()) refuse("{} sizes for {} dimensions", sizes.size(), dims.size());
  for (size_t i = 0; i < dims.size(); ++i) {
    const int64_t size = x.shape()[dims[i]], wanted = sizes[i];
    if (wanted < 1 || wanted > INT32_MAX) refuse("a size of {} is not possible", wanted);
    const auto first = static_cast<uint32_t>(std::max<int64_t>(0, size - wanted) / 2);
    if (wanted < size)
      x = slice(x, static_cast<uint32_t>(dims[i]), first, first + static_cast<uint32_t>(wanted));
    const int64_t more = std::max<int64_t>(0, wanted - size);
    x = with_constants(call, x, dims[i], more / 2, more - more / 2, 0);
  }
  return {known(x, call[0].type)};
}

/// Where a list of truth values holds, along a dimension or of all elements.
Results compress(Call& call) {
  call.require_truth(1);
  const std::vector<int64_t>& kept = call.integers(1);
  Value x = call.value(0);
  size_t dim = 0;
  if (call.attribute("axis") == nullptr)
    x = reshape(x, {static_cast<uint32_t>(x.type().elements())});
  else
    dim = call.axis(x.shape().size());
  call.context.spend(kept.size());
  std::vector<int64_t> places;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i] != 0) places.push_back(static_cast<int64_t>(i));
  return {known(taken(x, dim, places), call[0].type)};
}

/// A matrix of the shape of the input with ones on a diagonal.
Results eye_like(Call& call) {
  const Dims& dims = call[0].dims;
  if (dims.size() != 2) refuse("{} is not a matrix", to_string(dims));
  const auto type = static_cast<DataType>(call.integer("dtype", static_cast<int64_t>(call[0].type)));
  if (!is_known(type)) refuse("elements of type {} are not possible", static_cast<int>(type));
  const int64_t rows = dims[0], cols = dims[1],
                above = std::clamp(call.integer("k", 0), -rows, cols);  // of the main diagonal
  call.context.spend(elements_of(dims));
  std::vector<double> values(elements_of(dims));
  for (int64_t r = std::max<int64_t>(0, -above); r < std::min(rows, cols - above); ++r)
    values[static_cast<size_t>(r * cols + r + above)] = 1;
  return {known(of_numbers(values, dims, type))};
}

Results triangle(Call& call) {
  const Value x = call.value(0);
  const size_t rank = x.shape().size();
  if (rank < 2) refuse("a triangle of {} is not possible", to_string(call[0].dims));
  const uint32_t rows = x.shape()[rank - 2], cols = x.shape()[rank - 1];
  const int64_t diagonal = call.has(1) ? std::clamp<int64_t>(call.integer_of(1), INT32_MIN, INT32_MAX) : 0;
  const bool upper = call.integer("upper", 1) != 0;
  call.context.spend(uint64_t{rows} * cols);
  std::vector<float> mask(uint64_t{rows} * cols);
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t c = 0; c < cols; ++c) {
      const int64_t distance = int64_t{c} - r;
      mask[uint64_t{r} * cols + c] = upper ? distance >= diagonal : distance <= diagonal;
    }
  const Value kept = call.graph.constant("", {rows, cols}, std::move(mask), x.type().type);
  return {known(where(kept, x, number_like(x, 0)), call[0].type)};
}

/// The product of all elements up to each, computed by products of 2, 4, 8, … elements.
Value cumulative_product_of(const Call& call, Value x, size_t dim) {
  const uint64_t size = x.shape()[dim];
  for (uint64_t step = 1; step < size; step *= 2) {
    const Value before = slice(x, static_cast<uint32_t>(dim), 0, static_cast<uint32_t>(size - step));
    x = x * with_constants(call, before, dim, static_cast<int64_t>(step), 0, 1);
  }
  return x;
}

template <bool is_product>
Results cumulate(Call& call) {
  call.require_numbers();
  Value x = call.value(0);
  const size_t dim = Call::dimension(call.integer_of(1), x.shape().size());
  const auto at = static_cast<uint32_t>(dim);
  const uint32_t size = x.shape()[dim];
  const bool reversed = call.integer("reverse", 0) != 0, exclusive = call.integer("exclusive", 0) != 0;
  if (reversed) call.context.spend(size);
  std::vector<int64_t> backwards(reversed ? size : 0);
  for (uint32_t i = 0; i < backwards.size(); ++i) backwards[i] = size - 1 - i;
  if (reversed) x = taken(x, dim, backwards);
  constexpr double kOfNone = is_product ? 1 : 0;
  Value y = is_product ? cumulative_product_of(call, x, dim) : cumsum(x, static_cast<int>(dim));
  if (exclusive && size == 1) y = where(less(y, y), y, number_like(y, kOfNone));
  if (exclusive && size > 1) y = pad(slice(y, at, 0, size - 1), at, 1, 0, kOfNone);
  if (reversed) y = taken(y, dim, backwards);
  return {known(y, call[0].type)};
}

/// Indices and the number of classes may have a floating point, which is truncated.
Results one_hot(Call& call) {
  const Value given = call.value(0), ids = is_integer(given) ? given : cast(given, Type::i32);
  const double classes_given = call.number_of(1);
  const auto rank = static_cast<int64_t>(ids.shape().size());
  constexpr double kMost = 1 << 24;
  if (!(classes_given >= 1 && classes_given <= kMost)) refuse("{} classes are not possible", classes_given);
  const auto depth = static_cast<int64_t>(classes_given);
  int64_t axis = call.integer("axis", -1);
  axis = static_cast<int64_t>(Call::dimension(axis, static_cast<size_t>(rank) + 1));
  call.context.spend(static_cast<uint64_t>(depth));
  std::vector<float> classes(static_cast<size_t>(depth));
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = static_cast<float>(i);
  Shape of_classes(static_cast<size_t>(rank) + 1, 1), of_ids = ids.shape();
  of_classes[static_cast<size_t>(axis)] = static_cast<uint32_t>(depth);
  of_ids.insert(of_ids.begin() + axis, 1);
  const Value places = from_start(ids, static_cast<uint32_t>(depth));
  const Value holds = equal(reshape(places, of_ids),
                            call.graph.constant("", of_classes, std::move(classes), ids.type().type));
  const Known& values = call[2];
  const Value pair = call.value(2);
  const Value off = reshape(slice(pair, 0, 0, 1), {}), on = reshape(slice(pair, 0, 1, 2), {});
  const Value y = where(cast(holds, pair.type().type),
                        expand(reshape(on, Shape(holds.shape().size(), 1)), holds.shape()), off);
  return {known(y, values.type)};
}

constexpr Operator kSelectionOperators[] = {{"CenterCropPad", crop_or_pad, 2},
                                            {"Compress", compress, 2},
                                            {"CumProd", cumulate<true>, 2},
                                            {"CumSum", cumulate<false>, 2},
                                            {"EyeLike", eye_like},
                                            {"Gather", gather_rows, 2},
                                            {"GatherElements", gather_elements, 2},
                                            {"GatherND", gather_nd, 2},
                                            {"OneHot", one_hot, 3},
                                            {"Pad", pad_value, 4},
                                            {"ScatterElements", scatter_elements, 3},
                                            {"ScatterND", scatter_nd_values, 3},
                                            {"Slice", slice_value, 5},
                                            {"Trilu", triangle, 2}};

}  // namespace

std::span<const Operator> selection_operators() { return kSelectionOperators; }

}  // namespace tessera::onnx
