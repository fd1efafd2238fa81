// Contents of length files, independent of the source of their bytes.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <memory>

#include "io/source.h"
#include "packing/text_lengths.h"

namespace tessera::pack {

/// The readers behind read_lengths(), read_offsets() and read_histogram(). All throw Error, naming the source
/// and the position in it, for malformed input.
class LengthFile {
 public:
  /// `content` is the content of `source`; `owner` keeps it alive.
  static Lengths from_npy(const io::Source& source, std::shared_ptr<const void> owner, const void* content,
                          bool differences);
  static Lengths from_text(TextLengths& text);
  static Input histogram(const io::Source& source, uint32_t max_length, Overlong policy);
};

}  // namespace tessera::pack
