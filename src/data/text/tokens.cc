#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/token_text.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/memory.h"
#include "data/text/tokens_in_file.h"

namespace tessera {
namespace {

void require_within(const Tokens& tokens, uint64_t begin, uint64_t end) {
  if (begin > end || end > tokens.size())
    throw UsageError(fmt::format("tokens [{}, {}) of a text; it has {}", begin, end, tokens.size()));
}

}  // namespace

uint64_t Tokens::size() const { return in_file_ ? in_file_->size() : in_memory_.size(); }

void Tokens::read(uint64_t begin, std::span<uint32_t> out) const {
  require_within(*this, begin, begin + out.size());
  if (in_file_) return in_file_->read(begin, out);
  std::ranges::copy(in_memory().subspan(begin, out.size()), out.begin());
}

std::vector<uint32_t> Tokens::all() const {
  if (!in_file_) return in_memory_;
  base::require_memory(size() * sizeof(uint32_t), fmt::format("a copy of {} tokens", size()));
  std::vector<uint32_t> copy(size());
  train::for_pieces(*in_file_, [&](uint64_t first, std::span<const uint32_t> piece) {
    std::ranges::copy(piece, std::span(copy).subspan(first).begin());
  });
  return copy;
}

uint32_t Tokens::largest() const {
  if (in_file_) return in_file_->largest();
  return in_memory_.empty() ? 0 : std::ranges::max(in_memory_);
}

Tokens Tokens::parts(std::span<const Range> ranges) const {
  for (const Range& range : ranges) require_within(*this, range.begin, range.end);
  if (in_file_) return Tokens(std::make_shared<const train::TokensInFile>(*in_file_, ranges));
  std::vector<uint32_t> joined;
  for (const Range& range : ranges) {
    const std::span<const uint32_t> part = in_memory().subspan(range.begin, range.end - range.begin);
    joined.insert(joined.end(), part.begin(), part.end());
  }
  return Tokens(std::move(joined));
}

}  // namespace tessera
