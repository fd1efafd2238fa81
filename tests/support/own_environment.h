// The environment of a test program, in which the user's files are neither read nor written.
#pragma once

#include <filesystem>

namespace tessera::testing {

/// A temporary folder of this process for home, caches and temporary files. It is removed at the end.
const std::filesystem::path& own_folder();

/// Whether an environment variable sets how the library or its threads work, and not the place of test data
/// or the behaviour of tests.
bool sets_the_library(const char* variable);

}  // namespace tessera::testing
