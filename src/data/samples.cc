#include "data/samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/checksum.h"
#include "base/random.h"

namespace tessera::train {
namespace {

using base::RandomSequence;
using base::RandomStream;

// Streams of random numbers, apart from those of a graph's operations.
constexpr uint32_t kDivisionStream = 0x64697600;
constexpr uint32_t kShuffleStream = 0x64697601;

}  // namespace

std::string identity_of(const ImageSplit& images) {
  uint64_t sum = 0;
  for (const ImageSet* set : {&images.train, &images.test})
    for (const std::vector<uint8_t>* bytes : {&set->pixels, &set->labels})
      sum = sum * 31 + base::checksum(std::as_bytes(std::span(*bytes)));
  return fmt::format("{}, {} for training and {} for testing, checksum {:016x}", images.name,
                     images.train.count(), images.test.count(), sum);
}

uint32_t features_of(const ImageSet& images, bool grey) {
  return images.height * images.width * (grey ? 1 : images.channels);
}

Samples samples_of(const ImageSet& images, bool grey) {
  Samples samples{features_of(images, grey), images.classes, {}, images.labels};
  if (!grey || images.channels == 1) {
    samples.values.assign(images.pixels.begin(), images.pixels.end());
    return samples;
  }
  const size_t plane = size_t{images.height} * images.width;
  samples.values.assign(plane * images.count(), 0);
  for (size_t i = 0; i < images.count(); ++i)
    for (uint32_t channel = 0; channel < images.channels; ++channel) {
      const auto pixels = images.image(i).subspan(channel * plane, plane);
      uint16_t* sums = &samples.values[i * plane];
      for (size_t p = 0; p < plane; ++p) sums[p] = static_cast<uint16_t>(sums[p] + pixels[p]);
    }
  return samples;
}

size_t validation_images(size_t count, double fraction) {
  return static_cast<size_t>(std::lround(fraction * static_cast<double>(count)));
}

Division divide(size_t count, double fraction, uint64_t seed) {
  std::vector<uint32_t> all(count);
  std::iota(all.begin(), all.end(), 0U);
  RandomSequence(RandomStream(seed, 0, kDivisionStream)).shuffle(all);
  const auto validation = static_cast<std::ptrdiff_t>(validation_images(count, fraction));
  Division division{{all.begin() + validation, all.end()}, {all.begin(), all.begin() + validation}};
  std::sort(division.training.begin(), division.training.end());
  std::sort(division.validation.begin(), division.validation.end());
  return division;
}

std::vector<uint32_t> shuffled(std::vector<uint32_t> images, uint64_t seed, uint32_t epoch) {
  RandomSequence(RandomStream(seed, epoch, kShuffleStream)).shuffle(images);
  return images;
}

Standardisation::Standardisation(const Samples& samples, std::span<const uint32_t> images) {
  std::vector<uint64_t> sums(samples.features), squares(samples.features);
  for (uint32_t i : images) {
    const auto image = samples.image(i);
    for (size_t f = 0; f < image.size(); ++f) {
      sums[f] += image[f];
      squares[f] += uint64_t{image[f]} * image[f];
    }
  }
  const auto count = static_cast<double>(std::max<size_t>(1, images.size()));
  for (size_t f = 0; f < samples.features; ++f) {
    const double mean = static_cast<double>(sums[f]) / count;
    const double variance = static_cast<double>(squares[f]) / count - mean * mean;
    mean_.push_back(static_cast<float>(mean));
    // Integers that are not all equal have at least twice this variance.
    const bool varies = variance > 0.5 / count * (1 - 1 / count);
    scale_.push_back(varies ? static_cast<float>(1 / std::sqrt(variance)) : 0.0F);
  }
}

void Standardisation::apply(const Samples& samples, std::span<const uint32_t> images, float* rows) const {
  for (uint32_t i : images) {
    const auto image = samples.image(i);
    for (size_t f = 0; f < image.size(); ++f) *rows++ = (static_cast<float>(image[f]) - mean_[f]) * scale_[f];
  }
}

}  // namespace tessera::train
