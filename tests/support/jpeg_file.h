// Images in JPEG files, where the library is built with libjpeg.
#pragma once

#ifdef TESSERA_JPEG

#include <cstdint>
#include <cstdio>  // needed by jpeglib.h
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>
// After it:
#include <jpeglib.h>

namespace tessera::test {

/// The content of a file with pixels [height, width, colours], in several scans if it is progressive.
inline std::string jpeg_of(uint32_t height, uint32_t width, std::vector<uint8_t> pixels,
                           bool is_progressive = false, J_COLOR_SPACE space = JCS_RGB) {
  const size_t stride = pixels.size() / height;
  jpeg_compress_struct encoder{};
  jpeg_error_mgr errors{};
  encoder.err = jpeg_std_error(&errors);
  jpeg_create_compress(&encoder);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&encoder, &bytes, &size);
  encoder.image_height = height;
  encoder.image_width = width;
  encoder.input_components = static_cast<int>(stride / width);
  encoder.in_color_space = space;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, 95, TRUE);
  if (is_progressive) jpeg_simple_progression(&encoder);
  jpeg_start_compress(&encoder, TRUE);
  while (encoder.next_scanline < encoder.image_height) {
    JSAMPROW row = &pixels[encoder.next_scanline * stride];
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
  std::string content(reinterpret_cast<const char*>(bytes), size);
  jpeg_destroy_compress(&encoder);
  std::free(bytes);
  return content;
}

/// All pixels of one colour.
inline std::string jpeg_of(uint32_t height, uint32_t width, uint8_t red, uint8_t green, uint8_t blue) {
  std::vector<uint8_t> rgb;
  for (uint32_t i = 0; i < height * width; ++i) rgb.insert(rgb.end(), {red, green, blue});
  return jpeg_of(height, width, std::move(rgb));
}

}  // namespace tessera::test

#endif
