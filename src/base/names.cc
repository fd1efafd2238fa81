#include "base/names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>

namespace tessera::base {

size_t position_of(std::span<const std::string_view> names, std::string_view name, std::string_view what) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end())
    throw UsageError(fmt::format("unknown {} '{}' (choose from {})", what, name, fmt::join(names, ", ")));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace tessera::base
