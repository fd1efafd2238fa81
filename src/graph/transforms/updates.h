// Updates of parameters by an optimizer, and the settings of each parameter.
#pragma once

#include <tessera/model.h>

#include <map>
#include <string>
#include <string_view>

namespace tessera::model {

/// Throws UsageError, naming value and range, unless the condition holds.
void require_setting(bool holds, std::string_view what, double value, std::string_view range);
/// Throws UsageError for settings out of range.
void check(const Optimizer& optimizer);

/// What holds for one parameter.
struct ParameterSettings {
  double lr_scale = 1;
  double decay = 0;
  bool trust_ratio = true;
};

/// Those of all parameters of a graph, from the groups. Throws UsageError for a name that no parameter has.
std::map<ValueId, ParameterSettings> settings_of_parameters(const Graph& graph,
                                                            const TrainingOptions& options);

/// A parameter and what its update takes.
struct Updated {
  Value parameter, gradient, lr;
};

/// Adds the update, and what the optimizer keeps for the parameter.
void add_update(const Optimizer& optimizer, const ParameterSettings& settings, const Updated& updated);

/// The scalar input of that name, which is added if there is none. Throws UsageError if the name is taken by
/// another value.
Value input_named(Graph& graph, const std::string& name, Type type);

}  // namespace tessera::model
