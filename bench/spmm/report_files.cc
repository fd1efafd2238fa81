#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "spmm/report.h"
#include "spmm/targets.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

const char* name_of(Kind kind) {
  switch (kind) {
    case Kind::tessera: return "tessera";
    case Kind::tessera_dynamic: return "tessera-dynamic";
    case Kind::tessera_dense: return "tessera-dense";
    case Kind::dense: return "dense";
    case Kind::sparse: return "sparse";
  }
  return "";
}

/// Null for what was not measured.
json measured(double value) { return value == 0 ? json() : json(value); }

json timing_json(const Comparison& comparison, const Timing& timing) {
  const bool present = timing.seconds > 0;
  return {{"peer", timing.peer},
          {"kind", name_of(timing.kind)},
          {"type", std::string(tessera::name_of(timing.type))},
          {"product", std::string(name_of(timing.task))},
          {"new_pattern_seconds", measured(timing.pattern.replaced)},
          {"drop_grow_seconds", measured(timing.pattern.drop_grow)},
          {"seconds", measured(timing.seconds)},
          {"fastest_seconds", measured(timing.fastest)},
          {"useful_gflops", present ? json(comparison.gflops(timing)) : json()},
          {"prepare_seconds", measured(timing.prepare_seconds)},
          {"predicted_seconds", measured(timing.predicted_seconds)},
          {"weight_bytes", timing.weight_bytes},
          {"rounds", timing.rounds},
          {"max_rel_error", present ? json(timing.error) : json()},
          {"absent", timing.absent},
          {"plan", timing.plan}};
}

json verdict_json(const Verdict& verdict) {
  return {{"what", verdict.what},
          {"measured", verdict.measured},
          {verdict.at_least ? "at_least" : "at_most", verdict.limit},
          {"aim", measured(verdict.aim)},
          {"reached", verdict.reached()}};
}

json comparison_json(const Comparison& comparison) {
  const Case& work = comparison.work;
  json object = {{"label", work.label},
                 {"m", work.m},
                 {"k", work.k},
                 {"n", work.n},
                 {"block", work.block},
                 {"density", work.density},
                 {"requested_density", measured(work.asked_density)},
                 {"nnz", work.nonzeros},
                 {"type", std::string(tessera::name_of(work.type))},
                 {"layout", bench::name_of(work.layout)},
                 {"product", std::string(name_of(work.task))},
                 {"bytes", comparison.bytes},
                 {"read_gbps", measured(comparison.read_gbps)},
                 {"peers", json::array()},
                 {"targets", json::array()}};
  for (const Timing& timing : comparison.timings) object["peers"].push_back(timing_json(comparison, timing));
  for (const Verdict& verdict : judge(comparison)) object["targets"].push_back(verdict_json(verdict));
  return object;
}

}  // namespace

std::string to_csv(const std::vector<Comparison>& comparisons) {
  std::string text =
      "label,m,k,n,block,density,type,layout,peer,kind,peer_type,product,seconds,fastest_seconds,"
      "useful_gflops,prepare_seconds,predicted_seconds,weight_bytes,rounds,max_rel_error\n";
  for (const Comparison& comparison : comparisons) {
    const Case& work = comparison.work;
    for (const Timing& timing : comparison.timings) {
      if (timing.seconds == 0) continue;
      text += fmt::format(
          "{},{},{},{},{},{:.6f},{},{},{},{},{},{},{:.9f},{:.9f},{:.3f},{:.6f},{:.9f},{},{},{:.3e}"
          "\n",
          work.label, work.m, work.k, work.n, work.block, work.density, tessera::name_of(work.type),
          name_of(work.layout), timing.peer, name_of(timing.kind), tessera::name_of(timing.type),
          name_of(timing.task), timing.seconds, timing.fastest, comparison.gflops(timing),
          timing.prepare_seconds, timing.predicted_seconds, timing.weight_bytes, timing.rounds, timing.error);
    }
  }
  return text;
}

std::string to_json(const Setting& setting, const std::vector<Comparison>& comparisons) {
  json object = {{"schema", 1},
                 {"benchmark", "spmm"},
                 {"cpu", setting.cpu},
                 {"isa", std::string(tessera::name_of(setting.limits.isa))},
                 {"threads", setting.limits.threads},
                 {"peak_gflops", setting.peak_gflops},
                 {"cold_caches", setting.cold},
                 {"array_offset_bytes", setting.array_offset},
                 {"peers", setting.versions},
                 {"missing", setting.missing},
                 {"results", json::array()}};
  for (const Comparison& comparison : comparisons) object["results"].push_back(comparison_json(comparison));
  return object.dump(2) + "\n";
}

}  // namespace tessera::bench
