#include <fmt/format.h>
#include <tessera/error.h>
#include <toml++/toml.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "io/source.h"
#include "machine/model/keys.h"
#include "machine/model/machine.h"

namespace tessera::machine {
namespace {

class Reader {
 public:
  Reader(std::string_view content, std::string file) : file_(std::move(file)) {
    try {
      table_ = toml::parse(content, file_);
    } catch (const toml::parse_error& e) {
      throw Error(fmt::format("{}:{}: {}", file_, e.source().begin.line, e.description()));
    }
  }

  Machine machine() const {
    Machine m;
    m.kind = Kind::tiled;
    m.name = text(table_["name"], "name", std::filesystem::path(file_).stem().string());
    m.description = text(table_["description"], "description", "");
    for (const Key& key : keys()) read(key, m);
    reject_unknown();
    return m;
  }

 private:
  using Node = toml::node_view<const toml::node>;

  /// `key = number`, or `key = { value = number, source = "its source" }`.
  void read(const Key& key, Machine& machine) const {
    const Node node = table_[key.name];
    if (!node && !key.is_required()) return enter(machine, key, key.otherwise, "default", file_);
    if (!node)
      throw Error(fmt::format("{}: '{}' ({}) is missing; docs/machines.md lists what a machine needs", file_,
                              key.name, key.unit));
    const Node value_node = node.is_table() ? node["value"] : node;
    const auto value = value_node.is_number() ? value_node.value<double>() : std::nullopt;
    if (!value) throw Error(fmt::format("{}: '{}' must be a number ({})", file_, key.name, key.unit));
    enter(machine, key, *value, source_of(key, node), file_);
  }

  void reject_unknown() const {
    for (const auto& [name, value] : table_) {
      const auto is_it = [name = name.str()](const Key& key) { return key.name == name; };
      if (name != "name" && name != "description" && std::none_of(keys().begin(), keys().end(), is_it))
        throw Error(fmt::format("{}: unknown key '{}'; docs/machines.md lists the keys", file_, name.str()));
    }
  }

  std::string text(const Node& node, const std::string& key, std::string otherwise) const {
    if (node && !node.is_string()) throw Error(fmt::format("{}: '{}' must be text", file_, key));
    return node.value_or(std::move(otherwise));
  }

  std::string source_of(const Key& key, const Node& node) const {
    if (!node.is_table()) return {};
    for (const auto& [inner, value] : *node.as_table())
      if (inner.str() != "value" && inner.str() != "source")
        throw Error(fmt::format("{}: unknown key '{}.{}'; docs/machines.md lists the keys", file_, key.name,
                                inner.str()));
    return text(node["source"], fmt::format("{}.source", key.name), "");
  }

  std::string file_;
  toml::table table_;
};

}  // namespace

Machine read(const std::filesystem::path& file) {
  const std::vector<char> content = io::Source::open(file.string()).read_all();
  return parse({content.data(), content.size()}, file.string());
}

Machine parse(std::string_view content, const std::string& name) { return Reader(content, name).machine(); }

}  // namespace tessera::machine
