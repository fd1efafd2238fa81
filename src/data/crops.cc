#include "data/crops.h"

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace tessera::train {
namespace {

// A stream of random numbers, apart from those of a graph's operations.
constexpr uint32_t kCropStream = 0x64697602;

}  // namespace

Crop random_crop(uint64_t seed, uint32_t epoch, uint32_t image, uint32_t most) {
  const auto words = base::RandomStream(seed, epoch, kCropStream).words(image);
  const auto shift = [&](uint32_t word) {
    const uint64_t choice = uint64_t{word} * (2 * uint64_t{most} + 1) >> 32;
    return static_cast<int32_t>(choice) - static_cast<int32_t>(most);
  };
  return {shift(words[0]), shift(words[1]), words[2] >> 31 != 0};
}

void copy_crop(const ImageSet& images, size_t i, const Crop& crop, std::span<uint8_t> pixels) {
  const std::span<const uint8_t> image = images.image(i);
  const int64_t height = images.height, width = images.width, channels = images.channels;
  auto to = pixels.begin();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x) {
      const int64_t row = y + crop.row, col = (crop.is_flipped ? width - 1 - x : x) + crop.col;
      const bool is_inside = row >= 0 && row < height && col >= 0 && col < width;
      for (int64_t c = 0; c < channels; ++c)
        *to++ = is_inside ? image[static_cast<size_t>((c * height + row) * width + col)] : uint8_t{0};
    }
}

ChannelStatistics channel_statistics(const ImageSet& images) {
  ChannelStatistics statistics;
  const size_t plane = size_t{images.height} * images.width;
  const auto count = static_cast<double>(std::max<size_t>(1, plane * images.count()));
  for (uint32_t c = 0; c < images.channels; ++c) {
    uint64_t sum = 0, squares = 0;
    for (size_t i = 0; i < images.count(); ++i)
      for (const uint32_t pixel : images.image(i).subspan(c * plane, plane)) {
        sum += pixel;
        squares += pixel * pixel;
      }
    const double mean = static_cast<double>(sum) / count;
    const double variance = static_cast<double>(squares) / count - mean * mean;
    statistics.mean.push_back(mean);
    statistics.deviation.push_back(variance > 1e-6 ? std::sqrt(variance) : 1);
  }
  return statistics;
}

}  // namespace tessera::train
