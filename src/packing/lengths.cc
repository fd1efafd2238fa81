#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/packing.h>

#include <algorithm>

#include "io/stored_value.h"
#include "packing/counter.h"
#include "packing/text_lengths.h"

namespace tessera::pack {
namespace {

constexpr size_t kBlock = 2048;  // lengths processed together, in the L1 cache

}  // namespace

// Negative numbers become larger than kLongest.
template <class T>
void Lengths::convert(uint64_t first, std::span<uint64_t> out) const {
  const std::byte* at = static_cast<const std::byte*>(data_) + first * sizeof(T);
  const auto wide = [&](size_t i, bool swap) {
    return static_cast<uint64_t>(io::load<T>(at + i * sizeof(T), swap));
  };
  if (differences_) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = wide(i + 1, swapped_) - wide(i, swapped_);
  } else if (swapped_) {
    for (size_t i = 0; i < out.size(); ++i) out[i] = wide(i, true);
  } else {
    for (size_t i = 0; i < out.size(); ++i) out[i] = wide(i, false);
  }
}

void Lengths::fetch(uint64_t first, std::span<uint64_t> out) const {
  switch (width_) {
    case 1: return signed_ ? convert<int8_t>(first, out) : convert<uint8_t>(first, out);
    case 2: return signed_ ? convert<int16_t>(first, out) : convert<uint16_t>(first, out);
    case 4: return signed_ ? convert<int32_t>(first, out) : convert<uint32_t>(first, out);
    default: return signed_ ? convert<int64_t>(first, out) : convert<uint64_t>(first, out);
  }
}

void Lengths::read(uint64_t first, std::span<uint64_t> out) const {
  fetch(first, out);
  uint64_t worst = 0;
  for (const uint64_t length : out) worst = std::max(worst, length - 1);
  if (worst < kLongest) return;
  for (size_t i = 0; i < out.size(); ++i)
    if (out[i] - 1 >= kLongest) reject(first + i, out[i]);
}

void Lengths::reject(uint64_t entry, uint64_t value) const {
  const bool negative = (signed_ || differences_) && value > kLongest;
  const std::string number = negative ? fmt::format("-{}", -value) : fmt::format("{}", value);
  if (differences_) {
    fail_at(entry,
            fmt::format("offset {} follows, which makes {} tokens; offsets must rise, so leave out empty "
                        "documents",
                        entry + 1, number));
  }
  fail_at(entry, fmt::format("{} tokens; a sequence has 1 to {}, so leave this one out", number, kLongest));
}

void Lengths::fail_at(uint64_t entry, const std::string& what) const {
  const std::string place = lines_ ? fmt::format("line {}", entry + 1) : fmt::format("entry {}", entry);
  throw Error(fmt::format("{}: {}: {}", name_, place, what));
}

uint64_t Lengths::operator[](uint64_t i) const {
  uint64_t length = 0;
  fetch(i, {&length, 1});
  return length;
}

std::string_view name_of(Overlong policy) {
  switch (policy) {
    case Overlong::error: return "error";
    case Overlong::drop: return "drop";
    case Overlong::truncate: return "truncate";
    case Overlong::split: return "split";
  }
  return "";
}

Overlong overlong_named(std::string_view name) {
  for (const Overlong policy : {Overlong::error, Overlong::drop, Overlong::truncate, Overlong::split})
    if (name_of(policy) == name) return policy;
  throw UsageError(fmt::format(
      "unknown policy '{}' for overlong sequences (choose from error, drop, truncate, split)", name));
}

Counter::Counter(uint32_t max_length, Overlong policy) {
  input_.histogram = Histogram::of_max_length(max_length);
  require_sane(input_.histogram);
  input_.overlong = policy;
}

bool Counter::add(uint64_t length, uint64_t count) {
  input_.sequences = sum(input_.sequences, count);
  input_.tokens = sum(input_.tokens, product(length, count));
  const uint64_t most = input_.histogram.max_length();
  std::vector<uint64_t>& counts = input_.histogram.counts;
  if (length <= most) {
    counts[length] = sum(counts[length], count);
    return true;
  }
  input_.overlong_sequences = sum(input_.overlong_sequences, count);
  switch (input_.overlong) {
    case Overlong::error: return count == 0;
    case Overlong::drop: input_.lost_tokens += length * count; break;
    case Overlong::truncate:
      input_.lost_tokens += (length - most) * count;
      counts[most] = sum(counts[most], count);
      break;
    case Overlong::split:
      counts[most] = sum(counts[most], product(length / most, count));
      if (const uint64_t rest = length % most; rest != 0) counts[rest] = sum(counts[rest], count);
      break;
  }
  return true;
}

uint64_t Counter::sum(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_add_overflow(a, b, &result) || result > kLongest) refuse();
  return result;
}

uint64_t Counter::product(uint64_t a, uint64_t b) {
  uint64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) refuse();
  return result;
}

void Counter::refuse() {
  throw Error(fmt::format("the sequences have more than {} tokens in total; pack them in parts", kLongest));
}

Input Counter::finish() && {
  require_sane(input_.histogram);
  return std::move(input_);
}

std::string overlong_text(uint64_t length, uint32_t max_length) {
  return fmt::format(
      "a sequence of {} tokens, and a pack holds {}; raise the maximum, or have too long ones "
      "dropped, truncated or split",
      length, max_length);
}

Input count(const Lengths& lengths, uint32_t max_length, Overlong policy) {
  Counter counter(max_length, policy);
  // Frequent lengths are counted in two tables, so that equal neighbours do not wait for each other.
  const uint64_t fast = std::min<uint64_t>(max_length, 0xFFFF);
  std::vector<uint64_t> tables[2] = {std::vector<uint64_t>(fast + 1), std::vector<uint64_t>(fast + 1)};
  std::vector<uint64_t> block(std::min<uint64_t>(kBlock, lengths.size()));
  for (uint64_t first = 0; first < lengths.size(); first += block.size()) {
    block.resize(std::min<uint64_t>(kBlock, lengths.size() - first));
    lengths.read(first, block);
    for (size_t i = 0; i < block.size(); ++i) {
      const uint64_t length = block[i];
      if (length <= fast) [[likely]]
        ++tables[i % 2][length];
      else if (!counter.add(length, 1))
        lengths.fail_at(first + i, overlong_text(length, max_length));
    }
  }
  for (const std::vector<uint64_t>& table : tables)
    for (uint64_t length = 1; length < table.size(); ++length)
      if (table[length] != 0) counter.add(length, table[length]);
  return std::move(counter).finish();
}

Input count(std::span<const LengthCount> lengths, uint32_t max_length, Overlong policy) {
  Counter counter(max_length, policy);
  for (const LengthCount& entry : lengths) {
    if (entry.length == 0 || entry.length > kLongest)
      throw Error(fmt::format("{} sequences of {} tokens; a sequence has 1 to {}, so leave these out",
                              entry.count, entry.length, kLongest));
    if (!counter.add(entry.length, entry.count)) throw Error(overlong_text(entry.length, max_length));
  }
  return std::move(counter).finish();
}

}  // namespace tessera::pack
