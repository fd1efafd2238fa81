#include "io/matrix_market.h"

#include <cctype>
#include <limits>

#include "base/memory.h"
#include "io/fail.h"
#include "io/limits.h"
#include "io/text_scanner.h"
#include "sparse/pattern.h"

namespace tessera::io {
namespace {

enum class Field { real, integer, pattern };
enum class Symmetry { general, symmetric, skew_symmetric };

struct Header {
  bool coordinate;
  Field field;
  Symmetry symmetry;
};

struct Sizes {
  uint32_t rows;
  uint32_t cols;
  uint64_t entries;  // in the file; symmetry may make two elements of one
};

// The words of a line in lower case.
std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words(1);
  for (char c : line) {
    if (std::isspace(static_cast<unsigned char>(c))) {
      if (!words.back().empty()) words.emplace_back();
    } else {
      words.back() += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

Field field_of(const std::string& name, const std::string& word) {
  if (word == "real" || word == "double") return Field::real;
  if (word == "integer") return Field::integer;
  if (word == "pattern") return Field::pattern;
  if (word == "complex") {
    fail(name, "line 1: complex numbers; weights are real, so write the real parts to a file");
  }
  fail(name, "line 1: field {}; it must be real, integer or pattern", excerpt(word));
}

Symmetry symmetry_of(const std::string& name, const std::string& word) {
  if (word == "general") return Symmetry::general;
  if (word == "symmetric") return Symmetry::symmetric;
  if (word == "skew-symmetric") return Symmetry::skew_symmetric;
  if (word == "hermitian") {
    fail(name, "line 1: a hermitian matrix is complex; weights are real");
  }
  fail(name, "line 1: symmetry {}; it must be general, symmetric or skew-symmetric", excerpt(word));
}

Header read_header(TextScanner& scanner, const std::string& name) {
  const std::string_view line = scanner.line();
  const std::vector<std::string> words = words_of(line.substr(0, 200));
  if (words.size() != 5 || words[0] != "%%matrixmarket" || words[1] != "matrix") {
    fail(name,
         "line 1 is {}; it must be \"%%MatrixMarket matrix\", then coordinate or array, the field "
         "and the symmetry",
         excerpt(line));
  }
  if (words[2] != "coordinate" && words[2] != "array") {
    fail(name, "line 1: format {}; it must be coordinate or array", excerpt(words[2]));
  }
  const Header header{.coordinate = words[2] == "coordinate",
                      .field = field_of(name, words[3]),
                      .symmetry = symmetry_of(name, words[4])};
  if (header.field == Field::pattern && !header.coordinate) {
    fail(name, "line 1: an array with field pattern; only coordinates can be a pattern");
  }
  if (header.field == Field::pattern && header.symmetry == Symmetry::skew_symmetric) {
    fail(name, "line 1: a skew-symmetric pattern; without values it must be symmetric");
  }
  return header;
}

void skip_comments(TextScanner& scanner) {
  while (!scanner.at_end()) {
    TextScanner ahead = scanner;
    const std::string_view line = ahead.line();
    const bool blank = line.find_first_not_of(" \t") == std::string_view::npos;
    if (!blank && line.front() != '%') return;
    scanner.line();
  }
}

uint64_t array_entries(const Header& header, uint64_t rows, uint64_t cols) {
  switch (header.symmetry) {
    case Symmetry::general: return rows * cols;
    case Symmetry::symmetric: return rows * (rows + 1) / 2;
    case Symmetry::skew_symmetric: return rows == 0 ? 0 : rows * (rows - 1) / 2;
  }
  return 0;
}

Sizes read_sizes(TextScanner& scanner, const Header& header, const std::string& name) {
  constexpr uint64_t kAny = std::numeric_limits<uint64_t>::max();
  skip_comments(scanner);
  const uint64_t rows = scanner.integer("number of rows", kAny);
  const uint64_t cols = scanner.integer("number of columns", kAny);
  uint64_t entries = 0;
  if (header.coordinate) {
    entries = scanner.integer("number of entries", kAny);
  } else {
    require_sane_sides(name, rows, cols);
    entries = array_entries(header, rows, cols);
  }
  require_sane_sizes(name, rows, cols, entries);
  scanner.end_line("sizes");
  if (header.symmetry != Symmetry::general && rows != cols) {
    fail(name, "a symmetric matrix of {} x {}; it must be square", rows, cols);
  }
  // "1 1 1" and a line end, minus what the field or format omits.
  const uint64_t shortest = !header.coordinate ? 2 : header.field == Field::pattern ? 4 : 6;
  if (entries > scanner.left() / shortest + 1) {
    fail(name,
         "the header announces {} entries, and the file has only {} more characters; it may be "
         "truncated",
         entries, scanner.left());
  }
  return {static_cast<uint32_t>(rows), static_cast<uint32_t>(cols), entries};
}

// Collects elements, and their mirror images if the matrix is symmetric.
class Elements {
 public:
  Elements(const std::string& name, const Header& header, const Sizes& sizes) : symmetry_(header.symmetry) {
    const uint64_t most = symmetry_ == Symmetry::general ? sizes.entries : 2 * sizes.entries;
    // Three numbers per element here, two in the matrix, and the matrix twice while it is sorted.
    base::require_memory(most * 36 + 16 * (uint64_t{sizes.rows} + sizes.cols), name + ": the matrix");
    if (!header.coordinate) return;
    elements_.rows.reserve(most);
    elements_.cols.reserve(most);
    elements_.values.reserve(most);
  }

  void add(uint32_t row, uint32_t col, float value) {
    push(row, col, value);
    if (symmetry_ == Symmetry::general || row == col) return;
    push(col, row, symmetry_ == Symmetry::skew_symmetric ? -value : value);
  }

  const sparse::Coordinates& get() const { return elements_; }

 private:
  void push(uint32_t row, uint32_t col, float value) {
    elements_.rows.push_back(row);
    elements_.cols.push_back(col);
    elements_.values.push_back(value);
  }

  Symmetry symmetry_;
  sparse::Coordinates elements_;
};

float read_value(TextScanner& scanner, Field field) {
  if (field == Field::pattern) return 0;
  if (field == Field::real) return scanner.real("value");
  return static_cast<float>(scanner.integer("value", std::numeric_limits<int64_t>::max()));
}

void require_lower_triangle(TextScanner& scanner, const Header& header, uint32_t row, uint32_t col,
                            const std::string& name) {
  if (header.symmetry == Symmetry::general || row > col) return;
  if (header.symmetry == Symmetry::symmetric && row == col) return;
  fail(name, "line {}: entry ({}, {}); a {} matrix is given by its entries below the diagonal",
       scanner.line_number(), row, col,
       header.symmetry == Symmetry::symmetric ? "symmetric" : "skew-symmetric");
}

void read_coordinates(TextScanner& scanner, const Header& header, const Sizes& sizes, const std::string& name,
                      Elements& elements) {
  for (uint64_t i = 0; i < sizes.entries; ++i) {
    const uint32_t row = scanner.integer("row", sizes.rows);
    const uint32_t col = scanner.integer("column", sizes.cols);
    if (row == 0 || col == 0) {
      fail(name, "line {}: entry ({}, {}); rows and columns count from 1", scanner.line_number(), row, col);
    }
    require_lower_triangle(scanner, header, row, col, name);
    elements.add(row - 1, col - 1, read_value(scanner, header.field));
    scanner.end_line("entry");
  }
}

void read_array(TextScanner& scanner, const Header& header, const Sizes& sizes, Elements& elements) {
  for (uint32_t col = 0; col < sizes.cols; ++col) {
    const uint32_t first = header.symmetry == Symmetry::general     ? 0
                           : header.symmetry == Symmetry::symmetric ? col
                                                                    : col + 1;
    for (uint32_t row = first; row < sizes.rows; ++row) {
      const float value = read_value(scanner, header.field);
      if (value != 0) elements.add(row, col, value);
    }
  }
}

}  // namespace

MatrixMarket read_matrix_market(const Source& source) {
  const std::string& name = source.name();
  const std::vector<char> text = source.read_all();
  TextScanner scanner(name, {text.data(), text.size()});
  const Header header = read_header(scanner, name);
  const Sizes sizes = read_sizes(scanner, header, name);
  Elements elements(name, header, sizes);
  if (header.coordinate) {
    read_coordinates(scanner, header, sizes, name, elements);
  } else {
    read_array(scanner, header, sizes, elements);
  }
  scanner.end_text("after the last entry");
  MatrixMarket result;
  result.has_values = header.field != Field::pattern;
  try {
    result.matrix = sparse::from_coordinates(sizes.rows, sizes.cols, elements.get());
  } catch (const UsageError& error) {
    fail(name, "{} (rows and columns from 0)", error.what());
  }
  if (!result.has_values) result.matrix.values.clear();
  return result;
}

}  // namespace tessera::io
