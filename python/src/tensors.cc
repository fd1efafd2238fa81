#include "tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "base/half.h"
#include "base/integer_types.h"
#include "kernels/common/element.h"

namespace tessera::python {
namespace {

using graph::TensorType;

constexpr uint8_t kBits = 8;

bool has_shape(const nb::ndarray<nb::ro>& array, const graph::Shape& shape) {
  if (array.ndim() != shape.size()) return false;
  for (size_t d = 0; d < shape.size(); ++d)
    if (array.shape(d) != shape[d]) return false;
  return true;
}

/// Calls visit(element) for all elements in row-major order.
template <class From, class Visit>
void each_element(const nb::ndarray<nb::ro>& array, const Visit& visit) {
  const auto* data = static_cast<const From*>(array.data());
  if (array.ndim() == 0) return visit(*data);
  const size_t last = array.ndim() - 1, inner = array.shape(last);
  std::vector<size_t> at(last);
  for (size_t done = 0; done < array.size(); done += inner) {
    int64_t offset = 0;
    for (size_t d = 0; d < last; ++d) offset += static_cast<int64_t>(at[d]) * array.stride(d);
    for (size_t i = 0; i < inner; ++i) visit(data[offset + static_cast<int64_t>(i) * array.stride(last)]);
    for (size_t d = last; d-- > 0 && ++at[d] == array.shape(d);) at[d] = 0;
  }
}

/// Converts to a floating-point type.
template <class From>
void round_to(Type type, const nb::ndarray<nb::ro>& array, std::byte* to) {
  each_element<From>(array, [&](From element) {
    double number;
    if constexpr (std::is_arithmetic_v<From>)
      number = static_cast<double>(element);
    else
      number = base::to_float(element);
    kernels::store_number(type, to, number);
    to += size_of(type);
  });
}

/// Throws UsageError for an integer that an input cannot have.
template <class Integer, class Limit>
void require_entry(const std::string& name, Integer entry, Limit least, Limit most) {
  if (!std::cmp_less(entry, least) && !std::cmp_greater(entry, most)) return;
  const bool is_wide = std::cmp_less(entry, std::numeric_limits<int32_t>::min()) ||
                       std::cmp_greater(entry, std::max<int64_t>(most, std::numeric_limits<int32_t>::max()));
  throw UsageError(
      fmt::format("{} has the entry {}; entries must be from {} to {}{}", name, entry, least, most,
                  is_wide ? ", as integers have 32 bits: keep larger ones out of the model" : ""));
}

/// The label that PyTorch ignores, which wraps around.
constexpr int64_t kIgnored = -100;

template <class From, class To>
void count_as(const std::string& name, const nb::ndarray<nb::ro>& array, std::byte* to) {
  each_element<From>(array, [&](From element) {
    const bool is_ignored = std::is_same_v<To, uint32_t> && std::cmp_equal(element, kIgnored);
    if (!is_ignored)
      require_entry(name, element, std::numeric_limits<To>::min(), std::numeric_limits<To>::max());
    kernels::store(to, static_cast<To>(element));
    to += sizeof(To);
  });
}

template <class From>
void count_to(const std::string& name, Type type, const nb::ndarray<nb::ro>& array, std::byte* to) {
  if (type == Type::u8) return count_as<From, uint8_t>(name, array, to);
  if (type == Type::u16) return count_as<From, uint16_t>(name, array, to);
  if (type == Type::i32) return count_as<From, int32_t>(name, array, to);
  count_as<From, uint32_t>(name, array, to);
}

[[noreturn]] void refuse(const nb::ndarray<nb::ro>& array, const std::string& name, const TensorType& type) {
  type_error(fmt::format("{} has elements of type {}; it must be {}", name, name_of(array.dtype()),
                         is_integer(type.type) ? "of integers" : "of floating-point numbers"));
}

void convert(const nb::ndarray<nb::ro>& array, const std::string& name, const TensorType& type,
             std::byte* to) {
  const nb::dlpack::dtype from = array.dtype();
  if (is_integer(type.type)) {
    if (from == nb::dtype<int64_t>()) return count_to<int64_t>(name, type.type, array, to);
    if (from == nb::dtype<int32_t>()) return count_to<int32_t>(name, type.type, array, to);
    if (from == nb::dtype<uint32_t>()) return count_to<uint32_t>(name, type.type, array, to);
    if (from == nb::dtype<uint64_t>()) return count_to<uint64_t>(name, type.type, array, to);
    if (from == nb::dtype<uint16_t>()) return count_to<uint16_t>(name, type.type, array, to);
    if (from == nb::dtype<uint8_t>()) return count_to<uint8_t>(name, type.type, array, to);
    refuse(array, name, type);
  }
  if (from == dtype_of(Type::f32)) return round_to<float>(type.type, array, to);
  if (from == nb::dtype<double>()) return round_to<double>(type.type, array, to);
  if (from == dtype_of(Type::f16)) return round_to<base::Half>(type.type, array, to);
  if (from == dtype_of(Type::bf16)) return round_to<base::Bfloat16>(type.type, array, to);
  refuse(array, name, type);
}

nb::object numpy(const void* data, const std::vector<size_t>& shape, nb::capsule owner,
                 nb::dlpack::dtype type) {
  return nb::cast(
      nb::ndarray<nb::numpy>(const_cast<void*>(data), shape.size(), shape.data(), owner, nullptr, type),
      nb::rv_policy::reference);
}

}  // namespace

nb::dlpack::dtype dtype_of(Type type) {
  using Code = nb::dlpack::dtype_code;
  const Code of_integers = type == Type::i32 ? Code::Int : Code::UInt;
  const Code code = is_integer(type) ? of_integers : type == Type::bf16 ? Code::Bfloat : Code::Float;
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(kBits * size_of(type)), 1};
}

Type type_named(const std::string& name) {
  for (const Type type : {Type::f32, Type::f16, Type::bf16, Type::u8, Type::u32, Type::i32})
    if (name == tessera::name_of(type)) return type;
  throw UsageError(fmt::format("unknown type of a value '{}' (choose from f32, f16, bf16, u32, i32)", name));
}

std::optional<graph::Rounding> rounding_of(std::optional<bool> is_stochastic) {
  if (!is_stochastic) return {};
  return *is_stochastic ? graph::Rounding::stochastic : graph::Rounding::nearest;
}

TensorInput::TensorInput(nb::handle array, const std::string& name, const TensorType& type)
    : array_(array_of(array, name.c_str())) {
  if (!has_shape(array_, type.shape)) {
    std::vector<size_t> shape;
    for (size_t d = 0; d < array_.ndim(); ++d) shape.push_back(array_.shape(d));
    throw UsageError(fmt::format("{} has shape [{}]; it must be [{}]", name, fmt::join(shape, ", "),
                                 fmt::join(type.shape, ", ")));
  }
  if (array_.dtype() == dtype_of(type.type) && is_contiguous(array_)) return;
  copy_.resize(type.bytes());
  convert(array_, name, type, copy_.data());
}

std::vector<int32_t> narrowed(std::span<const int64_t> integers, const std::string& name, int32_t least,
                              int32_t most) {
  std::vector<int32_t> narrow;
  narrow.reserve(integers.size());
  for (const int64_t each : integers) {
    require_entry(name, each, least, most);
    narrow.push_back(static_cast<int32_t>(each));
  }
  return narrow;
}

TensorOutput::TensorOutput(const TensorType& type) : type_(type), bytes_(type.bytes()) {}

nb::object TensorOutput::array() && {
  std::vector<size_t> shape(type_.shape.begin(), type_.shape.end());
  if (type_.pattern) {
    const uint32_t b = type_.pattern->block_size;
    shape = {type_.pattern->blocks()};
    if (b > 1) shape.insert(shape.end(), {b, b});
  }
  if (type_.type == Type::bf16) {
    std::vector<float> values(type_.elements());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] =
          static_cast<float>(kernels::load_number(Type::bf16, bytes_.data() + i * size_of(Type::bf16)));
    return array_from(std::move(values), shape);
  }
  auto* kept = new std::vector<std::byte>(std::move(bytes_));
  return numpy(kept->data(), shape, keep(kept), dtype_of(type_.type));
}

nb::object array_from(std::vector<float> values, const std::vector<size_t>& shape) {
  auto* kept = new std::vector<float>(std::move(values));
  return numpy(kept->data(), shape, keep(kept), dtype_of(Type::f32));
}

}  // namespace tessera::python
