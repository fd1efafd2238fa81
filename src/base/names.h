// Values that users name.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace tessera::base {

/// The position of a name. For an unknown name, throws UsageError: "unknown WHAT 'NAME'" and the known ones.
size_t position_of(std::span<const std::string_view> names, std::string_view name, std::string_view what);

/// What messages call the values of an enumeration, and their names in order.
template <class Enum, size_t n>
struct Names {
  std::string_view what;
  std::array<std::string_view, n> names;

  std::string_view of(Enum value) const { return names.at(static_cast<size_t>(value)); }
  /// Throws as position_of() does.
  Enum named(std::string_view name) const { return static_cast<Enum>(position_of(names, name, what)); }
};

}  // namespace tessera::base
