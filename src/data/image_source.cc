#include "data/image_source.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include "data/samples.h"

namespace tessera::train {

ImageSources stored_images(const ImageSplit& images, uint64_t seed, std::optional<uint32_t> padding) {
  const ImageSet &train = images.train, &test = images.test;
  if (test.height != train.height || test.width != train.width || test.channels != train.channels)
    throw UsageError(fmt::format(
        "{}: images for testing are {} × {} in {} channels, those for training {} × {} "
        "in {}",
        images.name, test.height, test.width, test.channels, train.height, train.width, train.channels));
  return {identity_of(images),
          {train.height, train.width, train.channels, train.classes, channel_statistics(train)},
          std::make_unique<StoredImages>(train, seed, padding),
          std::make_unique<StoredImages>(test, seed, padding)};
}

}  // namespace tessera::train
