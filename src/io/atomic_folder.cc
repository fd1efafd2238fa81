#include "io/atomic_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "io/fail.h"
#include "io/temporary.h"

namespace tessera::io {
namespace {

namespace fs = std::filesystem;

// Without trailing slashes, and with symbolic links resolved.
std::string plain(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  std::error_code missing;
  const fs::path resolved = fs::canonical(path, missing);
  return missing ? path : resolved.string();
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

AtomicFolder::File::File(const AtomicFolder& folder, const std::string& name)
    : shown_(folder.path_ + "/" + name), temporary_(folder.temporary_ + "/" + name) {
  slot_ = note_unfinished(temporary_.c_str());
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ >= 0) return;
  forget_unfinished(slot_);
  fail(shown_, "cannot create the file: {}", std::strerror(errno));
}

AtomicFolder::File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
  forget_unfinished(slot_);
}

void AtomicFolder::File::write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, shown_); }

void AtomicFolder::File::finish() {
  if (::fsync(descriptor_) != 0 || ::close(std::exchange(descriptor_, -1)) != 0) {
    fail(shown_, "cannot write: {}", std::strerror(errno));
  }
}

AtomicFolder::AtomicFolder(std::string path, std::span<const char* const> names)
    : path_(plain(std::move(path))), names_(names.begin(), names.end()) {
  replaces();
  temporary_ = path_ + ".XXXXXX";
  if (::mkdtemp(temporary_.data()) == nullptr) {
    fail(path_, "cannot create a temporary folder beside it: {}", std::strerror(errno));
  }
  slot_ = note_unfinished(temporary_.c_str());
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::chmod(temporary_.c_str(), 0777 & ~mask);
}

AtomicFolder::~AtomicFolder() {
  files_.clear();
  if (!committed_) remove(temporary_);
  forget_unfinished(slot_);
}

// Whether there is a folder to replace; throws if something else is in the way.
bool AtomicFolder::replaces() const {
  std::error_code error;
  const fs::file_status status = fs::status(path_, error);
  if (!fs::exists(status)) return false;
  if (!fs::is_directory(status)) {
    fail(path_, "not a folder; give the path of a folder to be written");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(path_, error)) {
    const std::string name = entry.path().filename().string();
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    fail(path_, "the folder holds {}, which replacing it would lose; give another folder", excerpt(name));
  }
  if (error) fail(path_, "cannot read the folder: {}", error.message());
  return true;
}

void AtomicFolder::commit() {
  for (File& file : files_) file.finish();
  sync_folder(temporary_);
  if (!replaces()) {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
      fail(path_, "cannot move the finished folder there: {}", std::strerror(errno));
    }
  } else {
    if (::renameat2(AT_FDCWD, temporary_.c_str(), AT_FDCWD, path_.c_str(), RENAME_EXCHANGE) != 0) {
      // The file system cannot exchange two folders atomically.
      remove(path_);
      if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
        fail(path_, "cannot move the finished folder there: {}", std::strerror(errno));
      }
    } else {
      remove(temporary_);  // now the name of the old folder
    }
  }
  committed_ = true;
  files_.clear();
  sync_folder(parent_of(path_));
}

void AtomicFolder::remove(const std::string& folder) const {
  for (const std::string& name : names_) ::unlink((folder + "/" + name).c_str());
  ::rmdir(folder.c_str());
}

}  // namespace tessera::io
