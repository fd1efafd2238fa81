#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/images.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/memory.h"
#include "base/random.h"

namespace tessera {
namespace {

using base::RandomSequence;
using base::RandomStream;

constexpr uint32_t kTemplates = 3;  // per class
constexpr uint32_t kWaves = 6;      // per template
constexpr int kMostShift = 2;
constexpr float kNoise = 0.35F;

using Template = std::vector<float>;

/// A sum of a few random waves of low frequency, from -1 to 1.
Template make_template(const ImageShape& shape, const RandomStream& random) {
  Template out(size_t{shape.height} * shape.width);
  float most = 0;
  for (uint32_t i = 0; i < out.size(); ++i) {
    const auto y = static_cast<float>(i / shape.width) / static_cast<float>(shape.height),
               x = static_cast<float>(i % shape.width) / static_cast<float>(shape.width);
    for (uint32_t wave = 0; wave < kWaves; ++wave) {
      const float along_y = 3 * random.symmetric(4 * wave), along_x = 3 * random.symmetric(4 * wave + 1);
      out[i] += random.symmetric(4 * wave + 2) *
                std::sin(6.2832F * (along_y * y + along_x * x + random.uniform(4 * wave + 3)));
    }
    most = std::max(most, std::abs(out[i]));
  }
  for (float& value : out) value /= most;
  return out;
}

void add_image(const Template& from, uint64_t seed, uint32_t index, ImageSet& set) {
  const RandomStream noise(seed, index, 2);
  RandomSequence choice(RandomStream(seed, index, 3));
  const int down = static_cast<int>(choice.below(2 * kMostShift + 1)) - kMostShift;
  const int right = static_cast<int>(choice.below(2 * kMostShift + 1)) - kMostShift;
  const float contrast = 0.5F + static_cast<float>(choice.below(1024)) / 2048.0F;
  const int height = static_cast<int>(set.height), width = static_cast<int>(set.width);
  const auto pixel = [&](int row, int col) { return size_t(row) * set.width + size_t(col); };
  for (size_t channel = 0; channel < set.channels; ++channel)
    for (int row = 0; row < height; ++row)
      for (int col = 0; col < width; ++col) {
        const int r = std::clamp(row + down, 0, height - 1);
        const int c = std::clamp(col + right, 0, width - 1);
        const float own = noise.normal(channel * from.size() + pixel(row, col));
        const float value = contrast * from[pixel(r, c)] + kNoise * own;
        set.pixels.push_back(static_cast<uint8_t>(std::clamp(127.5F + 90.0F * value, 0.0F, 255.0F)));
      }
}

ImageSet make_set(const ImageShape& shape, const std::vector<Template>& templates, size_t count,
                  uint64_t seed, uint32_t first) {
  ImageSet set{shape.channels, shape.height, shape.width, shape.classes, {}, {}};
  for (size_t i = 0; i < count; ++i) {
    const auto index = first + static_cast<uint32_t>(i);
    RandomSequence choice(RandomStream(seed, index, 1));
    const uint32_t which = choice.below(static_cast<uint32_t>(templates.size()));
    set.labels.push_back(static_cast<uint8_t>(which / kTemplates));
    add_image(templates[which], seed, index, set);
  }
  return set;
}

}  // namespace

ImageSplit synthetic_images(size_t train, size_t test, uint64_t seed, const ImageShape& shape) {
  constexpr uint64_t kMostPixels = uint64_t{1} << 24;
  if (shape.height == 0 || shape.width == 0 || uint64_t{shape.height} * shape.width > kMostPixels)
    throw UsageError(fmt::format("images of {} × {} pixels; 1 to {} pixels are possible", shape.height,
                                 shape.width, kMostPixels));
  if (shape.classes == 0 || shape.classes > 256)
    throw UsageError(fmt::format("{} classes of images; 1 to 256 are possible", shape.classes));
  if (shape.channels == 0 || shape.channels > 4)
    throw UsageError(fmt::format("images of {} channels; 1 to 4 are possible", shape.channels));
  const uint64_t pixels = uint64_t{shape.height} * shape.width * shape.channels;
  const uint64_t images = std::min<uint64_t>(train, UINT32_MAX) + std::min<uint64_t>(test, UINT32_MAX);
  base::require_memory(images * pixels, fmt::format("{} synthetic images of {} pixels", images, pixels));
  std::vector<Template> templates;
  for (uint32_t i = 0; i < shape.classes * kTemplates; ++i)
    templates.push_back(make_template(shape, RandomStream(seed, i, 0)));
  return {"synthetic images", make_set(shape, templates, train, seed, 0),
          make_set(shape, templates, test, seed, static_cast<uint32_t>(train))};
}

}  // namespace tessera
