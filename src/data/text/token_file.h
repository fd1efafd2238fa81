// Files of tokens.
#pragma once

#include <tessera/token_text.h>

#include "io/source.h"

namespace tessera::train {

/// Reads a file; throws as the function from a path does.
TokenText read_tokens(const io::Source& source);

}  // namespace tessera::train
