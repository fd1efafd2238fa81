// `tessera pack --window`: packs of a stream, printed as they close.
#pragma once

#include "cli/pack_request.h"
#include "report/pack_result.h"

namespace tessera::cli {

/// Packs the entire input. Output is flushed whenever no more input is available at the moment.
report::PackResult pack_stream(const PackRequest& request);

}  // namespace tessera::cli
