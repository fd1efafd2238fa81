#include "io/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "io/fail.h"

namespace tessera::io {

MappedFile::MappedFile(const std::string& path) {
  // Without O_NONBLOCK, opening a named pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) fail(path, "cannot open the file: {}", std::strerror(errno));
  struct stat status = {};
  const bool regular = ::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = regular ? static_cast<size_t>(status.st_size) : 0;
  void* address = nullptr;
  if (size > 0) address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, descriptor, 0);
  const int error = errno;
  ::close(descriptor);
  if (!regular) fail(path, "not a regular file; give the path of a file");
  if (address == MAP_FAILED) fail(path, "cannot map the file: {}", std::strerror(error));
  if (size > 0) ::madvise(address, size, MADV_SEQUENTIAL);
  content_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (content_.empty()) return;
  ::munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

}  // namespace tessera::io
