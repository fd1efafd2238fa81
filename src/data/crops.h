// Parts of images as networks take them, pixel by pixel all channels; of those for training random ones.
#pragma once

#include <tessera/images.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train {

/// A part of an image of the image's own size, some of which may lie outside.
struct Crop {
  int32_t row = 0;  ///< of the image, which becomes the first; so does the column
  int32_t col = 0;
  bool is_flipped = false;  ///< whether left and right are exchanged

  bool operator==(const Crop&) const = default;
};

/// Moved by up to `most` pixels in each direction, and flipped or not: a function of its arguments alone.
Crop random_crop(uint64_t seed, uint32_t epoch, uint32_t image, uint32_t most);

/// Writes a part of image i: [height, width, channels]. What lies outside is 0.
void copy_crop(const ImageSet& images, size_t i, const Crop& crop, std::span<uint8_t> pixels);

/// Mean and standard deviation of each channel over all pixels.
struct ChannelStatistics {
  std::vector<double> mean, deviation;
};
/// Of constant channels the deviation is 1.
ChannelStatistics channel_statistics(const ImageSet& images);

}  // namespace tessera::train
