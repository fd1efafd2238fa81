#include "io/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "io/fail.h"
#include "io/source.h"

namespace tessera::io {

MappedFile::MappedFile(const std::string& path) {
  const Source file = Source::open(path);
  const auto size = static_cast<size_t>(file.size());
  if (size == 0) return;
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.descriptor_, 0);
  if (address == MAP_FAILED) fail(path, "cannot map the file: {}", std::strerror(errno));
  ::madvise(address, size, MADV_SEQUENTIAL);
  content_ = {static_cast<const std::byte*>(address), size};
}

MappedFile::~MappedFile() {
  if (content_.empty()) return;
  ::munmap(const_cast<std::byte*>(content_.data()), content_.size());
}

}  // namespace tessera::io
