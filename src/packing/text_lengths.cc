#include "packing/text_lengths.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "io/fail.h"

namespace tessera::pack {
namespace {

constexpr size_t kChunk = size_t{1} << 18;

}  // namespace

TextLengths::TextLengths(std::string name, int descriptor)
    : name_(std::move(name)), descriptor_(descriptor), chunk_(kChunk) {}

TextLengths::TextLengths(std::string name, std::string_view text) : name_(std::move(name)), text_(text) {}

std::span<const uint64_t> TextLengths::next() {
  lengths_.clear();
  while (lengths_.empty() && !at_end_) {
    if (refill()) continue;
    at_end_ = true;
    if (state_ != State::before) end_line();  // a last line without a line end
  }
  return lengths_;
}

// Parses the next input; false at the end.
bool TextLengths::refill() {
  if (descriptor_ < 0) {
    const std::string_view part = text_.substr(0, kChunk);
    text_.remove_prefix(part.size());
    parse(part);
    return !part.empty();
  }
  ssize_t got = 0;
  do {
    got = ::read(descriptor_, chunk_.data(), chunk_.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0) io::fail(name_, "cannot read: {}", std::strerror(errno));
  parse({chunk_.data(), static_cast<size_t>(got)});
  return got > 0;
}

void TextLengths::parse(std::string_view text) {
  for (const char c : text) {
    const auto digit = static_cast<unsigned char>(c - '0');
    if (digit <= 9) {
      if (state_ == State::after) reject("a second number");
      if (value_ > (kLongest - digit) / 10) reject("a number above 9223372036854775807");
      value_ = value_ * 10 + digit;
      state_ = State::digits;
    } else if (c == '\n') {
      end_line();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      if (state_ == State::digits) state_ = State::after;
    } else {
      reject(c == '-' ? "a negative number" : io::excerpt({&c, 1}));
    }
  }
}

void TextLengths::end_line() {
  if (state_ == State::before) reject("nothing");
  if (value_ == 0) reject("0");
  lengths_.push_back(value_);
  ++line_;
  value_ = 0;
  state_ = State::before;
}

void TextLengths::reject(std::string_view what) const {
  io::fail(name_, "line {}: there is {}; a line has one length, a whole number from 1 on", line_, what);
}

}  // namespace tessera::pack
