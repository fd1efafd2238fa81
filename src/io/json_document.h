// Small JSON documents, such as a model's configuration.
#pragma once

#include <nlohmann/json.hpp>

#include "io/source.h"

namespace tessera::io {

/// Parses a whole file. Throws Error if it is no JSON object, nests deeper than configurations do, or is
/// larger than 64 MiB.
nlohmann::json read_json_object(const Source& source);

}  // namespace tessera::io
