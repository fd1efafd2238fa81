#include "io/gzip.h"

#include <zlib.h>

#include <algorithm>

#include "base/memory.h"
#include "io/fail.h"

namespace tessera::io {
namespace {

constexpr int kGzipWindow = 15 + 16;  // zlib: the largest window, and a gzip header
constexpr uint64_t kStep = 1 << 20;

bool is_gzip(const std::vector<char>& bytes) {
  return bytes.size() >= 2 && bytes[0] == '\x1f' && bytes[1] == '\x8b';
}

/// zlib's state, freed on all paths.
class Inflater {
 public:
  explicit Inflater(std::vector<char>& input) {
    stream_.next_in = reinterpret_cast<Bytef*>(input.data());
    stream_.avail_in = static_cast<uInt>(input.size());
    ready_ = inflateInit2(&stream_, kGzipWindow) == Z_OK;
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() {
    if (ready_) inflateEnd(&stream_);
  }

  bool ready() const { return ready_; }

  /// Decompresses into `out`; sets how many bytes were written.
  int fill(std::byte* out, uint64_t room, uint64_t& filled) {
    stream_.next_out = reinterpret_cast<Bytef*>(out);
    stream_.avail_out = static_cast<uInt>(room);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    filled = room - stream_.avail_out;
    return status;
  }

 private:
  z_stream stream_ = {};
  bool ready_ = false;
};

}  // namespace

std::vector<std::byte> read_decompressed(const Source& source, uint64_t most) {
  if (source.size() > most)
    fail(source.name(), "{} bytes are more than such a file may have ({})", source.size(), most);
  std::vector<char> input = source.read_all();
  if (!is_gzip(input)) {
    const auto bytes = std::as_bytes(std::span(input));
    return {bytes.begin(), bytes.end()};
  }
  Inflater inflater(input);
  if (!inflater.ready()) fail(source.name(), "zlib cannot start to decompress it");
  std::vector<std::byte> out;
  uint64_t size = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    if (size == out.size()) {
      if (size > most) fail(source.name(), "it decompresses to more than {} bytes", most);
      const uint64_t larger = std::max(kStep, 2 * size);
      base::require_memory(larger, "the content of " + source.name());
      out.resize(larger);
    }
    uint64_t filled = 0;
    status = inflater.fill(out.data() + size, std::min(kStep, out.size() - size), filled);
    size += filled;
    if (status == Z_BUF_ERROR) fail(source.name(), "the compressed data end too early; it may be truncated");
    if (status != Z_OK && status != Z_STREAM_END) fail(source.name(), "the compressed data are damaged");
  }
  if (size > most) fail(source.name(), "it decompresses to more than {} bytes", most);
  out.resize(size);
  return out;
}

}  // namespace tessera::io
