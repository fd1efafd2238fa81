// CSV and JSON of `tessera reproduce popsparse`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "studies/common/json.h"
#include "studies/popsparse/tables.h"

namespace tessera::studies::popsparse {
namespace {

using nlohmann::ordered_json;

std::optional<double> published_speedup(const Study& study, const Cell& cell) {
  const RatioCell* ratio = study.published_ratio(cell);
  return ratio == nullptr ? std::nullopt : ratio->speedup;
}

std::optional<double> published_tflops(const Study& study, const Cell& cell) {
  const Operand& o = cell.operand;
  return o.mode == Mode::dense ? study.published_dense(o.precision, o.size, cell.n) : std::nullopt;
}

ordered_json json_of(const PowerLaw& law) {
  return {{"scale", law.scale},
          {"m", law.exponents[0]},
          {"density", law.exponents[1]},
          {"block", law.exponents[2]}};
}

ordered_json json_of(const std::optional<PowerLawFit>& fit) {
  if (!fit) return nullptr;
  ordered_json out = json_of(fit->law);
  out["samples"] = fit->samples;
  out["r_squared"] = fit->r_squared;
  out["typical_error"] = fit->typical_error;
  return out;
}

ordered_json json_of(const Operand& o) {
  return {{"mode", ops::name_of(o.mode)},
          {"type", ops::name_of(o.precision)},
          {"m", o.size},
          {"block", o.block},
          {"density", o.density}};
}

ordered_json json_of(const Study& study, const Cell& cell, const Result& r) {
  const auto count = [&](const char* name) { return static_cast<uint64_t>(r.value(name).value_or(0)); };
  ordered_json json = json_of(cell.operand);
  json["n"] = cell.n;
  json["fits"] = r.fits;
  json["reason"] = r.reason;
  json["nnz"] = count("nnz");
  for (const char* name : {"seconds", "cycles", "update_seconds"}) json[name] = or_null(r.value(name));
  json["steps"] = r.value("steps") ? ordered_json(count("steps")) : ordered_json(nullptr);
  for (const char* name : {"tile_bytes", "tiles_used"}) json[name] = count(name);
  json["verified"] = or_null(r.verified);
  json["max_rel_error"] = or_null(r.max_rel_error);
  json["tolerance"] = or_null(r.tolerance);
  json["tflops"] = or_null(r.value("tflops"));
  json["published_tflops"] = or_null(published_tflops(study, cell));
  json["speedup"] = or_null(study.speedup(cell));
  json["published_speedup"] = or_null(published_speedup(study, cell));
  return json;
}

/// Each operand at its best n.
ordered_json best_of(const Study& study, const Operand& o) {
  const auto best = study.best(o);
  ordered_json json = json_of(o);
  json["n"] = best ? ordered_json(best->n) : ordered_json(nullptr);
  json["tflops"] = best ? ordered_json(best->tflops) : ordered_json(nullptr);
  json["published_tflops"] = or_null(study.published_rate(o));
  json["speedup"] = or_null(study.best_speedup(o));
  json["published_speedup"] = or_null(study.published_best_speedup(o));
  return json;
}

}  // namespace

std::string csv(const Study& study) {
  std::string out =
      "mode,type,m,block,density,n,fits,seconds,cycles,tflops,published_tflops,speedup,published_speedup,"
      "tile_bytes,tiles_used,steps,update_seconds,verified,max_rel_error\n";
  for (const auto& [cell, r] : study.outcome().results) {
    const Operand& o = cell.operand;
    const auto value = [&](const char* name) { return or_empty(r.value(name)); };
    const auto count = [&](const char* name) { return r.value(name).value_or(0); };
    out +=
        fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", ops::name_of(o.mode),
                    ops::name_of(o.precision), o.size, o.block, o.density, cell.n, r.fits, value("seconds"),
                    value("cycles"), value("tflops"), or_empty(published_tflops(study, cell)),
                    or_empty(study.speedup(cell)), or_empty(published_speedup(study, cell)),
                    count("tile_bytes"), count("tiles_used"), value("steps"), value("update_seconds"),
                    or_empty(r.verified), or_empty(r.max_rel_error));
  }
  return out;
}

std::string json(const Study& study) {
  const Request& request = study.outcome().request;
  ordered_json results = ordered_json::array(), best = ordered_json::array();
  std::set<Operand> operands;
  for (const auto& [cell, r] : study.outcome().results) {
    results.push_back(json_of(study, cell, r));
    if (operands.insert(cell.operand).second) best.push_back(best_of(study, cell.operand));
  }
  const bool tiled = study.outcome().machine.kind == machine::Kind::tiled;
  return ordered_json{
             {"schema", 1},
             {"command", "reproduce popsparse"},
             {"machine", request.machine()},
             {"planner", tiled ? ordered_json(planner_name(request.planner)) : ordered_json(nullptr)},
             {"law",
              {{"type", ops::name_of(study.precision())},
               {"static", json_of(study.law(Mode::static_sparse))},
               {"dynamic", json_of(study.law(Mode::dynamic_sparse))},
               {"published_static", json_of(published_law())}}},
             {"best_over_n", std::move(best)},
             {"results", std::move(results)}}
             .dump(2) +
         "\n";
}

}  // namespace tessera::studies::popsparse
