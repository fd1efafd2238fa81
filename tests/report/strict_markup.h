// A strict reader of well-formed markup, for tests: every element closed, every attribute quoted and unique,
// no invalid character, no entity but the five of XML and numeric ones.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::testing {

struct Node {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::vector<Node> children;
  std::string text;  ///< directly inside, with entities resolved

  /// Every node of that name below this node, in order.
  std::vector<const Node*> all(std::string_view wanted) const {
    std::vector<const Node*> found;
    collect(wanted, found);
    return found;
  }
  /// All text below this node.
  std::string whole_text() const {
    std::string all_text = text;
    for (const Node& child : children) all_text.append(" ").append(child.whole_text());
    return all_text;
  }
  std::string attribute(const std::string& key) const {
    const auto found = attributes.find(key);
    return found == attributes.end() ? "" : found->second;
  }

 private:
  void collect(std::string_view wanted, std::vector<const Node*>& found) const {
    for (const Node& child : children) {
      if (child.name == wanted) found.push_back(&child);
      child.collect(wanted, found);
    }
  }
};

class MarkupReader {
 public:
  /// The root of a document. Throws std::runtime_error with the position of the first error.
  static Node read(std::string_view text) {
    MarkupReader reader(text);
    reader.skip_if("<!DOCTYPE html>");
    reader.skip_space();
    Node root = reader.element();
    reader.skip_space();
    if (!reader.rest_.empty()) reader.fail("text after the root");
    return root;
  }

 private:
  explicit MarkupReader(std::string_view text) : whole_(text), rest_(text) {}

  [[noreturn]] void fail(const std::string& why) const {
    const size_t at = whole_.size() - rest_.size();
    throw std::runtime_error(why + " at " + std::to_string(at) + ": '" +
                             std::string(whole_.substr(at > 60 ? at - 60 : 0, 120)) + "'");
  }
  char peek() const { return rest_.empty() ? '\0' : rest_[0]; }
  char take() {
    if (rest_.empty()) fail("unexpected end");
    const char c = rest_[0];
    rest_.remove_prefix(1);
    return c;
  }
  bool skip_if(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  void expect(std::string_view token) {
    if (!skip_if(token)) fail("expected " + std::string(token));
  }
  static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }
  void skip_space() {
    while (is_space(peek())) take();
  }

  std::string name() {
    std::string word;
    while (isalnum(static_cast<unsigned char>(peek())) != 0 || peek() == '-' || peek() == ':') word += take();
    if (word.empty()) fail("expected a name");
    return word;
  }

  char entity() {
    for (const auto& [code, character] : std::map<std::string, char>{{"&amp;", '&'},
                                                                     {"&lt;", '<'},
                                                                     {"&gt;", '>'},
                                                                     {"&quot;", '"'},
                                                                     {"&#39;", '\''},
                                                                     {"&apos;", '\''}})
      if (skip_if(code)) return character;
    fail("unknown entity");
  }

  Node element() {
    expect("<");
    Node node;
    node.name = name();
    while (true) {
      const bool spaced = is_space(peek());
      skip_space();
      if (skip_if("/>")) return node;
      if (skip_if(">")) break;
      if (!spaced) fail("no space before an attribute");
      const std::string key = name();
      expect("=\"");
      std::string value;
      while (peek() != '"') {
        if (peek() == '<') fail("< in an attribute");
        value += peek() == '&' ? entity() : take();
      }
      take();
      if (!node.attributes.emplace(key, value).second) fail("attribute twice: " + key);
    }
    while (!rest_.starts_with("</")) {
      if (peek() == '<')
        node.children.push_back(element());
      else
        node.text += peek() == '&' ? entity() : take();
    }
    expect("</" + node.name + ">");
    return node;
  }

  std::string_view whole_;
  std::string_view rest_;
};

}  // namespace tessera::testing
