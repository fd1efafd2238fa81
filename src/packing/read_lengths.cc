#include <fcntl.h>
#include <tessera/packing.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "io/fail.h"
#include "io/mapped_file.h"
#include "io/npy_header.h"
#include "io/source.h"
#include "packing/counter.h"
#include "packing/length_file.h"
#include "packing/text_lengths.h"

namespace tessera::pack {
namespace {

using io::Element;

bool is_signed(Element element) {
  return element == Element::i8 || element == Element::i16 || element == Element::i32 ||
         element == Element::i64;
}

bool is_integer(Element element) {
  return is_signed(element) || element == Element::u8 || element == Element::u16 || element == Element::u32 ||
         element == Element::u64;
}

// An array of 4-byte numbers until one needs 8 bytes.
class GrowingArray {
 public:
  void append(std::span<const uint64_t> values) {
    for (const uint64_t value : values) {
      if (wide_.empty() && value <= std::numeric_limits<uint32_t>::max()) {
        narrow_.push_back(static_cast<uint32_t>(value));
        continue;
      }
      if (!narrow_.empty()) widen();
      wide_.push_back(value);
    }
  }

  std::vector<uint32_t> narrow_;
  std::vector<uint64_t> wide_;

 private:
  void widen() {
    wide_.assign(narrow_.begin(), narrow_.end());
    narrow_ = {};
  }
};

Lengths read_npy(const std::string& path, bool differences) {
  auto file = std::make_shared<const io::MappedFile>(path);
  const std::span<const std::byte> content = file->content();
  return LengthFile::from_npy(io::Source(path, content), std::move(file), content.data(), differences);
}

// An open file or pipe; opening a pipe waits for its writer.
struct Descriptor {
  explicit Descriptor(const std::string& path) : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (number < 0) io::fail(path, "cannot open the file: {}", std::strerror(errno));
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number); }

  const int number;
};

struct Row {
  uint64_t length = 0;
  uint64_t count = 0;
};

// "LENGTH,COUNT"
std::optional<Row> parse_row(std::string_view line) {
  Row row;
  const char* end = line.data() + line.size();
  const auto length = std::from_chars(line.data(), end, row.length);
  if (length.ec != std::errc() || length.ptr == end || *length.ptr != ',') return std::nullopt;
  const auto count = std::from_chars(length.ptr + 1, end, row.count);
  if (count.ec != std::errc() || count.ptr != end) return std::nullopt;
  return row;
}

// The next line of a text, without its line end.
std::string_view take_line(std::string_view& text) {
  const size_t end = std::min(text.find('\n'), text.size());
  std::string_view line = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

Lengths LengthFile::from_npy(const io::Source& source, std::shared_ptr<const void> owner, const void* content,
                             bool differences) {
  const io::NpyHeader header = io::read_npy_header(source);
  if (!is_integer(header.element)) {
    io::fail(source.name(), "an array of other numbers than integers; {} are whole numbers (astype does it)",
             differences ? "offsets" : "lengths");
  }
  if (header.shape.size() != 1) {
    io::fail(source.name(), "an array of {} dimensions; {} have one (flatten it)", header.shape.size(),
             differences ? "offsets" : "lengths");
  }
  const uint64_t size = header.shape[0];
  const uint64_t width = io::size_of(header.element);
  const uint64_t room = source.size() - header.data_offset;
  if (size > room / width || size * width != room) {
    io::fail(source.name(),
             "{} elements of {} bytes, and {} bytes follow the header; the file may be truncated", size,
             width, room);
  }
  if (differences && size == 0) {
    io::fail(source.name(), "no offsets; n documents have n + 1, and none have the offset 0");
  }
  Lengths lengths;
  lengths.data_ = static_cast<const std::byte*>(content) + header.data_offset;
  lengths.size_ = differences ? size - 1 : size;
  lengths.width_ = static_cast<uint8_t>(width);
  lengths.signed_ = is_signed(header.element);
  lengths.swapped_ = header.big_endian != (std::endian::native == std::endian::big);
  lengths.differences_ = differences;
  lengths.name_ = source.name();
  lengths.owner_ = std::move(owner);
  return lengths;
}

Lengths LengthFile::from_text(TextLengths& text) {
  auto array = std::make_shared<GrowingArray>();
  for (auto part = text.next(); !part.empty(); part = text.next()) array->append(part);
  Lengths lengths = array->wide_.empty() ? Lengths(std::span<const uint32_t>(array->narrow_))
                                         : Lengths(std::span<const uint64_t>(array->wide_));
  lengths.name_ = text.name();
  lengths.lines_ = true;
  lengths.owner_ = std::move(array);
  return lengths;
}

Lengths read_lengths(const std::string& path) {
  if (path.ends_with(".npy")) return read_npy(path, false);
  if (path == "-") {
    TextLengths text("standard input", STDIN_FILENO);
    return LengthFile::from_text(text);
  }
  const Descriptor file(path);
  TextLengths text(path, file.number);
  return LengthFile::from_text(text);
}

Lengths read_offsets(const std::string& path) { return read_npy(path, true); }

Input LengthFile::histogram(const io::Source& source, uint32_t max_length, Overlong policy) {
  const std::vector<char> bytes = source.read_all();
  std::string_view text(bytes.data(), bytes.size());
  Counter counter(max_length, policy);
  for (uint64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = take_line(text);
    if (number == 1 && line == "length,count") continue;
    const std::optional<Row> row = parse_row(line);
    if (!row) {
      io::fail(source.name(), "line {}: there is {}; a line is LENGTH,COUNT, two whole numbers", number,
               io::excerpt(line));
    }
    if (row->length == 0 && row->count != 0) {
      io::fail(source.name(), "line {}: {} sequences of length 0; a sequence has 1 token at least", number,
               row->count);
    }
    if (!counter.add(row->length, row->count))
      io::fail(source.name(), "line {}: {}", number, overlong_text(row->length, max_length));
  }
  return std::move(counter).finish();
}

Input read_histogram(const std::string& path, uint32_t max_length, Overlong policy) {
  return LengthFile::histogram(io::Source::open(path), max_length, policy);
}

}  // namespace tessera::pack
