#include "io/smtx.h"

#include <algorithm>
#include <limits>

#include "base/memory.h"
#include "io/fail.h"
#include "io/limits.h"
#include "io/text_scanner.h"

namespace tessera::io {
namespace {

struct SmtxHeader {
  uint32_t rows;
  uint32_t cols;
  uint64_t non_zeros;
};

SmtxHeader read_smtx_header(TextScanner& scanner, const std::string& name) {
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  const uint64_t rows = scanner.integer("number of rows", kAny);
  const uint64_t cols = scanner.integer("number of columns", kAny);
  const uint64_t non_zeros = scanner.integer("number of non-zeros", kAny);
  require_sane_sizes(name, rows, cols, non_zeros);
  scanner.end_line("sizes");
  // A number takes at least two characters with its separator.
  const uint64_t room = scanner.left() / 2 + 1;
  if (rows + 1 + non_zeros > room) {
    fail(name,
         "the header announces {} x {} with {} non-zeros, and the file has only {} more "
         "characters; it may be truncated",
         rows, cols, non_zeros, scanner.left());
  }
  return {static_cast<uint32_t>(rows), static_cast<uint32_t>(cols), non_zeros};
}

void read_row_offsets(TextScanner& scanner, const std::string& name, const SmtxHeader& header, Pattern& p) {
  p.crow_indices.resize(size_t{header.rows} + 1);
  for (size_t r = 0; r < p.crow_indices.size(); ++r) {
    p.crow_indices[r] = scanner.integer("row offset", header.non_zeros);
    if (p.crow_indices[r] < (r == 0 ? 0 : p.crow_indices[r - 1])) {
      fail(name, "the offset of row {} is {}, less than the one before, {}", r, p.crow_indices[r],
           p.crow_indices[r - 1]);
    }
  }
  if (p.crow_indices.front() != 0 || p.crow_indices.back() != header.non_zeros) {
    fail(name, "row offsets go from {} to {}; for {} non-zeros they must go from 0 to {}",
         p.crow_indices.front(), p.crow_indices.back(), header.non_zeros, header.non_zeros);
  }
}

void read_columns(TextScanner& scanner, const std::string& name, const SmtxHeader& header, Pattern& p) {
  p.col_indices.resize(header.non_zeros);
  if (header.non_zeros == 0) return;
  for (uint32_t& column : p.col_indices) column = scanner.integer("column index", header.cols - 1);
  for (size_t r = 0; r < header.rows; ++r) {
    const auto begin = p.col_indices.begin() + static_cast<ptrdiff_t>(p.crow_indices[r]);
    const auto end = p.col_indices.begin() + static_cast<ptrdiff_t>(p.crow_indices[r + 1]);
    if (!std::is_sorted(begin, end)) std::sort(begin, end);
    const auto twice = std::adjacent_find(begin, end);
    if (twice != end) fail(name, "row {} has column {} twice", r, *twice);
  }
}

}  // namespace

Pattern read_smtx(const Source& source) {
  const std::vector<char> text = source.read_all();
  TextScanner scanner(source.name(), {text.data(), text.size()});
  const SmtxHeader header = read_smtx_header(scanner, source.name());
  base::require_memory(8 * (uint64_t{header.rows} + 1) + 4 * header.non_zeros,
                       source.name() + ": the pattern");
  Pattern p;
  p.rows = header.rows;
  p.cols = header.cols;
  read_row_offsets(scanner, source.name(), header, p);
  read_columns(scanner, source.name(), header, p);
  scanner.end_text("after the last column index");
  return p;
}

}  // namespace tessera::io
