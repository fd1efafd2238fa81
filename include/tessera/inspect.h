// Where the zeros of a weight are, and whether they would save time: for arrays and for files of models.
#pragma once

#include <tessera/sparse.h>
#include <tessera/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

/// Why a sparse product with a weight does not pay: it takes more than 0.9 of the dense product's time.
enum class NoGain : uint8_t {
  none,             ///< it pays
  not_a_product,    ///< the tensor is not a matrix, or it is an embedding, from which rows are selected
  too_dense,        ///< it would pay with fewer non-zeros
  too_few_columns,  ///< it would pay with more columns of X and fewer non-zeros
  too_small,        ///< starting, and handling X and Y, takes most of the time
  memory_bound,     ///< moving X and Y through memory takes a third of the time or more
};

/// "too dense", …; "" for none.
std::string_view name_of(NoGain reason);

/// The aligned b × b blocks of a weight that have a non-zero.
struct BlockZeros {
  uint32_t block_size = 1;
  uint64_t blocks = 0;
  double density = 0;  ///< fraction of the weight inside these blocks, 0 to 1
  double fill_in = 1;  ///< elements inside these blocks per non-zero; 1 if there are no non-zeros
  std::optional<double> seconds{};  ///< predicted time of a product; none where this block size cannot be
                                    ///< fastest, and for a tensor without a product
};

struct ZerosOptions {
  uint32_t n = 128;      ///< columns of X: rows of a layer's input, such as tokens
  uint32_t threads = 0;  ///< threads of the host; 0: one per physical core available to this process
};

/// The zeros of a weight of m × k, and predicted times of products with it on the host, for activations [n,
/// features] as frameworks have them. -0 is a zero, NaN is not.
struct Zeros {
  uint32_t rows = 0;  ///< m
  uint32_t cols = 0;  ///< k
  uint64_t non_zeros = 0;
  double density = 0;              ///< non-zeros as a fraction of the weight
  std::vector<BlockZeros> blocks;  ///< for b = 1, 4, 8, 16 and 32
  uint32_t zero_rows = 0;          ///< rows without a non-zero
  uint32_t zero_cols = 0;
  bool is_2_4 = false;  ///< each aligned group of four elements of a row has at most two non-zeros

  NoGain reason = NoGain::not_a_product;
  // Predictions; 0 for a tensor without a product.
  double dense_seconds = 0;
  double sparse_seconds = 0;     ///< time with the fastest block size
  uint32_t best_block_size = 0;  ///< the fastest block size
  uint64_t sparse_bytes = 0;     ///< bytes of values and index with the fastest block size

  bool pays() const { return reason == NoGain::none; }
};

/// The zeros of an array of f32, f16 or bf16 with contiguous rows, `row_stride` elements apart. Throws
/// UsageError for another type, and for sizes and options out of range.
Zeros zeros_of(const void* weight, Type type, uint32_t rows, uint32_t cols, int64_t row_stride,
               const ZerosOptions& options = {});

/// The zeros of a weight of this type whose non-zeros are the elements of a pattern of block size 1.
Zeros zeros_of(const Pattern& pattern, Type type, const ZerosOptions& options = {});

/// The zeros of the weight of a convolution in groups, [outputs, taps · channels per group]: there is a dense
/// product for each group, and one sparse product with the groups on its diagonal. A block size that does not
/// divide the outputs and channels of a group has no predicted time.
Zeros zeros_of_groups(const Pattern& pattern, Type type, const ConvolutionGroups& of,
                      const ZerosOptions& options = {});

/// A tensor in the files of a model; a tensor stored in several parts counts once.
struct InspectedTensor {
  std::string name;
  /// How it is stored: "dense", "masked" (NAME_orig and NAME_mask of torch.nn.utils.prune), "CSR or BSR",
  /// "SparseLinear", "sparse-bitmask", "sparse-24-bitmask"; "pattern" if there are no values.
  std::string form;
  std::string dtype;            ///< as the file calls it: "F32", "BF16", …
  std::vector<uint64_t> shape;  ///< shape as a dense tensor
  uint64_t elements = 0;
  uint64_t dense_bytes = 0;  ///< size as a dense tensor; 0 if the size of its elements is not known
  /// For F32, F16 and BF16: the zeros of the tensor as a matrix with the first dimension as rows and the
  /// other dimensions as columns. Quantised weights of ONNX models have them too; their zeros are the
  /// elements equal to the zero point. None for other types.
  std::optional<Zeros> zeros;
  /// Number of columns of X in the predicted times, where an ONNX model says it; 0: InspectedModel::n.
  uint32_t n = 0;
};

/// Sums over the tensors that have InspectedTensor::zeros; dense_bytes and sparse_bytes are sums over all
/// tensors.
struct InspectedTotals {
  uint64_t elements = 0;
  uint64_t zeros = 0;
  uint64_t dense_bytes = 0;
  uint64_t sparse_bytes = 0;  ///< with weights in sparse form where it pays
  double dense_seconds = 0;   ///< predicted time of all products
  double sparse_seconds = 0;  ///< with sparse products where they pay
};

/// An operator of an ONNX model that graphs do not support.
struct UnsupportedOperator {
  std::string op_type;
  std::string node;    ///< name of the operator's node, or its first output
  std::string reason;  ///< why this use of the operator is not supported; empty: the operator is not
                       ///< supported at all
};

struct InspectedModel {
  std::string path;
  uint32_t n = 0;
  std::vector<InspectedTensor> tensors;  ///< tensors in the natural order of their names
  InspectedTotals totals;
  /// All operators because of which the model cannot be run; if the file leaves sizes open, without operators
  /// that fail only for some sizes or attributes.
  std::vector<UnsupportedOperator> unsupported = {};
};

/// Called before each tensor is read, with the number of tensors done, their total number, and the tensor's
/// name.
using InspectProgress = std::function<void(size_t done, size_t total, const std::string& next)>;

/// Inspects a `.safetensors` file; the folder of a model as Hugging Face lays it out (config.json, and
/// model.safetensors or the files that model.safetensors.index.json lists); or a file that read_matrix()
/// reads. With `tensor`, inspects only that tensor. Reads one tensor after the other, in pieces, so it needs
/// memory only for the non-zeros of one tensor. Throws Error, naming the file, if a file is missing or
/// malformed, and for weights that are quantised; UsageError for an unknown tensor or extension, and options
/// out of range.
InspectedModel inspect(const std::string& path, const std::string& tensor = "",
                       const ZerosOptions& options = {}, const InspectProgress& progress = {});

}  // namespace tessera
