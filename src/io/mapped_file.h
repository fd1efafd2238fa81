// Files whose content is used where it lies.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace tessera::io {

/// A regular file, mapped for reading: its pages come from the disk when they are touched and take
/// no memory of this process. The file must not become shorter meanwhile; touching what is gone
/// ends the process with SIGBUS.
class MappedFile {
 public:
  /// Throws Error when the file cannot be opened or mapped.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> content() const { return content_; }

 private:
  std::span<const std::byte> content_;
};

}  // namespace tessera::io
