// Atomic writing of files: nobody sees a partial one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tessera::io {

/// Writes a temporary file beside `path` and renames it to `path` on commit(). Without commit(), and on any
/// error, the temporary file is removed and `path` is left unchanged. Where the file system allows it, the
/// file has no name until it is complete, so that a killed process leaves nothing behind.
class AtomicFile {
 public:
  /// Throws Error if the temporary file cannot be created, or if `path` is not a regular file, which renaming
  /// would replace.
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends. Throws Error on failure.
  void write(std::span<const std::byte> bytes);

  /// Makes the content durable, then visible under the path. Throws Error on failure. Nothing may be written
  /// afterwards.
  void commit();

 private:
  void give_name();
  void make_durable();

  std::string path_;
  std::string temporary_;  // empty: it has no name
  size_t slot_ = 0;        // in the list of unfinished files
  int descriptor_ = -1;
};

/// Throws Error if `path` cannot be written, so that this is known before a long run.
void require_writable(const std::string& path);

/// Writes a text file, completely or not at all. Throws Error on failure.
void write_text(const std::string& path, std::string_view text);

/// Removes all unfinished temporary files and folders, for a signal handler that ends the process.
void remove_unfinished_files() noexcept;

}  // namespace tessera::io
