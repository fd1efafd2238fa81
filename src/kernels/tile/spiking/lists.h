// Lists of one step, as read by codelets of tiles and their costs.
#pragma once

#include <cstdint>

#include "kernels/common/element.h"

namespace tessera::kernels {

class TileLists {
 public:
  TileLists(const program::FieldView& ids, const program::FieldView& num, int64_t capacity)
      : ids_(ids), num_(num), capacity_(static_cast<uint32_t>(capacity)) {}

  /// Whether the contents are known: in a dry run, costs do not have lists that depend on potentials.
  bool is_known() const { return ids_.data != nullptr && num_.data != nullptr; }
  uint32_t fired(uint32_t b) const { return load<uint32_t>(address_of(num_, 0, 2 * b)); }
  uint32_t listed(uint32_t b) const { return load<uint32_t>(address_of(num_, 0, 2 * b + 1)); }
  int64_t place(uint32_t b, uint32_t i) const { return int64_t{b} * capacity_ + i; }
  uint32_t id(uint32_t b, uint32_t i) const { return load<uint16_t>(address_of(ids_, 0, place(b, i))); }

 private:
  const program::FieldView& ids_;
  const program::FieldView& num_;
  uint32_t capacity_;
};

}  // namespace tessera::kernels
