// Reads numbers from a text, with positions for error messages.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "io/fail.h"

namespace tessera::io {

/// A position in a text. Numbers are separated by spaces, commas or line ends.
class TextScanner {
 public:
  /// `name` is the file's name, for messages; name and text must outlive the scanner.
  TextScanner(const std::string& name, std::string_view text)
      : name_(name), at_(text.data()), end_(at_ + text.size()), begin_(at_) {}

  /// The next line, without its line end; empty at the end of the text.
  std::string_view line() {
    const char* first = at_;
    while (at_ != end_ && *at_ != '\n') ++at_;
    std::string_view text(first, static_cast<size_t>(at_ - first));
    if (at_ != end_) ++at_;
    if (text.ends_with('\r')) text.remove_suffix(1);
    return text;
  }

  /// The next whole number, at most `largest`; `what` describes it in messages.
  template <class Integer>
  Integer integer(const char* what, Integer largest) {
    skip_separators();
    Integer value = 0;
    const auto [next, error] = std::from_chars(at_, end_, value);
    if (error != std::errc() || !ends_number(next) || value > largest) {
      reject(what,
             std::is_signed_v<Integer> ? "a whole number" : fmt::format("a whole number up to {}", largest));
    }
    at_ = next;
    return value;
  }

  /// The next number, as the nearest FP32; throws if it exceeds the range of FP32.
  float real(const char* what) {
    skip_separators();
    const bool has_plus = at_ != end_ && *at_ == '+';
    if (has_plus && end_ - at_ > 1 && at_[1] != '-') ++at_;
    float value = 0;
    auto [next, error] = std::from_chars(at_, end_, value);
    if (error == std::errc::result_out_of_range && is_tiny()) error = std::errc();
    if (error != std::errc() || !ends_number(next)) reject(what, "a number in the range of FP32");
    at_ = next;
    return value;
  }

  /// Skips spaces up to the next line; throws if the line has anything else.
  void end_line(const char* what) {
    while (at_ != end_ && is_separator(*at_) && *at_ != '\n') ++at_;
    if (at_ != end_ && *at_ != '\n') reject(what, "the end of the line");
  }

  /// Throws if anything but separators is left.
  void end_text(const char* what) {
    skip_separators();
    if (at_ != end_) reject(what, "the end of the file");
  }

  bool at_end() const { return at_ == end_; }

  /// Number of characters left. A number takes at least one, and one more to separate it from the next.
  uint64_t left() const { return static_cast<uint64_t>(end_ - at_); }

  /// The line of the last number read, from 1.
  uint64_t line_number() const;

 private:
  static bool is_separator(char c) { return c == ' ' || c == ',' || c == '\n' || c == '\r' || c == '\t'; }
  bool ends_number(const char* p) const { return p == end_ || is_separator(*p); }
  void skip_separators() {
    while (at_ != end_ && is_separator(*at_)) ++at_;
  }

  // Whether the number at the current position is too small for FP32, rather than too large.
  bool is_tiny() const;

  [[noreturn]] void reject(const char* what, const std::string& expected);

  const std::string& name_;
  const char* at_;
  const char* end_;
  const char* begin_;
};

}  // namespace tessera::io
