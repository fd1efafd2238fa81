// A shared library loaded at run time with local symbols: several BLAS can coexist in one process this way,
// each reading its environment when it is loaded.
#pragma once

#include <string>
#include <vector>

namespace tessera::bench {

class Library {
 public:
  /// Loads the first candidate that can be loaded. Throws Error naming what was tried.
  explicit Library(const std::vector<std::string>& candidates);

  const std::string& path() const { return path_; }

  /// A function of the library. Throws Error if it has none of that name.
  template <class Function>
  Function* function(const char* name) const {
    return reinterpret_cast<Function*>(symbol(name));
  }

 private:
  void* symbol(const char* name) const;

  void* handle_ = nullptr;
  std::string path_;
};

/// Sets an environment variable unless the caller of the benchmark has set it.
void default_environment(const char* name, const std::string& value);

}  // namespace tessera::bench
