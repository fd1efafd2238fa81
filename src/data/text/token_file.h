// Files of tokens.
#pragma once

#include <tessera/token_text.h>

#include <memory>

#include "io/source.h"

namespace tessera::train {

/// Opens a file, which the tokens keep; throws as the function from a path does.
TokenText read_tokens(std::shared_ptr<const io::Source> source);

}  // namespace tessera::train
