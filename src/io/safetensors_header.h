// The JSON header of `.safetensors`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace tessera::io {

/// Reads the tensors of a header, in its order, with the offsets as they stand there. Needs memory
/// in proportion to the text, however deeply it nests. Throws Error, with the file's name, for
/// malformed JSON, missing, repeated or unknown keys, and wrong types. "__metadata__" is skipped.
std::vector<TensorInfo> parse_safetensors_header(const std::string& name, std::string_view text);

}  // namespace tessera::io
