// What the numbers of a study's cells depend on; a result file holds cells of one kind only.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "machine/model/machine.h"

namespace tessera::studies {

/// The tool's version and command, the machine and its figures: of a host, what it is. `settings`: further
/// properties, such as the planner.
nlohmann::ordered_json made_on(const std::string& command, const std::string& version,
                               const machine::Machine& machine, const nlohmann::ordered_json& settings);

}  // namespace tessera::studies
