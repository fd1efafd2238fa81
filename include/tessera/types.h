// Element types, and views of the caller's arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tessera {

/// Type of the elements of a variable or a tensor.
enum class Type : uint8_t { f32, f16, bf16, u8, u16, u32, i32, u64, f64 };

/// Bytes of one element.
constexpr size_t size_of(Type type) {
  switch (type) {
    case Type::u8: return 1;
    case Type::f16:
    case Type::bf16:
    case Type::u16: return 2;
    case Type::f32:
    case Type::u32:
    case Type::i32: return 4;
    case Type::u64:
    case Type::f64: return 8;
  }
  return 0;
}

/// "f32", "bf16", …
std::string_view name_of(Type type);

/// Distance between 1 and the next representable value; 0 for integers.
double epsilon_of(Type type);

/// A matrix in the caller's memory, used in place: element (i, j) is data[i * row_stride + j * col_stride].
/// Strides are in elements. No alignment is required beyond the element's own.
template <class T>
struct MatrixView {
  T* data = nullptr;
  int64_t row_stride = 0;
  int64_t col_stride = 1;

  T& operator()(int64_t i, int64_t j) const { return data[i * row_stride + j * col_stride]; }
  /// The address of an element, of any alignment (compilers assume that a reference is aligned).
  T* pointer_to(int64_t i, int64_t j) const { return data + i * row_stride + j * col_stride; }
};

/// Row-major: element (i, j) at data[i * leading + j].
template <class T>
MatrixView<T> row_major(T* data, int64_t leading) {
  return {data, leading, 1};
}

/// Column-major, like a framework's batch-major activations: element (i, j) at data[i + j * leading].
template <class T>
MatrixView<T> column_major(T* data, int64_t leading) {
  return {data, 1, leading};
}

/// Memory layout of an activation matrix.
enum class Layout : uint8_t {
  row_major,     ///< element (i, j) at [i · leading + j]
  column_major,  ///< element (i, j) at [i + j · leading]; a framework's batch-major activations
};

/// The products of training with a weight W of m × k: Y = W·X, dX = Wᵀ·dY, and dW = dY·Xᵀ at W's pattern.
/// X and dX are k × n, Y and dY m × n.
enum class ProductKind : uint8_t { forward, input_gradient, sddmm };

/// How products are planned on modelled machines: by Tessera's own search, or by the published rules of the
/// vendor's libraries.
enum class Planner : uint8_t { best, vendor };

/// The function applied to each element of a product while the element is still in registers.
enum class Activation : uint8_t {
  none,
  relu,       ///< max(0, y); NaN stays NaN
  gelu,       ///< y/2 · (1 + erf(y / √2)) (Hendrycks & Gimpel 2016, the exact form)
  gelu_tanh,  ///< y/2 · (1 + tanh(√(2/π) (y + 0.044715 y³))) (the same paper's approximation)
  silu,       ///< y / (1 + e⁻ʸ)
  relu6,      ///< min(max(0, y), 6); NaN stays NaN
};

/// "none", "relu", …
std::string_view name_of(Activation activation);

/// The activation with that name; throws UsageError for any other name.
Activation activation_named(std::string_view name);

}  // namespace tessera
