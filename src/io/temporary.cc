#include "io/temporary.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "io/atomic_file.h"
#include "io/fail.h"

namespace tessera::io {
namespace {

// Accessible to a signal handler.
constexpr size_t kSlots = 32;
std::array<std::atomic<const char*>, kSlots> unfinished{};
static_assert(std::atomic<const char*>::is_always_lock_free);

}  // namespace

size_t note_unfinished(const char* path) {
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const char* expected = nullptr;
    if (unfinished[slot].compare_exchange_strong(expected, path)) return slot;
  }
  return kSlots;
}

void forget_unfinished(size_t slot) {
  if (slot < kSlots) unfinished[slot] = nullptr;
}

void write_all(int descriptor, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) fail(path, "cannot write: {}", std::strerror(errno));
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
}

void sync_folder(const std::string& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

void remove_unfinished_files() noexcept {
  for (const std::atomic<const char*>& name : unfinished)
    if (const char* path = name; path != nullptr) ::unlink(path);
  // Then the folders that contained them.
  for (const std::atomic<const char*>& name : unfinished)
    if (const char* path = name; path != nullptr) ::rmdir(path);
}

}  // namespace tessera::io
