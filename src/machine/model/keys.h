// The numbers that describe a tiled machine: their names in machine files and on the command line,
// units and ranges.
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
  double otherwise;  ///< where a file lacks it; NaN: it may not
  void (*set)(Machine&, double);

  bool is_required() const { return otherwise != otherwise; }
};

/// Every key, in the order in which people read them.
std::span<const Key> keys();

/// The key of that name, or the only one that begins with it. Throws UsageError, which begins with
/// `where`, for a name of none or several.
const Key& find_key(std::string_view name, std::string_view where);

/// Enters a number and where it is from. Throws Error, which begins with `where`, for a value that
/// is not finite, out of the key's range, or broken where the key wants a whole number.
void enter(Machine& machine, const Key& key, double value, std::string source, std::string_view where);

}  // namespace tessera::machine
