#include "onnx/constant.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "base/half.h"

namespace tessera::onnx {
namespace {

struct KnownType {
  DataType type;
  const char* name;
  const char* in_files;
  Type graph;
  int bits;
};

constexpr KnownType kTypes[] = {
    {DataType::f32, "float32", "F32", Type::f32, 32},     {DataType::f16, "float16", "F16", Type::f16, 16},
    {DataType::bf16, "bfloat16", "BF16", Type::bf16, 16}, {DataType::f64, "float64", "F64", Type::f32, 64},
    {DataType::i8, "int8", "I8", Type::i32, 8},           {DataType::u8, "uint8", "U8", Type::i32, 8},
    {DataType::i16, "int16", "I16", Type::i32, 16},       {DataType::u16, "uint16", "U16", Type::i32, 16},
    {DataType::i32, "int32", "I32", Type::i32, 32},       {DataType::u32, "uint32", "U32", Type::u32, 32},
    {DataType::i64, "int64", "I64", Type::i32, 64},       {DataType::u64, "uint64", "U64", Type::u32, 64},
    {DataType::i4, "int4", "I4", Type::i32, 4},           {DataType::u4, "uint4", "U4", Type::i32, 4},
    {DataType::i2, "int2", "I2", Type::i32, 2},           {DataType::u2, "uint2", "U2", Type::i32, 2},
    {DataType::boolean, "bool", "BOOL", Type::f32, 8}};

const KnownType& known_type(DataType type) {
  for (const KnownType& each : kTypes)
    if (each.type == type) return each;
  throw Error(
      fmt::format("elements of type {} are not possible: use floating-point numbers of 16, 32 or 64 "
                  "bits, integers or truth values",
                  static_cast<int32_t>(type)));
}

float rounded(double x, DataType type) {
  const auto single = static_cast<float>(x);
  if (type == DataType::f16) return base::to_float(base::to_half(single));
  if (type == DataType::bf16) return base::to_float(base::to_bfloat16(single));
  return single;
}

int64_t whole(double x, DataType type) {
  if (type == DataType::boolean) return x != 0 ? 1 : 0;
  if (std::isnan(x)) return 0;
  constexpr double kMost = 9.2e18;
  return static_cast<int64_t>(std::clamp(x, -kMost, kMost));
}

}  // namespace

int64_t wrapped(int64_t x, DataType type) {
  switch (type) {
    case DataType::boolean: return x != 0 ? 1 : 0;
    case DataType::i2: return ((x & 3) ^ 2) - 2;
    case DataType::u2: return x & 3;
    case DataType::i4: return ((x & 15) ^ 8) - 8;
    case DataType::u4: return x & 15;
    case DataType::i8: return static_cast<int8_t>(x);
    case DataType::u8: return static_cast<uint8_t>(x);
    case DataType::i16: return static_cast<int16_t>(x);
    case DataType::u16: return static_cast<uint16_t>(x);
    case DataType::i32: return static_cast<int32_t>(x);
    case DataType::u32: return static_cast<uint32_t>(x);
    default: return x;
  }
}

std::string name_of(DataType type) { return known_type(type).name; }
DataType type_named(std::string_view name) {
  for (const KnownType& each : kTypes)
    if (each.name == name) return each.type;
  throw UsageError(fmt::format("there is no type '{}' of elements", name));
}
std::string short_name_of(DataType type) { return known_type(type).in_files; }
Type graph_type_of(DataType type) { return known_type(type).graph; }
int bits_of(DataType type) { return known_type(type).bits; }

std::pair<int64_t, int64_t> range_in_graph(DataType type) {
  if (graph_type_of(type) == Type::u32) return {0, UINT32_MAX};
  return {INT32_MIN, INT32_MAX};
}

bool is_known(DataType type) {
  return std::ranges::any_of(kTypes, [&](const KnownType& each) { return each.type == type; });
}

bool is_float(DataType type) {
  return type == DataType::f32 || type == DataType::f16 || type == DataType::bf16 || type == DataType::f64;
}

bool is_integer(DataType type) { return !is_float(type) && type != DataType::boolean; }

bool is_signed(DataType type) {
  constexpr DataType kSigned[] = {DataType::i2,  DataType::i4,  DataType::i8,
                                  DataType::i16, DataType::i32, DataType::i64};
  return std::ranges::find(kSigned, type) != std::end(kSigned);
}

uint64_t elements_of(const Dims& dims) {
  constexpr uint64_t kMost = uint64_t{1} << 40;
  if (dims.size() > kMostDimensions)
    throw Error(fmt::format("{} dimensions are not possible: at most {} are", dims.size(), kMostDimensions));
  uint64_t elements = 1;
  bool is_empty = false;
  for (const int64_t size : dims) {
    if (size < 0) throw Error(fmt::format("a dimension is {} in {}", size, to_string(dims)));
    is_empty = is_empty || size == 0;
    if (size == 0) continue;
    if (elements > kMost / static_cast<uint64_t>(size))
      throw Error(fmt::format("{} has more than 2^40 elements", to_string(dims)));
    elements *= static_cast<uint64_t>(size);
  }
  return is_empty ? 0 : elements;
}

std::string to_string(const Dims& dims) { return fmt::format("[{}]", fmt::join(dims, ", ")); }

ConstantPointer integers(std::vector<int64_t> values, Dims dims, DataType type) {
  return std::make_shared<const Constant>(
      Constant{type, std::move(dims), std::make_shared<const std::vector<int64_t>>(std::move(values))});
}

ConstantPointer floats(std::vector<float> values, Dims dims, DataType type) {
  return std::make_shared<const Constant>(
      Constant{type, std::move(dims), std::make_shared<const std::vector<float>>(std::move(values))});
}

ConstantPointer of_numbers(const std::vector<double>& numbers, Dims dims, DataType type) {
  if (is_float(type)) {
    std::vector<float> values(numbers.size());
    std::ranges::transform(numbers, values.begin(), [&](double x) { return rounded(x, type); });
    return floats(std::move(values), std::move(dims), type);
  }
  std::vector<int64_t> values(numbers.size());
  std::ranges::transform(numbers, values.begin(), [&](double x) { return wrapped(whole(x, type), type); });
  return integers(std::move(values), std::move(dims), type);
}

ConstantPointer converted(const Constant& from, DataType type) {
  known_type(type);
  if (from.type == type) return std::make_shared<const Constant>(from);
  const uint64_t size = from.size();
  if (is_float(type)) {
    std::vector<float> values(size);
    for (uint64_t i = 0; i < size; ++i) values[i] = rounded(from.number(i), type);
    return floats(std::move(values), from.dims, type);
  }
  std::vector<int64_t> values(size);
  for (uint64_t i = 0; i < size; ++i)
    values[i] = wrapped(from.has_floats() ? whole(from.floats()[i], type) : from.integers()[i], type);
  return integers(std::move(values), from.dims, type);
}

ConstantPointer in_range(const Constant& from, Bound side) {
  const auto [least, most] = range_in_graph(from.type);
  std::vector<int64_t> values = from.integers();
  for (int64_t& x : values) {
    const bool is_above = x > most || (from.type == DataType::u64 && x < 0);  // 2^63 and above
    if (side == Bound::above && is_above) x = most;
    if (side == Bound::below && x < least && !is_above) x = least;
  }
  Constant to = from;
  to.values = std::make_shared<const std::vector<int64_t>>(std::move(values));
  to.transposed = {};
  return std::make_shared<const Constant>(std::move(to));
}

ConstantPointer reshaped(const Constant& from, Dims dims) {
  if (elements_of(dims) != from.size())
    throw Error(
        fmt::format("{} does not have as many elements as {}", to_string(dims), to_string(from.dims)));
  Constant to = from;
  if (dims != from.dims) to.transposed = {};
  to.dims = std::move(dims);
  return std::make_shared<const Constant>(std::move(to));
}

}  // namespace tessera::onnx
