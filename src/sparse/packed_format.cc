#include "sparse/packed_format.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <vector>

#include "sparse/pattern.h"

namespace tessera {
namespace {

using sparse::PackedBlocks;
using sparse::PackedElements;
using sparse::SlotOrder;
using sparse::stored_values;

constexpr PackedFormat kFormats[] = {PackedFormat::values,           PackedFormat::blocks,
                                     PackedFormat::rotated_blocks,   PackedFormat::row_groups,
                                     PackedFormat::whole_row_groups, PackedFormat::panels};

std::string describe(PackedFormat format) {
  return fmt::format("packed format {} ({})", static_cast<uint32_t>(format), name_of(format));
}

[[noreturn]] void refuse(PackedFormat format, const Pattern& pattern) {
  if (format == PackedFormat::dynamic)
    throw UsageError(fmt::format(
        "{} depends on all patterns that a dynamic weight has had, not on one: save the result of "
        "unpack(), and pack() it after loading",
        describe(format)));
  if (format == PackedFormat::sorted_row_groups || format == PackedFormat::sorted_whole_row_groups)
    throw UsageError(
        fmt::format("{} depends on a capacity, not on a pattern alone: use pack() and unpack() of a "
                    "Weight::without_values() that has it",
                    describe(format)));
  std::string known;
  for (const PackedFormat f : kFormats)
    known += fmt::format("{}{} ({})", known.empty() ? "" : ", ", static_cast<uint32_t>(f), name_of(f));
  throw UsageError(fmt::format("{} does not apply to {} blocks of {} in {} x {}; the formats are {}",
                               describe(format), pattern.blocks(), pattern.block_size, pattern.rows,
                               pattern.cols, known));
}

void require_size(const char* what, size_t have, PackedFormat format, uint64_t want) {
  if (have == want) return;
  throw UsageError(
      fmt::format("a {} of {} numbers; {} has {} for this pattern", what, have, describe(format), want));
}

bool is_full(const Pattern& pattern) {
  return pattern.blocks() == uint64_t{pattern.block_rows()} * pattern.block_cols();
}

/// Panels of a full pattern, whose values are in blocks.
struct FullPanels {
  const Pattern& pattern;

  sparse::PanelLayout layout() const { return {pattern.rows, pattern.cols}; }

  void pack(std::span<const float> values, std::span<float> packed) const {
    std::ranges::fill(packed, 0.0F);
    each_element([&](size_t in_blocks, size_t in_panels) { packed[in_panels] = values[in_blocks]; });
  }
  void unpack(std::span<const float> packed, std::span<float> values) const {
    std::ranges::fill(values, 0.0F);
    each_element([&](size_t in_blocks, size_t in_panels) { values[in_blocks] = packed[in_panels]; });
  }

 private:
  template <class Visit>
  void each_element(const Visit& visit) const {
    const uint32_t b = pattern.block_size;
    for (uint32_t i = 0; i < pattern.rows; ++i)
      for (uint32_t j = 0; j < pattern.cols; ++j) {
        const uint64_t block = uint64_t{i / b} * pattern.block_cols() + j / b;
        visit((block * b + i % b) * b + j % b, layout().at(i, j));
      }
  }
};

/// Calls visit with a weight of this pattern whose values have this format, unless it is SparseMatrix's
/// order.
template <class Visit>
auto with_order(PackedFormat format, const Pattern& pattern, const Visit& visit) {
  const bool has_whole_rows = format == PackedFormat::whole_row_groups;
  if ((format == PackedFormat::row_groups || has_whole_rows) && pattern.block_size == 1) {
    sparse::validate(pattern);
    if (!has_whole_rows || sparse::has_whole_rows(pattern.rows, pattern.cols, pattern.blocks()))
      return visit(PackedElements({pattern, std::vector<float>(pattern.blocks())}, Type::f32,
                                  {.whole_rows = has_whole_rows}));
  }
  const bool is_rotated = format == PackedFormat::rotated_blocks;
  if ((format == PackedFormat::blocks || is_rotated) && sparse::is_kernel_block_size(pattern.block_size)) {
    sparse::validate(pattern);
    if (!is_rotated || is_full(pattern))
      return visit(PackedBlocks(pattern, Type::bf16, is_rotated ? SlotOrder::rotated : SlotOrder::in_turn));
  }
  if (format == PackedFormat::panels) {
    sparse::validate(pattern);
    if (is_full(pattern)) return visit(FullPanels{pattern});
  }
  refuse(format, pattern);
}

uint64_t size_of_order(const FullPanels& w) { return w.layout().elements(); }
uint64_t size_of_order(const PackedBlocks& w) { return w.capacity() * w.order().block_values(); }
uint64_t size_of_order(const PackedElements& w) { return w.places(); }

}  // namespace

std::string_view name_of(PackedFormat format) {
  switch (format) {
    case PackedFormat::values: return "values";
    case PackedFormat::blocks: return "blocks";
    case PackedFormat::rotated_blocks: return "rotated blocks";
    case PackedFormat::row_groups: return "row groups";
    case PackedFormat::dynamic: return "dynamic";
    case PackedFormat::sorted_row_groups: return "sorted row groups";
    case PackedFormat::whole_row_groups: return "groups of whole rows";
    case PackedFormat::sorted_whole_row_groups: return "sorted groups of whole rows";
    case PackedFormat::panels: return "panels";
  }
  return "unknown";
}

uint64_t packed_size(PackedFormat format, const Pattern& pattern) {
  if (format == PackedFormat::values) return stored_values(pattern);
  return with_order(format, pattern, [](const auto& weight) { return size_of_order(weight); });
}

void permute_packed(PackedFormat from, PackedFormat to, const Pattern& pattern, std::span<const float> source,
                    std::span<float> target) {
  std::vector<float> values;
  std::span<const float> in_turn = source;
  if (from == PackedFormat::values) {
    require_size("source", source.size(), from, stored_values(pattern));
  } else {
    with_order(from, pattern, [&](const auto& weight) {
      require_size("source", source.size(), from, size_of_order(weight));
      values.resize(stored_values(pattern));
      weight.unpack(source, values);
    });
    in_turn = values;
  }
  if (to == PackedFormat::values) {
    require_size("target", target.size(), to, stored_values(pattern));
    std::copy(in_turn.begin(), in_turn.end(), target.begin());
    return;
  }
  with_order(to, pattern, [&](const auto& weight) {
    require_size("target", target.size(), to, size_of_order(weight));
    weight.pack(in_turn, target);
  });
}

namespace sparse {

PackedFormat format_of(const PackedBlocks& weight) {
  switch (weight.slot_order()) {
    case SlotOrder::in_turn: return PackedFormat::blocks;
    case SlotOrder::rotated: return PackedFormat::rotated_blocks;
    case SlotOrder::dynamic: return weight.has_values() ? PackedFormat::dynamic : PackedFormat::blocks;
  }
  return PackedFormat::blocks;
}

PackedFormat format_of(const PackedElements& weight) {
  if (weight.is_dynamic() && weight.has_values()) return PackedFormat::dynamic;
  if (has_whole_rows(weight.rows(), weight.cols(), weight.capacity()))
    return weight.is_dynamic() ? PackedFormat::sorted_whole_row_groups : PackedFormat::whole_row_groups;
  return weight.is_dynamic() ? PackedFormat::sorted_row_groups : PackedFormat::row_groups;
}

}  // namespace sparse
}  // namespace tessera
