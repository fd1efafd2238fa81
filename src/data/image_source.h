// Labelled images of one size, as steps of training and evaluations take them.
#pragma once

#include <tessera/images.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "data/crops.h"

namespace tessera::train {

/// Several threads may call it at once.
class ImageSource {
 public:
  ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;
  virtual ~ImageSource() = default;

  virtual size_t count() const = 0;
  virtual uint32_t label(size_t i) const = 0;
  /// Writes image i, [height, width, channels]: as it is in an epoch of training, which depends on the seed,
  /// the epoch and the image alone, or as it is evaluated.
  virtual void read(size_t i, std::optional<uint32_t> epoch, std::span<uint8_t> pixels) const = 0;
  /// Whether read() takes so long that several threads should call it.
  virtual bool is_slow() const { return false; }
};

/// What all images have, with the statistics by which they are normalised.
struct ImageFormat {
  uint32_t height = 0;
  uint32_t width = 0;
  uint32_t channels = 1;
  uint32_t classes = 10;
  ChannelStatistics statistics = {};

  size_t image_size() const { return size_t{channels} * height * width; }
};

/// Images for training and testing.
struct ImageSources {
  std::string identity;  ///< name, counts and checksum
  ImageFormat format;
  std::unique_ptr<ImageSource> training, testing;
};

/// A set in memory; training takes random crops of the padded images, flipped at random.
class StoredImages final : public ImageSource {
 public:
  /// `padding` is in pixels on each side; without it, training takes images as they are.
  StoredImages(ImageSet images, uint64_t seed, std::optional<uint32_t> padding)
      : images_(std::move(images)), seed_(seed), padding_(padding) {}

  size_t count() const override { return images_.count(); }
  uint32_t label(size_t i) const override { return images_.labels[i]; }
  void read(size_t i, std::optional<uint32_t> epoch, std::span<uint8_t> pixels) const override {
    const bool is_random = epoch && padding_;
    copy_crop(images_, i,
              is_random ? random_crop(seed_, *epoch, static_cast<uint32_t>(i), *padding_) : Crop{}, pixels);
  }

 private:
  ImageSet images_;
  uint64_t seed_;
  std::optional<uint32_t> padding_;
};

/// The images of a split, normalised by the statistics of the images for training. Throws UsageError if the
/// images for testing have another size.
ImageSources stored_images(const ImageSplit& images, uint64_t seed, std::optional<uint32_t> padding);

/// Sources of which no image can be read, for estimates.
ImageSources outlined_images(const ImageOutline& images);

/// Images of files with size × size pixels: of a random region in training (random_region), otherwise of the
/// middle. They are normalised by the statistics of ImageNet. `augments`: whether training takes random
/// regions.
ImageSources images_of_files(const ImageFolder& folder, uint32_t size, uint64_t seed, bool augments);

}  // namespace tessera::train
