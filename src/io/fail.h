// Reports errors in a file.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>

#include <string>
#include <string_view>
#include <utility>

namespace tessera::io {

/// Throws Error "NAME: MESSAGE".
template <class... Args>
[[noreturn]] void fail(const std::string& name, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(name + ": " + fmt::format(format, std::forward<Args>(args)...));
}

/// An excerpt of a file for a message: quoted, at most `longest` characters, with anything but printable
/// ASCII as "?".
std::string excerpt(std::string_view text, size_t longest = 40);

}  // namespace tessera::io
