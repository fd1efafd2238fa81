#include "peers/library.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <cstdlib>

namespace tessera::bench {

// Never closed: libraries with thread pools do not survive it.
Library::Library(const std::vector<std::string>& candidates) {
  for (const std::string& candidate : candidates) {
    handle_ = dlopen(candidate.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) continue;
    path_ = candidate;
    return;
  }
  throw Error(fmt::format("not found as {}", fmt::join(candidates, ", ")));
}

void* Library::symbol(const char* name) const {
  void* address = dlsym(handle_, name);
  if (address == nullptr) throw Error(fmt::format("{} has no {}", path_, name));
  return address;
}

void default_environment(const char* name, const std::string& value) {
  setenv(name, value.c_str(), /*overwrite=*/0);
}

}  // namespace tessera::bench
