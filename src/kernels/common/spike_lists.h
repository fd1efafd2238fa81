// Lists of spikes in a pair of fields.
#pragma once

#include <cstdint>

#include "kernels/common/element.h"

namespace tessera::kernels {

/// The lists of the steps t, which are rows, and samples b (<tessera/spiking.h>).
struct SpikeLists {
  SpikeLists(const program::FieldView& id_field, const program::FieldView& num_field, int64_t room)
      : ids(id_field), num(num_field), capacity(static_cast<uint32_t>(room)) {}

  /// Whether the contents are known: in a dry run, costs do not have lists that depend on potentials.
  bool are_known() const { return ids.data != nullptr && num.data != nullptr; }
  uint32_t spikes(uint32_t t, uint32_t b) const { return load<uint32_t>(address_of(num, t, 2 * b)); }
  uint32_t listed(uint32_t t, uint32_t b) const { return load<uint32_t>(address_of(num, t, 2 * b + 1)); }
  /// The column of an entry.
  int64_t place(uint32_t b, uint32_t i) const { return int64_t{b} * capacity + i; }
  uint32_t id(uint32_t t, uint32_t b, uint32_t i) const {
    return load<uint16_t>(address_of(ids, t, place(b, i)));
  }
  /// The list of a step and sample, in a field with contiguous rows.
  const uint16_t* row(uint32_t t, uint32_t b) const {
    return ids.as<const uint16_t>() + t * ids.row_stride + place(b, 0);
  }

  const program::FieldView& ids;
  const program::FieldView& num;
  uint32_t capacity;
};

}  // namespace tessera::kernels
