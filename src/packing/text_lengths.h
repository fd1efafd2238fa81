// Lengths as text, one per line, from a file, a pipe or memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::pack {

inline constexpr uint64_t kLongest = INT64_MAX;  ///< maximum number of tokens of a sequence

/// Reads the text piece by piece, as it arrives.
class TextLengths {
 public:
  /// Reads a descriptor to its end; does not close it.
  TextLengths(std::string name, int descriptor);
  /// Reads a text, which must outlive it.
  TextLengths(std::string name, std::string_view text);

  /// The lengths that have arrived, at least one; none at the end. Valid until the next call. Throws Error,
  /// naming the line, for a length that is not an integer from 1 to 2^63 − 1.
  std::span<const uint64_t> next();

  const std::string& name() const { return name_; }

 private:
  bool refill();
  void parse(std::string_view text);
  void end_line();
  [[noreturn]] void reject(std::string_view what) const;

  std::string name_;
  int descriptor_ = -1;
  std::string_view text_;  // the rest, if there is no descriptor
  std::vector<char> chunk_;
  std::vector<uint64_t> lengths_;
  uint64_t line_ = 1;
  bool at_end_ = false;

  // State within the present line.
  enum class State : uint8_t { before, digits, after };
  State state_ = State::before;
  uint64_t value_ = 0;
};

}  // namespace tessera::pack
