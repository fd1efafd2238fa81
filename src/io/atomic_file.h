// Writing files so that nobody ever sees half of one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera::io {

/// Writes a temporary file beside `path` and moves it there on commit(). Without commit(), and on
/// any error, the temporary file is removed and what was at `path` stays.
class AtomicFile {
 public:
  /// Throws Error when the temporary file cannot be made, or `path` is something other than a
  /// regular file, which moving would replace.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends. Throws Error when that fails.
  void write(std::span<const std::byte> bytes);

  /// Makes the content durable, then visible under the path. Throws Error when that fails. Nothing
  /// may be written afterwards.
  void commit();

 private:
  std::string path_;
  std::string temporary_;
  size_t slot_ = 0;  // in the list of unfinished files
  int descriptor_ = -1;
};

/// Throws Error where `path` cannot be written, which is better known before a long run than after.
void require_writable(const std::string& path);

/// Writes a text file, whole or not at all. Throws Error where that fails.
void write_text(const std::string& path, std::string_view text);

/// Removes all temporary files and folders that are being written, for a signal handler that ends the
/// process.
void remove_unfinished_files() noexcept;

}  // namespace tessera::io
