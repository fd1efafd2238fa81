// Quantisation, computed in floating point: numbers stored in few bits keep their values. Results that would
// be rounded to few bits while the model runs are only clipped, because models leave out a Relu where
// clipping has its effect.
#include <algorithm>
#include <cmath>
#include <utility>

#include "onnx/call.h"
#include "onnx/values.h"

namespace tessera::onnx {
namespace {

using graph::Value;

constexpr const char* kWeightsNote = "quantised weights are computed with in floating point";
constexpr const char* kValuesNote = "values between layers are not rounded to 8 bits as the model would";

/// Where the scale of an element is: one for all, one for each position of an axis, or for each block of it.
class Scales {
 public:
  Scales(const Call& call, const Known& x) : count_(elements_of(call[1].dims)) {
    if (count_ == 0) refuse("it has no scale");
    if (call.has(2) && elements_of(call[2].dims) != count_) refuse("its zero points are not as its scales");
    if (count_ == 1) return;
    const size_t axis = call.axis(x.dims.size(), 1);
    for (size_t d = axis + 1; d < x.dims.size(); ++d) inner_ *= static_cast<uint64_t>(x.dims[d]);
    size_ = static_cast<uint64_t>(x.dims[axis]);
    const int64_t block = call.integer("block_size", 0);
    if (block < 0) refuse("blocks of {} are not possible", block);
    block_ = static_cast<uint64_t>(block);
    blocks_ = block_ > 0 ? (size_ + block_ - 1) / block_ : 0;
    const uint64_t outer = inner_ * size_ == 0 ? 0 : elements_of(x.dims) / (inner_ * size_);
    if (count_ != (block_ > 0 ? outer * blocks_ * inner_ : size_))
      refuse("{} scales do not fit axis {} of {}", count_, axis, to_string(x.dims));
  }

  uint64_t operator()(uint64_t i) const {
    if (count_ == 1) return 0;
    const uint64_t at = i / inner_ % size_;
    if (block_ == 0) return at;
    return (i / (inner_ * size_) * blocks_ + at / block_) * inner_ + i % inner_;
  }

 private:
  uint64_t count_, inner_ = 1, size_ = 1, block_ = 0, blocks_ = 0;
};

/// The scale or zero point beside the elements of a value.
Value beside(Call& call, size_t input, size_t rank) {
  const Value parameter = call.value(input);
  if (parameter.type().elements() == 1) return reshape(parameter, {});
  if (parameter.shape().size() != 1) refuse("scales of blocks are only possible of constants");
  graph::Shape shape(rank, 1);
  shape[call.axis(rank, 1)] = parameter.shape()[0];
  return reshape(parameter, shape);
}

bool quantised_are_same(const Known& a, const Known& b) {
  if (!a.constant || !b.constant) return a.value && b.value && a.value->id == b.value->id;
  bool are_same = a.constant->size() == b.constant->size();
  for (uint64_t i = 0; are_same && i < a.constant->size(); ++i)
    are_same = a.constant->number(i) == b.constant->number(i);
  return are_same;
}

bool is_zero(const Known& known) {
  if (!known.constant) return false;
  for (uint64_t i = 0; i < known.constant->size(); ++i)
    if (known.constant->number(i) != 0) return false;
  return true;
}

/// The scale and zero point of a value that was quantised with these.
void require_same(const Call& call, const Quantised& from) {
  const bool has_zero = call.has(2) && !is_zero(call[2]), had_zero = from.zero && !is_zero(*from.zero);
  if (!quantised_are_same(call[1], from.scale) || has_zero != had_zero ||
      (has_zero && !quantised_are_same(call[2], *from.zero)))
    refuse("its scale or zero point differs from the one with which its input was quantised");
}

/// The least and the largest number.
std::pair<double, double> range_of(DataType type) {
  const int bits = bits_of(type);
  const double low = is_signed(type) ? -std::ldexp(1, bits - 1) : 0;
  return {low, low + std::ldexp(1, bits) - 1};
}

/// x clipped to the range of the type.
Value bounded(Call& call, DataType type) {
  const Value x = call.value(0);
  const auto [low, high] = range_of(type);
  const bool is_one = call[1].constant && call[1].constant->size() == 1 &&
                      (!call.has(2) || (call[2].constant && call[2].constant->size() == 1));
  if (is_one) {
    const double scale = call.number_of(1), zero = call.has(2) ? call.number_of(2) : 0;
    return clip(x, (low - zero) * scale, (high - zero) * scale);
  }
  const size_t rank = x.shape().size();
  const Value scale = cast(beside(call, 1, rank), x.type().type);
  const Value zero = call.has(2) ? cast(beside(call, 2, rank), x.type().type) : number_like(x, 0);
  const auto bound = [&](double number) { return (number_like(x, number) - zero) * scale; };
  return minimum(maximum(x, bound(low)), bound(high));
}

/// The type of the scale, unless the file names another type.
DataType dequantised_type(const Call& call) {
  auto type = static_cast<DataType>(call.integer("output_dtype", 0));
  if (type == DataType::undefined) type = call[1].type;
  if (!is_known(type) || !is_float(type)) refuse("results of this type are not possible");
  return type;
}

Results dequantize(Call& call) {
  const Known& x = call[0];
  const DataType type = dequantised_type(call);
  if (x.constant && call[1].constant && (!call.has(2) || call[2].constant)) {
    const Constant &numbers = *x.constant, &scales = call.constant(1);
    const Scales scale_of(call, x);
    call.context.spend(numbers.size());
    std::vector<double> values(numbers.size());
    for (uint64_t i = 0; i < values.size(); ++i) {
      const uint64_t at = scale_of(i);
      values[i] = (numbers.number(i) - (call.has(2) ? call.constant(2).number(at) : 0)) * scales.number(at);
    }
    if (values.size() > 1) call.note(kWeightsNote);
    Constant named = *of_numbers(values, x.dims, type);
    named.name = numbers.name;
    return {known(std::make_shared<const Constant>(std::move(named)))};
  }
  const Value value = call.value(0);
  if (const auto found = call.context.quantised.find(value.id); found != call.context.quantised.end()) {
    require_same(call, found->second);
    return {known(cast(value, graph_type_of(type)), type)};
  }
  const size_t rank = x.dims.size();
  Value y = cast(value, graph_type_of(call[1].type));
  if (call.has(2)) y = y - cast(beside(call, 2, rank), y.type().type);
  return {known(cast(y * beside(call, 1, rank), graph_type_of(type)), type)};
}

Results quantize(Call& call) {
  const Known& x = call[0];
  DataType type = call.has(2) ? call[2].type : static_cast<DataType>(call.integer("output_dtype", 0));
  if (type == DataType::undefined) type = DataType::u8;
  if (!is_known(type) || !is_integer(type) || bits_of(type) > 16)
    refuse("results of this type are not possible");
  if (!x.constant) {
    call.note(kValuesNote);
    const Value y = bounded(call, type);
    call.context.quantised.insert({y.id, {call[1], call.has(2) ? std::optional(call[2]) : std::nullopt}});
    return {known(y, type)};
  }
  const Constant &numbers = *x.constant, &scales = call.constant(1);
  const Scales scale_of(call, x);
  const auto [low, high] = range_of(type);
  call.context.spend(numbers.size());
  std::vector<double> values(numbers.size());
  for (uint64_t i = 0; i < values.size(); ++i) {
    const uint64_t at = scale_of(i);
    const double zero = call.has(2) ? call.constant(2).number(at) : 0;
    // In FP32, as elsewhere: it decides where a quotient lies halfway.
    const float quotient = static_cast<float>(numbers.number(i)) / static_cast<float>(scales.number(at));
    values[i] = std::clamp(std::nearbyint(quotient) + zero, low, high);
  }
  return {known(of_numbers(values, x.dims, type))};
}

constexpr Operator kQuantisedOperators[] = {{"DequantizeLinear", dequantize, 3},
                                            {"QuantizeLinear", quantize, 3}};

}  // namespace

std::span<const Operator> quantised_operators() { return kQuantisedOperators; }

}  // namespace tessera::onnx
