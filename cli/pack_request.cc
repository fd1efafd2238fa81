#include "cli/pack_request.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>

#include "cli/option_parsing.h"

namespace tessera::cli {
namespace {

constexpr uint32_t kMostTokens = uint32_t{1} << 28;
constexpr uint32_t kMostRanks = 1 << 20;

std::vector<pack::Algorithm> parse_algorithms(const std::string& text) {
  std::vector<pack::Algorithm> algorithms;
  for (const std::string& name : parse_names(text)) algorithms.push_back(pack::algorithm_named(name));
  return algorithms;
}

std::vector<uint32_t> parse_depths(const std::string& text) {
  std::vector<uint32_t> depths;
  for (const std::string& item : parse_names(text))
    depths.push_back(item == "any" ? 0 : parse_count("--max-per-pack", item, 1));
  return depths;
}

}  // namespace

void add_pack_options(CLI::App& command, PackRequest& r) {
  command.add_option(
      "--lengths", r.lengths,
      "Lengths of the sequences: .npy of integers, text with one length per line, or - for standard input");
  command.add_option("--offsets", r.offsets,
                     "Offsets of n documents instead of lengths: .npy of n + 1 integers");
  command.add_option("--histogram", r.histogram,
                     "Histogram of the lengths instead of lengths: text, one LENGTH,COUNT per line");
  add_count(command, "--max-length", r.max_length, "Tokens per pack", kMostTokens);
  add(command, "--max-per-pack", r.depths, parse_depths,
      "Maximum number of sequences per pack (default: any) *");
  add(command, "--algorithm", r.algorithms, parse_algorithms,
      "Algorithm: best (default), spfhp, lpfhp, nnlshp, ffd or next-fit *");
  add(
      command, "--overlong", r.overlong, [](const std::string& s) { return pack::overlong_named(s); },
      "Handling of sequences longer than the maximum: error (default), drop, truncate or split");
  command.add_flag("--certify", r.certify, "Find the best lower bound, and write its proof");
  command.add_option("--certificate", r.certificate,
                     "File for the proof of --certify (default: certificate.json)");
  add_seconds(command, "--time-limit", r.time_limit, "Seconds after which the best packing so far is used");
  add_seed(command, "--seed", r.seed, "Seed of random choices");
  command.add_option("--out", r.out, "Folder for the packs as index arrays, or for a histogram's strategies");
  add_seed(command, "--shuffle", r.shuffle, "Shuffle the packs of --out with this seed");
  add_count(command, "--ranks", r.ranks,
            "Report the load balance of attention over this many ranks, and order the packs of --out for it",
            kMostRanks);
  add_count(command, "--window", r.window,
            "Pack a stream, holding at most this many sequences; packs are printed as they close",
            kMostTokens);
  add_choice<Emit>(command, "--emit", r.emit,
                   {{"ids", Emit::ids}, {"jsonl", Emit::json_lines}, {"none", Emit::none}},
                   "What --window prints per pack: ids (default), jsonl, or none (default with --json)");
  command.add_flag("--json", r.json, "Print one JSON object");
}

void check(const PackRequest& r, const CLI::App& command) {
  const auto given = [&](const char* option) { return command.count(option) != 0; };
  const auto refuse_with = [&](const char* with, std::initializer_list<const char*> options,
                               const char* why) {
    for (const char* option : options)
      if (given(option)) throw UsageError(fmt::format("{} does not go with {}: {}", option, with, why));
  };
  if (given("--lengths") + given("--offsets") + given("--histogram") != 1)
    throw UsageError("pass the input once: --lengths FILE, --offsets FILE or --histogram FILE");
  if (r.max_length == 0)
    throw UsageError("--max-length is missing: the tokens per pack, such as --max-length 2048");
  const bool several = r.algorithms.size() * r.depths.size() > 1;
  if (several && (given("--out") || r.certify || given("--certificate")))
    throw UsageError("--out and --certify take one --algorithm and one --max-per-pack");
  if (given("--certificate") && !r.certify)
    throw UsageError("--certificate names the file written by --certify; add --certify");
  if (given("--histogram"))
    refuse_with("--histogram", {"--shuffle", "--window"}, "it has only counts, not sequences; use --lengths");
  if (given("--shuffle") && !given("--out"))
    throw UsageError("--shuffle orders the packs of --out; add --out");
  if (given("--emit") && !given("--window")) throw UsageError("--emit is for --window; add --window");
  if (given("--window")) {
    refuse_with("--window", {"--algorithm", "--certify", "--time-limit", "--out", "--ranks", "--seed"},
                "packs are printed as they close; leave out one of them");
    if (r.depths.size() > 1) throw UsageError("--window takes one --max-per-pack");
  }
}

}  // namespace tessera::cli
