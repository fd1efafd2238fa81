#include "compiler/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tessera::compiler {
namespace {

constexpr std::array<std::string_view, kMemoryUses> kNames = {
    "inputs",       "outputs",       "state", "constants",   "work lists",      "vertex state", "vertex code",
    "control code", "exchange code", "stack", "temporaries", "staging buffers", "padding"};

uint64_t excess(const TileMemory& tile, uint64_t capacity) {
  return tile.end > capacity ? tile.end - capacity : 0;
}

}  // namespace

std::string_view name_of(MemoryUse use) { return kNames[static_cast<size_t>(use)]; }

uint64_t TileMemory::total() const { return std::accumulate(bytes.begin(), bytes.end(), uint64_t{0}); }

uint64_t TileMemory::always_live() const {
  uint64_t sum = 0;
  for (size_t use = 0; use < kMemoryUses; ++use)
    if (is_always_live(static_cast<MemoryUse>(use))) sum += bytes[use];
  return sum;
}

Categories TileMemory::categories() const {
  Categories named;
  for (size_t use = 0; use < kMemoryUses; ++use)
    if (bytes[use] != 0) named[std::string(kNames[use])] = bytes[use];
  return named;
}

Categories TileMemory::by_purpose() const {
  Categories named;
  for (size_t p = 0; p < program::kPurposes; ++p)
    if (purposes[p] != 0) named[std::string(name_of(static_cast<program::Purpose>(p)))] = purposes[p];
  return named;
}

TileMemory& TileMemory::operator+=(const TileMemory& other) {
  for (size_t p = 0; p < program::kPurposes; ++p) purposes[p] += other.purposes[p];
  for (size_t use = 0; use < kMemoryUses; ++use) bytes[use] += other.bytes[use];
  end += other.end;
  return *this;
}

uint64_t MemoryReport::most_streaming_bytes() const {
  return streaming_bytes.empty() ? 0 : *std::max_element(streaming_bytes.begin(), streaming_bytes.end());
}

MemoryReport report_memory(std::vector<TileMemory> tiles, const TileMemory& shared, uint64_t capacity) {
  MemoryReport report;
  report.tile_capacity_bytes = capacity;
  report.shared = shared;
  TileMemory sum = shared;
  for (size_t t = 0; t < tiles.size(); ++t) {
    const TileMemory& tile = tiles[t];
    const TileMemory& fullest = tiles[report.fullest_tile];
    sum += tile;
    if (std::pair(excess(tile, capacity), tile.total()) >
        std::pair(excess(fullest, capacity), fullest.total()))
      report.fullest_tile = static_cast<program::TileId>(t);
  }
  const TileMemory& fullest = tiles.at(report.fullest_tile);
  report.total_bytes = sum.total();
  report.total = sum.categories();
  report.total_purposes = sum.by_purpose();
  report.max_tile_bytes = fullest.total();
  report.fullest = fullest.categories();
  report.fullest_purposes = fullest.by_purpose();
  report.overflow_bytes = excess(fullest, capacity);
  report.tiles = std::move(tiles);
  return report;
}

MemoryReport with_capacity(const MemoryReport& memory, uint64_t capacity) {
  MemoryReport report = report_memory(memory.tiles, memory.shared, capacity);
  if (memory.fullest_tile == program::kShared) report.fullest_tile = program::kShared;
  report.streaming_bytes = memory.streaming_bytes;
  report.streaming_capacity_bytes = memory.streaming_capacity_bytes;
  return report;
}

std::vector<TileMemory> memory_by_chip(const MemoryReport& memory, const machine::Machine& machine) {
  std::vector<TileMemory> chips(machine.chip_count());
  for (program::TileId tile = 0; tile < memory.tiles.size(); ++tile) {
    TileMemory& chip = chips[machine.chip_of(tile) - machine.first_chip()];
    const uint64_t fullest = std::max(chip.end, memory.tiles[tile].end);
    chip += memory.tiles[tile];
    chip.end = fullest;
  }
  return chips;
}

std::string overflow_text(const MemoryReport& memory, std::string_view of_chip) {
  if (memory.overflow_bytes == 0) {
    const auto fullest = std::ranges::max_element(memory.streaming_bytes);
    return fmt::format("the streaming memory of chip {}{} needs {} bytes and has {}",
                       fullest - memory.streaming_bytes.begin(), of_chip, memory.most_streaming_bytes(),
                       memory.streaming_capacity_bytes);
  }
  std::vector<std::pair<uint64_t, std::string>> uses;
  for (const auto& [name, bytes] : memory.fullest) uses.emplace_back(bytes, name);
  std::sort(uses.rbegin(), uses.rend());
  std::string held;
  for (const auto& [bytes, name] : uses)
    held += fmt::format("{}{} {}", held.empty() ? "" : ", ", name, bytes);
  const std::string where = memory.fullest_tile == program::kShared
                                ? std::string("main memory")
                                : fmt::format("tile {}", memory.fullest_tile);
  return fmt::format("{} needs {} bytes and has {}; it holds {}", where,
                     memory.tile_capacity_bytes + memory.overflow_bytes, memory.tile_capacity_bytes, held);
}

}  // namespace tessera::compiler
