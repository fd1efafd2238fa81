// Packed formats by their public numbers.
#pragma once

#include <tessera/weight.h>

#include "sparse/blocks/packed_blocks.h"
#include "sparse/elements/packed_elements.h"
#include "sparse/panels/packed_panels.h"

namespace tessera::sparse {

PackedFormat format_of(const PackedBlocks& weight);
PackedFormat format_of(const PackedElements& weight);
inline PackedFormat format_of(const PackedPanels&) { return PackedFormat::panels; }

}  // namespace tessera::sparse
