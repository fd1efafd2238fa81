// Weight matrices out of files of any known format.
#pragma once

#include <tessera/sparse.h>

#include <string>

namespace tessera::io {

struct Weights {
  SparseMatrix matrix;     ///< block size 1; values are empty where the file has none
  bool has_values = true;  ///< whether the file has values, not only a pattern
};

/// Reads a file whose extension is .smtx, .mtx, .npy or .safetensors, in upper or lower case.
/// `tensor` names a tensor of a .safetensors file; it may be empty when the file has only one
/// matrix. Throws UsageError for another extension or an unknown tensor, Error when the file
/// cannot be read.
Weights read_weights(const std::string& path, const std::string& tensor = "");

}  // namespace tessera::io
