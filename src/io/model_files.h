// The `.safetensors` files of a model.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/source.h"

namespace tessera::io {

/// The files of a model that hold its tensors, and the file of each tensor if there are several.
struct ModelFiles {
  std::vector<std::string> paths;
  /// File of each tensor, as a number in `paths`; empty if a single file holds them all.
  std::map<std::string, size_t> file_of = {};
};

/// Finds the files of a `.safetensors` file, or of a folder in Hugging Face's form: config.json, and
/// model.safetensors or the files that model.safetensors.index.json lists. Throws Error if there is none, the
/// index is malformed, names files outside the folder or lacks one, and for weights that are quantised or in
/// an unknown format.
ModelFiles find_model_files(const std::string& path);

/// Whether the path is a folder, or has the extension of a `.safetensors` file.
bool is_model(const std::string& path);

/// Throws Error unless weights that this config.json describes are stored as numbers, dense or by
/// compressed-tensors as sparse-bitmask or sparse-24-bitmask.
void check_model_config(const Source& config);

/// The file names of the index's tensors. Throws Error as find_model_files() does.
std::map<std::string, std::string> read_model_index(const Source& index);

}  // namespace tessera::io
