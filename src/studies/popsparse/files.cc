// CSV and JSON of `tessera reproduce popsparse`.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "studies/common/json.h"
#include "studies/popsparse/store.h"
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

/// Each sparse operand at its best n, and dense at its own best n.
ordered_json best_of(const Study& study) {
  ordered_json list = ordered_json::array();
  std::set<Operand> operands;
  for (const auto& [cell, result] : study.outcome().results) operands.insert(cell.operand);
  for (const Operand& o : operands) {
    const auto best = study.best(o);
    const bool dense = o.mode == Mode::dense;
    list.push_back(
        {{"mode", ops::name_of(o.mode)},
         {"type", ops::name_of(o.precision)},
         {"m", o.size},
         {"block", o.block},
         {"density", o.density},
         {"n", best ? ordered_json(best->n) : ordered_json(nullptr)},
         {"tflops", best ? ordered_json(best->tflops) : ordered_json(nullptr)},
         {"published_tflops",
          or_null(dense ? study.published_best_dense(o.precision, o.size) : study.published_rate(o))},
         {"speedup", dense ? ordered_json(nullptr) : or_null(study.best_speedup(o))},
         {"published_speedup", dense ? ordered_json(nullptr) : or_null(study.published_best_speedup(o))}});
  }
  return list;
}

}  // namespace

std::string csv(const Study& study) {
  std::string out =
      "mode,type,m,block,density,n,fits,seconds,cycles,tflops,published_tflops,speedup,published_speedup,"
      "tile_bytes,"
      "tiles_used,steps,update_seconds,verified,max_rel_error\n";
  for (const auto& [cell, r] : study.outcome().results) {
    const Operand& o = cell.operand;
    const std::optional<double> speedup = o.mode == Mode::dense ? std::nullopt : study.speedup(cell);
    out += fmt::format(
        "{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", ops::name_of(o.mode),
        ops::name_of(o.precision), o.size, o.block, o.density, cell.n, r.fits, or_empty(r.seconds),
        or_empty(r.cycles), or_empty(r.tflops()), or_empty(published_tflops(study, cell)), or_empty(speedup),
        or_empty(published_speedup(study, cell)), r.tile_bytes, r.tiles_used, or_empty(r.steps),
        or_empty(r.update_seconds), or_empty(r.verified), or_empty(r.max_rel_error));
  }
  return out;
}

std::string json(const Study& study) {
  const Request& request = study.outcome().request;
  const machine::Machine& machine = study.outcome().machine;
  ordered_json results = ordered_json::array();
  for (const auto& [cell, r] : study.outcome().results) {
    ordered_json result = popsparse::json_of(r);
    result["tflops"] = or_null(r.tflops());
    result["published_tflops"] = or_null(published_tflops(study, cell));
    result["speedup"] =
        cell.operand.mode == Mode::dense ? ordered_json(nullptr) : or_null(study.speedup(cell));
    result["published_speedup"] = or_null(published_speedup(study, cell));
    results.push_back(std::move(result));
  }
  const bool tiled = machine.kind == machine::Kind::tiled;
  return ordered_json{
             {"schema", 1},
             {"command", "reproduce popsparse"},
             {"machine", request.machine},
             {"planner", tiled ? ordered_json(request.planner == ops::Planner::best ? "best" : "published")
                               : ordered_json(nullptr)},
             {"law",
              {{"type", ops::name_of(study.precision())},
               {"static", json_of(study.law(Mode::static_sparse))},
               {"dynamic", json_of(study.law(Mode::dynamic_sparse))},
               {"published_static", json_of(published_law())}}},
             {"best_over_n", best_of(study)},
             {"results", std::move(results)}}
             .dump(2) +
         "\n";
}

}  // namespace tessera::studies::popsparse
