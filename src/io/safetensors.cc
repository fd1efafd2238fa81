#include "io/safetensors.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "base/memory.h"
#include "io/atomic_file.h"
#include "io/fail.h"
#include "io/json_text.h"
#include "io/safetensors_header.h"

namespace tessera::io {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kLongestHeader = 100'000'000;  // the format's own limit

struct Dtype {
  std::string_view name;
  size_t size;
  std::optional<Element> element;  // none: not readable as weights
};

constexpr Dtype kDtypes[] = {
    {"BOOL", 1, Element::boolean}, {"U8", 1, Element::u8},       {"I8", 1, Element::i8},
    {"F8_E4M3", 1, std::nullopt},  {"F8_E5M2", 1, std::nullopt}, {"U16", 2, Element::u16},
    {"I16", 2, Element::i16},      {"F16", 2, Element::f16},     {"BF16", 2, Element::bf16},
    {"U32", 4, Element::u32},      {"I32", 4, Element::i32},     {"F32", 4, Element::f32},
    {"U64", 8, Element::u64},      {"I64", 8, Element::i64},     {"F64", 8, Element::f64},
};

const Dtype* find_dtype(std::string_view name) {
  const auto* found = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                   [&](const Dtype& dtype) { return dtype.name == name; });
  return found == std::end(kDtypes) ? nullptr : found;
}

// Product of the sizes and `size`; none if it exceeds 64 bits.
std::optional<uint64_t> bytes_of(const std::vector<uint64_t>& shape, uint64_t size) {
  uint64_t bytes = size;
  for (uint64_t extent : shape) {
    if (extent != 0 && bytes > UINT64_MAX / extent) return std::nullopt;
    bytes *= extent;
  }
  return bytes;
}

// The format may get further types; for those only the offsets are checked.
void require_agreeing_size(const std::string& name, const TensorInfo& tensor) {
  const Dtype* dtype = find_dtype(tensor.dtype);
  if (dtype == nullptr) return;
  const auto bytes = bytes_of(tensor.shape, dtype->size);
  if (bytes == tensor.end - tensor.begin) return;
  fail(name, "tensor {} of {} {} has data of {} bytes, which do not agree", excerpt(tensor.name),
       tensor.dtype, shape_text(tensor.shape), tensor.end - tensor.begin);
}

// Offsets in the header are relative to its end.
void check_offsets(const std::string& name, std::vector<TensorInfo>& tensors, uint64_t data_begin,
                   uint64_t file_size) {
  const uint64_t data_size = file_size - data_begin;
  for (TensorInfo& tensor : tensors) {
    if (tensor.begin > tensor.end || tensor.end > data_size) {
      fail(name,
           "tensor {} has data_offsets [{}, {}], and the file has {} bytes of data; it may "
           "be truncated",
           excerpt(tensor.name), tensor.begin, tensor.end, data_size);
    }
    require_agreeing_size(name, tensor);
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t expected = data_begin;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != expected) {
      fail(name, "tensor {} begins at byte {}, and the data before it ends at byte {}: {}",
           excerpt(tensor.name), tensor.begin, expected,
           tensor.begin < expected ? "they overlap" : "there is a gap");
    }
    expected = tensor.end;
  }
  if (expected != file_size) {
    fail(name, "{} bytes after the last tensor belong to none", file_size - expected);
  }
}

// A duplicate name, if any.
std::optional<std::string_view> repeated_name(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  return twice == names.end() ? std::nullopt : std::optional(*twice);
}

void require_distinct_names(const std::string& name, const std::vector<TensorInfo>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  if (const auto twice = repeated_name(std::move(names))) {
    fail(name, "tensor {} is there twice", excerpt(*twice));
  }
}

}  // namespace

std::string shape_text(const std::vector<uint64_t>& shape) {
  return fmt::format(
      "[{}]", fmt::join(shape.begin(),
                        shape.begin() + std::min<ptrdiff_t>(8, static_cast<ptrdiff_t>(shape.size())), ", "));
}

std::vector<TensorInfo> list_safetensors(const Source& source, TensorMetadata* metadata) {
  const std::string& name = source.name();
  if (source.size() < kLengthBytes) {
    fail(name, "a file of {} bytes; .safetensors begins with 8 bytes of header length", source.size());
  }
  std::byte length_bytes[kLengthBytes];
  source.read(0, length_bytes);
  uint64_t length = 0;
  for (size_t i = kLengthBytes; i-- > 0;) {
    length = length << 8 | std::to_integer<uint64_t>(length_bytes[i]);
  }
  if (length > source.size() - kLengthBytes || length > kLongestHeader) {
    fail(name,
         "a header of {} bytes in a file of {}; at most {} are allowed, or the file is "
         "truncated",
         length, source.size(), kLongestHeader);
  }
  base::require_memory(4 * length, name + ": the header");
  std::string text(length, '\0');
  source.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  std::vector<TensorInfo> tensors = parse_safetensors_header(name, text, metadata);
  require_distinct_names(name, tensors);
  check_offsets(name, tensors, kLengthBytes + length, source.size());
  return tensors;
}

std::optional<Element> element_of(std::string_view dtype) {
  const Dtype* known = find_dtype(dtype);
  return known == nullptr ? std::nullopt : known->element;
}

// The library's name for the type, in capitals.
std::string dtype_of(Type type) {
  std::string name(name_of(type));
  for (char& c : name)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return name;
}

void write_safetensors(const std::string& path, std::span<const TensorData> tensors,
                       const TensorMetadata& metadata) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorData& tensor : tensors) {
    const Dtype* dtype = find_dtype(tensor.dtype);
    if (dtype == nullptr || bytes_of(tensor.shape, dtype->size) != tensor.bytes.size()) {
      throw UsageError(fmt::format("{}: tensor {} of {} {} with {} bytes; they do not agree", path,
                                   excerpt(tensor.name), tensor.dtype, shape_text(tensor.shape),
                                   tensor.bytes.size()));
    }
    if (tensor.name == "__metadata__") {
      throw UsageError(fmt::format("{}: no tensor may be called {}", path, excerpt(tensor.name)));
    }
    if (header.contains(tensor.name)) {
      throw UsageError(fmt::format("{}: tensor {} is there twice", path, excerpt(tensor.name)));
    }
    const uint64_t end = offset + tensor.bytes.size();
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data
  std::string length;
  for (size_t i = 0; i < kLengthBytes; ++i) length += static_cast<char>(text.size() >> 8 * i & 0xFF);
  AtomicFile file(path);
  file.write(std::as_bytes(std::span(length)));
  file.write(std::as_bytes(std::span(text)));
  for (const TensorData& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace tessera::io
