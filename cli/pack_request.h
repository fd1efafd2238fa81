// The request of `tessera pack`.
#pragma once

#include <tessera/packing.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace tessera::cli {

/// How a stream's packs are printed.
enum class Emit { automatic, ids, json_lines, none };

struct PackRequest {
  // The input: exactly one of these.
  std::string lengths;
  std::string offsets;
  std::string histogram;

  // The packings: every combination of algorithm and depth.
  uint32_t max_length = 0;
  std::vector<uint32_t> depths = {0};  ///< maximum number of sequences per pack; 0: any
  std::vector<pack::Algorithm> algorithms = {pack::Algorithm::best};
  pack::Overlong overlong = pack::Overlong::error;
  bool certify = false;
  double time_limit = 0;
  uint64_t seed = 0;
  std::optional<uint32_t> window;  ///< pack as a stream

  // Output.
  std::string certificate;
  std::string out;
  std::optional<uint64_t> shuffle;
  uint32_t ranks = 0;
  Emit emit = Emit::automatic;
  bool json = false;

  std::string source() const { return !lengths.empty() ? lengths : !offsets.empty() ? offsets : histogram; }
  pack::OrderOptions order() const { return {shuffle, ranks}; }
};

void add_pack_options(CLI::App& command, PackRequest& request);

/// Throws UsageError if options conflict or one is missing.
void check(const PackRequest& request, const CLI::App& command);

}  // namespace tessera::cli
