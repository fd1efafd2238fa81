// Recommends dense or sparse products with a weight, and the block size, on a host.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "machine/model/machine.h"
#include "sparse/inspect.h"

namespace tessera::ops {

/// A sparse product in blocks of one size.
struct SparseAdvice {
  uint32_t block_size = 1;
  double seconds = 0;  ///< predicted seconds of a product
  uint64_t bytes = 0;  ///< bytes of values and index
};

/// Why no sparse product pays.
enum class Obstacle : uint8_t {
  none,
  too_dense,        ///< it would pay with fewer non-zeros
  too_few_columns,  ///< it would pay with fewer non-zeros and more columns of X
  too_small,        ///< starting, and handling X and Y, takes most of the time
  memory_bound,     ///< moving X and Y through memory takes a third of the time or more
};

struct Advice {
  double dense_seconds = 0;          ///< predicted seconds of the fastest dense product
  std::vector<SparseAdvice> sparse;  ///< fastest first, without block sizes that cannot be fastest
  Obstacle obstacle = Obstacle::none;
};

/// A sparse product pays if it takes at most this fraction of the dense one's time: predictions err by about
/// a tenth.
inline constexpr double kMostOfDense = 0.9;

/// Predicts Y = W·X with n columns, for activations [n, features] of the weight's type. Caches results that
/// depend on a weight's shape alone, since the layers of a model have few different shapes.
class Advisor {
 public:
  /// `host` must be a host, and n at least 1.
  Advisor(machine::Machine host, uint32_t n) : host_(std::move(host)), n_(n) {}

  /// The advice for a weight with these non-zeros, and their inspection. The weight has at least one row and
  /// column, and is stored as f32, f16 or bf16.
  Advice advise(const sparse::NonZeros& non_zeros, const sparse::Inspection& inspection, Type type);

  /// The same of the weight of a convolution in groups, as a pattern of block size 1: see zeros_of_groups().
  Advice advise_groups(const Pattern& weight, const ConvolutionGroups& of, Type type);

  /// Whether there are predictions for a weight of this size.
  static bool supports(uint32_t rows, uint32_t cols);

 private:
  struct Shape {
    uint32_t rows = 0;
    uint32_t cols = 0;
    Type type = Type::f32;
    uint32_t n = 0;
    auto operator<=>(const Shape&) const = default;
  };

  double dense_seconds(const Shape& shape);
  /// Seconds of a product with the best pattern that can be expected of pruning.
  double ideal_seconds(const Shape& shape);
  SparseAdvice full_blocks(const Shape& shape, uint32_t block_size);
  SparseAdvice blocks(const Shape& shape, const Pattern& pattern) const;
  SparseAdvice elements(const Shape& shape, const Pattern& pattern) const;
  Obstacle obstacle(const Shape& shape);
  /// Sorts the advice, and says why the best one does not pay in a layer of this shape, if so.
  Advice judged(Advice advice, const Shape& shape);

  machine::Machine host_;
  uint32_t n_;
  std::map<Shape, double> dense_;
  std::map<Shape, double> ideal_;
  std::map<std::pair<Shape, uint32_t>, SparseAdvice> full_;
};

}  // namespace tessera::ops
