// The JSON header of `.safetensors`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace tessera::io {

/// Parses the tensors of a header, in its order, with the offsets as given. Needs memory in proportion to the
/// text, however deeply nested. Throws Error, with the file's name, for malformed JSON, missing, duplicate or
/// unknown keys, and wrong types. "__metadata__" goes to `metadata` if that is given.
std::vector<TensorInfo> parse_safetensors_header(const std::string& name, std::string_view text,
                                                 TensorMetadata* metadata = nullptr);

}  // namespace tessera::io
