// Atomic writing of folders: nobody sees a partial one.
#pragma once

#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <vector>

namespace tessera::io {

/// Writes files into a temporary folder beside `path` and renames it to `path` on commit(). Without commit(),
/// and on any error, the temporary folder is removed and `path` is left unchanged.
class AtomicFolder {
 public:
  /// `names` are the names of all files that may be added. A folder at `path` that contains nothing else is
  /// replaced. Throws Error if something else is there, or if the temporary folder cannot be created.
  AtomicFolder(std::string path, std::span<const char* const> names);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  /// One file of the folder.
  class File {
   public:
    File(const AtomicFolder& folder, const std::string& name);
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File();

    /// Appends. Throws Error on failure.
    void write(std::span<const std::byte> bytes);

   private:
    friend class AtomicFolder;
    void finish();

    std::string shown_;      // its final path
    std::string temporary_;  // its present path
    size_t slot_ = 0;
    int descriptor_ = -1;
  };

  /// Creates one of the named files; it stays open until commit(). Throws Error on failure.
  File& add(const std::string& name) { return files_.emplace_back(*this, name); }

  /// Makes all files durable, then the folder visible under its path. Throws Error on failure. Nothing may be
  /// added or written afterwards.
  void commit();

 private:
  bool replaces() const;
  void remove(const std::string& folder) const;

  std::string path_;
  std::string temporary_;
  std::vector<std::string> names_;
  size_t slot_ = 0;
  bool committed_ = false;
  std::list<File> files_;
};

}  // namespace tessera::io
