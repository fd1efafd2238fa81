// The formats of input files: how each is read, and valid seed files.
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

/// Whether these bytes are a valid file. Throws any exception of a reader that is not a tessera::Error.
bool accepts(const Format& format, std::span<const std::byte> content);

}  // namespace tessera::fuzz
