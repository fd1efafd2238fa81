#include "sparse/panels/packed_panels.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <cstring>
#include <string_view>

#include "sparse/blocks/packed_blocks.h"
#include "sparse/packed_values.h"
#include "sparse/pattern.h"

namespace tessera::sparse {
namespace {

void require_elements(std::string_view what, size_t have, uint64_t want) {
  if (have != want)
    throw UsageError(fmt::format("dense weight: {} of {} values; it takes {}", what, have, want));
}

}  // namespace

PackedPanels::PackedPanels(uint32_t rows, uint32_t cols, Type type) : type_(type), layout_{rows, cols} {
  validate_weight_type(type);
  values_ = base::allocate_buffer(bytes());
  std::memset(values_.get(), 0, bytes());
}

uint64_t PackedPanels::capacity() const {
  const Pattern shape{rows(), cols(), kDenseBlockSize, {}, {}};
  return uint64_t{shape.block_rows()} * shape.block_cols();
}

Pattern PackedPanels::pattern() const { return full_pattern(rows(), cols(), kDenseBlockSize); }

void PackedPanels::set_values(MatrixView<const float> matrix) {
  with_values(type_, values_.get(), [&]<class T>(T* packed) {
    layout_.store(matrix, packed, [](float from) {
      T to;
      convert(from, to);
      return to;
    });
  });
}

void PackedPanels::get_values(std::span<float> matrix) const {
  require_elements("room", matrix.size(), elements());
  with_values(type_, values_.get(), [&]<class T>(const T* packed) {
    layout_.load(packed, row_major(matrix.data(), cols()), [](T from) { return base::to_float(from); });
  });
}

void PackedPanels::pack(std::span<const float> values, std::span<float> packed) const {
  require_elements("an array", values.size(), elements());
  require_elements("packed room", packed.size(), layout_.elements());
  layout_.store(row_major(values.data(), cols()), packed.data());
}

void PackedPanels::unpack(std::span<const float> packed, std::span<float> values) const {
  require_elements("a packed array", packed.size(), layout_.elements());
  require_elements("room", values.size(), elements());
  layout_.load(packed.data(), row_major(values.data(), cols()));
}

}  // namespace tessera::sparse
