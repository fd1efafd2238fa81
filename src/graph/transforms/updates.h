// Updates of parameters by an optimizer, and the settings of each parameter.
#pragma once

#include <tessera/gradients.h>
#include <tessera/graph.h>

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::graph {

/// The values that a setting may have, and what messages call them. Updates compute with settings in FP32.
struct SettingRange {
  bool (*has)(double);
  std::string_view text;
};
inline constexpr double kLargestSetting = std::numeric_limits<float>::max();
inline constexpr SettingRange kPositive{[](double x) { return x > 0 && x <= kLargestSetting; },
                                        "positive and finite in FP32"};
inline constexpr SettingRange kFromZero{[](double x) { return x >= 0 && x <= kLargestSetting; },
                                        "at least 0 and finite in FP32"};
inline constexpr SettingRange kFromOne{[](double x) { return x >= 1; }, "at least 1"};
inline constexpr SettingRange kBelowOne{[](double x) { return x >= 0 && x < 1; },
                                        "at least 0 and less than 1"};
inline constexpr SettingRange kFraction{[](double x) { return x > 0 && x <= 1; }, "above 0 and at most 1"};
inline constexpr SettingRange kInside{[](double x) { return x > 0 && x < 1; }, "between 0 and 1"};

/// Throw UsageError, naming value and range, unless the condition holds, or the range has the value.
void require_setting(bool holds, std::string_view what, double value, std::string_view range);
void require_setting(const SettingRange& range, std::string_view what, double value);
/// Throws UsageError for settings out of range.
void check(const Optimizer& optimizer);
/// What is to be divided among replicas.
struct Sharding {
  bool state = false, weights = false, gradients = false;
};
/// Throws UsageError if anything is to be divided, also by groups, and there is only one replica.
void check_sharding(Sharding sharding, const std::vector<ParameterGroup>& groups, uint32_t replicas);

/// The settings of one parameter.
struct ParameterSettings {
  double lr_scale = 1;
  double weight_decay = 0;
  bool trust_ratio = true;
  bool shard = false, offload = false;  ///< of the optimizer's state
  bool shard_weights = false, offload_weights = false;
  bool shard_gradients = false, offload_gradients = false;
};

/// The settings of all parameters of a graph, from their sizes and the groups. Throws UsageError for a name
/// that no parameter has.
std::map<ValueId, ParameterSettings> settings_of_parameters(const Graph& graph,
                                                            const TrainingOptions& options);

/// Keeps parameters in streaming memory as their settings say and, with replicas, in parts.
void place_weights(Graph& graph, const std::map<ValueId, ParameterSettings>& settings, bool has_replicas);

/// A parameter, and the values that its update takes: the replica's part of it, if it is divided, or itself.
struct Updated {
  Value parameter, current, gradient, lr;
};

/// Adds updates of parameters, and the optimizer's state for them.
class Updates {
 public:
  /// `skipped`: the number of steps that were skipped before.
  Updates(Graph& graph, const TrainingOptions& options, std::optional<Value> skipped)
      : graph_(graph), options_(options), skipped_(skipped) {}

  void add(const ParameterSettings& settings, const Updated& updated);
  /// Sets the parameters of which each replica has updated a part.
  void gather();

 private:
  struct Moments {
    Value first, second, step;
  };

  void add(const Sgd& sgd, const ParameterSettings& own, const Updated& of);
  void add(Adam adam, const ParameterSettings& own, const Updated& of);
  void add(const Lamb& lamb, const ParameterSettings& own, const Updated& of);
  void add(const Lars& lars, const ParameterSettings& own, const Updated& of);
  void descend(const ParameterSettings& own, const Updated& of, const Sgd& sgd, bool lr_in_velocity = false);
  Value state_of(const ParameterSettings& own, const Updated& of, const char* what);
  Moments moments_of(const ParameterSettings& own, const Updated& of, bool bias_correction);
  Value step();
  Value good_step();
  Value wide(Value value) const;
  Value wide(const Updated& of) const;
  Rounding of_parameters() const { return options_.roundings.parameters.value_or(options_.rounding); }
  Rounding of_state() const { return options_.roundings.state.value_or(options_.rounding); }
  Value narrow(Value value, Type type, Rounding rounding);
  void assign(Value changed, Value updated);
  void assign_parameter(const Updated& of, Value updated);
  void set_parameter(Value parameter, Value updated);

  Graph& graph_;
  const TrainingOptions& options_;
  std::optional<Value> skipped_, step_, good_step_;
  std::vector<std::pair<Value, Value>> parts_;  ///< parameters, and the replica's updated part of each
  uint32_t rounded_ = 0;  ///< number of values rounded so far, which numbers their random streams
};

/// The sum of the squares of all elements: of a replica's own elements, if the value is divided among them.
Value sum_of_squares(Value x);
/// The sum over all elements of a value, from the sum over a replica's own elements.
Value of_all_replicas(Value sum, Value of);

/// The scalar input of that name; adds it if there is none. Throws UsageError if another value has the name.
Value input_named(Graph& graph, const std::string& name, Type type);

}  // namespace tessera::graph
