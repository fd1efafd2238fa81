#include "io/atomic_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/fail.h"

namespace tessera::io {
namespace {

// What an ordinary new file would get, or what the file to be replaced has.
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

// Makes a move within the folder of `path` durable. Some file systems do not support it, and the
// file itself is whole either way.
void sync_folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

// Names of temporary files, where a signal handler finds them. A file beyond the last slot is
// written all the same.
constexpr size_t kSlots = 16;
std::array<std::atomic<const char*>, kSlots> unfinished{};
static_assert(std::atomic<const char*>::is_always_lock_free);

size_t list_unfinished(const char* name) {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const char* expected = nullptr;
    if (unfinished[slot].compare_exchange_strong(expected, name)) return slot;
  }
  return kSlots;
}

void delist_unfinished(size_t slot) {
  if (slot < kSlots) unfinished[slot] = nullptr;
}

}  // namespace

void remove_unfinished_files() noexcept {
  for (const std::atomic<const char*>& name : unfinished)
    if (const char* path = name; path != nullptr) ::unlink(path);
}

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const mode_t mode = mode_for(path_);
  temporary_ = path_ + ".XXXXXX";
  descriptor_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
  if (descriptor_ < 0) {
    fail(path_, "cannot create a temporary file beside it: {}", std::strerror(errno));
  }
  slot_ = list_unfinished(temporary_.c_str());
  ::fchmod(descriptor_, mode);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  ::unlink(temporary_.c_str());
  delist_unfinished(slot_);
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path_, "cannot write: {}", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail(path_, "cannot write: {}", std::strerror(errno));
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) {
    fail(path_, "cannot move the finished file there: {}", std::strerror(errno));
  }
  delist_unfinished(slot_);
  if (::close(std::exchange(descriptor_, -1)) != 0) {
    fail(path_, "cannot write: {}", std::strerror(errno));
  }
  sync_folder(path_);
}

}  // namespace tessera::io
