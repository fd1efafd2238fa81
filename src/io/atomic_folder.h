// Writing folders so that nobody ever sees half of one.
#pragma once

#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <vector>

namespace tessera::io {

/// Writes files into a temporary folder beside `path` and moves that there on commit(). Without
/// commit(), and on any error, the temporary folder is removed and what was at `path` stays.
class AtomicFolder {
 public:
  /// `names` are those of all files that it may get. A folder at `path` that holds nothing else is
  /// replaced. Throws Error where something else is there, or the temporary folder cannot be made.
  AtomicFolder(std::string path, std::span<const char* const> names);
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;
  ~AtomicFolder();

  /// One file of it.
  class File {
   public:
    File(const AtomicFolder& folder, const std::string& name);
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File();

    /// Appends. Throws Error when that fails.
    void write(std::span<const std::byte> bytes);

   private:
    friend class AtomicFolder;
    void finish();

    std::string shown_;      // the path that it will have
    std::string temporary_;  // the path that it has
    size_t slot_ = 0;
    int descriptor_ = -1;
  };

  /// Creates one of the files that were named; it stays open until commit(). Throws Error when that
  /// fails.
  File& add(const std::string& name) { return files_.emplace_back(*this, name); }

  /// Makes all files durable, then the folder visible under its path. Throws Error when that fails.
  /// Nothing may be added or written afterwards.
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
