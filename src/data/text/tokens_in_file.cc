#include "data/text/tokens_in_file.h"

#include <iterator>
#include <utility>

#include "io/fail.h"

namespace tessera::train {

TokensInFile::TokensInFile(std::shared_ptr<const io::Source> source, const io::TensorInfo& tensor)
    : source_(std::move(source)),
      first_byte_(tensor.begin),
      bytes_per_token_(tensor.dtype == "U16" ? 2U : 4U) {
  add({.in_file = 0, .count = (tensor.end - tensor.begin) / bytes_per_token_});
  uint32_t largest = 0;
  for_pieces(*this, [&](uint64_t, std::span<const uint32_t> piece) {
    largest = std::max(largest, std::ranges::max(piece));
  });
  largest_ = largest;
}

TokensInFile::TokensInFile(const TokensInFile& whole, std::span<const Tokens::Range> ranges)
    : source_(whole.source_),
      first_byte_(whole.first_byte_),
      bytes_per_token_(whole.bytes_per_token_),
      largest_(whole.largest_) {
  for (const Tokens::Range& range : ranges)
    for (uint64_t at = range.begin; at < range.end;) {
      const Run run = whole.run_from(at);
      const uint64_t count = std::min(run.count, range.end - at);
      add({run.in_file, count});
      at += count;
    }
}

TokensInFile::Run TokensInFile::run_from(uint64_t token) const {
  const auto next = std::ranges::upper_bound(segments_, token, {}, &Segment::begin);
  const Segment& segment = *std::prev(next);
  const uint64_t end = next == segments_.end() ? size_ : next->begin;
  return {segment.in_file + (token - segment.begin), end - token};
}

void TokensInFile::add(const Run& run) {
  const bool continues =
      !segments_.empty() && segments_.back().in_file + (size_ - segments_.back().begin) == run.in_file;
  if (!continues) segments_.push_back({size_, run.in_file});
  size_ += run.count;
}

void TokensInFile::read(uint64_t begin, std::span<uint32_t> out) const {
  while (!out.empty()) {
    const Run run = run_from(begin);
    const auto count = static_cast<size_t>(std::min<uint64_t>(run.count, out.size()));
    read_run(run.in_file, out.first(count));
    out = out.subspan(count);
    begin += count;
  }
}

void TokensInFile::read_run(uint64_t in_file, std::span<uint32_t> out) const {
  const uint64_t offset = first_byte_ + in_file * bytes_per_token_;
  if (bytes_per_token_ == sizeof(uint32_t)) {
    source_->read(offset, std::as_writable_bytes(out));
  } else {
    std::vector<uint16_t> sixteen_bits(out.size());
    source_->read(offset, std::as_writable_bytes(std::span(sixteen_bits)));
    std::ranges::copy(sixteen_bits, out.begin());
  }
  const auto found = std::ranges::find_if(out, [&](uint32_t token) { return token > largest_; });
  if (found != out.end())
    io::fail(source_->name(),
             "token {} is {}, and was {} at most when the file was opened; leave it as it is",
             in_file + static_cast<uint64_t>(found - out.begin()), *found, largest_);
}

}  // namespace tessera::train
