// The definition of structured maps as products of sparse matrices whose elements are parameters, which
// references evaluate directly.
#pragma once

#include <tessera/structured.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tessera::ops {

/// y[out] += scale · parameter · x[in]
struct StructuredTerm {
  uint32_t out = 0;
  uint32_t in = 0;
  double scale = 1;
  std::optional<uint64_t> parameter = {};  ///< position in the parameters, one after the other; none: 1
};

/// A sparse matrix with `outputs` rows.
struct StructuredStage {
  uint32_t outputs = 0;
  std::vector<StructuredTerm> terms = {};
};

/// The matrices of a structure, in the order of their application to a sample of inputs_of() elements.
std::vector<StructuredStage> stages_of(const Structure& structure);

/// The vectors between the stages: a sample of x first, its y last.
std::vector<std::vector<double>> apply_stages(std::span<const StructuredStage> stages,
                                              std::span<const double> parameters, std::span<const double> x);

/// The dx of a sample, given its vectors between the stages; adds its gradients of the parameters to
/// `dparameters`.
std::vector<double> differentiate_stages(std::span<const StructuredStage> stages,
                                         std::span<const double> parameters,
                                         std::span<const std::vector<double>> vectors,
                                         std::span<const double> dy, std::span<double> dparameters);

}  // namespace tessera::ops
