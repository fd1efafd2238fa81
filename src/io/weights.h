// Weight matrices from files of any supported format.
#pragma once

#include <tessera/sparse.h>

#include <string>

namespace tessera::io {

struct Weights {
  SparseMatrix matrix;     ///< block size 1; values are empty if the file has none
  bool has_values = true;  ///< whether the file has values or only a pattern
};

/// The extension of a file name in lower case: ".npy".
std::string extension_of(const std::string& path);

/// Reads a file with extension .smtx, .mtx, .npy or .safetensors, in upper or lower case. `tensor` names a
/// tensor of a .safetensors file; it may be empty if the file has only one matrix. Throws UsageError for
/// another extension or an unknown tensor, Error if the file cannot be read.
Weights read_weights(const std::string& path, const std::string& tensor = "");

}  // namespace tessera::io
