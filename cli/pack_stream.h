// `tessera pack --window`: packs of a stream, printed as they close.
#pragma once

#include "cli/pack_request.h"
#include "cli/pack_show.h"

namespace tessera::cli {

/// Packs the input to its end. What is printed at once goes out whenever the input has nothing more
/// to read for the moment.
PackResult pack_stream(const PackRequest& request);

}  // namespace tessera::cli
