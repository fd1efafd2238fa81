// Products with butterfly matrices: the vertices of a program on a team of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "dense/contest.h"
#include "engine/pool.h"
#include "kernels/host/butterfly/codelet.h"

namespace tessera::bench {

/// A butterfly of a batch, each thread with a slice of it. Slices are whole cache lines of samples.
class ButterflyLayer {
 public:
  ButterflyLayer(const kernels::ButterflyShape& shape, uint32_t batch, unsigned threads);

  void forward();
  /// Gradients of input and twiddle; those of the twiddle are added over the slices.
  void gradients();

 private:
  struct Slice;

  void add_gradients(uint32_t thread);

  kernels::ButterflyShape shape_;
  uint32_t batch_;
  std::vector<float> x_, y_, dy_, dx_, twiddle_;
  std::vector<std::vector<float>> dtwiddle_;  ///< of each slice; the first one is the result
  std::vector<std::vector<float>> scratch_;
  std::vector<uint32_t> begins_;
};

}  // namespace tessera::bench
