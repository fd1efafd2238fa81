#include "report/pack_result.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "report/table.h"

namespace tessera::report {
namespace {

using nlohmann::ordered_json;

constexpr size_t kDepthsShown = 16;

std::string gap_text(const PackResult& r) {
  return r.gap() == 0 ? "0, optimal" : fmt::format("{}{}", r.gap(), r.cut_short ? ", stopped early" : "");
}

std::string method(const PackResult& r) {
  return r.window ? fmt::format("window {}", *r.window) : r.algorithm;
}

ordered_json json_of(const pack::RankBalance& balance) {
  return {{"spread", balance.spread}, {"idle", balance.idle}};
}

std::string depth_lines(const std::vector<uint64_t>& depths) {
  Table table({"sequences per pack", "packs"});
  size_t shown = 0;
  uint64_t deeper = 0;
  for (size_t depth = 0; depth < depths.size(); ++depth) {
    if (depths[depth] == 0) continue;
    if (++shown > kDepthsShown)
      deeper += depths[depth];
    else
      table.add({std::to_string(depth), std::to_string(depths[depth])});
  }
  if (deeper > 0) table.add({"more", std::to_string(deeper)});
  return table.text();
}

}  // namespace

std::string depth_text(uint32_t max_per_pack) {
  return max_per_pack == 0 ? "any" : std::to_string(max_per_pack);
}

void PackResult::set_input(const pack::Input& input) {
  overlong = input.overlong;
  input_sequences = input.sequences;
  input_tokens = input.tokens;
  overlong_sequences = input.overlong_sequences;
  lost_tokens = input.lost_tokens;
}

void PackResult::set_packing(const pack::Packing& packing) {
  algorithm = name_of(packing.algorithm);
  max_length = packing.max_length;
  max_per_pack = packing.max_per_pack;
  packs = packing.packs();
  sequences = packing.sequences;
  tokens = packing.tokens;
  lower_bound = packing.lower_bound();
  strategies = packing.strategies.size();
  cut_short = packing.cut_short;
  depths = packing.depths();
  seconds = packing.seconds;
}

double PackResult::efficiency() const {
  return packs == 0 ? 1 : static_cast<double>(tokens) / (static_cast<double>(packs) * max_length);
}

double PackResult::packing_factor() const {
  return packs == 0 ? 1 : static_cast<double>(sequences) / static_cast<double>(packs);
}

std::string table(std::span<const PackResult> results) {
  Table table(
      {"algorithm", "depth", "packs", "efficiency", "factor", "padding", "lower bound", "gap", "time"});
  for (const PackResult& r : results)
    table.add({method(r), depth_text(r.max_per_pack), std::to_string(r.packs),
               fmt::format("{:.3f} %", 100 * r.efficiency()), fmt::format("{:.3f}", r.packing_factor()),
               std::to_string(r.padding()), std::to_string(r.lower_bound), gap_text(r),
               seconds_text(r.seconds)});
  return table.text();
}

std::string details(const PackResult& r) {
  std::string out = fmt::format("\n{} sequences, {} tokens\n", r.input_sequences, r.input_tokens);
  if (r.overlong_sequences > 0) {
    out += fmt::format("{} above {} tokens: {}", r.overlong_sequences, r.max_length, name_of(r.overlong));
    out += r.lost_tokens > 0 ? fmt::format(", {} tokens lost\n", r.lost_tokens) : "\n";
  }
  if (r.cut_short) out += "stopped early: another run may find other packs\n";
  out += '\n' + depth_lines(r.depths);
  if (r.ranks) {
    const RankReport& ranks = *r.ranks;
    out += fmt::format("\nattention cost (sum of length²) over {} ranks that take packs round-robin:\n",
                       ranks.ranks);
    Table table({"order", "spread of sums", "idle time"});
    table.add({"random", percent_text(ranks.shuffled.spread), percent_text(ranks.shuffled.idle)});
    table.add({"balanced", percent_text(ranks.balanced.spread), percent_text(ranks.balanced.idle)});
    out += table.text();
  }
  if (!r.out.empty())
    out += fmt::format("\npacks are in {} (written in {})\n", r.out, seconds_text(r.write_seconds));
  if (!r.certificate.empty())
    out += fmt::format("\nproof of the bound: {} (tessera pack verify {})\n", r.certificate, r.certificate);
  return out;
}

ordered_json json_of(const PackResult& r) {
  ordered_json depths = ordered_json::object();
  for (size_t depth = 0; depth < r.depths.size(); ++depth)
    if (r.depths[depth] != 0) depths[std::to_string(depth)] = r.depths[depth];
  ordered_json out = {
      {"algorithm", r.window ? "window" : r.algorithm},
      {"max_length", r.max_length},
      {"max_per_pack", r.max_per_pack == 0 ? ordered_json(nullptr) : ordered_json(r.max_per_pack)},
      {"packs", r.packs},
      {"sequences", r.sequences},
      {"tokens", r.tokens},
      {"padding", r.padding()},
      {"efficiency", r.efficiency()},
      {"packing_factor", r.packing_factor()},
      {"lower_bound", r.lower_bound},
      {"gap", r.gap()},
      {"optimal", r.gap() == 0},
      {"cut_short", r.cut_short},
      {"seconds", r.seconds},
      {"read_seconds", r.read_seconds},
      {"write_seconds", r.write_seconds},
      {"overlong_sequences", r.overlong_sequences},
      {"overlong", name_of(r.overlong)},
      {"lost_tokens", r.lost_tokens},
      {"input_sequences", r.input_sequences},
      {"input_tokens", r.input_tokens},
      {"depths", depths}};
  if (r.window)
    out["window"] = *r.window;
  else
    out["strategies"] = r.strategies;
  if (r.ranks)
    out["ranks"] = {{"ranks", r.ranks->ranks},
                    {"balanced", json_of(r.ranks->balanced)},
                    {"shuffled", json_of(r.ranks->shuffled)}};
  if (!r.out.empty()) out["out"] = r.out;
  if (!r.certificate.empty()) out["certificate"] = r.certificate;
  return out;
}

ordered_json json(std::span<const PackResult> results) {
  ordered_json list = ordered_json::array();
  for (const PackResult& r : results) list.push_back(json_of(r));
  return {{"schema", 1}, {"command", "pack"}, {"results", list}};
}

}  // namespace tessera::report
