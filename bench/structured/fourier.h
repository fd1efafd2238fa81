// Circulant and fastfood layers: the vertices of a program on a team of threads.
#pragma once

#include <cstdint>
#include <vector>

#include "dense/contest.h"
#include "engine/pool.h"
#include "program/codelet.h"

namespace tessera::bench {

/// An n × n layer of a batch, each thread with a slice of it, in whole tiles of lanes.
class FourierLayer {
 public:
  enum class Kind : uint8_t { circulant, fastfood };

  FourierLayer(Kind kind, uint32_t n, uint32_t batch, bool transposed, unsigned threads);

  void forward();
  /// Gradients of input and parameters; those of parameters are added over the slices.
  void gradients();

 private:
  /// Floats that begin at a cache line.
  class Array {
   public:
    explicit Array(size_t count, uint64_t seed = 0);
    program::FieldView view(size_t offset, uint32_t rows, uint32_t cols, uint32_t row_stride);
    float* data();

   private:
    std::vector<float> floats_;
  };

  program::FieldView slice_of(Array& values, uint32_t thread);
  std::vector<program::FieldView> parameters(std::vector<Array>& arrays);
  void add_gradients(uint32_t thread);

  Kind kind_;
  uint32_t n_, batch_;
  std::vector<int64_t> params_;
  Array x_, y_, dy_, dx_;
  std::vector<Array> parameters_;
  std::vector<uint32_t> permutation_;
  std::vector<std::vector<Array>> gradients_;  ///< of each slice; the first ones are the result
  std::vector<Array> scratch_;
  std::vector<uint32_t> begins_;
};

}  // namespace tessera::bench
