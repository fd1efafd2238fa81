// Comparison with a file in the tree. Run with TESSERA_UPDATE_GOLDEN=1, a test rewrites its file instead, so
// that an intended change can be reviewed as a difference.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace tessera::testing {

/// Whether tests rewrite their files.
inline bool updates_golden() {
  const char* update = std::getenv("TESSERA_UPDATE_GOLDEN");
  return update != nullptr && *update != '\0';
}

/// Expects `actual` to have the lines of `file`; shows lines that differ.
inline void expect_golden(const std::string& file, const std::string& actual) {
  if (updates_golden()) {
    std::ofstream(file) << actual;
    return;
  }
  std::ifstream stream(file);
  ASSERT_TRUE(stream) << file << " cannot be read; TESSERA_UPDATE_GOLDEN=1 makes it";
  std::istringstream ours(actual);
  std::string expected, line;
  for (size_t number = 1;; ++number) {
    const bool has_expected = static_cast<bool>(std::getline(stream, expected));
    const bool has_line = static_cast<bool>(std::getline(ours, line));
    if (!has_expected && !has_line) return;
    EXPECT_TRUE(has_expected && has_line && expected == line)
        << file << ":" << number << "\n  expected: " << (has_expected ? expected : "(nothing)")
        << "\n  now:      " << (has_line ? line : "(nothing)");
  }
}

}  // namespace tessera::testing
