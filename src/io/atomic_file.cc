#include "io/atomic_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/fail.h"
#include "io/temporary.h"

namespace tessera::io {
namespace {

// The mode of an ordinary new file, or that of the file to be replaced.
mode_t mode_for(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) fail(path, "not a regular file; give the path of a file");
    return status.st_mode & 0777;
  }
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

// The folder that contains a file.
std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const mode_t mode = mode_for(path_);
  temporary_ = path_ + ".XXXXXX";
  descriptor_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (descriptor_ < 0) {
    fail(path_, "cannot create a temporary file beside it: {}", std::strerror(errno));
  }
  slot_ = note_unfinished(temporary_.c_str());
  ::fchmod(descriptor_, mode);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  forget_unfinished(slot_);
}

void AtomicFile::write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, path_); }

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(path_, "cannot write: {}", std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(path_, "cannot move the finished file there: {}", std::strerror(errno));
  }
  forget_unfinished(slot_);
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail(path_, "cannot write: {}", std::strerror(errno));
  }
  sync_folder(folder_of(path_));
}

void require_writable(const std::string& path) { const AtomicFile trial(path); }

void write_text(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace tessera::io
