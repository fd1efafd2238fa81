#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/loop.h"
#include "graph/operation.h"

namespace tessera::graph {
namespace {

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::input: return "input";
    case Kind::parameter: return "parameter";
    case Kind::state: return "state";
    case Kind::constant: return "constant";
    case Kind::result: break;
  }
  return "result";
}

std::string to_string(const Attribute& attribute) {
  if (const auto* text = std::get_if<std::string>(&attribute)) return *text;
  if (const auto* whole = std::get_if<int64_t>(&attribute)) return fmt::format("{}", *whole);
  if (const auto* number = std::get_if<double>(&attribute)) return fmt::format("{:g}", *number);
  return fmt::format("[{}]", fmt::join(std::get<std::vector<int64_t>>(attribute), ", "));
}

std::string indented(const std::string& text) {
  std::string result;
  for (size_t begin = 0, end; begin < text.size(); begin = end + 1) {
    end = text.find('\n', begin);
    result += "  " + text.substr(begin, end + 1 - begin);
  }
  return result;
}

}  // namespace

std::string to_string(const Graph& graph) {
  std::string text;
  const auto named = [&](ValueId id) { return graph.info(id).name; };
  for (const ValueInfo& info : graph.values())
    if (info.kind != Kind::result)
      text += fmt::format("{} {}: {}{}{}\n", name_of(info.kind), info.name, to_string(info.type),
                          info.divided ? ", divided" : "", info.offloaded ? ", offloaded" : "");
  for (const Node& node : graph.nodes()) {
    std::vector<std::string> arguments, results;
    for (ValueId input : node.inputs) arguments.push_back(named(input));
    for (const auto& [name, value] : node.attributes)
      arguments.push_back(fmt::format("{}={}", name, to_string(value)));
    for (ValueId output : node.outputs)
      results.push_back(fmt::format("{}: {}{}", named(output), to_string(graph.type(output)),
                                    graph.info(output).offloaded ? " offloaded" : ""));
    text += fmt::format("{} = {}({})\n", fmt::join(results, ", "), node.operation->name,
                        fmt::join(arguments, ", "));
    if (is_loop(node)) text += indented(to_string(*node.body));
  }
  for (const Assignment& assignment : graph.assignments())
    text += fmt::format("{} <- {}\n", named(assignment.state), named(assignment.value));
  for (const auto& [name, id] : graph.outputs()) text += fmt::format("output {}: {}\n", name, named(id));
  std::vector<std::string> begins;
  for (const ValueId id : graph.stage_begins()) begins.push_back(named(id));
  if (!begins.empty()) text += fmt::format("stages begin with {}\n", fmt::join(begins, ", "));
  if (const auto count = graph.balanced_stages()) text += fmt::format("balanced stages: {}\n", *count);
  if (graph.prefetch()) text += "prefetched from streaming memory\n";
  if (const auto bytes = graph.memory_budget())
    text += *bytes == kMachineMemory ? "memory budget: what the machine has\n"
                                     : fmt::format("memory budget: {} bytes\n", *bytes);
  const PartialSums& sums = graph.partial_sums();
  if (sums.type) text += fmt::format("partial sums: {}\n", tessera::name_of(*sums.type));
  if (sums.rounding == Rounding::stochastic)
    text += fmt::format("partial sums: rounded stochastically, seed {}\n", sums.seed);
  return text;
}

}  // namespace tessera::graph
