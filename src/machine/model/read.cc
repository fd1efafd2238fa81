#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tessera/error.h>
#include <toml++/toml.h>

#include <algorithm>
#include <span>
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
    Machine m = like();
    const bool has_links = m.chips > 1;
    m.kind = Kind::tiled;
    m.name = text(table_["name"], "name", std::filesystem::path(file_).stem().string());
    m.description = text(table_["description"], "description", "");
    for (const Key& key : keys()) read(key, m);
    if (table_["chips"] || has_links) read_chips(m, has_links);
    reject_unknown(has_links || !!table_["chips"]);
    check_chips(m, file_);
    return m;
  }

 private:
  using Node = toml::node_view<const toml::node>;

  /// The built-in machine that provides the figures missing from this file.
  Machine like() const {
    const std::string name = text(table_["like"], "like", "");
    if (name.empty()) return {};
    const std::vector<std::string> names = builtin_names();
    if (std::ranges::find(names, name) == names.end())
      throw Error(fmt::format("{}: unknown machine '{}' for 'like' (choose from {})", file_, name,
                              fmt::join(names, ", ")));
    return find(name, 0);
  }

  /// `key = number`, or `key = { value = number, source = "its source" }`.
  void read(const Key& key, Machine& machine) const {
    const Node node = table_[key.name];
    if (!node && std::ranges::find(machine.sources, key.name, &Figure::name) != machine.sources.end()) return;
    if (!node && !key.is_required()) return enter(machine, key, key.otherwise, "default", file_);
    if (!node)
      throw Error(fmt::format("{}: '{}' ({}) is missing; docs/machines.md lists what a machine needs", file_,
                              key.name, key.unit));
    const Node value_node = node.is_table() ? node["value"] : node;
    const auto value = value_node.is_number() ? value_node.value<double>() : std::nullopt;
    if (!value) throw Error(fmt::format("{}: '{}' must be a number ({})", file_, key.name, key.unit));
    enter(machine, key, *value, source_of(key, node), file_);
  }

  void read_chips(Machine& m, bool has_links) const {
    read(chip_keys().front(), m);
    if (m.chips == 1) return refuse_links();
    const std::string text =
        this->text(table_["topology"], "topology", has_links ? std::string(name_of(m.topology)) : "");
    for (const Topology topology : {Topology::ladder, Topology::torus, Topology::all_to_all})
      if (text == name_of(topology)) m.topology = topology;
    if (text.empty())
      throw Error(fmt::format(
          "{}: {} chips need links: set 'topology' (ladder, torus or all-to-all) and 'link_gb_per_second'",
          file_, m.chips));
    if (text != name_of(m.topology))
      throw Error(fmt::format("{}: 'topology' is '{}'; it must be ladder, torus or all-to-all", file_, text));
    if (table_["torus_width"] && m.topology != Topology::torus)
      throw Error(fmt::format("{}: 'torus_width' is for a torus, not for '{}'", file_, text));
    for (const Key& key : chip_keys().subspan(1)) read(key, m);
  }

  /// A figure that nothing would read is a mistake.
  void refuse_links() const {
    for (const auto& [name, value] : table_)
      if (name == "topology" || (name != "chips" && is_among(chip_keys(), name.str())))
        throw Error(
            fmt::format("{}: '{}' is for machines of several chips; 'chips' is 1", file_, name.str()));
  }

  static bool is_among(std::span<const Key> keys, std::string_view name) {
    return std::ranges::find(keys, name, &Key::name) != keys.end();
  }

  void reject_unknown(bool has_links) const {
    for (const auto& [name, value] : table_) {
      if (name == "name" || name == "description" || name == "like" || is_among(keys(), name.str())) continue;
      if (name == "topology" || is_among(chip_keys(), name.str())) {
        if (has_links) continue;
        throw Error(fmt::format("{}: '{}' is for machines of several chips; set 'chips'", file_, name.str()));
      }
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
