// Samples: synthetic vertices of a codelet, for its test, its benchmark and the check of its cost.
#pragma once

#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "program/codelet.h"

namespace tessera::kernels {

/// The allowed difference between the SIMD form and the reference: |simd − ref| ≤ relative · |ref| +
/// absolute. Follows from the types and the order of the arithmetic; 0 demands the same values.
struct Tolerance {
  double relative = 0;
  double absolute = 0;
};

/// The tolerance of sums of `terms` products that both forms add in the same order. Products of FP16 are
/// exact in FP32; in FP32 one form rounds each product and the other does not, and FP16 results may then fall
/// to either side of a tie.
Tolerance product_tolerance(Type in, Type out, double terms);

/// Fields and parameters of one vertex, and its number of operations.
class Sample {
 public:
  struct Field {
    Type type = Type::f32;
    uint32_t rows = 0;
    uint32_t cols = 0;
    std::vector<std::byte> contents;  ///< row-major
    bool packed = false;              ///< must stay contiguous and aligned
  };

  /// A sample; its fields and parameters must be added in the codelet's order.
  explicit Sample(const program::Codelet& codelet) : codelet_(&codelet) {}

  /// Adds a field uniform in (-range, range), rounded to the type, with infinities, NaN and zeros among the
  /// elements if `with_specials`.
  Sample& random(Type type, uint32_t rows, uint32_t cols, uint64_t seed, float range = 1,
                 bool with_specials = false);
  /// Adds a field to be written, with all bits set, which is NaN.
  Sample& unset(Type type, uint32_t rows, uint32_t cols);
  /// Adds an integer or floating-point field whose element i (row-major) is value_at(i).
  Sample& values(Type type, uint32_t rows, uint32_t cols, const std::function<double(uint64_t)>& value_at);
  /// Adds a field as given.
  Sample& field(Field field);
  /// Adds n samples of `features` features in FP32, each a row or, transposed, a column; random or unset.
  Sample& batch(uint32_t n, uint32_t features, bool transposed, uint64_t seed) {
    return transposed ? random(Type::f32, features, n, seed) : random(Type::f32, n, features, seed);
  }
  Sample& unset_batch(uint32_t n, uint32_t features, bool transposed) {
    return transposed ? unset(Type::f32, features, n) : unset(Type::f32, n, features);
  }
  /// Adds scratch memory.
  Sample& scratch(size_t floats) { return unset(Type::f32, 1, static_cast<uint32_t>(floats)).packed(); }
  /// Adds structures as a packed field of bytes, a row each.
  template <class T>
  Sample& records(std::span<const T> items) {
    const std::span<const std::byte> bytes = std::as_bytes(items);
    return field(
        {Type::u8, static_cast<uint32_t>(items.size()), sizeof(T), {bytes.begin(), bytes.end()}, true});
  }
  /// Makes the field added last contiguous and aligned in every layout.
  Sample& packed();
  Sample& param(int64_t value);
  /// Makes it a sample of another codelet, whose fields and first parameters are the present ones.
  Sample& of(const program::Codelet& codelet);
  Sample& tolerance(Tolerance tolerance);
  /// Sets the floating-point operations of one run, for a benchmark's GFLOP/s; 0 if they do not matter.
  Sample& flops(double flops);

  const program::Codelet& codelet() const { return *codelet_; }
  const std::vector<Field>& fields() const { return fields_; }
  const std::vector<int64_t>& params() const { return params_; }
  const Tolerance& tolerance() const { return tolerance_; }
  double flops() const { return flops_; }
  /// Bytes of all fields.
  double bytes() const;

 private:
  const program::Codelet* codelet_;
  std::vector<Field> fields_;
  std::vector<int64_t> params_;
  Tolerance tolerance_;
  double flops_ = 0;
};

/// The layout of the elements of a sample's fields.
struct SampleLayout {
  uint32_t shift = 0;    ///< elements past an aligned address
  uint32_t padding = 0;  ///< elements between consecutive rows (or columns)
  bool column_major = false;
};

/// A sample in its own memory, as one vertex.
class SampleVertex {
 public:
  explicit SampleVertex(const Sample& sample, const SampleLayout& layout = {});
  SampleVertex(const SampleVertex&) = delete;
  SampleVertex& operator=(const SampleVertex&) = delete;

  program::Vertex vertex() const { return {views_, params_}; }
  /// The element as a number.
  double at(size_t field, uint32_t row, uint32_t col) const;
  /// Whether all elements of the field have the bits of those in another vertex of the same sample and
  /// layout.
  bool has_bits_of(const SampleVertex& other, size_t field) const;
  /// Whether all memory around the elements is unchanged.
  bool surroundings_untouched() const;

 private:
  struct Buffer {
    std::vector<std::byte> storage;
    std::byte* begin = nullptr;
    size_t bytes = 0;  ///< from `begin`: lines of elements, and the memory around them
    size_t first_line = 0;
    size_t lines = 0;
    size_t line_bytes = 0;
    size_t stride_bytes = 0;
  };

  void place(const Sample::Field& field, const program::FieldSpec& spec, const SampleLayout& layout);

  std::vector<Buffer> buffers_;
  std::vector<program::FieldView> views_;
  std::vector<int64_t> params_;
};

/// A use of a codelet that is tested: "f16", "b16/bf16". `scale` stretches the linear size; at 0 every field
/// is empty or the smallest that the codelet takes.
struct NamedSample {
  std::string_view name;
  Sample (*make)(uint32_t scale, uint64_t seed) = nullptr;
};

/// A codelet with its samples. A codelet without samples does not compile.
struct CodeletSamples {
  constexpr CodeletSamples(const program::Codelet& of, std::span<const NamedSample> its_samples)
      : codelet(&of), samples(its_samples) {
    if (samples.empty()) throw "a codelet needs a sample";
  }

  const program::Codelet* codelet;
  std::span<const NamedSample> samples;
};

/// The samples of a family: NAME_uses of each codelet in its list. If files are joined (tessera_join), these
/// are in TESSERA_SAMPLE_NAMES.
#define TESSERA_SAMPLE_NAMES
#define TESSERA_SAMPLES_OF(codelet, ...) {codelet##_codelet, codelet##_uses},
#define TESSERA_DEFINE_SAMPLES(family, CODELETS)                             \
  std::span<const CodeletSamples> family##_samples() {                       \
    TESSERA_SAMPLE_NAMES                                                     \
    static constexpr CodeletSamples kAll[] = {CODELETS(TESSERA_SAMPLES_OF)}; \
    return kAll;                                                             \
  }

}  // namespace tessera::kernels
