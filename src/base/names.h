// Values that users name.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace tessera::base {

/// The position of a name. Throws UsageError, saying "WHAT 'NAME' is unknown" and which there are, for
/// others.
size_t position_of(std::span<const std::string_view> names, std::string_view name, std::string_view what);

}  // namespace tessera::base
