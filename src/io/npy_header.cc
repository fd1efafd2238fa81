#include "io/npy_header.h"

#include <bit>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "io/fail.h"

namespace tessera::io {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

// Parses the header, a Python dictionary with a small subset of the language.
class DictionaryParser {
 public:
  DictionaryParser(const std::string& name, std::string_view text, NpyRecords records)
      : name_(name), text_(text), records_(records) {}

  struct Field {
    std::string_view name;
    std::string_view descr;
  };
  struct Header {
    std::string_view descr;
    std::vector<Field> fields;
    bool fortran_order = false;
    std::vector<uint64_t> shape;
  };

  Header parse() {
    std::optional<std::string_view> descr;
    std::optional<bool> fortran_order;
    std::optional<std::vector<uint64_t>> shape;
    expect('{');
    while (!accept('}')) {
      const std::string_view key = string();
      expect(':');
      if (key == "descr" && !descr) {
        descr = description();
      } else if (key == "fortran_order" && !fortran_order) {
        fortran_order = boolean();
      } else if (key == "shape" && !shape) {
        shape = tuple();
      } else {
        fail(name_, "the header has an unknown or repeated key {}", excerpt(key));
      }
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_spaces();
    if (!text_.empty()) malformed("nothing");
    if (!descr || !fortran_order || !shape) {
      fail(name_, "the header lacks one of descr, fortran_order and shape");
    }
    return {*descr, std::move(fields_), *fortran_order, *shape};
  }

 private:
  void skip_spaces() {
    const size_t first = text_.find_first_not_of(" \n");
    text_.remove_prefix(std::min(first, text_.size()));
  }

  [[noreturn]] void malformed(std::string_view expected) {
    fail(name_, "the header is malformed: {} was expected before {}", expected, excerpt(text_));
  }

  bool accept(char c) {
    skip_spaces();
    if (!text_.starts_with(c)) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c)) malformed(std::string{'\'', c, '\''});
  }

  std::string_view string() {
    skip_spaces();
    if (!text_.starts_with('\'') && !text_.starts_with('"')) malformed("a string");
    const size_t end = text_.find(text_.front(), 1);
    if (end == std::string_view::npos) malformed("a closing quote");
    const std::string_view value = text_.substr(1, end - 1);
    text_.remove_prefix(end + 1);
    return value;
  }

  std::string_view description() {
    skip_spaces();
    if (!text_.starts_with('[')) return string();
    if (records_ == NpyRecords::refused)
      fail(name_, "an array of records; only arrays of numbers can be read");
    records();
    return {};
  }

  // [('x', '<i2'), ('t', '<i8')]
  void records() {
    expect('[');
    while (!accept(']')) {
      expect('(');
      const std::string_view name = string();
      expect(',');
      skip_spaces();
      if (text_.starts_with('[')) fail(name_, "records within records; only numbers can be read");
      fields_.push_back({name, string()});
      if (accept(',')) fail(name_, "records with arrays; only numbers can be read");
      expect(')');
      if (!accept(',')) {
        expect(']');
        break;
      }
    }
    if (fields_.empty()) fail(name_, "an array of records without fields");
  }

  bool boolean() {
    skip_spaces();
    for (const auto& [word, value] : {std::pair("True", true), std::pair("False", false)}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(std::string_view(word).size());
      return value;
    }
    malformed("True or False");
  }

  std::vector<uint64_t> tuple() {
    std::vector<uint64_t> sizes;
    expect('(');
    while (!accept(')')) {
      skip_spaces();
      uint64_t size = 0;
      const auto [next, error] = std::from_chars(text_.data(), text_.data() + text_.size(), size);
      if (error != std::errc()) malformed("a size");
      text_.remove_prefix(static_cast<size_t>(next - text_.data()));
      sizes.push_back(size);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return sizes;
  }

  const std::string& name_;
  std::string_view text_;
  NpyRecords records_;
  std::vector<Field> fields_;
};

struct Kind {
  std::string_view code;
  Element element;
};
constexpr Kind kKinds[] = {
    {"b1", Element::boolean}, {"i1", Element::i8},  {"u1", Element::u8},  {"i2", Element::i16},
    {"u2", Element::u16},     {"i4", Element::i32}, {"u4", Element::u32}, {"i8", Element::i64},
    {"u8", Element::u64},     {"f2", Element::f16}, {"f4", Element::f32}, {"f8", Element::f64},
};
constexpr bool kBigEndian = std::endian::native == std::endian::big;

// Sets element type and byte order of a header or a field from a description such as "<f4".
template <class Typed>
void set_type(const std::string& name, std::string_view descr, Typed& typed) {
  const std::string_view orders = "<>|=";
  const bool ordered = !descr.empty() && orders.find(descr.front()) != std::string_view::npos;
  for (const Kind& kind : kKinds) {
    if (!ordered || descr.substr(1) != kind.code) continue;
    typed.element = kind.element;
    typed.big_endian = descr.front() == '>' || (descr.front() == '=' && kBigEndian);
    return;
  }
  fail(name, "elements of type {}; use float16, float32, float64, integers or booleans", excerpt(descr));
}

std::string read_text(const Source& source, uint64_t offset, size_t size) {
  std::string text(size, '\0');
  source.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

// The dictionary's text; sets the offset of the data that follows.
std::string read_header_text(const Source& source, uint64_t& data_offset) {
  const std::string& name = source.name();
  constexpr uint64_t kFixed = 8;
  if (source.size() < kFixed || read_text(source, 0, kMagic.size()) != kMagic) {
    fail(name, "not a .npy file: it does not begin with \\x93NUMPY");
  }
  const auto major = static_cast<unsigned char>(read_text(source, kMagic.size(), 1).front());
  if (major < 1 || major > 3) fail(name, ".npy version {}; versions 1 to 3 can be read", major);
  const uint64_t length_bytes = major == 1 ? 2 : 4;
  const std::string length_text = read_text(source, kFixed, length_bytes);
  uint64_t length = 0;
  for (size_t i = length_bytes; i-- > 0;) {
    length = length << 8 | static_cast<unsigned char>(length_text[i]);
  }
  data_offset = kFixed + length_bytes + length;
  constexpr uint64_t kLongest = 1 << 16;  // a header of numbers has about 100 bytes
  if (length > kLongest || data_offset > source.size()) {
    fail(name, "a header of {} bytes in a file of {}; it may be truncated or damaged", length, source.size());
  }
  return read_text(source, kFixed + length_bytes, length);
}

}  // namespace

NpyHeader read_npy_header(const Source& source, NpyRecords records) {
  NpyHeader header;
  const std::string text = read_header_text(source, header.data_offset);
  auto parsed = DictionaryParser(source.name(), text, records).parse();
  if (parsed.fields.empty()) {
    set_type(source.name(), parsed.descr, header);
    header.element_bytes = size_of(header.element);
  }
  for (const auto& [name, descr] : parsed.fields) {
    NpyField& field = header.fields.emplace_back();
    field.name = name;
    field.offset = header.element_bytes;
    set_type(source.name(), descr, field);
    header.element_bytes += size_of(field.element);
  }
  header.fortran_order = parsed.fortran_order;
  header.shape = std::move(parsed.shape);
  return header;
}

std::string npy_header_text(Element element, std::span<const uint64_t> shape) {
  std::string_view code;
  for (const Kind& kind : kKinds)
    if (kind.element == element) code = kind.code;
  const char order = size_of(element) == 1 ? '|' : kBigEndian ? '>' : '<';
  std::string sizes;
  for (const uint64_t size : shape) sizes += fmt::format("{}{}", sizes.empty() ? "" : ", ", size);
  if (shape.size() == 1) sizes += ',';
  std::string header =
      fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}", order, code, sizes);
  // The data begins at a multiple of 64 bytes, after magic, version, length and a line end.
  constexpr size_t kBefore = 10;
  constexpr size_t kAlignment = 64;
  while ((kBefore + header.size() + 1) % kAlignment != 0) header += ' ';
  header += '\n';
  std::string text(kMagic);
  text += {'\x01', '\x00', static_cast<char>(header.size() & 0xFF), static_cast<char>(header.size() >> 8)};
  return text + header;
}

}  // namespace tessera::io
