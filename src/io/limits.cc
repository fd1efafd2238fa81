#include "io/limits.h"

#include <algorithm>

#include "io/fail.h"
#include "sparse/pattern.h"

namespace tessera::io {

void require_sane_sides(const std::string& name, uint64_t rows, uint64_t cols) {
  if (std::max(rows, cols) <= sparse::kMaxDimension) return;
  fail(name, "a matrix of {} x {}; each side may have at most {}", rows, cols, sparse::kMaxDimension);
}

void require_sane_sizes(const std::string& name, uint64_t rows, uint64_t cols, uint64_t non_zeros) {
  constexpr uint64_t kAlwaysAllowed = uint64_t{1} << 22;
  require_sane_sides(name, rows, cols);
  const uint64_t larger = std::max(rows, cols);
  if (non_zeros > rows * cols) {
    fail(name, "{} non-zeros do not fit into a matrix of {} x {}", non_zeros, rows, cols);
  }
  if (larger > kAlwaysAllowed && larger > non_zeros) {
    fail(name,
         "a matrix of {} x {} with only {} non-zeros; above {} rows or columns there must be as "
         "many non-zeros",
         rows, cols, non_zeros, kAlwaysAllowed);
  }
}

}  // namespace tessera::io
