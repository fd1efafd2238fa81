// Crops of images as networks take them, with the channels of each pixel adjacent; random ones for training.
#pragma once

#include <tessera/images.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tessera::train {

/// A crop as large as its image; some of it may lie outside the image.
struct Crop {
  int32_t row = 0;  ///< row of the image that becomes the crop's first row; likewise the column
  int32_t col = 0;
  bool is_flipped = false;  ///< whether left and right are exchanged

  bool operator==(const Crop&) const = default;
};

/// A crop moved by up to `most` pixels in each direction, and perhaps flipped; it depends on the arguments
/// alone.
Crop random_crop(uint64_t seed, uint32_t epoch, uint32_t image, uint32_t most);

/// Writes a crop of image i: [height, width, channels]. What lies outside the image is 0.
void copy_crop(const ImageSet& images, size_t i, const Crop& crop, std::span<uint8_t> pixels);

/// Mean and standard deviation of each channel over all pixels.
struct ChannelStatistics {
  std::vector<double> mean, deviation;
};
/// The deviation of a constant channel is 1.
ChannelStatistics channel_statistics(const ImageSet& images);

}  // namespace tessera::train
