#include "data/image_files.h"

#include <algorithm>
#include <cstddef>

#include "io/fail.h"
#include "io/gzip.h"

namespace tessera::train {
namespace {

constexpr uint64_t kMostImageBytes = uint64_t{1} << 30;
constexpr uint32_t kMostSide = 4096;
constexpr uint8_t kIdxBytes = 8;  // IDX's code for unsigned bytes
constexpr uint32_t kClasses = 10;

constexpr uint32_t kCifarSide = 32;
constexpr uint32_t kCifarChannels = 3;

/// IDX: two zeros, the type, the number of dimensions, each dimension (big-endian), the elements.
struct Idx {
  std::vector<uint32_t> sides;
  std::vector<std::byte> content;
  size_t begin = 0;  ///< where the elements begin
};

uint32_t big_endian(const std::byte* bytes) {
  uint32_t value = 0;
  for (int i = 0; i < 4; ++i) value = value << 8 | std::to_integer<uint32_t>(bytes[i]);
  return value;
}

Idx read_idx(const io::Source& source, uint8_t dimensions) {
  Idx idx{{}, io::read_decompressed(source, kMostImageBytes), size_t{4} + size_t{4} * dimensions};
  const std::vector<std::byte>& bytes = idx.content;
  if (bytes.size() < 4 || bytes[0] != std::byte{0} || bytes[1] != std::byte{0})
    io::fail(source.name(), "not an IDX file: these begin with two zero bytes");
  if (bytes[2] != std::byte{kIdxBytes} || bytes[3] != std::byte{dimensions})
    io::fail(source.name(), "type {} in {} dimensions; expected bytes (type {}) in {}",
             std::to_integer<int>(bytes[2]), std::to_integer<int>(bytes[3]), kIdxBytes, dimensions);
  if (bytes.size() < idx.begin)
    io::fail(source.name(), "{} bytes; the header alone has {}", bytes.size(), idx.begin);
  uint64_t elements = 1;
  for (uint8_t i = 0; i < dimensions; ++i) {
    idx.sides.push_back(big_endian(&bytes[size_t{4} + size_t{4} * i]));
    if (i > 0 && (idx.sides[i] == 0 || idx.sides[i] > kMostSide))
      io::fail(source.name(), "images with a side of {}; 1 to {} are possible", idx.sides[i], kMostSide);
    elements *= idx.sides[i];
  }
  if (elements != bytes.size() - idx.begin)
    io::fail(source.name(), "{} bytes of elements; its header promises {}", bytes.size() - idx.begin,
             elements);
  return idx;
}

void require_classes(const std::string& name, const std::vector<uint8_t>& labels) {
  const auto wrong =
      std::find_if(labels.begin(), labels.end(), [](uint8_t label) { return label >= kClasses; });
  if (wrong != labels.end())
    io::fail(name, "label {} of image {}; classes are 0 to {}", *wrong, wrong - labels.begin(), kClasses - 1);
}

std::vector<uint8_t> as_bytes(const std::vector<std::byte>& content, size_t begin) {
  const auto* first = reinterpret_cast<const uint8_t*>(content.data());
  return {first + begin, first + content.size()};
}

}  // namespace

ImageSet read_idx_images(const io::Source& images, const io::Source& labels) {
  const Idx pixels = read_idx(images, 3);
  const Idx classes = read_idx(labels, 1);
  if (pixels.sides[0] != classes.sides[0])
    io::fail(labels.name(), "{} labels for the {} images of {}", classes.sides[0], pixels.sides[0],
             images.name());
  ImageSet set{1,
               pixels.sides[1],
               pixels.sides[2],
               kClasses,
               as_bytes(pixels.content, pixels.begin),
               as_bytes(classes.content, classes.begin)};
  require_classes(labels.name(), set.labels);
  return set;
}

ImageSet read_cifar10(const io::Source& batch) {
  ImageSet set{kCifarChannels, kCifarSide, kCifarSide, kClasses, {}, {}};
  const std::vector<std::byte> content = io::read_decompressed(batch, kMostImageBytes);
  const size_t record = 1 + set.image_size();
  if (content.empty() || content.size() % record != 0)
    io::fail(batch.name(), "{} bytes; CIFAR-10's binary version has records of {}", content.size(), record);
  const auto* bytes = reinterpret_cast<const uint8_t*>(content.data());
  for (size_t at = 0; at < content.size(); at += record) {
    set.labels.push_back(bytes[at]);
    set.pixels.insert(set.pixels.end(), bytes + at + 1, bytes + at + record);
  }
  require_classes(batch.name(), set.labels);
  return set;
}

}  // namespace tessera::train
