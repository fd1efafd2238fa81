// The error of a list of rows that a run takes or computes.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstdint>
#include <optional>
#include <string_view>

namespace tessera::program {

/// Where a list names a row that its matrix does not have.
struct RowEntry {
  uint64_t entry = 0;  ///< of the list
  int64_t row = 0;
  uint64_t rows = 0;                      ///< of the matrix
  uint32_t list = 0, matrix = 0;          ///< fields of the codelet
  std::optional<uint32_t> compute_set{};  ///< in a run
  std::optional<uint32_t> part{};         ///< of runs side by side
};

/// Thrown by codelets; the engine adds where that was.
class MissingRow : public UsageError {
 public:
  explicit MissingRow(const RowEntry& where, std::string_view list = "a list",
                      std::string_view matrix = "a matrix")
      : UsageError(fmt::format("entry {} of {} is {}; it must name a row of {}, from 0 to {}", where.entry,
                               list, where.row, matrix, static_cast<int64_t>(where.rows) - 1)),
        at(where) {}

  RowEntry at;
};

}  // namespace tessera::program
