#include <fmt/format.h>
#include <tessera/error.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "cli/pack_request.h"
#include "cli/pack_stream.h"
#include "cli/progress.h"
#include "io/atomic_file.h"
#include "report/pack_result.h"
#include "report/table.h"

namespace tessera::cli {
namespace {

using base::Clock;
using base::seconds_since;
using nlohmann::ordered_json;

constexpr const char* kCertificate = "certificate.json";

/// The input to pack, and its origin. A histogram has no lengths.
struct Source {
  std::optional<pack::Lengths> lengths;
  pack::Input input;
  double seconds = 0;
};

Source read(const PackRequest& r) {
  const Clock::time_point start = Clock::now();
  Source source;
  if (!r.histogram.empty()) {
    source.input = pack::read_histogram(r.histogram, r.max_length, r.overlong);
  } else {
    source.lengths = r.offsets.empty() ? pack::read_lengths(r.lengths) : pack::read_offsets(r.offsets);
    source.input = pack::count(*source.lengths, r.max_length, r.overlong);
  }
  source.seconds = seconds_since(start);
  return source;
}

pack::Packing plan(const PackRequest& r, const pack::Histogram& histogram, pack::Algorithm algorithm,
                   uint32_t depth) {
  constexpr size_t kSteps = 100;
  const bool limited = r.time_limit > 0;
  Progress bar(limited ? kSteps : 1);
  pack::Options options;
  options.algorithm = algorithm;
  options.max_per_pack = depth;
  options.certify = r.certify;
  options.time_limit = r.time_limit;
  options.seed = r.seed;
  options.poll = [&](const pack::Progress& so_far) {
    const double share = limited ? std::min(1.0, so_far.seconds / r.time_limit) : 0;
    bar.show(static_cast<size_t>(share * kSteps),
             fmt::format("{}: {} packs, {} at least, {:.0f} s", name_of(algorithm), so_far.packs,
                         so_far.lower_bound, so_far.seconds));
    return true;
  };
  return pack::plan(histogram, options);
}

report::RankReport rank_report(const PackRequest& r, const pack::Packing& packing) {
  const uint64_t seed = r.shuffle.value_or(r.seed);
  pack::OrderOptions balanced = r.order();
  balanced.shuffle = seed;
  return {r.ranks, rank_balance(packing, balanced, r.ranks),
          rank_balance(packing, {.shuffle = seed}, r.ranks)};
}

void write(const PackRequest& r, const Source& source, const pack::Packing& packing,
           report::PackResult& result) {
  const pack::Provenance provenance = {r.source(), r.seed};
  if (!source.lengths) {
    const Clock::time_point start = Clock::now();
    write_strategies(r.out, packing, source.input, provenance);
    result.write_seconds = seconds_since(start);
  } else {
    constexpr size_t kSteps = 100;
    Progress bar(kSteps);
    const pack::WriteTimes times =
        write_packs(r.out, packing, source.input, *source.lengths, r.order(), provenance,
                    [&](double done) { bar.show(static_cast<size_t>(done * kSteps), "writing packs"); });
    result.seconds += times.computing;
    result.write_seconds = times.writing;
  }
  result.out = r.out;
}

report::PackResult pack_one(const PackRequest& r, const Source& source, pack::Algorithm algorithm,
                            uint32_t depth) {
  const pack::Packing packing = plan(r, source.input.histogram, algorithm, depth);
  report::PackResult result;
  result.set_input(source.input);
  result.set_packing(packing);
  result.read_seconds = source.seconds;
  if (r.ranks > 0) result.ranks = rank_report(r, packing);
  if (!r.out.empty()) write(r, source, packing, result);
  if (r.certify) {
    result.certificate = r.certificate.empty() ? kCertificate : r.certificate;
    save_certificate(result.certificate, packing.certificate);
  }
  return result;
}

int run_stream(const PackRequest& request) {
  const report::PackResult result = pack_stream(request);
  if (request.json) {
    const bool lines = request.emit == Emit::ids || request.emit == Emit::json_lines;
    fmt::print("{}\n", json_text(report::json(std::span(&result, 1)), lines ? -1 : 2));
  } else {
    fmt::print(stderr, "{}", report::table(std::span(&result, 1)));
  }
  return 0;
}

int run(const PackRequest& request, const CLI::App& command) {
  check(request, command);
  if (request.window) return run_stream(request);
  if (request.certify) io::require_writable(request.certificate.empty() ? kCertificate : request.certificate);
  const Source source = read(request);
  std::vector<report::PackResult> results;
  for (const uint32_t depth : request.depths)
    for (const pack::Algorithm algorithm : request.algorithms)
      results.push_back(pack_one(request, source, algorithm, depth));
  if (request.json) {
    fmt::print("{}\n", json_text(report::json(results)));
    return 0;
  }
  fmt::print("{}", report::table(results));
  if (results.size() == 1) fmt::print("{}", details(results.front()));
  return 0;
}

int verify(const std::vector<std::string>& files, bool as_json) {
  ordered_json list = ordered_json::array();
  report::Table table({"certificate", "sequences", "tokens per pack", "depth", "lower bound"});
  for (const std::string& file : files) {
    const Clock::time_point start = Clock::now();
    const pack::Certificate certificate = pack::load_certificate(file);
    try {
      pack::verify(certificate);
    } catch (const Error& e) {
      throw Error(fmt::format("{}: {}", file, e.what()));
    }
    table.add({file, std::to_string(certificate.histogram.sequences()),
               std::to_string(certificate.histogram.max_length()),
               report::depth_text(certificate.max_per_pack), std::to_string(certificate.lower_bound)});
    list.push_back({{"certificate", file},
                    {"verified", true},
                    {"sequences", certificate.histogram.sequences()},
                    {"max_length", certificate.histogram.max_length()},
                    {"max_per_pack", certificate.max_per_pack == 0 ? ordered_json(nullptr)
                                                                   : ordered_json(certificate.max_per_pack)},
                    {"lower_bound", certificate.lower_bound},
                    {"seconds", seconds_since(start)}});
  }
  if (as_json)
    fmt::print("{}\n", json_text({{"schema", 1}, {"command", "pack verify"}, {"results", list}}));
  else
    fmt::print("{}", table.text());
  return 0;
}

}  // namespace

Command add_pack_command(CLI::App& app) {
  CLI::App& command = *app.add_subcommand(
      "pack", "Pack sequences with little padding and a proven bound on the number of packs");
  auto request = std::make_shared<PackRequest>();
  auto certificates = std::make_shared<std::vector<std::string>>();
  add_pack_options(command, *request);
  CLI::App& verify_command =
      *command.add_subcommand("verify", "Verify proofs of lower bounds, in integer arithmetic");
  verify_command.add_option("certificate", *certificates, "Files written by --certify")->required();
  verify_command.add_flag("--json", request->json, "Print one JSON object");
  verify_command.footer("\nExample:\n  tessera pack verify certificate.json");
  command.require_subcommand(0, 1);
  command.footer(
      "\n* takes a list separated by commas; every combination runs.\n"
      "\nExamples:\n"
      "  tessera pack --lengths lengths.npy --max-length 2048 --out packs/\n"
      "  tessera pack --histogram wikipedia-512.csv --max-length 512 --max-per-pack 3 --certify --json\n"
      "  produce-lengths | tessera pack --lengths - --max-length 2048 --window 1000");
  return [request, certificates, &command, &verify_command] {
    if (!verify_command.parsed()) return run(*request, command);
    for (const CLI::Option* option : command.get_options())
      if (option->count() != 0 && option->get_name() != "--json")
        throw UsageError(fmt::format("{} is for packing; leave it out of pack verify", option->get_name()));
    return verify(*certificates, request->json);
  };
}

}  // namespace tessera::cli
