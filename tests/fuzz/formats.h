// Fuzz targets: one entry function per format, and valid seed files.
#pragma once

#include <tessera/error.h>

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tessera::fuzz {

struct Format {
  const char* name;
  /// Reads these bytes as a file. Returns whether they are valid; throws std::logic_error if a reader returns
  /// something unsound, and any exception of a reader that is not a tessera::Error.
  bool (*read)(std::span<const std::byte> content);
  /// Small valid files that together use every feature.
  std::vector<std::string> (*examples)();
};

/// Whether read() returns; an Error is the correct response to a bad file.
template <class Read>
bool accepts(Read read) {
  try {
    read();
    return true;
  } catch (const Error&) {
    return false;
  }
}

extern const Format kSmtx;
extern const Format kMatrixMarket;
extern const Format kNpy;
extern const Format kSafetensors;
extern const Format kLengths;
extern const Format kLengthsText;
extern const Format kOffsets;
extern const Format kLengthHistogram;
extern const Format kIdxImages;
extern const Format kCifar10;
extern const Format kNMnist;
extern const Format kAedat;
extern const Format kGestures;
extern const Format kEventArray;

}  // namespace tessera::fuzz
