// Zeros of weights, with predictions.
#pragma once

#include <tessera/inspect.h>
#include <tessera/sparse.h>

#include <vector>

#include "ops/sparse/host/advise.h"
#include "sparse/inspect.h"

namespace tessera::bound {

/// Analyses weights for one number of columns on one host.
class ZerosAnalysis {
 public:
  /// Throws UsageError for options out of range.
  explicit ZerosAnalysis(const ZerosOptions& options);

  /// `is_product`: whether times of products are predicted.
  Zeros analyse(const sparse::NonZeros& non_zeros, Type type, bool is_product = true);

  /// The zeros of the weight of a convolution in groups, a pattern of block size 1.
  Zeros analyse_groups(const Pattern& weight, Type type, const ConvolutionGroups& of);

 private:
  ops::Advisor advisor_;
};

/// The sums over the tensors of a model.
InspectedTotals totals_of(const std::vector<InspectedTensor>& tensors);

}  // namespace tessera::bound
