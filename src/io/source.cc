#include "io/source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/memory.h"
#include "io/fail.h"

namespace tessera::io {

Source Source::open(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path, "cannot open the file: {}", std::strerror(errno));
  struct stat status = {};
  const bool known = ::fstat(descriptor, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    fail(path, "not a regular file; give the path of a file");
  }
  return Source(path, descriptor, static_cast<uint64_t>(status.st_size));
}

Source::Source(std::string name, int descriptor, uint64_t size)
    : name_(std::move(name)), descriptor_(descriptor), size_(size) {}

Source::Source(std::string name, std::span<const std::byte> content)
    : name_(std::move(name)), content_(content.data()), size_(content.size()) {}

Source::Source(Source&& other) noexcept
    : name_(std::move(other.name_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      content_(other.content_),
      size_(other.size_) {}

Source::~Source() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void Source::read(uint64_t offset, std::span<std::byte> out) const {
  if (offset > size_ || out.size() > size_ - offset) {
    fail(name_, "the file ends at byte {}, and bytes up to {} are needed; it may be truncated", size_,
         offset + out.size());
  }
  if (descriptor_ < 0) {
    if (!out.empty()) std::memcpy(out.data(), content_ + offset, out.size());
    return;
  }
  while (!out.empty()) {
    const ssize_t got = ::pread(descriptor_, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(name_, "cannot read at byte {}: {}", offset, std::strerror(errno));
    if (got == 0) fail(name_, "the file became shorter while it was read, at byte {}", offset);
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
}

std::vector<char> Source::read_all() const {
  base::require_memory(size_, name_ + ": reading the file");
  std::vector<char> bytes(size_);
  read(0, std::as_writable_bytes(std::span(bytes)));
  return bytes;
}

}  // namespace tessera::io
