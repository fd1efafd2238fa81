// Memory-mapped files.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tessera::io {

/// A regular file, mapped for reading: its pages are read when accessed and take no memory of this process.
/// The file must not shrink meanwhile; accessing a lost page ends the process with SIGBUS.
class MappedFile {
 public:
  /// Throws Error if the file cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> content() const { return content_; }

 private:
  std::span<const std::byte> content_;
};

}  // namespace tessera::io
