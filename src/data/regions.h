// Regions of images of any size, at random for training, and their pixels in another size.
#pragma once

#include <cstdint>
#include <span>

#include "io/jpeg.h"

namespace tessera::train {

/// A part of an image, whose left and right may be exchanged.
struct Region {
  uint32_t top = 0;
  uint32_t left = 0;
  uint32_t height = 0;
  uint32_t width = 0;
  bool is_flipped = false;

  bool operator==(const Region&) const = default;
};

/// A region of 8 to 100 % of the area, with sides whose ratio is from 3/4 to 4/3 (Szegedy et al. 2015); it
/// depends on the arguments alone.
Region random_region(uint64_t seed, uint32_t epoch, uint32_t image, uint32_t height, uint32_t width);
/// The square in the middle whose sides are 7/8 of the shorter side.
Region middle_region(uint32_t height, uint32_t width);

/// Writes a region as size × size pixels: [size, size, 3]. Each is a mean of the pixels around it, weighted
/// by distance, up to the distance between pixels in the smaller of the two images.
void resize(const io::Pixels& image, const Region& region, uint32_t size, std::span<uint8_t> pixels);

}  // namespace tessera::train
