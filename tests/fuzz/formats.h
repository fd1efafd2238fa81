// The formats of input files: readers, and valid seed files.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "io/source.h"

namespace tessera::fuzz {

struct Format {
  const char* name;
  /// Throws Error for a bad file, std::logic_error if a reader returns something unsound.
  void (*read)(const io::Source& source);
  /// Small valid files that together use every feature.
  std::vector<std::string> (*examples)();
};

std::span<const Format> formats();
/// Formats that are imported as graphs, which requires most of the library.
std::span<const Format> graph_formats();
/// The formats that the test program with this function tries.
std::span<const Format> fuzzed_here();

std::vector<std::string> onnx_examples();

/// Whether these bytes are a valid file. Throws any exception of a reader that is not a tessera::Error.
bool accepts(const Format& format, std::span<const std::byte> content);

}  // namespace tessera::fuzz
