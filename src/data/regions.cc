#include "data/regions.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/random.h"

namespace tessera::train {
namespace {

constexpr size_t kColours = 3;
// A stream of random numbers, apart from those of a graph's operations.
constexpr uint32_t kRegionStream = 0x64697603;

/// The pixels of a row or a column whose weighted mean is one pixel of the result.
struct WeightedPixels {
  size_t first = 0;
  std::vector<float> weights = {};
};

std::vector<WeightedPixels> weighted_pixels(uint32_t begin, uint32_t length, uint32_t size) {
  const double scale = double{1} * length / size, support = std::max(1.0, scale);
  std::vector<WeightedPixels> all(size);
  for (uint32_t i = 0; i < size; ++i) {
    const double middle = (i + 0.5) * scale;
    const auto first = static_cast<uint32_t>(std::max(0.0, middle - support + 0.5));
    const auto end = std::min(length, static_cast<uint32_t>(middle + support + 0.5));
    all[i].first = size_t{begin} + first;
    double sum = 0;
    std::vector<double> weights;
    for (uint32_t at = first; at < end; ++at) {
      weights.push_back(std::max(0.0, 1 - std::abs((at + 0.5 - middle) / support)));
      sum += weights.back();
    }
    for (const double weight : weights) all[i].weights.push_back(static_cast<float>(weight / sum));
  }
  return all;
}

/// A part of the sides that is `ratio` times as wide as high, in the middle.
Region middle_of(uint32_t height, uint32_t width, uint32_t own_height, uint32_t own_width) {
  return {(height - own_height) / 2, (width - own_width) / 2, own_height, own_width, false};
}

}  // namespace

Region random_region(uint64_t seed, uint32_t epoch, uint32_t image, uint32_t height, uint32_t width) {
  constexpr double kLeastArea = 0.08, kWidest = 4.0 / 3;
  constexpr uint64_t kTries = 10, kWordsOfTry = 4, kWordsOfImage = 64;
  const base::RandomStream random(seed, epoch, kRegionStream);
  const uint64_t first = image * kWordsOfImage;
  const bool is_flipped = random.word(first + kTries * kWordsOfTry) >> 31 != 0;
  const auto place = [](float choice, uint32_t places) {
    return std::min(places - 1, static_cast<uint32_t>(choice * static_cast<float>(places)));
  };
  for (uint64_t i = 0; i < kTries; ++i) {
    const auto choice = [&](uint64_t number) { return random.uniform(first + i * kWordsOfTry + number); };
    const double area = (kLeastArea + (1 - kLeastArea) * double{choice(0)}) * height * width;
    const double ratio = std::exp((2 * double{choice(1)} - 1) * std::log(kWidest));
    const double own_width = std::round(std::sqrt(area * ratio)),
                 own_height = std::round(std::sqrt(area / ratio));
    if (own_width < 1 || own_height < 1 || own_width > width || own_height > height) continue;
    const auto w = static_cast<uint32_t>(own_width), h = static_cast<uint32_t>(own_height);
    return {place(choice(2), height - h + 1), place(choice(3), width - w + 1), h, w, is_flipped};
  }
  // As much of the middle as the limits on the ratio of the sides allow.
  const auto most = [](uint32_t side) {
    return std::max(1U, static_cast<uint32_t>(std::lround(side * kWidest)));
  };
  Region region = middle_of(height, width, std::min(height, most(width)), std::min(width, most(height)));
  region.is_flipped = is_flipped;
  return region;
}

Region middle_region(uint32_t height, uint32_t width) {
  const uint32_t side = std::max(1U, static_cast<uint32_t>(std::lround(std::min(height, width) * 0.875)));
  return middle_of(height, width, side, side);
}

void resize(const io::Pixels& image, const Region& region, uint32_t size, std::span<uint8_t> pixels) {
  std::vector<WeightedPixels> columns = weighted_pixels(region.left, region.width, size);
  if (region.is_flipped) std::reverse(columns.begin(), columns.end());
  // First along the rows, for all rows of the region.
  const size_t stride = size * kColours;
  std::vector<float> narrow(region.height * stride);
  for (size_t row = 0; row < region.height; ++row) {
    const uint8_t* from = &image.rgb[(region.top + row) * image.width * kColours];
    float* to = &narrow[row * stride];
    for (const WeightedPixels& column : columns)
      for (size_t c = 0; c < kColours; ++c) {
        float sum = 0;
        for (size_t i = 0; i < column.weights.size(); ++i)
          sum += column.weights[i] * static_cast<float>(from[(column.first + i) * kColours + c]);
        *to++ = sum;
      }
  }
  const std::vector<WeightedPixels> rows = weighted_pixels(0, region.height, size);
  std::vector<float> sums(stride);
  for (size_t row = 0; row < size; ++row) {
    std::fill(sums.begin(), sums.end(), 0.0F);
    for (size_t i = 0; i < rows[row].weights.size(); ++i)
      for (size_t x = 0; x < stride; ++x)
        sums[x] += rows[row].weights[i] * narrow[(rows[row].first + i) * stride + x];
    for (size_t x = 0; x < stride; ++x)
      pixels[row * stride + x] = static_cast<uint8_t>(std::clamp(sums[x] + 0.5F, 0.0F, 255.0F));
  }
}

}  // namespace tessera::train
