// Output of `tessera pack`: a table, details of one row, or JSON.
#pragma once

#include <tessera/packing.h>

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tessera::report {

/// Load balance of the packs over ranks: as ordered, and shuffled.
struct RankReport {
  uint32_t ranks = 0;
  pack::RankBalance balanced;
  pack::RankBalance shuffled;
};

/// One packing, without its strategies.
struct PackResult {
  std::string algorithm;
  std::optional<uint32_t> window;
  uint32_t max_length = 0;
  uint32_t max_per_pack = 0;
  uint64_t packs = 0;
  uint64_t sequences = 0;  ///< number of sequences in packs; counts the pieces of split sequences
  uint64_t tokens = 0;     ///< number of tokens in packs
  uint64_t lower_bound = 0;
  uint64_t strategies = 0;
  bool cut_short = false;
  std::vector<uint64_t> depths;  ///< depths[d] packs hold d sequences
  double seconds = 0;            ///< excluding reading and writing
  double read_seconds = 0;
  double write_seconds = 0;
  pack::Overlong overlong = pack::Overlong::error;
  uint64_t input_sequences = 0;
  uint64_t input_tokens = 0;
  uint64_t overlong_sequences = 0;
  uint64_t lost_tokens = 0;
  std::optional<RankReport> ranks;
  std::string out;
  std::string certificate;

  void set_input(const pack::Input& input);
  void set_packing(const pack::Packing& packing);

  uint64_t padding() const { return packs * max_length - tokens; }
  double efficiency() const;
  double packing_factor() const;
  uint64_t gap() const { return packs - lower_bound; }
};

/// "any" for 0.
std::string depth_text(uint32_t max_per_pack);

/// A table with one row per result.
std::string table(std::span<const PackResult> results);

/// Depths, overlong sequences, ranks and files of one result.
std::string details(const PackResult& result);

nlohmann::ordered_json json_of(const PackResult& result);

/// {"schema": 1, "command": "pack", "results": […]}
nlohmann::ordered_json json(std::span<const PackResult> results);

}  // namespace tessera::report
