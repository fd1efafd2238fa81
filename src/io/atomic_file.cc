#include "io/atomic_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>

#include "io/fail.h"
#include "io/temporary.h"

namespace tessera::io {
namespace {

constexpr const char* kDescriptors = "/proc/self/fd";
constexpr const char* kSuffix = ".XXXXXX";  // of temporary names

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

// Whether a temporary name beside a file would be too long, which must be known before the file is written.
bool is_too_long(const std::string& name) {
  return ::access(name.c_str(), F_OK) != 0 && errno == ENAMETOOLONG;
}

// Whether content that was made durable in an unnamed file stays durable when the file gets a name. File
// systems that are not known to do so, such as Btrfs, may keep no record of an unnamed file.
bool keeps_unnamed_files(int descriptor) {
  constexpr uint32_t kExt4 = 0xEF53, kXfs = 0x58465342, kTmpfs = 0x01021994;
  struct statfs status = {};
  if (::fstatfs(descriptor, &status) != 0) return false;
  const auto type = static_cast<uint32_t>(status.f_type);
  return type == kExt4 || type == kXfs || type == kTmpfs;
}

}  // namespace

AtomicFile::AtomicFile(std::string path) : path_(std::move(path)) {
  const mode_t mode = mode_for(path_);
  if (::access(kDescriptors, X_OK) == 0 && !is_too_long(path_ + kSuffix))
    descriptor_ = ::open(folder_of(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor_ < 0) {
    temporary_ = path_ + kSuffix;
    descriptor_ = ::mkostemp(temporary_.data(), O_CLOEXEC);
    if (descriptor_ < 0) {
      fail(path_, "cannot create a temporary file beside it: {}", std::strerror(errno));
    }
    slot_ = note_unfinished(temporary_.c_str());
  }
  ::fchmod(descriptor_, mode);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (temporary_.empty()) return;
  ::unlink(temporary_.c_str());
  forget_unfinished(slot_);
}

void AtomicFile::give_name() {
  static std::atomic<uint32_t> names{0};
  const std::string unnamed = fmt::format("{}/{}", kDescriptors, descriptor_);
  for (;;) {
    // Other processes begin with other numbers.
    const uint32_t number = static_cast<uint32_t>(::getpid()) * 0x9E3779B1U + names++;
    const std::string name = fmt::format("{}.{:06x}", path_, number & 0xFFFFFFU);
    if (::linkat(AT_FDCWD, unnamed.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) == 0) {
      temporary_ = name;
      slot_ = note_unfinished(temporary_.c_str());
      return;
    }
    if (errno != EEXIST) fail(path_, "cannot name the finished file: {}", std::strerror(errno));
  }
}

void AtomicFile::write(std::span<const std::byte> bytes) { write_all(descriptor_, bytes, path_); }

void AtomicFile::make_durable() {
  if (::fsync(descriptor_) != 0) fail(path_, "cannot write: {}", std::strerror(errno));
}

void AtomicFile::commit() {
  make_durable();
  if (temporary_.empty()) {
    // A process that is killed between here and the renaming leaves the file: the slow writing is done
    // before.
    give_name();
    if (!keeps_unnamed_files(descriptor_)) make_durable();
  }
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
