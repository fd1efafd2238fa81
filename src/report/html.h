// HTML that its contents cannot break: text becomes Html only by being escaped, and only Html is inserted
// into Html. All output is well-formed XML too.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace tessera::report {

/// A well-formed piece of a page.
struct Html {
  std::string code;

  Html& operator+=(const Html& other) {
    code += other.code;
    return *this;
  }
  friend Html operator+(Html a, const Html& b) { return std::move(a += b); }
  bool empty() const { return code.empty(); }
};

/// Text with the characters that are special in HTML or in attributes replaced. Bytes that are not UTF-8, and
/// characters that XML does not allow, become U+FFFD.
std::string escaped(std::string_view text);

/// Names and values; element() escapes values. An attribute with an empty value is omitted.
using Attributes = std::initializer_list<std::pair<std::string_view, std::string_view>>;

Html text(std::string_view words);
Html element(std::string_view name, Attributes attributes, const Html& content);
Html element(std::string_view name, Attributes attributes, std::string_view words);
/// <name … />
Html element(std::string_view name, Attributes attributes = {});

Html paragraph(std::string_view words);
/// Content that is collapsed until the reader opens it.
Html folded(std::string_view summary, const Html& content);

}  // namespace tessera::report
