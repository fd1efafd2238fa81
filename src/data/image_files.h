// Image formats, from any source of bytes.
#pragma once

#include <tessera/training.h>

#include "io/source.h"

namespace tessera::train {

/// As the public functions of these names.
ImageSet read_idx_images(const io::Source& images, const io::Source& labels);
ImageSet read_cifar10(const io::Source& batch);

}  // namespace tessera::train
