// Style of pages.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tessera::report {

/// Number of distinct chart colours; the last is a grey for the least important category.
inline constexpr size_t kColours = 13;
inline constexpr size_t kGrey = kColours - 1;

/// The CSS of a colour, repeating after kColours.
std::string colour_of(size_t index);

/// Whether dark text is more legible on a colour than white text, in light mode.
constexpr bool is_light(size_t index) {
  const size_t colour = index % kColours;
  return colour == 1 || colour == 5 || colour == 7 || colour == 10 || colour == kGrey;
}

/// The style sheet of every page.
extern const std::string_view kStyle;

/// The rules of SVG files, light or dark as the reader's system prefers, and a text with the colours of light
/// mode instead of their names.
std::string style_of_files();
std::string with_colours(std::string text);

}  // namespace tessera::report
