// Arrays whose contents are known while a model is read.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <memory>
#include <string>
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
};

/// "float32", "int64", …, as NumPy has it. Throws Error for a type that cannot be read.
std::string name_of(DataType type);
/// As files have it: "F32", "BF16", …; as inspect() lists tensors.
std::string short_name_of(DataType type);
bool is_known(DataType type);
bool is_float(DataType type);
/// Integers, but no truth values.
bool is_integer(DataType type);
/// The bits of an element; of a truth value, 8.
int bits_of(DataType type);
/// The type that a graph has for it.
Type graph_type_of(DataType type);

/// The least and the largest integer that a graph has for the type.
std::pair<int64_t, int64_t> range_in_graph(DataType type);

using Dims = std::vector<int64_t>;

/// Throws Error for a negative size, and for more than 2^40 elements.
uint64_t elements_of(const Dims& dims);
std::string to_string(const Dims& dims);

using Floats = std::shared_ptr<const std::vector<float>>;
using Integers = std::shared_ptr<const std::vector<int64_t>>;

/// Numbers, row by row: floating-point ones as FP32, integers and truth values as integers.
struct Constant {
  DataType type = DataType::f32;
  Dims dims = {};
  std::variant<Floats, Integers> values = {};
  std::string name = {};                            ///< of an initializer; what is computed of one has none
  std::shared_ptr<const Constant> transposed = {};  ///< of a matrix, if that is known as well

  bool has_floats() const { return values.index() == 0; }
  const std::vector<float>& floats() const { return *std::get<0>(values); }
  const std::vector<int64_t>& integers() const { return *std::get<1>(values); }
  uint64_t size() const { return has_floats() ? floats().size() : integers().size(); }
  double number(uint64_t i) const { return has_floats() ? floats()[i] : static_cast<double>(integers()[i]); }
};

using ConstantPointer = std::shared_ptr<const Constant>;

/// An integer as the type has it: it wraps around, as in C.
int64_t wrapped(int64_t x, DataType type);
ConstantPointer integers(std::vector<int64_t> values, Dims dims, DataType type = DataType::i64);
ConstantPointer floats(std::vector<float> values, Dims dims, DataType type = DataType::f32);
/// Numbers as the type has them: rounded to 16 bits, cut off to integers.
ConstantPointer of_numbers(const std::vector<double>& numbers, Dims dims, DataType type);
/// The same numbers in another type.
ConstantPointer converted(const Constant& from, DataType type);
/// Integers, each as near as it comes in the range of a graph.
ConstantPointer in_range(const Constant& from);
ConstantPointer reshaped(const Constant& from, Dims dims);

}  // namespace tessera::onnx
