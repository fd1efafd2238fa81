// The figures of a tiled machine: their names in machine files and on the command line, units and ranges.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "machine/model/machine.h"

namespace tessera::machine {

struct Key {
  std::string_view name;
  std::string_view unit;
  double least;
  double most;
  bool whole;
  double otherwise;  ///< default; NaN: required
  void (*set)(Machine&, double);

  bool is_required() const { return otherwise != otherwise; }
};

/// Every key, in a readable order.
std::span<const Key> keys();

/// The keys of machines of several chips, which other machines need not have.
std::span<const Key> chip_keys();

/// Throws Error, which begins with `where`, for chips whose figures do not fit together.
void check_chips(const Machine& machine, std::string_view where);

/// The key with that name, or the only one with that prefix. Throws UsageError, which begins with `where`,
/// for an unknown or ambiguous name.
const Key& find_key(std::string_view name, std::string_view where);

/// Sets a figure and its source. Throws Error, which begins with `where`, for a value that is not finite, out
/// of the key's range, or fractional if the key requires a whole number.
void enter(Machine& machine, const Key& key, double value, std::string source, std::string_view where);

}  // namespace tessera::machine
