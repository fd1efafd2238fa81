// Structured linear maps of a batch of samples: butterflies, Kronecker-sparse factors, circulant and Toeplitz
// matrices, fastfood; with the gradients of input and parameters. FP32, on the host.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace tessera {

/// A product of log₂ N sparse factors (Dao et al. 2019): the factor of stride s multiplies the pairs (p, p +
/// s) by 2 × 2 matrices. N is the power of two that holds the inputs; ⌈outputs / N⌉ butterflies of the same
/// input are stacked, and their outputs truncated.
///
/// One parameter, `twiddle`, in order of application: [stacks, nblocks, log₂ N, N/2, 2, 2]; tied, where a
/// matrix depends on its position within the stride alone: [stacks, N − 1, 2, 2], the factor of stride s from
/// row s − 1 on. Complex numbers have a trailing dimension of 2, in x, y and twiddle.
struct Butterfly {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  uint32_t nblocks = 1;  ///< products of log₂ N factors, one after the other, whose strides alternate between
                         ///< increasing and decreasing; 1 if tied
  bool tied = false;        ///< 2 × 2 matrices shared by all groups of a stride
  bool complex = false;     ///< inputs and outputs count complex numbers
  bool decreasing = false;  ///< the first block's strides decrease from N/2

  uint32_t levels() const;  ///< log₂ N
  uint32_t size() const { return 1U << levels(); }
  uint32_t stacks() const { return (outputs + size() - 1) / size(); }
  bool operator==(const Butterfly&) const = default;
};

/// I_a ⊗ 1_{b × c} ⊗ I_d: y[(i·b + r)·d + t] = Σ_q weight[i, t, r, q] · x[(i·c + q)·d + t]. A block-diagonal
/// matrix is (blocks, b, c, 1); a Monarch matrix (Dao et al. 2022) a factor (k, q, p, 1) followed by one of
/// (1, s, r, l). Inputs beyond x are zeros.
///
/// One parameter, `weight`: [a, d, b, c].
struct Kronecker {
  uint32_t a = 1;
  uint32_t b = 1;
  uint32_t c = 1;
  uint32_t d = 1;
  uint32_t inputs = 0;   ///< at most a·c·d; 0: a·c·d
  uint32_t outputs = 0;  ///< at most a·b·d; 0: a·b·d

  bool operator==(const Kronecker&) const = default;
};

/// y[i] = Σ_j c[(i − j) mod size] · x[j], for i < outputs; inputs beyond x are zeros.
///
/// One parameter, `c`: [size], the first column.
struct Circulant {
  uint32_t size = 0;
  uint32_t inputs = 0;   ///< at most size; 0: size
  uint32_t outputs = 0;  ///< at most size; 0: size

  bool operator==(const Circulant&) const = default;
};

/// y[i] = Σ_j c[i − j + inputs − 1] · x[j].
///
/// One parameter, `c`: [outputs + inputs − 1], from the last element of the first row to the last element of
/// the first column.
struct Toeplitz {
  uint32_t inputs = 0;
  uint32_t outputs = 0;

  bool operator==(const Toeplitz&) const = default;
};

/// S·H·G·Π·H·B (Le et al. 2013), H the Hadamard matrix of N divided by √N, N the power of two that holds the
/// inputs, Π a permutation: (Π·v)[i] = v[permutation[i]]. ⌈outputs / N⌉ such maps are stacked, and their
/// outputs truncated.
///
/// Parameters `s`, `g` and `b`: [stacks, N] each.
struct Fastfood {
  uint32_t inputs = 0;
  uint32_t outputs = 0;
  std::vector<uint32_t> permutation = {};  ///< [stacks, N], each row a permutation of 0 … N − 1

  uint32_t size() const;
  uint32_t stacks() const { return (outputs + size() - 1) / size(); }
  bool operator==(const Fastfood&) const = default;
};

using Structure = std::variant<Butterfly, Kronecker, Circulant, Toeplitz, Fastfood>;

/// A parameter of a structure.
struct StructuredParameter {
  std::string_view name;
  std::vector<uint32_t> shape;

  uint64_t elements() const;
};

/// "butterfly", "kronecker", …
std::string_view name_of(const Structure& structure);
/// Number of floats in a sample of x, and in a sample of y: two for a complex number. Throw UsageError for
/// impossible sizes.
uint32_t inputs_of(const Structure& structure);
uint32_t outputs_of(const Structure& structure);
/// The parameters of a structure, in the order in which products take them.
std::vector<StructuredParameter> parameters_of(const Structure& structure);

struct StructuredOptions {
  bool transposed = false;  ///< x and y are [features, batch], which needs no transposition; otherwise
                            ///< [batch, features]
  uint32_t threads = 0;     ///< 0: one per physical core available to this process, or TESSERA_THREADS
  bool bias = false;        ///< the last parameter is a bias, which is added to each sample of y
};

/// A structured map, or several one after the other, and their gradients, planned and compiled for a batch of
/// samples. A Monarch matrix is two Kronecker factors, and a low-rank matrix, U·V, is the factors (1, rank,
/// inputs, 1) and (1, outputs, rank, 1). Calls may come from several threads at once; they take turns with
/// the process's thread pool. The bits of results depend on plan and instruction set, not on timing. Copies
/// share the compiled programs.
class StructuredProduct {
 public:
  /// Throws UsageError for impossible sizes.
  StructuredProduct(const Structure& structure, uint32_t batch, const StructuredOptions& options = {});
  /// Several maps: the first one reads x, and a bias is added to the result of the last map. Also throws
  /// UsageError for an empty list, and for maps whose inputs do not match the outputs of the map before.
  StructuredProduct(std::span<const Structure> maps, uint32_t batch, const StructuredOptions& options = {});

  /// Computes y from x; all arrays are contiguous. Throws UsageError for a null array or a wrong number of
  /// parameters.
  void operator()(const float* x, std::span<const float* const> parameters, float* y) const;

  /// Computes dx = Jᵀ·dy and the gradients of the parameters, summed over the batch, with the x of the
  /// forward product. A null dx leaves out the input gradient, an empty parameter_gradients the gradients of
  /// the parameters. A bias may be null, as its values do not matter. Values between maps are recomputed.
  void gradients(const float* x, const float* dy, std::span<const float* const> parameters, float* dx,
                 std::span<float* const> parameter_gradients) const;

  const std::vector<Structure>& maps() const;
  uint32_t batch() const;
  bool transposed() const;  ///< StructuredOptions::transposed
  /// The parameters of the maps, one map after the other, then the bias if there is one.
  const std::vector<StructuredParameter>& parameters() const;
  /// The forward plans in readable form, a line for each map: partition and predicted time.
  std::string plan() const;
  double predicted_seconds() const;

 private:
  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace tessera
