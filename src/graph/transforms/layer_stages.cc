#include "graph/transforms/layer_stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/stages.h"

namespace tessera::graph {
namespace {

/// Whether a parameter has a name, or is part of what has it: "layers.0.weight" of "layers.0".
bool is_part_of(std::string_view parameter, std::string_view name) {
  return parameter.starts_with(name) && (parameter.size() == name.size() || parameter[name.size()] == '.');
}

[[noreturn]] void refuse_layer(const Graph& graph, const WholeLayers& layers, const std::string& name) {
  if (layers.begins.empty())
    throw UsageError(fmt::format("stages name '{}', and the graph has no layers with parameters", name));
  constexpr size_t kMostNames = 6;
  std::vector<std::string> names;
  for (const ValueId id : layers.begins) {
    if (names.size() == kMostNames) {
      names.emplace_back("…");
      break;
    }
    names.push_back(fmt::format("'{}'", graph.info(id).name));
  }
  throw UsageError(
      fmt::format("stages name '{}', and no layer has a parameter of this name: layers begin with {}", name,
                  fmt::join(names, ", ")));
}

/// The first layer with parameters of a name.
uint32_t layer_named(const Graph& graph, const WholeLayers& layers, const std::string& name) {
  std::optional<uint32_t> first;
  for (const auto& [parameter, layer] : layers.of_parameters)
    if (is_part_of(graph.info(parameter).name, name)) first = std::min(first.value_or(layer), layer);
  if (!first) refuse_layer(graph, layers, name);
  return *first;
}

struct NamedStage {
  std::string layer;  ///< its name
  uint32_t stage;
};

/// The named stage of each layer that has one.
std::map<uint32_t, NamedStage> named_stages(const Graph& graph, const WholeLayers& layers,
                                            const std::map<std::string, uint32_t>& stages) {
  std::map<uint32_t, NamedStage> named;
  for (const auto& [name, stage] : stages) {
    const auto [known, is_new] = named.emplace(layer_named(graph, layers, name), NamedStage{name, stage});
    if (const NamedStage& other = known->second; other.stage != stage)
      throw UsageError(
          fmt::format("'{}' and '{}' begin with the same layer, and are to be on stages {} and {}: name one",
                      other.layer, name, other.stage, stage));
  }
  return named;
}

void check_order(const std::map<uint32_t, NamedStage>& named) {
  const auto is_turned = [](const auto& a, const auto& b) { return b.second.stage < a.second.stage; };
  const auto before = std::ranges::adjacent_find(named, is_turned);
  if (before == named.end()) return;
  const NamedStage& after = std::next(before)->second;
  throw UsageError(
      fmt::format("'{}' is to be on stage {}, and layers before it are on stage {}: stages have layers in "
                  "their order",
                  after.layer, after.stage, before->second.stage));
}

/// The parameters with which stages after the first one begin.
std::vector<Value> begins_of_stages(Graph& graph, const std::map<std::string, uint32_t>& stages) {
  const WholeLayers layers = whole_layers_of(graph);
  const std::map<uint32_t, NamedStage> all = named_stages(graph, layers, stages);
  check_order(all);
  std::vector<Value> begins;
  for (const auto& [layer, named] : all) {
    const auto last = static_cast<uint32_t>(begins.size());
    if (named.stage == last) continue;
    const uint32_t next = layer == 0 ? 0 : last + 1;
    if (named.stage != next)
      throw UsageError(
          fmt::format("stage {} has no layers: '{}' is to be on stage {}, and is the {}; number "
                      "stages from 0 without a gap",
                      next, named.layer, named.stage,
                      layer == 0 ? "first one" : fmt::format("next one after stage {}", last)));
    begins.push_back(graph.value(layers.begins[layer]));
  }
  return begins;
}

}  // namespace

void divide_into_stages(Graph& graph, const LayerStages& stages) {
  if (!stages.count && stages.of_layers.empty()) return;
  if (stages.count && !stages.of_layers.empty())
    throw UsageError("stages are given as a number and by layers: leave out one of both");
  if (names_stages(graph))
    throw UsageError(
        "the graph has stages already, as its calls and loops name them: leave out those of training");
  if (!graph.stage_begins().empty() || graph.balanced_stages())
    throw UsageError(
        "the graph has stages already, by begin_stages or balance_stages: leave out those of training");
  std::vector<Value> begins;
  if (!stages.count) begins = begins_of_stages(graph, stages.of_layers);
  if (begins.empty())
    graph.balance_stages(stages.count.value_or(1));
  else
    graph.begin_stages(begins);
}

}  // namespace tessera::graph
