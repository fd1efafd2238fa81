#include "graph/graph_file.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "graph/operation.h"
#include "graph/state_file.h"
#include "io/json_document.h"
#include "io/json_text.h"

namespace tessera::graph {
namespace {

using Json = nlohmann::json;

constexpr uint32_t kVersion = 4;  // 1 has no loops, 2 stages of all operations, 3 need no checksum
constexpr const char* kGraphs = "tessera_graphs";  // the text that describes them
// Limits of a graph with its functions, counted at each call; programs may have as many steps. Otherwise a
// few functions that call each other twice would be read without end.
constexpr uint64_t kMostOperations = 1 << 20, kDeepestCall = 1000;
constexpr Type kTypes[] = {Type::f32, Type::f16, Type::bf16, Type::u8, Type::u16, Type::u32, Type::i32};
constexpr const char* kKinds[] = {"input", "parameter", "state", "constant"};

Type type_named(const std::string& name) {
  for (const Type type : kTypes)
    if (name_of(type) == name) return type;
  throw Error(fmt::format("there is no type '{}'", name));
}

/// Throws Error for anything but a number that T can hold.
template <class T>
T whole(const Json& json) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() > std::numeric_limits<T>::max())
    throw Error(
        fmt::format("{} is not a whole number up to {}", io::json_text(json), std::numeric_limits<T>::max()));
  return static_cast<T>(json.get<uint64_t>());
}

Shape shape_from(const Json& json) {
  if (!json.is_array()) throw Error(fmt::format("a shape is {}; it must be a list", io::json_text(json)));
  Shape shape;
  for (const Json& size : json) shape.push_back(whole<uint32_t>(size));
  return shape;
}

/// JSON has no infinities.
Json json_of(double number) { return std::isfinite(number) ? Json(number) : Json(fmt::format("{}", number)); }

double number_from(const Json& json) {
  if (!json.is_string()) return json.get<double>();
  const auto text = json.get<std::string>();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (text == "inf" || text == "-inf") return text == "inf" ? kInfinity : -kInfinity;
  return std::numeric_limits<double>::quiet_NaN();
}

Json json_of(const Attribute& attribute) {
  if (const auto* number = std::get_if<double>(&attribute)) return {{"number", json_of(*number)}};
  return std::visit([](const auto& value) { return Json(value); }, attribute);
}

Attribute attribute_from(const Json& json) {
  if (json.is_object()) return number_from(json.at("number"));
  if (json.is_string()) return json.get<std::string>();
  if (json.is_number_integer()) return json.get<int64_t>();
  std::vector<int64_t> list;
  for (const Json& number : json) {
    if (!number.is_number_integer())
      throw Error(fmt::format("{} is not a whole number", io::json_text(number)));
    list.push_back(number.get<int64_t>());
  }
  return list;
}

// Writing.

class Writer {
 public:
  Writer(const GraphFile& file, const Arrays& values) : values_(values) {
    Json graphs = Json::array();
    for (const Graph& graph : file.graphs) {
      prefix_ = fmt::format("{}:", graphs.size());
      graphs.push_back(describe(graph));
    }
    for (const auto& [name, text] : file.texts)
      if (!state_.metadata().emplace(name, text).second || name == kGraphs)
        throw UsageError(fmt::format("'{}' is not a name for a text: it describes the graphs", name));
    state_.metadata()[kGraphs] = io::json_text(
        Json{{"version", kVersion}, {"graphs", std::move(graphs)}, {"functions", std::move(functions_)}});
  }

  void write(const std::string& path) const { state_.write(path); }

 private:
  /// Values are numbered anew: first those that no operation computes, then the results in their order.
  Json describe(const Graph& graph) {
    require_plain(graph);
    std::map<ValueId, size_t> numbers;
    Json values = Json::array(), nodes = Json::array(), outputs = Json::object();
    for (ValueId id = 0; id < graph.values().size(); ++id) {
      if (graph.info(id).kind == Kind::result) continue;
      numbers.emplace(id, numbers.size());
      values.push_back(describe(graph.info(id)));
    }
    for (const Node& node : graph.nodes()) {
      Json inputs = Json::array(), names = Json::array();
      for (ValueId id : node.inputs) inputs.push_back(numbers.at(id));
      for (ValueId id : node.outputs) {
        numbers.emplace(id, numbers.size());
        names.push_back(graph.info(id).name);
      }
      nodes.push_back(describe(node, std::move(inputs), std::move(names)));
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (graph.info(node.outputs[i]).offloaded) nodes.back()["offloaded"].push_back(i);
      if (node.gradient_of && numbers.contains(*node.gradient_of))
        nodes.back()["gradient_of"] = numbers.at(*node.gradient_of);
    }
    for (const auto& [name, id] : graph.outputs()) outputs[name] = numbers.at(id);
    Json json = {{"values", std::move(values)}, {"nodes", std::move(nodes)}, {"outputs", std::move(outputs)}};
    if (!graph.stage_places().empty()) json["stage_places"] = graph.stage_places();
    for (const ValueId id : graph.stage_begins()) json["stage_begins"].push_back(numbers.at(id));
    if (const auto count = graph.balanced_stages()) json["balanced_stages"] = *count;
    if (graph.partial_sums() != PartialSums{}) json["partial_sums"] = describe(graph.partial_sums());
    if (graph.prefetch()) json["prefetch"] = true;
    if (const auto bytes = graph.memory_budget()) json["memory_budget"] = *bytes;
    return json;
  }

  /// With a seed, they are rounded stochastically.
  static Json describe(const PartialSums& sums) {
    Json json = Json::object();
    if (sums.type) json["type"] = name_of(*sums.type);
    if (sums.rounding == Rounding::stochastic) json["seed"] = sums.seed;
    return json;
  }

  static void require_plain(const Graph& graph) {
    if (!graph.assignments().empty() || graph.replicas() > 1)
      throw UsageError("a graph with updates cannot be saved: save the one that it was made from");
  }

  Json describe(const ValueInfo& info) {
    if (info.kind == Kind::state)
      throw UsageError(
          fmt::format("'{}' is the state of an optimizer: save the graph without it", info.name));
    const TensorType& type = info.type;
    Json json = {{"name", info.name},
                 {"kind", kKinds[static_cast<size_t>(info.kind)]},
                 {"type", name_of(type.type)},
                 {"shape", type.shape}};
    if (type.pattern) json["block_size"] = type.pattern->block_size;
    if (type.capacity) json["capacity"] = *type.capacity;
    if (info.offloaded) json["offloaded"] = true;
    if (info.divided) json["divided"] = true;
    if (type.pattern && info.kind == Kind::input) {
      json["pattern"] = prefix_ + info.name;
      state_.add_pattern(prefix_ + info.name, *type.pattern);
    }
    if (info.kind == Kind::parameter) add_parameter(info, json);
    if (info.kind == Kind::constant) {
      json["tensor"] = prefix_ + info.name;
      state_.add({.name = prefix_ + info.name, .type = {.shape = type.shape}}, *info.initial.values);
    }
    return json;
  }

  void add_parameter(const ValueInfo& info, Json& json) {
    const auto given = values_.find(info.name);
    const std::vector<float>* values = given != values_.end() ? &given->second : info.initial.values.get();
    if (values == nullptr)
      json["initial"] = {{"kind", static_cast<uint32_t>(info.initial.kind)}, {"scale", info.initial.scale}};
    const auto [known, is_new] = parameters_.emplace(info.name, &info);
    if (!is_new) {
      const bool differs = given == values_.end() && known->second->initial.values != info.initial.values;
      if (differs || !(known->second->type == info.type))
        throw UsageError(
            fmt::format("'{}' is {} in one graph and {} in another: parameters of the same name are one",
                        info.name, to_string(known->second->type), to_string(info.type)));
      return;
    }
    if (values != nullptr) {
      if (values->size() != info.type.elements())
        throw UsageError(fmt::format("'{}' has {} elements; given are {} values", info.name,
                                     info.type.elements(), values->size()));
      state_.add(info, *values);
    }
    if (info.type.pattern) state_.add_pattern(info.name, *info.type.pattern);
  }

  Json describe(const Node& node, Json inputs, Json names) {
    Json json = {
        {"operation", node.operation->name}, {"inputs", std::move(inputs)}, {"results", std::move(names)}};
    for (const auto& [name, attribute] : node.attributes) json["attributes"][name] = json_of(attribute);
    if (node.body) json["function"] = number_of(node.body);
    if (node.backward) json["backward"] = true;
    return json;
  }

  size_t number_of(const std::shared_ptr<const Graph>& function) {
    const auto known = numbers_.find(function);
    if (known != numbers_.end()) return known->second;
    const std::string outer = std::exchange(prefix_, fmt::format("function {}:", ++described_));
    Json described = describe(*function);  // first the functions that it calls
    prefix_ = outer;
    functions_.push_back(std::move(described));
    return numbers_[function] = functions_.size() - 1;
  }

  const Arrays& values_;
  StateFile state_;
  Json functions_ = Json::array();
  std::map<std::shared_ptr<const Graph>, size_t> numbers_;
  size_t described_ = 0;
  std::map<std::string, const ValueInfo*> parameters_;
  std::string prefix_;  ///< of the names of constants
};

// Reading.

class Reader {
 public:
  explicit Reader(const io::Source& source) : state_(source) {}

  GraphFile read() {
    const auto found = state_.metadata().find(kGraphs);
    if (found == state_.metadata().end()) throw Error("it holds no graphs, only tensors");
    const Json json = io::parse_json(found->second, io::refuse_depth<Json>(state_.path()));
    const auto version = whole<uint32_t>(json.at("version"));
    if (version < 1 || version > kVersion)
      throw Error(fmt::format("its version is {}; this library reads 1 to {}: save the model again with it",
                              version, kVersion));
    if (version >= 4 && !state_.has_checksum())
      throw Error(
          "it lacks its checksum: the file is damaged, or another program changed it: save the model again");
    for (const Json& function : json.at("functions")) {
      extents_.push_back(extent_of(function.at("nodes")));
      functions_.push_back(std::make_shared<const Graph>(graph_from(function)));
    }
    GraphFile file;
    for (Json graph : json.at("graphs")) {
      extent_of(graph.at("nodes"));
      if (version < 3) name_stages(graph.at("nodes"));
      file.graphs.push_back(graph_from(graph));
    }
    for (const auto& [name, text] : state_.metadata())
      if (name != kGraphs) file.texts[name] = text;
    return file;
  }

 private:
  /// Files before version 3 have a stage of each operation, unless it is 0. Stages in functions are lost.
  static void name_stages(Json& nodes) {
    if (std::ranges::none_of(nodes, [](const Json& node) { return node.contains("stage"); })) return;
    for (Json& node : nodes)
      if (node.contains("function"))
        node["attributes"]["stage"] = whole<uint32_t>(node.value("stage", Json(0U)));
  }

  /// Number of a graph's operations, counting functions at each call, and how deep calls are nested.
  struct Extent {
    uint64_t operations = 0;
    uint64_t depth = 0;
  };

  /// Throws Error if they exceed the limits.
  Extent extent_of(const Json& nodes) const {
    Extent extent;
    for (const Json& node : nodes) {
      ++extent.operations;
      if (node.contains("function")) {
        const Extent& called = extents_.at(whole<size_t>(node.at("function")));
        extent.operations += called.operations;
        extent.depth = std::max(extent.depth, called.depth + 1);
      }
      if (extent.operations > kMostOperations || extent.depth > kDeepestCall)
        throw Error(fmt::format(
            "its functions call each other too often: it has more than {} operations, or {} nested calls",
            kMostOperations, kDeepestCall));
    }
    return extent;
  }

  Graph graph_from(const Json& json) {
    Graph graph;
    std::vector<ValueId> ids;
    for (const Json& value : json.at("values")) ids.push_back(add_value(graph, value));
    for (const Json& node : json.at("nodes")) add_node(graph, node, ids);
    mark_backward(graph, json.at("nodes"), ids);
    if (json.contains("stage_places")) {
      std::vector<uint32_t> places;
      for (const Json& place : json.at("stage_places")) places.push_back(whole<uint32_t>(place));
      graph.place_stages(std::move(places));
    }
    if (json.contains("stage_begins")) {
      std::vector<Value> begins;
      for (const Json& number : json.at("stage_begins"))
        begins.push_back(graph.value(ids.at(whole<size_t>(number))));
      graph.begin_stages(begins);
    }
    if (json.contains("balanced_stages")) graph.balance_stages(whole<uint32_t>(json.at("balanced_stages")));
    if (json.contains("partial_sums")) graph.set_partial_sums(partial_sums_from(json.at("partial_sums")));
    graph.set_prefetch(json.value("prefetch", false));
    if (json.contains("memory_budget")) graph.set_memory_budget(whole<uint64_t>(json.at("memory_budget")));
    for (const auto& [name, number] : json.at("outputs").items())
      graph.output(name, graph.value(ids.at(whole<size_t>(number))));
    return graph;
  }

  static PartialSums partial_sums_from(const Json& json) {
    if (!json.is_object())
      throw Error(
          fmt::format("its partial_sums are of the type {}; they must be an object", json.type_name()));
    PartialSums sums;
    if (json.contains("type")) sums.type = type_named(json.at("type").get<std::string>());
    if (!json.contains("seed")) return sums;
    sums.rounding = Rounding::stochastic;
    sums.seed = whole<uint64_t>(json.at("seed"));
    return sums;
  }

  static void mark_backward(Graph& graph, const Json& nodes, const std::vector<ValueId>& ids) {
    std::vector<Node> marked = graph.nodes();
    for (size_t n = 0; n < marked.size(); ++n) {
      marked[n].backward = nodes.at(n).value("backward", false);
      if (nodes.at(n).contains("gradient_of"))
        marked[n].gradient_of = ids.at(whole<size_t>(nodes.at(n).at("gradient_of")));
    }
    graph.set_nodes(std::move(marked));
  }

  ValueId add_value(Graph& graph, const Json& json) {
    const auto name = json.at("name").get<std::string>(), kind = json.at("kind").get<std::string>();
    const auto shape = shape_from(json.at("shape"));
    const Type type = type_named(json.at("type").get<std::string>());
    if (kind == "input") return graph.input(name, type_of(json, shape, type, "pattern")).id;
    if (kind == "constant") {
      const ValueInfo stored{.name = json.at("tensor").get<std::string>(), .type = {.shape = shape}};
      return graph.constant(given_by_user(name), shape, state_.values(stored, nullptr), type).id;
    }
    if (kind != "parameter") throw Error(fmt::format("'{}' is of an unknown kind '{}'", name, kind));
    const ValueInfo info{.name = name, .type = type_of(json, shape, type, "name")};
    const Initial initial = initial_of(info, json);
    const Value parameter = info.type.pattern ? graph.sparse_parameter(name, *info.type.pattern, initial,
                                                                       type, info.type.capacity)
                                              : graph.parameter(name, shape, initial, type);
    if (json.value("offloaded", false)) graph.offload(parameter);
    if (json.value("divided", false)) graph.shard(parameter);
    return parameter.id;
  }

  /// `pattern`: the key of its pattern's name.
  TensorType type_of(const Json& json, const Shape& shape, Type type, const char* pattern) {
    TensorType of{type, shape};
    if (!json.contains("block_size")) return of;
    if (json.contains("capacity")) of.capacity = whole<uint64_t>(json.at("capacity"));
    const Pattern bounds{shape.at(0), shape.at(1), whole<uint32_t>(json.at("block_size")), {}, {}};
    const uint64_t most = of.capacity.value_or(std::numeric_limits<uint64_t>::max());
    of.pattern =
        std::make_shared<const Pattern>(state_.pattern(json.at(pattern).get<std::string>(), bounds, most));
    return of;
  }

  Initial initial_of(const ValueInfo& info, const Json& json) {
    if (json.contains("initial")) {
      const Json& initial = json.at("initial");
      const auto kind = whole<uint32_t>(initial.at("kind"));
      if (kind >= static_cast<uint32_t>(Initial::Kind::values))
        throw Error(fmt::format("'{}' has initial values of an unknown kind {}", info.name, kind));
      return {static_cast<Initial::Kind>(kind), initial.at("scale").get<double>(), {}};
    }
    const auto known = initials_.find(info.name);
    if (known != initials_.end()) return known->second;
    return initials_[info.name] = Initial::from(state_.values(info, info.type.pattern.get()));
  }

  /// Empty for a name that a graph made of a value's number, which may have changed.
  static std::string given_by_user(std::string name) { return name.starts_with('%') ? "" : std::move(name); }

  void add_node(Graph& graph, const Json& json, std::vector<ValueId>& ids) {
    std::vector<Value> inputs;
    for (const Json& number : json.at("inputs")) inputs.push_back(graph.value(ids.at(whole<size_t>(number))));
    Node like{.operation = &find_operation(json.at("operation").get<std::string>())};
    if (json.contains("attributes"))
      for (const auto& [name, attribute] : json.at("attributes").items())
        like.attributes[name] = attribute_from(attribute);
    if (json.contains("function")) like.body = functions_.at(whole<size_t>(json.at("function")));
    const std::vector<Value> results = graph.apply(like, inputs);
    const Json& names = json.at("results");
    if (names.size() != results.size())
      throw Error(fmt::format("an operation has {} results, not {}", results.size(), names.size()));
    for (size_t i = 0; i < results.size(); ++i) {
      ids.push_back(results[i].id);
      const std::string name = given_by_user(names.at(i).get<std::string>());
      if (!name.empty()) graph.rename(results[i], name);
    }
    if (json.contains("offloaded"))
      for (const Json& position : json.at("offloaded")) graph.offload(results.at(whole<size_t>(position)));
  }

  StateFile state_;
  std::vector<std::shared_ptr<const Graph>> functions_;
  std::vector<Extent> extents_;  ///< by function
  std::map<std::string, Initial> initials_;
};

}  // namespace

void save_graphs(const std::string& path, const GraphFile& file, const Arrays& values) {
  Writer(file, values).write(path);
}

GraphFile load_graphs(const io::Source& source) try {
  return Reader(source).read();
} catch (const std::exception& error) {
  const std::string_view what = error.what();
  throw Error(what.starts_with(source.name()) ? std::string(what)
                                              : fmt::format("{}: {}", source.name(), what));
}

GraphFile load_graphs(const std::string& path) { return load_graphs(io::Source::open(path)); }

}  // namespace tessera::graph
