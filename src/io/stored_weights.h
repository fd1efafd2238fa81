// The weights of a model, in each form in which their zeros are stored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "io/source.h"

namespace tessera::io {

/// How a weight is stored, and the tensors that it consists of. NAME is its own name, or without ".weight".
enum class WeightForm : uint8_t {
  dense,              ///< NAME
  masked,             ///< NAME_orig, NAME_mask: torch.nn.utils.prune
  compressed_rows,    ///< NAME.crow_indices, NAME.col_indices, NAME.values or NAME: CSR or BSR
  packed,             ///< CSR or BSR of a tessera.nn.SparseLinear, with values in its packed order
  sparse_bitmask,     ///< NAME.shape, NAME.compressed, NAME.bitmask, NAME.row_offsets: compressed-tensors
  sparse_24_bitmask,  ///< sparse_bitmask without row_offsets
};

/// "dense", "masked", "CSR or BSR", "SparseLinear", "sparse-bitmask", "sparse-24-bitmask".
std::string_view name_of(WeightForm form);

/// A tensor of one of several files.
struct StoredTensor {
  const Source* source = nullptr;
  TensorInfo info{};
};

/// A weight, or any other tensor, as it is in the files.
struct StoredWeight {
  std::string name;
  WeightForm form = WeightForm::dense;
  std::map<std::string, StoredTensor> parts;  ///< by role: "values", "mask", "crow_indices", …

  const StoredTensor& part(const std::string& role) const { return parts.at(role); }
  bool has(const std::string& role) const { return parts.contains(role); }
  uint64_t bytes() const;  ///< total over all parts
};

/// Groups tensors of distinct names into weights, in the natural order of their names. Throws Error if
/// tensors of a group are missing.
std::vector<StoredWeight> group_weights(std::vector<StoredTensor> tensors);

/// Whether texts are in order if the numbers in them count as numbers: "layer.2" comes before "layer.10".
bool is_naturally_before(std::string_view a, std::string_view b);

}  // namespace tessera::io
