#include "data/image_source.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "data/samples.h"

namespace tessera::train {
namespace {

/// Only the number of these images is known.
class OutlinedImages final : public ImageSource {
 public:
  explicit OutlinedImages(size_t count) : count_(count) {}

  size_t count() const override { return count_; }
  uint32_t label(size_t /*i*/) const override { return 0; }
  void read(size_t /*i*/, std::optional<uint32_t> /*epoch*/, std::span<uint8_t> /*pixels*/) const override {
    throw UsageError("images of which only the shape is given cannot be read");
  }

 private:
  size_t count_;
};

}  // namespace

ImageSources outlined_images(const ImageOutline& images) {
  constexpr double kMiddle = 127.5, kDeviation = 64;
  const ImageShape& shape = images.shape;
  return {fmt::format("{}, {} for training and {} for testing", images.name, images.train, images.test),
          {shape.height,
           shape.width,
           shape.channels,
           shape.classes,
           {std::vector<double>(shape.channels, kMiddle), std::vector<double>(shape.channels, kDeviation)}},
          std::make_unique<OutlinedImages>(images.train),
          std::make_unique<OutlinedImages>(images.test)};
}

ImageSources stored_images(const ImageSplit& images, uint64_t seed, std::optional<uint32_t> padding) {
  const ImageSet &train = images.train, &test = images.test;
  if (test.height != train.height || test.width != train.width || test.channels != train.channels)
    throw UsageError(fmt::format(
        "{}: test images are {} × {} in {} channels, training images {} × {} "
        "in {}",
        images.name, test.height, test.width, test.channels, train.height, train.width, train.channels));
  return {identity_of(images),
          {train.height, train.width, train.channels, train.classes, channel_statistics(train)},
          std::make_unique<StoredImages>(train, seed, padding),
          std::make_unique<StoredImages>(test, seed, padding)};
}

}  // namespace tessera::train
