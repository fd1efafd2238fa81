// Images as vectors of numbers: division into training and validation, standardisation, shuffling.
#pragma once

#include <tessera/images.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::train {

/// Features of images before standardisation: pixels, or sums of a pixel's channels, which have the same
/// standardised value as their mean.
struct Samples {
  uint32_t features = 0;
  uint32_t classes = 0;
  std::vector<uint16_t> values;  ///< image after image
  std::vector<uint8_t> labels;

  size_t count() const { return labels.size(); }
  std::span<const uint16_t> image(size_t i) const { return {values.data() + i * features, features}; }
};

/// Name, numbers and checksum, which a checkpoint of training keeps.
std::string identity_of(const ImageSplit& images);

/// Number of features of an image.
uint32_t features_of(const ImageSet& images, bool grey);

Samples samples_of(const ImageSet& images, bool grey);

/// Indices of images, each list ascending.
struct Division {
  std::vector<uint32_t> training;
  std::vector<uint32_t> validation;
};

/// Round(fraction × count)
size_t validation_images(size_t count, double fraction);

/// Divides images, with a random fraction for validation.
Division divide(size_t count, double fraction, uint64_t seed);

/// The images in the order of an epoch.
std::vector<uint32_t> shuffled(std::vector<uint32_t> images, uint64_t seed, uint32_t epoch);

/// Gives each feature mean 0 and variance 1 over some images; a feature that is constant over them becomes 0.
class Standardisation {
 public:
  Standardisation(const Samples& samples, std::span<const uint32_t> images);

  /// Writes the standardised features of `images`, row by row.
  void apply(const Samples& samples, std::span<const uint32_t> images, float* rows) const;

 private:
  std::vector<float> mean_;
  std::vector<float> scale_;
};

}  // namespace tessera::train
