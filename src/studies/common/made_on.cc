#include "studies/common/made_on.h"

#include <nlohmann/json.hpp>

#include "base/isa.h"

namespace tessera::studies {

using nlohmann::ordered_json;

ordered_json made_on(const std::string& command, const std::string& version, const machine::Machine& machine,
                     const ordered_json& settings) {
  ordered_json what = {{"file", command}, {"schema", 1}, {"version", version}};
  what["machine"] = machine.name;
  ordered_json figures = ordered_json::object();
  if (machine.kind == machine::Kind::host) {
    figures["processor"] = machine.facts.cpu;
    figures["instruction set"] = std::string(name_of(machine.figures.isa));
    figures["threads"] = machine.tiles;
  } else {
    for (const machine::Figure& figure : machine.sources) figures[figure.name] = figure.value;
  }
  what.update(settings);
  what["figures"] = std::move(figures);
  return what;
}

}  // namespace tessera::studies
