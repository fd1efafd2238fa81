// Arrays whose contents are known while a model is read.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tessera::onnx {

/// Types of elements, with the numbers that the standard has for them.
enum class DataType : int32_t {
  undefined = 0,
  f32 = 1,
  u8 = 2,
  i8 = 3,
  u16 = 4,
  i16 = 5,
  i32 = 6,
  i64 = 7,
  string = 8,
  boolean = 9,
  f16 = 10,
  f64 = 11,
  u32 = 12,
  u64 = 13,
  bf16 = 16,
  u4 = 21,
  i4 = 22,
  u2 = 25,
  i2 = 26,
};

/// "float32", "int64", …, as in NumPy. Throws Error for a type that cannot be read.
std::string name_of(DataType type);
/// The type of that name. Throws UsageError if there is none.
DataType type_named(std::string_view name);
/// "F32", "BF16", …, as inspect() lists tensors.
std::string short_name_of(DataType type);
bool is_known(DataType type);
bool is_float(DataType type);
/// Whether a type is an integer; truth values are not.
bool is_integer(DataType type);
bool is_signed(DataType type);
/// Number of bits of an element; 8 for a truth value. Smaller integers share bytes: constants may have such
/// types, inputs and outputs may not.
int bits_of(DataType type);
/// The type that represents such values in a graph.
Type graph_type_of(DataType type);

/// The least and the largest integer that a graph can hold for the type.
std::pair<int64_t, int64_t> range_in_graph(DataType type);

using Dims = std::vector<int64_t>;

inline constexpr size_t kMostDimensions = 64;  ///< dimensions of an array, as in NumPy

/// Throws Error for a negative size, and for more than 2^40 elements. A size of 0 does not lift the limit for
/// the other sizes, because they determine numbers of steps and passes of loops.
uint64_t elements_of(const Dims& dims);
std::string to_string(const Dims& dims);

using Floats = std::shared_ptr<const std::vector<float>>;
using Integers = std::shared_ptr<const std::vector<int64_t>>;

/// Numbers, row by row: floating-point numbers as FP32, integers and truth values as integers.
struct Constant {
  DataType type = DataType::f32;
  Dims dims = {};
  std::variant<Floats, Integers> values = {};
  std::string name = {};                            ///< name of an initializer; empty for computed constants
  std::shared_ptr<const Constant> transposed = {};  ///< the transpose of a matrix, if it is known as well

  bool has_floats() const { return values.index() == 0; }
  const std::vector<float>& floats() const { return *std::get<0>(values); }
  const std::vector<int64_t>& integers() const { return *std::get<1>(values); }
  uint64_t size() const { return has_floats() ? floats().size() : integers().size(); }
  double number(uint64_t i) const {
    if (has_floats()) return floats()[i];
    const int64_t x = integers()[i];  // a u64 number is stored with the bits of a signed one
    return type == DataType::u64 ? static_cast<double>(static_cast<uint64_t>(x)) : static_cast<double>(x);
  }
};

using ConstantPointer = std::shared_ptr<const Constant>;

/// An integer converted to the type: it wraps around, as in C.
int64_t wrapped(int64_t x, DataType type);
ConstantPointer integers(std::vector<int64_t> values, Dims dims, DataType type = DataType::i64);
ConstantPointer floats(std::vector<float> values, Dims dims, DataType type = DataType::f32);
/// A constant of the type from numbers: rounded to 16 bits, or truncated to integers.
ConstantPointer of_numbers(const std::vector<double>& numbers, Dims dims, DataType type);
/// A constant converted to another type.
ConstantPointer converted(const Constant& from, DataType type);
/// On which side a constant bounds values.
enum class Bound : uint8_t { below, above };
/// Integers that bound values of a graph as `from` does. Bounds that no value of the graph passes, such as
/// the largest 64-bit integer, become the last integer that a graph can hold; others beyond the graph's range
/// stay as they are.
ConstantPointer in_range(const Constant& from, Bound side);
ConstantPointer reshaped(const Constant& from, Dims dims);

}  // namespace tessera::onnx
