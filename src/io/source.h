// Input of readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tessera::io {

/// A file, or bytes in memory instead of a file. Reads at given offsets rather than mapping, so that a file
/// that shrinks meanwhile causes an error and not a signal.
class Source {
 public:
  /// Opens a regular file for reading; throws Error on failure.
  static Source open(const std::string& path);

  /// A file with this content, which must outlive it.
  Source(std::string name, std::span<const std::byte> content);

  Source(Source&& other) noexcept;
  Source& operator=(Source&&) = delete;
  ~Source();

  /// The path, for messages.
  const std::string& name() const { return name_; }
  uint64_t size() const { return size_; }

  /// Fills `out` with the bytes from `offset` on; throws Error if there are fewer.
  void read(uint64_t offset, std::span<std::byte> out) const;

  /// The whole content. Throws Error if it does not fit in memory.
  std::vector<char> read_all() const;

 private:
  friend class MappedFile;

  Source(std::string name, int descriptor, uint64_t size);

  std::string name_;
  int descriptor_ = -1;  // -1: in memory
  const std::byte* content_ = nullptr;
  uint64_t size_ = 0;
};

}  // namespace tessera::io
