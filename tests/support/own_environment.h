// The environment of a test program: what belongs to the user is neither read nor written.
#pragma once

#include <filesystem>

namespace tessera::testing {

/// A temporary folder of this process, in which home, caches and temporary files lie. It is removed at the
/// end.
const std::filesystem::path& own_folder();

/// Whether a variable of the environment says how the library or its threads shall work; those that say where
/// test data lie, or what tests do, are others.
bool sets_the_library(const char* variable);

}  // namespace tessera::testing
