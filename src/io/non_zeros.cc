#include "io/non_zeros.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "base/ceil_divide.h"
#include "base/memory.h"
#include "io/element_reader.h"
#include "io/fail.h"
#include "io/limits.h"
#include "sparse/pattern.h"

namespace tessera::io {
namespace {

using sparse::BitMatrix;
using sparse::NonZeros;

constexpr uint64_t kMostDimensions = 8;

std::optional<Type> type_of(const std::string& dtype) {
  if (dtype == "F32") return Type::f32;
  if (dtype == "F16") return Type::f16;
  if (dtype == "BF16") return Type::bf16;
  return std::nullopt;
}

const std::string& file_of(const StoredWeight& weight) { return weight.parts.begin()->second.source->name(); }

template <class... Args>
[[noreturn]] void reject(const StoredWeight& weight, fmt::format_string<Args...> format, Args&&... args) {
  fail(file_of(weight), "weight {}: {}", excerpt(weight.name),
       fmt::format(format, std::forward<Args>(args)...));
}

/// The product of the sizes other than 0 must fit 64 bits: a file without data may claim any sizes.
void check_sizes(const StoredWeight& weight, std::span<const uint64_t> sizes) {
  uint64_t product = 1;
  for (const uint64_t size : sizes)
    if (size != 0 && __builtin_mul_overflow(product, size, &product))
      reject(weight, "its shape has too many elements");
}

/// A shape that is stored as a tensor.
std::vector<uint64_t> stored_shape(const StoredWeight& weight, const std::string& role) {
  const StoredTensor& tensor = weight.part(role);
  const uint64_t dimensions = elements_of(tensor);
  if (dimensions < 1 || dimensions > kMostDimensions)
    reject(weight, "its shape has {} numbers; 1 to {} are read", dimensions, kMostDimensions);
  return read_integers(tensor, sparse::kMaxDimension);
}

/// Blocks of a stored pattern, and how many values a block has.
struct BlockShape {
  uint64_t height = 1;
  uint64_t width = 1;
};

/// Values are a list of numbers, or of blocks.
BlockShape block_of(const StoredWeight& weight) {
  const std::vector<uint64_t>& shape = weight.part("values").info.shape;
  if (shape.size() == 1) return {};
  if (shape.size() != 3 || shape[1] < 1 || shape[2] < 1 ||
      std::max(shape[1], shape[2]) > sparse::kMaxBlockSize)
    reject(weight, "its values have {} dimensions; CSR has 1 and BSR 3, which are blocks of at most {}",
           shape.size(), sparse::kMaxBlockSize);
  return {shape[1], shape[2]};
}

uint64_t block_rows_of(const StoredWeight& weight) {
  const uint64_t entries = elements_of(weight.part("crow_indices"));
  if (entries == 0) reject(weight, "its crow_indices are empty; there is one entry per row, and one more");
  return entries - 1;
}

/// The shape of CSR or BSR. If none is stored, columns end with the last block of the widest row.
std::vector<uint64_t> shape_of_rows(const StoredWeight& weight) {
  const BlockShape block = block_of(weight);
  if (weight.has("shape")) {
    std::vector<uint64_t> shape = stored_shape(weight, "shape");
    if (shape.size() != 2) reject(weight, "its shape has {} numbers; CSR and BSR have 2", shape.size());
    return shape;
  }
  const std::vector<uint64_t> cols = read_integers(weight.part("col_indices"), sparse::kMaxDimension);
  const uint64_t last = cols.empty() ? 0 : *std::ranges::max_element(cols) + 1;
  return {block_rows_of(weight) * block.height, last * block.width};
}

/// out_features, in_features and block_size of a SparseLinear.
std::vector<uint64_t> sizes_of_packed(const StoredWeight& weight) {
  std::vector<uint64_t> sizes = stored_shape(weight, "sizes");
  if (sizes.size() != 3 || sizes[2] < 1 || sizes[2] > sparse::kMaxBlockSize)
    reject(weight, "its sizes must be out_features, in_features and a block_size of 1 to {}",
           sparse::kMaxBlockSize);
  return sizes;
}

/// The rows and columns of stored blocks. A SparseLinear whose pattern may change has space after the last
/// one.
struct StoredBlocks {
  std::vector<uint64_t> crow;
  std::vector<uint64_t> cols;
};

StoredBlocks read_blocks(const StoredWeight& weight) {
  StoredBlocks blocks{read_integers(weight.part("crow_indices"), UINT32_MAX),
                      read_integers(weight.part("col_indices"), sparse::kMaxDimension)};
  const bool has_room = weight.form == WeightForm::packed;
  const uint64_t last = blocks.crow.empty() ? 0 : blocks.crow.back();
  if (last > blocks.cols.size() || (!has_room && last != blocks.cols.size()))
    reject(weight, "its crow_indices end with {}, and there are {} col_indices", last, blocks.cols.size());
  blocks.cols.resize(last);
  return blocks;
}

/// Checks a pattern of blocks of any shape as the pattern of a matrix with an element per block.
Pattern checked_pattern(const StoredWeight& weight, StoredBlocks blocks, uint64_t block_rows,
                        uint64_t block_cols) {
  require_sane_sizes(file_of(weight), block_rows, block_cols, blocks.cols.size());
  Pattern pattern{static_cast<uint32_t>(block_rows),
                  static_cast<uint32_t>(block_cols),
                  1,
                  std::move(blocks.crow),
                  {blocks.cols.begin(), blocks.cols.end()}};
  try {
    sparse::validate(pattern);
  } catch (const Error& error) {
    reject(weight, "{}", error.what());
  }
  return pattern;
}

/// The elements of blocks for which is_non_zero(element of the values) holds.
template <class IsNonZero>
Pattern elements_of_blocks(const WeightHeader& header, const Pattern& blocks, const BlockShape& shape,
                           const IsNonZero& is_non_zero) {
  const auto rows = static_cast<uint32_t>(header.rows()), cols = static_cast<uint32_t>(header.cols());
  Pattern elements{rows, cols, 1, {0}, {}};
  for (uint64_t r = 0; r < rows; ++r) {
    const uint64_t block_row = r / shape.height, y = r % shape.height;
    for (uint64_t i = blocks.crow_indices[block_row]; i < blocks.crow_indices[block_row + 1]; ++i) {
      const uint64_t first = blocks.col_indices[i] * shape.width;
      for (uint64_t x = 0; x < std::min(shape.width, cols - first); ++x)
        if (is_non_zero((i * shape.height + y) * shape.width + x))
          elements.col_indices.push_back(static_cast<uint32_t>(first + x));
    }
    elements.crow_indices.push_back(elements.col_indices.size());
  }
  return elements;
}

/// Values of any shape, as one row of bits.
BitMatrix read_value_bits(const StoredTensor& values) { return read_bits(values, 1, elements_of(values)); }

bool is_set(std::span<const uint64_t> bits, uint64_t i) { return (bits[i / 64] >> i % 64 & 1) != 0; }

/// The pattern of blocks of a weight of the header's shape.
Pattern read_pattern(const StoredWeight& weight, const WeightHeader& header, const BlockShape& shape) {
  const Pattern blocks = checked_pattern(weight, read_blocks(weight), block_rows_of(weight),
                                         base::ceil_divide(header.cols(), shape.width));
  if (blocks.rows != base::ceil_divide(header.rows(), shape.height))
    reject(weight, "its crow_indices describe {} rows of blocks of {} x {}; it has {} rows", blocks.rows,
           shape.height, shape.width, header.rows());
  const uint64_t stored = blocks.blocks() * shape.height * shape.width;
  require_sane_sizes(file_of(weight), header.rows(), header.cols(), std::min(stored, header.elements()));
  base::require_memory(stored * sizeof(uint32_t) + header.rows() * sizeof(uint64_t),
                       file_of(weight) + ": the non-zeros of a weight");
  return blocks;
}

NonZeros read_rows(const StoredWeight& weight, const WeightHeader& header) {
  const BlockShape shape = block_of(weight);
  const StoredTensor& values = weight.part("values");
  const Pattern blocks = read_pattern(weight, header, shape);
  if (elements_of(values) != blocks.blocks() * shape.height * shape.width)
    reject(weight, "{} values for {} blocks of {} x {}", elements_of(values), blocks.blocks(), shape.height,
           shape.width);
  const BitMatrix bits = read_value_bits(values);
  return elements_of_blocks(header, blocks, shape, [&](uint64_t i) { return is_set(bits.row(0), i); });
}

NonZeros read_packed(const StoredWeight& weight, const WeightHeader& header) {
  const uint64_t b = sizes_of_packed(weight)[2];
  const Pattern blocks = read_pattern(weight, header, {b, b});
  if (elements_of(weight.part("values")) < blocks.blocks() * b * b)
    reject(weight, "{} values for {} blocks of {}", elements_of(weight.part("values")), blocks.blocks(), b);
  return elements_of_blocks(header, blocks, {b, b}, [](uint64_t) { return true; });
}

NonZeros read_masked(const StoredWeight& weight, const WeightHeader& header) {
  BitMatrix bits = read_bits(weight.part("values"), header.rows(), header.cols());
  clear_zeros(weight.part("mask"), bits);
  return bits;
}

/// Bits of lines, each as long as the last dimension and beginning with a new byte.
class BitmaskReader {
 public:
  BitmaskReader(const StoredWeight& weight, const WeightHeader& header)
      : weight_(weight), header_(header), width_(header.shape.empty() ? 1 : header.shape.back()) {}

  BitMatrix read() const {
    const StoredTensor& mask = weight_.part("bitmask");
    const uint64_t lines = width_ == 0 ? 0 : header_.elements() / width_, line_bytes = (width_ + 7) / 8;
    if (mask.info.dtype != "U8" || elements_of(mask) != lines * line_bytes)
      reject(weight_, "its bitmask is {} with {} bytes; {} lines of {} bits need U8 with {}", mask.info.dtype,
             mask.info.end - mask.info.begin, lines, width_, lines * line_bytes);
    require_sane_sides(file_of(weight_), header_.rows(), header_.cols());
    base::require_memory(BitMatrix::bytes_of(header_.rows(), header_.cols()),
                         file_of(weight_) + ": the non-zeros of a weight");
    BitMatrix bits(static_cast<uint32_t>(header_.rows()), static_cast<uint32_t>(header_.cols()));
    const uint64_t in_row = width_ == 0 ? 0 : header_.cols() / width_;
    std::vector<std::byte> bytes(in_row * line_bytes);
    for (uint32_t r = 0; r < bits.rows() && !bytes.empty(); ++r) {
      mask.source->read(mask.info.begin + r * bytes.size(), bytes);
      for (uint64_t line = 0; line < in_row; ++line)
        copy_line(bytes.data() + line * line_bytes, line * width_, bits.row(r));
    }
    return bits;
  }

 private:
  void copy_line(const std::byte* bytes, uint64_t at, std::span<uint64_t> row) const {
    for (uint64_t i = 0; i < width_; i += 8, at += 8) {
      const uint64_t inside = std::min<uint64_t>(8, width_ - i);
      const uint64_t byte = std::to_integer<uint64_t>(bytes[i / 8]) & ((uint64_t{1} << inside) - 1);
      row[at / 64] |= byte << at % 64;
      if (at % 64 + inside > 64) row[at / 64 + 1] |= byte >> (64 - at % 64);
    }
  }

  const StoredWeight& weight_;
  const WeightHeader& header_;
  uint64_t width_;
};

uint64_t count_bits(std::span<const uint64_t> words) {
  return std::accumulate(words.begin(), words.end(), uint64_t{0}, [](uint64_t sum, uint64_t word) {
    return sum + static_cast<uint64_t>(std::popcount(word));
  });
}

/// Checks the list of each row's first value that a sparse-bitmask file has.
void check_row_offsets(const StoredWeight& weight, const std::vector<uint64_t>& begins) {
  if (!weight.has("row_offsets")) return;
  const std::vector<uint64_t> offsets = read_integers(weight.part("row_offsets"), INT64_MAX);
  const bool is_matrix = elements_of(weight.part("shape")) == 2;  // of others, the sums mean nothing
  if (is_matrix && !std::ranges::equal(offsets, std::span(begins).first(begins.size() - 1)))
    reject(weight, "its row_offsets do not match its bitmask");
}

/// Stored values may be zero: sparse-24-bitmask always stores two of each four.
void clear_zero_values(const StoredWeight& weight, const std::vector<uint64_t>& begins, BitMatrix& bits) {
  const BitMatrix values = read_value_bits(weight.part("values"));
  if (count_bits(values.row(0)) == values.cols()) return;
  for (uint32_t r = 0; r < bits.rows(); ++r) {
    uint64_t value = begins[r];
    for (uint64_t& word : bits.row(r))
      for (uint64_t left = word; left != 0; left &= left - 1, ++value)
        if (!is_set(values.row(0), value)) word &= ~(left & -left);
  }
}

NonZeros read_bitmask(const StoredWeight& weight, const WeightHeader& header) {
  BitMatrix bits = BitmaskReader(weight, header).read();
  std::vector<uint64_t> begins = {0};
  for (uint32_t r = 0; r < bits.rows(); ++r) begins.push_back(begins.back() + count_bits(bits.row(r)));
  const uint64_t values = elements_of(weight.part("values"));
  if (begins.back() != values)
    reject(weight, "its bitmask has {} bits that are set, and there are {} values", begins.back(), values);
  check_row_offsets(weight, begins);
  clear_zero_values(weight, begins, bits);
  return bits;
}

std::vector<uint64_t> shape_of(const StoredWeight& weight) {
  switch (weight.form) {
    case WeightForm::dense: return weight.part("values").info.shape;
    case WeightForm::compressed_rows: return shape_of_rows(weight);
    case WeightForm::sparse_bitmask:
    case WeightForm::sparse_24_bitmask: return stored_shape(weight, "shape");
    case WeightForm::packed: {
      const std::vector<uint64_t> sizes = sizes_of_packed(weight);
      return {sizes[0], sizes[1]};
    }
    case WeightForm::masked: break;
  }
  const std::vector<uint64_t>& shape = weight.part("values").info.shape;
  if (weight.part("mask").info.shape != shape) reject(weight, "the shapes of NAME_orig and NAME_mask differ");
  return shape;
}

}  // namespace

uint64_t WeightHeader::rows() const { return shape.size() < 2 ? 1 : shape[0]; }

uint64_t WeightHeader::cols() const {
  const auto first = shape.begin() + (shape.size() < 2 ? 0 : 1);
  return std::accumulate(first, shape.end(), uint64_t{1}, std::multiplies<>());
}

WeightHeader read_header(const StoredWeight& weight) {
  WeightHeader header{shape_of(weight), weight.part("values").info.dtype, {}};
  header.type = type_of(header.dtype);
  check_sizes(weight, header.shape);
  return header;
}

NonZeros read_non_zeros(const StoredWeight& weight, const WeightHeader& header) {
  switch (weight.form) {
    case WeightForm::masked: return read_masked(weight, header);
    case WeightForm::compressed_rows: return read_rows(weight, header);
    case WeightForm::packed: return read_packed(weight, header);
    case WeightForm::sparse_bitmask:
    case WeightForm::sparse_24_bitmask: return read_bitmask(weight, header);
    case WeightForm::dense: break;
  }
  return read_bits(weight.part("values"), header.rows(), header.cols());
}

}  // namespace tessera::io
