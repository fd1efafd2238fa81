// Operators on constants, above all the arithmetic of shapes, whose integers have 64 bits.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <numbers>
#include <optional>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

/// An array in the making, of the type of another constant.
class Array {
 public:
  Array(Call& call, DataType type, Dims dims)
      : type_(type), dims_(std::move(dims)), size_(elements_of(dims_)) {
    call.context.spend(size_);
    if (is_float(type_))
      floats_.resize(size_);
    else
      integers_.resize(size_);
  }

  uint64_t size() const { return size_; }
  void set(uint64_t i, const Constant& from, uint64_t j) {
    if (is_float(type_))
      floats_[i] = from.floats()[j];
    else
      integers_[i] = from.integers()[j];
  }
  void set(uint64_t i, int64_t number) { integers_[i] = wrapped(number, type_); }
  void set(uint64_t i, double number) { floats_[i] = static_cast<float>(number); }

  Known finish() {
    return known(is_float(type_) ? floats(std::move(floats_), std::move(dims_), type_)
                                 : integers(std::move(integers_), std::move(dims_), type_));
  }

 private:
  DataType type_;
  Dims dims_;
  uint64_t size_;
  std::vector<float> floats_;
  std::vector<int64_t> integers_;
};

/// Visits positions of `dims` in order, with the position in an array of such steps.
class Walk {
 public:
  Walk(const Dims& dims, std::vector<int64_t> steps, int64_t begin = 0)
      : dims_(dims), steps_(std::move(steps)), at_(dims.size()), place_(begin) {}

  uint64_t place() const { return static_cast<uint64_t>(place_); }
  void next() {
    for (size_t d = dims_.size(); d-- > 0;) {
      place_ += steps_[d];
      if (++at_[d] < dims_[d]) return;
      place_ -= steps_[d] * dims_[d];
      at_[d] = 0;
    }
  }

 private:
  const Dims& dims_;
  std::vector<int64_t> steps_;
  std::vector<int64_t> at_;
  int64_t place_;
};

std::vector<int64_t> steps_of(const Dims& dims) {
  std::vector<int64_t> steps(dims.size());
  int64_t step = 1;
  for (size_t d = dims.size(); d-- > 0; step *= dims[d]) steps[d] = step;
  return steps;
}

/// The strides of a constant that is broadcast.
std::vector<int64_t> broadcast_steps(const Dims& from, const Dims& to) {
  const std::vector<int64_t> own = steps_of(from);
  std::vector<int64_t> steps(to.size());
  for (size_t d = 0; d < from.size(); ++d)
    if (from[d] != 1) steps[to.size() - from.size() + d] = own[d];
  return steps;
}

/// The elements of one constant, along these steps.
Known moved(Call& call, const Constant& from, Dims dims, std::vector<int64_t> steps, int64_t begin = 0) {
  Array to(call, from.type, dims);
  Walk walk(dims, std::move(steps), begin);
  for (uint64_t i = 0; i < to.size(); ++i, walk.next()) to.set(i, from, walk.place());
  return to.finish();
}

// Elementwise operators on integers; the graph computes the others.

template <int64_t (*function)(int64_t, int64_t)>
Results of_pairs(Call& call) {
  Known so_far = call[0];
  if (call[0].constant->has_floats()) return {};
  for (size_t i = 1; i < call.size(); ++i) {
    const Constant &a = *so_far.constant, &b = call.constant(i);
    if (b.has_floats()) refuse("it is given {} and {}", name_of(a.type), name_of(b.type));
    const Dims dims = common_dims(a.dims, b.dims);
    Array y(call, a.type, dims);
    Walk at(dims, broadcast_steps(a.dims, dims)), bt(dims, broadcast_steps(b.dims, dims));
    for (uint64_t e = 0; e < y.size(); ++e, at.next(), bt.next())
      y.set(e, function(a.integers()[at.place()], b.integers()[bt.place()]));
    so_far = y.finish();
  }
  return {so_far};
}

template <int64_t (*function)(int64_t, int64_t)>
Results of_truths(Call& call) {
  for (size_t i = 0; i < call.size(); ++i) call.require_truth(i);
  return of_pairs<function>(call);
}

template <int64_t (*function)(int64_t, int64_t)>
Results of_integers(Call& call) {
  call.require_numbers();
  const DataType type = call[0].type;
  for (size_t i = 1; i < call.size() && !is_float(type); ++i)
    if (call[i].type != type) refuse("it is given {} and {}", name_of(type), name_of(call[i].type));
  return of_pairs<function>(call);
}

/// Selects the handler for u64, the only type whose numbers are stored as signed ones.
template <Handler with_sign, Handler without_sign>
Results by_sign(Call& call) {
  return call[0].type == DataType::u64 ? without_sign(call) : with_sign(call);
}

/// A function of unsigned numbers, which wrap around: overflow of signed ones is undefined in C++.
template <class Function>
int64_t unsigned_of(Function function, int64_t a, int64_t b) {
  return static_cast<int64_t>(function(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
}
int64_t add_constants(int64_t a, int64_t b) { return unsigned_of(std::plus<>(), a, b); }
int64_t subtract_constants(int64_t a, int64_t b) { return unsigned_of(std::minus<>(), a, b); }
int64_t multiply_constants(int64_t a, int64_t b) { return unsigned_of(std::multiplies<>(), a, b); }
int64_t divisor(int64_t b) {
  if (b == 0) refuse("integers cannot be divided by 0");
  return b;
}
int64_t divide_constants(int64_t a, int64_t b) { return divisor(b) == -1 ? subtract_constants(0, a) : a / b; }
int64_t divide_unsigned(int64_t a, int64_t b) { return unsigned_of(std::divides<>(), a, divisor(b)); }
int64_t remainder(int64_t a, int64_t b) {
  const int64_t rest = divisor(b) == -1 ? 0 : a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
int64_t remainder_unsigned(int64_t a, int64_t b) { return unsigned_of(std::modulus<>(), a, divisor(b)); }
int64_t least(int64_t a, int64_t b) { return std::min(a, b); }
int64_t least_unsigned(int64_t a, int64_t b) { return unsigned_of(std::less<>(), a, b) != 0 ? a : b; }
int64_t most(int64_t a, int64_t b) { return std::max(a, b); }
int64_t most_unsigned(int64_t a, int64_t b) { return unsigned_of(std::less<>(), a, b) != 0 ? b : a; }
int64_t both_constants(int64_t a, int64_t b) { return a != 0 && b != 0 ? 1 : 0; }
int64_t either(int64_t a, int64_t b) { return a != 0 || b != 0 ? 1 : 0; }
int64_t one(int64_t a, int64_t b) { return (a != 0) != (b != 0) ? 1 : 0; }
int64_t power_constants(int64_t a, int64_t b) {
  if (b < 0) refuse("integers to a negative power are not possible");
  int64_t y = 1;
  for (; b > 0; b >>= 1, a = multiply_constants(a, a))
    if ((b & 1) != 0) y = multiply_constants(y, a);
  return y;
}

int64_t both_bits(int64_t a, int64_t b) { return a & b; }
int64_t either_bits(int64_t a, int64_t b) { return a | b; }
int64_t other_bits(int64_t a, int64_t b) { return a ^ b; }
int64_t shifted_up(int64_t a, int64_t b) {
  return b < 0 || b > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
}
int64_t shifted_down(int64_t a, int64_t b) {
  return b < 0 || b > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) >> b);
}
int64_t shifted_down_with_sign(int64_t a, int64_t b) { return a >> (b < 0 || b > 63 ? 63 : b); }

Results shift_constants(Call& call) {
  const std::string direction = call.text("direction", "");
  if (direction != "LEFT" && direction != "RIGHT") refuse("its direction is '{}'", direction);
  if (direction == "LEFT") return of_integers<shifted_up>(call);
  return by_sign<of_integers<shifted_down_with_sign>, of_integers<shifted_down>>(call);
}

/// Powers of integers with another type of exponent, even floating point, stay integers.
Results power_of_constants(Call& call) {
  call.require_numbers();
  const Constant &a = call.constant(0), &b = call.constant(1);
  if (a.has_floats() || !b.has_floats()) return of_pairs<power_constants>(call);
  const Dims dims = common_dims(a.dims, b.dims);
  call.context.spend(elements_of(dims));
  Walk at(dims, broadcast_steps(a.dims, dims)), bt(dims, broadcast_steps(b.dims, dims));
  std::vector<double> powers(elements_of(dims));
  for (double& power : powers) {
    power = std::pow(a.number(at.place()), b.number(bt.place()));
    at.next();
    bt.next();
  }
  return {known(of_numbers(powers, dims, a.type))};
}

Results modulo_constants(Call& call) {
  if (call.integer("fmod", 0) != 0) return {};
  return by_sign<of_integers<remainder>, of_integers<remainder_unsigned>>(call);
}

template <class Compare>
bool compares(const Constant& a, uint64_t at, const Constant& b, uint64_t bt) {
  if (a.has_floats() || b.has_floats()) return Compare()(a.number(at), b.number(bt));
  const int64_t x = a.integers()[at], y = b.integers()[bt];
  if (a.type != DataType::u64 || b.type != DataType::u64) return Compare()(x, y);
  return Compare()(static_cast<uint64_t>(x), static_cast<uint64_t>(y));
}

template <class Compare>
Results compare_constants(Call& call) {
  call.require_one_kind(0, 1);
  const Constant &a = call.constant(0), &b = call.constant(1);
  const Dims dims = common_dims(a.dims, b.dims);
  Array y(call, DataType::boolean, dims);
  Walk at(dims, broadcast_steps(a.dims, dims)), bt(dims, broadcast_steps(b.dims, dims));
  for (uint64_t e = 0; e < y.size(); ++e, at.next(), bt.next())
    y.set(e, int64_t{compares<Compare>(a, at.place(), b, bt.place())});
  return {y.finish()};
}

template <int64_t (*function)(int64_t)>
Results of_elements(Call& call) {
  const Constant& x = call.constant(0);
  if (x.has_floats()) return {};
  Array y(call, x.type, x.dims);
  for (uint64_t i = 0; i < y.size(); ++i) y.set(i, function(x.integers()[i]));
  return {y.finish()};
}

int64_t is_not(int64_t x) { return x == 0 ? 1 : 0; }
Results negate_truths(Call& call) {
  call.require_truth(0);
  return of_elements<is_not>(call);
}

template <int64_t (*function)(int64_t)>
Results of_integer(Call& call) {
  call.require_numbers();
  return of_elements<function>(call);
}

int64_t unchanged(int64_t x) { return x; }
int64_t negate_constants(int64_t x) { return subtract_constants(0, x); }
int64_t size(int64_t x) { return x < 0 ? negate_constants(x) : x; }
int64_t inverted(int64_t x) { return ~x; }
int64_t sign_constants(int64_t x) { return x > 0 ? 1 : x < 0 ? -1 : 0; }
int64_t sign_unsigned(int64_t x) { return x != 0 ? 1 : 0; }

Results choose_constants(Call& call) {
  call.require_truth(0);
  const Constant &c = call.constant(0), &a = call.constant(1), &b = call.constant(2);
  if (a.type != b.type) refuse("it is given {} and {}", name_of(a.type), name_of(b.type));
  const Dims dims = common_dims(c.dims, common_dims(a.dims, b.dims));
  Array y(call, a.type, dims);
  Walk ct(dims, broadcast_steps(c.dims, dims)), at(dims, broadcast_steps(a.dims, dims)),
      bt(dims, broadcast_steps(b.dims, dims));
  for (uint64_t e = 0; e < y.size(); ++e, ct.next(), at.next(), bt.next())
    c.integers()[ct.place()] != 0 ? y.set(e, a, at.place()) : y.set(e, b, bt.place());
  return {y.finish()};
}

// Elements by their positions.

Results transpose_constants(Call& call) {
  const Constant& x = call.constant(0);
  const size_t rank = x.dims.size();
  const std::vector<int64_t> order = call.permutation(rank), own = steps_of(x.dims);
  std::vector<int64_t> steps;
  Dims dims;
  for (const int64_t d : order) {
    dims.push_back(x.dims[static_cast<size_t>(d)]);
    steps.push_back(own[static_cast<size_t>(d)]);
  }
  if (std::ranges::is_sorted(order)) return {call[0]};
  Known y = moved(call, x, dims, steps);
  if (rank == 2) {
    Constant with = *y.constant;
    with.transposed = call[0].constant;
    y.constant = std::make_shared<const Constant>(std::move(with));
  }
  return {y};
}

Results expand(Call& call) {
  const Constant& x = call.constant(0);
  const Dims dims = common_dims(x.dims, call.integers(1));
  return {moved(call, x, dims, broadcast_steps(x.dims, dims))};
}

Results gather(Call& call) {
  const Constant &x = call.constant(0), &ids = call.constant(1);
  const size_t axis = call.axis(x.dims.size(), 0);
  uint64_t outer = 1, inner = 1;
  Dims dims;
  for (size_t d = 0; d < x.dims.size(); ++d) {
    if (d == axis) {
      dims.insert(dims.end(), ids.dims.begin(), ids.dims.end());
      continue;
    }
    dims.push_back(x.dims[d]);
    (d < axis ? outer : inner) *= static_cast<uint64_t>(x.dims[d]);
  }
  const int64_t size = x.dims[axis];
  for (const int64_t id : call.integers(1))
    if (id < -size || id >= size) refuse("the index {} is beyond the size {}", id, size);
  Array y(call, x.type, dims);
  if (y.size() == 0) outer = 0;
  uint64_t at = 0;
  for (uint64_t o = 0; o < outer; ++o)
    for (const int64_t id : call.integers(1)) {
      const int64_t place = id < 0 ? id + size : id;
      const uint64_t begin = (o * static_cast<uint64_t>(size) + static_cast<uint64_t>(place)) * inner;
      for (uint64_t i = 0; i < inner; ++i) y.set(at++, x, begin + i);
    }
  return {y.finish()};
}

Results slice(Call& call) {
  const Constant& x = call.constant(0);
  const std::vector<int64_t>&begins = call.integers(1), &ends = call.integers(2);
  for (const size_t input : {2, 3, 4})
    if (call.has(input) && call.integers(input).size() != begins.size())
      refuse("its starts, ends, axes and steps are not equally many");
  Dims dims = x.dims;
  std::vector<int64_t> steps = steps_of(dims);
  const std::vector<int64_t> own = steps;
  const std::vector<size_t> cut =
      Call::dimensions(call.has(3) ? call.integers(3) : std::vector<int64_t>(), begins.size(), dims.size());
  int64_t first = 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const size_t d = cut[i];
    const int64_t step = call.has(4) ? call.integers(4)[i] : 1, count = x.dims[d];
    if (step == 0 || step == INT64_MIN) refuse("a step is {}", step);
    const int64_t most = step > 0 ? count : count - 1;
    const auto place = [&](int64_t at, int64_t least) {
      return std::clamp(at < 0 ? at + count : at, least, std::max(least, most));
    };
    const int64_t begin = place(begins[i], 0), end = place(ends[i], step > 0 ? 0 : -1);
    const int64_t distance = count == 0 ? 0 : step > 0 ? end - begin : begin - end;
    dims[d] = distance <= 0 ? 0 : (distance - 1) / std::abs(step) + 1;
    first += begin * own[d];
    if (dims[d] > 1) steps[d] = own[d] * step;
  }
  return {moved(call, x, dims, steps, elements_of(dims) == 0 ? 0 : first)};
}

Results concatenate(Call& call) {
  const size_t rank = call[0].dims.size(), axis = call.axis(rank);
  Dims dims = call[0].dims;
  dims[axis] = 0;
  uint64_t outer = 1;
  for (size_t d = 0; d < axis; ++d) outer *= static_cast<uint64_t>(dims[d]);
  for (size_t i = 0; i < call.size(); ++i) {
    const Constant& part = call.constant(i);
    bool fits = part.dims.size() == rank && part.type == call[0].type;
    for (size_t d = 0; fits && d < rank; ++d) fits = d == axis || part.dims[d] == dims[d];
    if (!fits) refuse("{} cannot follow {}", to_string(part.dims), to_string(call[0].dims));
    dims[axis] += part.dims[axis];
  }
  Array y(call, call[0].type, dims);
  if (y.size() == 0) outer = 0;
  uint64_t at = 0;
  for (uint64_t o = 0; o < outer; ++o)
    for (size_t i = 0; i < call.size(); ++i) {
      const Constant& part = call.constant(i);
      const uint64_t each = part.size() / outer;
      for (uint64_t e = 0; e < each; ++e) y.set(at++, part, o * each + e);
    }
  return {y.finish()};
}

/// x with values at indices of its first dimensions.
Results scatter_nd(Call& call) {
  const Constant &x = call.constant(0), &ids = call.constant(1), &updates = call.constant(2);
  if (call.text("reduction", "none") != "none") return {};
  if (ids.dims.empty() || updates.type != x.type) refuse("its inputs have other types than it takes");
  const auto depth = static_cast<uint64_t>(ids.dims.back());
  if (depth < 1 || depth > x.dims.size()) refuse("indices of {} do not fit", to_string(ids.dims));
  const std::vector<int64_t> steps = steps_of(x.dims);
  uint64_t each = 1;
  for (size_t d = depth; d < x.dims.size(); ++d) each *= static_cast<uint64_t>(x.dims[d]);
  const uint64_t count = ids.size() / depth;
  if (updates.size() != count * each) refuse("{} updates for {} places", updates.size(), count * each);
  Array y(call, x.type, x.dims);
  for (uint64_t i = 0; i < y.size(); ++i) y.set(i, x, i);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t place = 0;
    for (uint64_t d = 0; d < depth; ++d) {
      int64_t id = call.integers(1)[i * depth + d];
      id += id < 0 ? x.dims[d] : 0;
      if (id < 0 || id >= x.dims[d]) refuse("the index {} is beyond {}", id, to_string(x.dims));
      place += static_cast<uint64_t>(id * steps[d]);
    }
    for (uint64_t e = 0; e < each; ++e) y.set(place + e, updates, i * each + e);
  }
  return {y.finish()};
}

// Reductions of integers.

int64_t squared(int64_t x) { return multiply_constants(x, x); }

template <int64_t (*function)(int64_t, int64_t), int64_t (*of_each)(int64_t) = unchanged>
Results reduce(Call& call) {
  constexpr bool kChooses =
      function == &most || function == &most_unsigned || function == &least || function == &least_unsigned;
  if (!kChooses) call.require_numbers();  // any() and all() of truth values are a maximum and a minimum
  const Constant& x = call.constant(0);
  if (x.has_floats()) return {};
  std::vector<bool> reduced(x.dims.size());
  const auto axes = call.integers_of(1, "axes");
  if (axes && !axes->empty())
    for (const int64_t axis : *axes) reduced[Call::dimension(axis, x.dims.size())] = true;
  else if (call.integer("noop_with_empty_axes", 0) == 0)
    reduced.assign(x.dims.size(), true);
  Dims kept = x.dims, dims;
  for (size_t d = 0; d < kept.size(); ++d) {
    if (reduced[d]) kept[d] = 1;
    if (!reduced[d] || call.integer("keepdims", 1) != 0) dims.push_back(kept[d]);
  }
  const uint64_t count = elements_of(kept);
  call.context.count_work(static_cast<double>(x.size()));
  if (x.size() == 0 && count > 0 && kChooses)
    refuse("{} has no element, so none is the largest or the least", to_string(x.dims));
  call.context.spend(count);
  std::vector<std::optional<int64_t>> sums(count);
  Walk to(x.dims, broadcast_steps(kept, x.dims));
  for (uint64_t i = 0; i < x.size(); ++i, to.next()) {
    std::optional<int64_t>& sum = sums[to.place()];
    const int64_t next = of_each(x.integers()[i]);
    sum = sum ? function(*sum, next) : next;
  }
  Array y(call, x.type, dims);
  const int64_t of_none = function == &multiply_constants ? 1 : 0;
  for (uint64_t i = 0; i < y.size(); ++i) y.set(i, sums[i].value_or(of_none));
  return {y.finish()};
}

/// Along a dimension, of all elements up to each, or before it; `of_none`: of no element.
template <int64_t (*function)(int64_t, int64_t), int64_t of_none>
Results cumulate_constants(Call& call) {
  call.require_numbers();
  const Constant& x = call.constant(0);
  if (x.has_floats()) return {};
  const size_t axis = Call::dimension(call.integer_of(1), x.dims.size());
  const bool reversed = call.integer("reverse", 0) != 0, exclusive = call.integer("exclusive", 0) != 0;
  Array y(call, x.type, x.dims);
  const auto count = static_cast<uint64_t>(x.dims[axis]);
  const uint64_t step = y.size() == 0 ? 0 : static_cast<uint64_t>(steps_of(x.dims)[axis]);
  for (uint64_t first = 0; first < y.size(); first += count * step)
    for (uint64_t i = 0; i < step; ++i) {
      int64_t before = of_none;
      for (uint64_t n = 0; n < count; ++n) {
        const uint64_t at = first + i + (reversed ? count - 1 - n : n) * step;
        const int64_t with = function(before, x.integers()[at]);
        y.set(at, exclusive ? before : with);
        before = with;
      }
    }
  return {y.finish()};
}

// Sources.

Results constant(Call& call) {
  if (const auto* value = call.attribute("value")) return {known(call.tensor(value->t()))};
  if (const auto* value = call.attribute("sparse_value")) return {known(call.tensor(value->sparse_tensor()))};
  if (const auto* value = call.attribute("value_int")) return {known(integers({value->i()}, {}))};
  if (const auto* value = call.attribute("value_float")) return {known(floats({value->f()}, {}))};
  if (const auto* value = call.attribute("value_ints"))
    return {known(integers({value->ints().begin(), value->ints().end()}, {value->ints_size()}))};
  if (const auto* value = call.attribute("value_floats"))
    return {known(floats({value->floats().begin(), value->floats().end()}, {value->floats_size()}))};
  refuse("it has no value of numbers");
}

Results constant_of_shape(Call& call) {
  ConstantPointer value = floats({0}, {});
  if (const auto* given = call.attribute("value")) value = call.tensor(given->t());
  if (value->size() != 1) refuse("its value has {} elements", value->size());
  Array y(call, value->type, call.integers(0));
  for (uint64_t i = 0; i < y.size(); ++i) y.set(i, *value, 0);
  return {y.finish()};
}

template <class T>
[[noreturn]] void refuse_range(T begin, T end, T step) {
  refuse("a range from {} to {} by {} is not possible", begin, end, step);
}

constexpr uint64_t kMostOfRange = uint64_t{1} << 40;

/// Exact, even where FP64 is not.
Known range_of_integers(Call& call, DataType type) {
  const int64_t begin = call.integer_of(0), end = call.integer_of(1), step = call.integer_of(2);
  if (step == 0) refuse_range(begin, end, step);
  uint64_t count = 0;
  if (step > 0 ? begin < end : begin > end) {
    const auto first = static_cast<uint64_t>(begin), last = static_cast<uint64_t>(end),
               width = static_cast<uint64_t>(step);
    count = step > 0 ? (last - first - 1) / width + 1 : (first - last - 1) / (0 - width) + 1;
  }
  if (count > kMostOfRange) refuse_range(begin, end, step);
  Array y(call, type, {static_cast<int64_t>(count)});
  for (uint64_t i = 0; i < y.size(); ++i)
    y.set(i, add_constants(begin, multiply_constants(static_cast<int64_t>(i), step)));
  return y.finish();
}

Results range(Call& call) {
  call.require_numbers();
  const Constant& start = call.constant(0);
  if (start.size() != 1) refuse("its start is not a scalar");
  if (!start.has_floats()) return {range_of_integers(call, start.type)};
  const double begin = call.number_of(0), end = call.number_of(1), step = call.number_of(2);
  const double count = std::ceil((end - begin) / step);
  if (!std::isfinite(count) || count > static_cast<double>(kMostOfRange)) refuse_range(begin, end, step);
  Array y(call, start.type, {static_cast<int64_t>(std::max(0.0, count))});
  for (uint64_t i = 0; i < y.size(); ++i) y.set(i, begin + static_cast<double>(i) * step);
  return {y.finish()};
}

/// A window for spectra of signals: a sum of cosines with no turn, one turn, two turns, …
Results window_of(Call& call, std::initializer_list<double> factors) {
  const int64_t size = call.integer_of(0);
  if (size < 1) refuse("a window of {} is not possible", size);
  const auto type =
      static_cast<DataType>(call.integer("output_datatype", static_cast<int64_t>(DataType::f32)));
  if (!is_known(type)) refuse("elements of type {} are not possible", static_cast<int>(type));
  const bool is_periodic = call.integer("periodic", 1) != 0;
  call.context.spend(static_cast<uint64_t>(size));
  std::vector<double> values(static_cast<size_t>(size));
  const auto turn = static_cast<double>(is_periodic || size == 1 ? size : size - 1);
  for (size_t i = 0; i < values.size(); ++i) {
    double turns = 0;
    for (const double factor : factors)
      values[i] += factor * std::cos(2 * std::numbers::pi * turns++ * static_cast<double>(i) / turn);
  }
  return {known(of_numbers(values, {size}, type))};
}

Results blackman_window(Call& call) { return window_of(call, {0.42, -0.5, 0.08}); }
Results hamming_window(Call& call) { return window_of(call, {25.0 / 46, -21.0 / 46}); }
Results hann_window(Call& call) { return window_of(call, {0.5, -0.5}); }

Results non_zero(Call& call) {
  const Constant& x = call.constant(0);
  call.context.count_work(static_cast<double>(x.size()));
  std::vector<uint64_t> found;
  for (uint64_t i = 0; i < x.size(); ++i)
    if (x.number(i) != 0) found.push_back(i);
  const std::vector<int64_t> steps = steps_of(x.dims);
  const auto rank = static_cast<int64_t>(x.dims.size());
  Array y(call, DataType::i64, {rank, static_cast<int64_t>(found.size())});
  for (size_t d = 0; d < x.dims.size(); ++d)
    for (size_t i = 0; i < found.size(); ++i)
      y.set(d * found.size() + i, static_cast<int64_t>(found[i]) / steps[d] % x.dims[d]);
  return {y.finish()};
}

constexpr Operator kConstantsOperators[] = {
    {"Abs", by_sign<of_integer<size>, of_integer<unchanged>>},
    {"Add", of_integers<add_constants>},
    {"And", of_truths<both_constants>},
    {"BitShift", shift_constants, 2},
    {"BitwiseAnd", of_integers<both_bits>, 2},
    {"BitwiseNot", of_integer<inverted>},
    {"BitwiseOr", of_integers<either_bits>, 2},
    {"BitwiseXor", of_integers<other_bits>, 2},
    {"BlackmanWindow", blackman_window},
    {"Concat", concatenate},
    {"Constant", constant, 0},
    {"ConstantOfShape", constant_of_shape},
    {"CumProd", cumulate_constants<multiply_constants, 1>},
    {"CumSum", cumulate_constants<add_constants, 0>},
    {"Div", by_sign<of_integers<divide_constants>, of_integers<divide_unsigned>>},
    {"Equal", compare_constants<std::equal_to<>>},
    {"Expand", expand},
    {"Gather", gather},
    {"Greater", compare_constants<std::greater<>>},
    {"GreaterOrEqual", compare_constants<std::greater_equal<>>},
    {"HammingWindow", hamming_window},
    {"HannWindow", hann_window},
    {"Less", compare_constants<std::less<>>},
    {"LessOrEqual", compare_constants<std::less_equal<>>},
    {"Max", by_sign<of_integers<most>, of_integers<most_unsigned>>},
    {"Min", by_sign<of_integers<least>, of_integers<least_unsigned>>},
    {"Mod", modulo_constants},
    {"Mul", of_integers<multiply_constants>},
    {"Neg", of_integer<negate_constants>},
    {"NonZero", non_zero},
    {"Not", negate_truths},
    {"Or", of_truths<either>},
    {"Pow", power_of_constants},
    {"Range", range, 3},
    {"ReduceL1", by_sign<reduce<add_constants, size>, reduce<add_constants>>},
    {"ReduceMax", by_sign<reduce<most>, reduce<most_unsigned>>},
    {"ReduceMin", by_sign<reduce<least>, reduce<least_unsigned>>},
    {"ReduceProd", reduce<multiply_constants>},
    {"ReduceSum", reduce<add_constants>},
    {"ReduceSumSquare", reduce<add_constants, squared>},
    {"ScatterND", scatter_nd},
    {"Sign", by_sign<of_integer<sign_constants>, of_integer<sign_unsigned>>},
    {"Slice", slice},
    {"Sub", of_integers<subtract_constants>},
    {"Sum", of_integers<add_constants>},
    {"Transpose", transpose_constants},
    {"Where", choose_constants},
    {"Xor", of_truths<one>}};

}  // namespace

std::span<const Operator> constant_operators() { return kConstantsOperators; }

}  // namespace tessera::onnx
