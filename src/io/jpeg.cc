#include "io/jpeg.h"

#include "io/fail.h"

#ifdef TESSERA_JPEG
#include <algorithm>
#include <csetjmp>
#include <cstdio>  // which jpeglib.h takes for granted
#include <iterator>
// After it:
#include <jpeglib.h>
// After that:
#include <jerror.h>
#endif

namespace tessera::io {

#ifdef TESSERA_JPEG
namespace {

constexpr uint64_t kMostPixels = uint64_t{1} << 26;
constexpr int kMostScans = 100;  // progressive files have about ten

/// The library's errors jump back.
struct JpegFailure {
  jpeg_error_mgr handlers;  // first: the library knows only this part
  std::jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void jump_back(j_common_ptr common) {
  auto* failure = reinterpret_cast<JpegFailure*>(common->err);
  common->err->format_message(common, failure->message);
  std::longjmp(failure->back, 1);
}

/// The library would make up the rest of files that are cut short.
void refuse_rest(j_common_ptr common, int level) {
  constexpr int kCutShort = JWRN_JPEG_EOF;
  if (level < 0 && common->err->msg_code == kCutShort) jump_back(common);
}

/// Each scan, even of a few bytes, takes time for all pixels.
void refuse_many_scans(j_common_ptr common) {
  if (reinterpret_cast<j_decompress_ptr>(common)->input_scan_number <= kMostScans) return;
  constexpr char kMessage[] = "it has more than 100 scans";
  auto* failure = reinterpret_cast<JpegFailure*>(common->err);
  std::copy(std::begin(kMessage), std::end(kMessage), failure->message);
  std::longjmp(failure->back, 1);
}

// Functions that the library may leave by a jump must have nothing to destroy.

bool read_header(jpeg_decompress_struct& decoder, JpegFailure& failure, std::span<const std::byte> content) {
  if (setjmp(failure.back) != 0) return false;
  jpeg_create_decompress(&decoder);  // fails if jpeglib.h is another library's
  jpeg_mem_src(&decoder, reinterpret_cast<const unsigned char*>(content.data()),
               static_cast<unsigned long>(content.size()));
  jpeg_read_header(&decoder, TRUE);
  return true;
}

void read_all_rows(jpeg_decompress_struct& decoder, uint8_t* pixels) {
  jpeg_start_decompress(&decoder);
  const size_t stride = size_t{decoder.output_width} * static_cast<size_t>(decoder.output_components);
  while (decoder.output_scanline < decoder.output_height) {
    JSAMPROW row = pixels + decoder.output_scanline * stride;
    jpeg_read_scanlines(&decoder, &row, 1);
  }
  jpeg_finish_decompress(&decoder);
}

bool read_rows(jpeg_decompress_struct& decoder, JpegFailure& failure, uint8_t* pixels) {
  if (setjmp(failure.back) != 0) return false;
  read_all_rows(decoder, pixels);
  return true;
}

/// Converts CMYK pixels, which Adobe's programs store inverted.
std::vector<uint8_t> rgb_of_cmyk(const std::vector<uint8_t>& pixels, bool is_inverted) {
  std::vector<uint8_t> rgb;
  rgb.reserve(pixels.size() / 4 * 3);
  const auto light = [&](uint8_t ink) { return is_inverted ? uint32_t{ink} : 255U - ink; };
  for (size_t i = 0; i + 3 < pixels.size(); i += 4)
    for (size_t c = 0; c < 3; ++c)
      rgb.push_back(static_cast<uint8_t>(light(pixels[i + c]) * light(pixels[i + 3]) / 255));
  return rgb;
}

class JpegDecoder {
 public:
  JpegDecoder() {
    decoder_.err = jpeg_std_error(&failure_.handlers);
    failure_.handlers.error_exit = jump_back;
    failure_.handlers.emit_message = refuse_rest;
  }
  JpegDecoder(const JpegDecoder&) = delete;
  JpegDecoder& operator=(const JpegDecoder&) = delete;
  ~JpegDecoder() { jpeg_destroy_decompress(&decoder_); }

  Pixels decode(const std::string& name, std::span<const std::byte> content) {
    if (!read_header(decoder_, failure_, content))
      fail(name, "no JPEG image: {}; convert it to JPEG, or remove it", failure_.message);
    const uint64_t pixels = uint64_t{decoder_.image_height} * decoder_.image_width;
    if (pixels == 0 || pixels > kMostPixels)
      fail(name, "an image of {} × {} pixels; 1 to {} are possible", decoder_.image_height,
           decoder_.image_width, kMostPixels);
    const bool is_cmyk = decoder_.jpeg_color_space == JCS_CMYK || decoder_.jpeg_color_space == JCS_YCCK;
    decoder_.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    Pixels decoded{decoder_.image_height, decoder_.image_width, {}};
    decoded.rgb.resize(pixels * (is_cmyk ? 4 : 3));
    progress_.progress_monitor = refuse_many_scans;
    decoder_.progress = &progress_;
    if (!read_rows(decoder_, failure_, decoded.rgb.data()))
      fail(name, "a damaged JPEG image: {}; replace it, or remove it", failure_.message);
    if (is_cmyk) decoded.rgb = rgb_of_cmyk(decoded.rgb, decoder_.saw_Adobe_marker != 0);
    return decoded;
  }

 private:
  JpegFailure failure_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct decoder_{};
};

}  // namespace

Pixels read_jpeg(const std::string& name, std::span<const std::byte> content) {
  if (content.empty()) fail(name, "no JPEG image: the file is empty; replace it, or remove it");
  return JpegDecoder().decode(name, content);
}

#else

Pixels read_jpeg(const std::string& name, std::span<const std::byte> /*content*/) {
  fail(name, "the library was built without libjpeg, which reads such images (Debian: libjpeg62-turbo-dev)");
}

#endif

}  // namespace tessera::io
