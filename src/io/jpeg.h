// `.jpg`: images in JPEG files, if the library is built with libjpeg.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::io {

/// Pixels of 8 bits in red, green and blue: [height, width, 3].
struct Pixels {
  uint32_t height = 0;
  uint32_t width = 0;
  std::vector<uint8_t> rgb;
};

/// Decodes a JPEG image of any colour space. Throws Error, naming the file, for content that is not JPEG, or
/// is cut short or damaged so that it cannot be decoded, for images of more than 2^26 pixels or 100 scans,
/// and if the library was built without libjpeg.
Pixels read_jpeg(const std::string& name, std::span<const std::byte> content);

}  // namespace tessera::io
