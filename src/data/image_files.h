// Image formats, read from any source of bytes.
#pragma once

#include <tessera/images.h>

#include "io/source.h"

namespace tessera::train {

/// Implement the public functions of the same names.
ImageSet read_idx_images(const io::Source& images, const io::Source& labels);
ImageSet read_cifar10(const io::Source& batch);

}  // namespace tessera::train
