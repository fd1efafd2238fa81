// Recipes of random graphs as C++.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/gradients.h>

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "random_graph.h"

namespace tessera::graph {
namespace {

std::string code_of(const TensorType& type) {
  if (!type.pattern)
    return fmt::format("{{{}}}{}", fmt::join(type.shape, ", "),
                       type.type == Type::f32 ? "" : fmt::format(", Type::{}", name_of(type.type)));
  const Pattern& p = *type.pattern;
  return fmt::format("Pattern{{{}, {}, {}, {{{}}}, {{{}}}}}, {{}}, Type::{}{}", p.rows, p.cols, p.block_size,
                     fmt::join(p.crow_indices, ", "), fmt::join(p.col_indices, ", "), name_of(type.type),
                     type.capacity ? fmt::format(", {}", *type.capacity) : "");
}

std::string code_of(const Attribute& attribute) {
  if (const auto* whole = std::get_if<int64_t>(&attribute)) return fmt::format("int64_t{{{}}}", *whole);
  if (const auto* real = std::get_if<double>(&attribute)) return fmt::format("{:#}", *real);
  if (const auto* text = std::get_if<std::string>(&attribute)) return fmt::format("\"{}\"", *text);
  return fmt::format("std::vector<int64_t>{{{}}}",
                     fmt::join(std::get<std::vector<int64_t>>(attribute), ", "));
}

std::string code_of(const ItemOutput& place) { return fmt::format("v{}[{}]", place.item, place.output); }

std::string code_of(const std::vector<ItemOutput>& places) {
  std::vector<std::string> texts;
  for (const ItemOutput& place : places) texts.push_back(code_of(place));
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string leaf_code(const Item& item, const std::string& name) {
  switch (item.kind) {
    case Kind::constant:
      return fmt::format("g.constant(\"{}\", {{{}}}, random_values(…), Type::{})", name,
                         fmt::join(item.type.shape, ", "), name_of(item.type.type));
    case Kind::state:
      return fmt::format("g.state(\"{}\", TensorType{{Type::{}, {{{}}}}})", name, name_of(item.type.type),
                         fmt::join(item.type.shape, ", "));
    case Kind::input: return fmt::format("g.input(\"{}\", {})", name, code_of(item.type));
    default: break;
  }
  if (item.type.pattern) return fmt::format("g.sparse_parameter(\"{}\", {})", name, code_of(item.type));
  return fmt::format("g.parameter(\"{}\", {{{}}}, {{}}, Type::{})", name, fmt::join(item.type.shape, ", "),
                     name_of(item.type.type));
}

std::string indented(const std::string& text) {
  std::string result = "  ";
  for (char c : text) result += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return result;
}

std::string code_of(const Loop& loop) {
  std::vector<std::string> carried;
  for (const auto& [input, output] : loop.carried)
    carried.push_back(fmt::format("{{\"{}\", \"{}\"}}", input, output));
  const auto names = [](const std::set<std::string>& of) {
    return of.empty() ? std::string() : fmt::format("\"{}\"", fmt::join(of, "\", \""));
  };
  return fmt::format(
      "{{.count = {}, .indexed = {{{}}}, .carried = {{{}}}, .stacked = {{{}}}, .summed = {{{}}}, .scale = "
      "{}, "
      ".reversed = {}}}",
      loop.count, names(loop.indexed), fmt::join(carried, ", "), names(loop.stacked), names(loop.summed),
      loop.scale, loop.reversed);
}

std::string operation_code(const Item& item, size_t index) {
  if (item.loop)
    return fmt::format("g.loop([] {{\n{}\n  return g; }}(), {{{}}}, {})", indented(code_of(*item.body)),
                       code_of(item.inputs), code_of(*item.loop));
  if (item.body)
    return fmt::format("g.call([] {{\n{}\n  return g; }}(), {{{}}})", indented(code_of(*item.body)),
                       code_of(item.inputs));
  if (item.case_body)
    return fmt::format("g.apply({{\"{}\", body{}}}, {{{}}})", item.operation, index, code_of(item.inputs));
  std::vector<std::string> attributes;
  for (const auto& [name, attribute] : item.attributes)
    attributes.push_back(fmt::format("{{\"{}\", {}}}", name, code_of(attribute)));
  return fmt::format("g.apply(\"{}\", {{{}}}, {{{}}})", item.operation, code_of(item.inputs),
                     fmt::join(attributes, ", "));
}

std::string code_of(const Sgd& o) {
  return fmt::format("Sgd{{{}, {}, {}}}", o.momentum, o.weight_decay, o.nesterov);
}
std::string code_of(const Adam& o) {
  return fmt::format("Adam{{{}, {}, {}, {}, {}, {}}}", o.beta1, o.beta2, o.epsilon, o.weight_decay,
                     o.decoupled, o.bias_correction);
}
std::string code_of(const Lamb& o) {
  return fmt::format("Lamb{{{}, {}, {}, {}, {}}}", o.beta1, o.beta2, o.epsilon, o.weight_decay,
                     o.bias_correction);
}
std::string code_of(const Lars& o) {
  return fmt::format("Lars{{{}, {}, {}}}", o.momentum, o.weight_decay, o.trust_coefficient);
}

std::string code_of(const std::vector<ParameterGroup>& groups) {
  std::string code;
  const auto flag = [](const char* name, const std::optional<bool>& value) {
    return value ? fmt::format(", .{} = {}", name, *value) : std::string();
  };
  for (const ParameterGroup& group : groups)
    code += fmt::format(
        "{{.names = {{\"{}\"}}, .lr_scale = {}, .weight_decay = {}, .trust_ratio = {}{}{}{}{}{}{}}}",
        fmt::join(group.names, "\", \""), *group.lr_scale, *group.weight_decay, *group.trust_ratio,
        flag("shard", group.shard), flag("shard_weights", group.shard_weights),
        flag("shard_gradients", group.shard_gradients), flag("offload", group.offload),
        flag("offload_weights", group.offload_weights), flag("offload_gradients", group.offload_gradients));
  return code;
}

std::string lesson_code(const Lesson& lesson) {
  const TrainingOptions& o = lesson.options;
  const auto least = [](const char* name, const std::optional<uint64_t>& elements) {
    return elements ? fmt::format(", .{} = {}", name, *elements) : std::string();
  };
  return fmt::format(
      "add_training(mean({}({})), {{.optimizer = {}{}, .micro_batches = {}, .pipeline = "
      "{{pipeline_named(\"{}\"), {{{}}}{}}}, "
      ".groups = {{{}}}, "
      ".replicas = {}{}{}{}{}{}{}{}, .state = Type::{}}});{}\n",
      lesson.squared ? "square of " : "", code_of(lesson.losses),
      std::visit([](const auto& one) { return code_of(one); }, o.optimizer),
      o.clip_norm ? fmt::format(", .clip_norm = {}", *o.clip_norm) : "", o.micro_batches,
      name_of(o.pipeline.kind), fmt::join(o.pipeline.recomputed, ", "),
      o.pipeline.offload_from ? fmt::format(", {}", *o.pipeline.offload_from) : "", code_of(o.groups),
      o.replicas, least("shard_from", o.shard_from), least("shard_weights_from", o.shard_weights_from),
      least("shard_gradients_from", o.shard_gradients_from), least("offload_from", o.offload_from),
      least("offload_weights_from", o.offload_weights_from),
      least("offload_gradients_from", o.offload_gradients_from), o.prefetch ? ", .prefetch = true" : "",
      name_of(o.state), lesson.has_gradient_outputs ? "  // and gradients are outputs" : "");
}

}  // namespace

std::string code_of(const Recipe& recipe) {
  std::string text = "Graph g;\n";
  for (size_t i = 0; i < recipe.items.size(); ++i) {
    const Item& item = recipe.items[i];
    const bool is_leaf = item.kind != Kind::result;
    text += fmt::format("const std::vector<Value> v{} = {}{}{};{}\n", i, is_leaf ? "{" : "",
                        is_leaf ? leaf_code(item, name_of_item(i)) : operation_code(item, i),
                        is_leaf ? "}" : "", item.stage ? fmt::format("  // on stage {}", *item.stage) : "");
  }
  for (const ItemOutput& place : recipe.outputs)
    text += fmt::format("g.output(\"y{}.{}\", {});\n", place.item, place.output, code_of(place));
  for (const auto& [item, place] : recipe.assignments)
    text += fmt::format("g.assign(v{}[0], {});\n", item, code_of(place));
  if (recipe.lesson) text += lesson_code(*recipe.lesson);
  return text;
}

}  // namespace tessera::graph
