#include "onnx/tensor_file.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <bit>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <utility>

#include "base/half.h"
#include "base/memory.h"
#include "base/parse_number.h"
#include "io/fail.h"
#include "io/source.h"

namespace tessera::onnx {
namespace {

using base::Bfloat16;
using base::Half;
using io::excerpt;
using wire::TensorProto;
namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "tensors are little-endian");

constexpr int kExternal = 1;

/// The bytes of a number of elements, several of which may share a byte.
uint64_t bytes_of(DataType type, uint64_t count) {
  return (count * static_cast<uint64_t>(bits_of(type)) + 7) / 8;
}

template <class T>
T number_at(const char* bytes, uint64_t i) {
  T number;
  std::memcpy(&number, bytes + i * sizeof(T), sizeof(T));
  return number;
}

float float_at(DataType type, const char* bytes, uint64_t i) {
  switch (type) {
    case DataType::f16: return base::to_float(Half(number_at<uint16_t>(bytes, i)));
    case DataType::bf16: return base::to_float(Bfloat16(number_at<uint16_t>(bytes, i)));
    case DataType::f64: return static_cast<float>(number_at<double>(bytes, i));
    default: return number_at<float>(bytes, i);
  }
}

bool is_packed(DataType type) { return bits_of(type) < 8; }

/// Element i of integers that share bytes, the first in the lowest bits; `byte(j)` gives byte j.
template <class Byte>
int64_t packed_at(DataType type, const Byte& byte, uint64_t i) {
  const auto bits = static_cast<uint64_t>(bits_of(type)), each = 8 / bits;
  return wrapped(int64_t{byte(i / each)} >> (i % each * bits), type);
}

int64_t integer_at(DataType type, const char* bytes, uint64_t i) {
  if (is_packed(type))
    return packed_at(
        type, [bytes](uint64_t j) { return number_at<uint8_t>(bytes, j); }, i);
  switch (type) {
    case DataType::i8: return number_at<int8_t>(bytes, i);
    case DataType::u8: return number_at<uint8_t>(bytes, i);
    case DataType::boolean: return number_at<uint8_t>(bytes, i) != 0 ? 1 : 0;
    case DataType::i16: return number_at<int16_t>(bytes, i);
    case DataType::u16: return number_at<uint16_t>(bytes, i);
    case DataType::i32: return number_at<int32_t>(bytes, i);
    case DataType::u32: return number_at<uint32_t>(bytes, i);
    default: return number_at<int64_t>(bytes, i);
  }
}

/// Reads one tensor.
class TensorReader {
 public:
  TensorReader(const TensorProto& tensor, const DataFolder& folder)
      : tensor_(tensor), folder_(folder), type_(static_cast<DataType>(tensor.data_type())) {}

  ConstantPointer read() {
    constant_.name = tensor_.name();
    constant_.type = type_;
    constant_.dims.assign(tensor_.dims().begin(), tensor_.dims().end());
    if (!is_known(type_)) fail("its elements are of type {}, which is not possible", tensor_.data_type());
    try {
      size_ = elements_of(constant_.dims);
    } catch (const Error& error) {
      fail("{}", error.what());
    }
    if (tensor_.data_location() == kExternal)
      read_external();
    else if (tensor_.has_raw_data())
      read_bytes(tensor_.raw_data());
    else
      read_fields();
    return std::make_shared<const Constant>(std::move(constant_));
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(fmt::format("the tensor {}: {}", excerpt(tensor_.name()),
                            fmt::format(format, std::forward<Args>(args)...)));
  }

  /// Throws Error if there is no memory for `bytes` more.
  void require_memory(uint64_t bytes) const {
    base::require_memory(bytes, fmt::format("the tensor {}", excerpt(tensor_.name())));
  }

  void require_size(uint64_t found) const {
    if (found != size_)
      fail("its shape {} has {} elements; {} are stored", to_string(constant_.dims), size_, found);
  }

  void require_bytes(uint64_t found) const {
    if (const uint64_t needed = bytes_of(type_, size_); found != needed)
      fail("its shape {} takes {} bytes; {} are stored", to_string(constant_.dims), needed, found);
  }

  void read_bytes(std::span<const char> bytes) {
    require_bytes(bytes.size());
    if (is_float(type_))
      set_floats([&](uint64_t i) { return float_at(type_, bytes.data(), i); });
    else
      set_integers([&](uint64_t i) { return integer_at(type_, bytes.data(), i); });
  }

  template <class Get>
  void set_floats(const Get& get) {
    require_memory(size_ * sizeof(float));
    std::vector<float> values(size_);
    for (uint64_t i = 0; i < size_; ++i) values[i] = get(i);
    constant_.values = std::make_shared<const std::vector<float>>(std::move(values));
  }

  template <class Get>
  void set_integers(const Get& get) {
    require_memory(size_ * sizeof(int64_t));
    std::vector<int64_t> values(size_);
    for (uint64_t i = 0; i < size_; ++i) values[i] = get(i);
    constant_.values = std::make_shared<const std::vector<int64_t>>(std::move(values));
  }

  /// Numbers that are no bytes: 16 bits and less as integers of 32 bits, which wrap around.
  void read_fields() {
    const auto at = [](const auto& field) {
      return [&field](uint64_t i) { return field.Get(static_cast<int>(i)); };
    };
    switch (type_) {
      case DataType::f32:
        require_size(static_cast<uint64_t>(tensor_.float_data_size()));
        return set_floats(at(tensor_.float_data()));
      case DataType::f64:
        require_size(static_cast<uint64_t>(tensor_.double_data_size()));
        return set_floats(
            [&](uint64_t i) { return static_cast<float>(tensor_.double_data().Get(static_cast<int>(i))); });
      case DataType::i64:
        require_size(static_cast<uint64_t>(tensor_.int64_data_size()));
        return set_integers(at(tensor_.int64_data()));
      case DataType::u32:
      case DataType::u64:
        require_size(static_cast<uint64_t>(tensor_.uint64_data_size()));
        return set_integers([&](uint64_t i) {
          return wrapped(static_cast<int64_t>(tensor_.uint64_data().Get(static_cast<int>(i))), type_);
        });
      default: return read_small();
    }
  }

  void read_small() {
    if (is_packed(type_)) return read_packed();
    require_size(static_cast<uint64_t>(tensor_.int32_data_size()));
    const auto bits = [&](uint64_t i) {
      return static_cast<uint16_t>(tensor_.int32_data().Get(static_cast<int>(i)));
    };
    if (type_ == DataType::f16) return set_floats([&](uint64_t i) { return base::to_float(Half(bits(i))); });
    if (type_ == DataType::bf16)
      return set_floats([&](uint64_t i) { return base::to_float(Bfloat16(bits(i))); });
    set_integers(
        [&](uint64_t i) { return wrapped(int64_t{tensor_.int32_data().Get(static_cast<int>(i))}, type_); });
  }

  /// Each integer has a byte.
  void read_packed() {
    require_bytes(static_cast<uint64_t>(tensor_.int32_data_size()));
    const auto byte = [&](uint64_t i) { return tensor_.int32_data().Get(static_cast<int>(i)); };
    set_integers([&](uint64_t i) { return packed_at(type_, byte, i); });
  }

  /// The text that external data has for a key.
  std::optional<std::string> entry(const char* key) const {
    for (const auto& each : tensor_.external_data())
      if (each.key() == key) return each.value();
    return {};
  }

  uint64_t number_entry(const char* key, uint64_t otherwise) const {
    const std::optional<std::string> text = entry(key);
    if (!text) return otherwise;
    const auto number = base::parse_number<uint64_t>(*text);
    if (!number) fail("its external data has the {} {}, which is not a number", key, excerpt(*text));
    return *number;
  }

  /// The path within the folder; links must not lead out of it.
  fs::path external_path() const {
    const std::string location = entry("location").value_or("");
    if (location.empty()) fail("its data is in another file, which it does not name");
    if (!folder_.is_known)
      fail("its data is in the file {}: read the model from its file, beside which that is",
           excerpt(location));
    if (location.find('\0') != std::string::npos)
      fail("its data is in {}, which is no name of a file", excerpt(location));
    const fs::path relative(location);
    bool leaves = relative.is_absolute();
    for (const fs::path& part : relative) leaves = leaves || part == "..";
    std::error_code ignored;
    const fs::path folder = fs::weakly_canonical(folder_.path.empty() ? "." : folder_.path, ignored);
    const fs::path path = fs::weakly_canonical(folder / relative, ignored);
    const auto [rest, end] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
    if (leaves || rest != folder.end())
      fail("its data is in {}: it must be in the folder of the model", excerpt(location));
    return path;
  }

  io::Source external_source() const {
    const fs::path path = external_path();
    try {
      return io::Source::open(path.string());
    } catch (const Error& error) {
      fail("{}", error.what());
    }
  }

  void read_external() {
    const io::Source source = external_source();
    const uint64_t bytes = bytes_of(type_, size_);
    const uint64_t offset = number_entry("offset", 0), length = number_entry("length", bytes);
    if (length != bytes)
      fail("its shape {} takes {} bytes; its external data has {}", to_string(constant_.dims), bytes, length);
    if (offset > source.size() || source.size() - offset < length)
      fail("its data are {} bytes from {} on, but {} has {}: is it complete?", length, offset, source.name(),
           source.size());
    require_memory(length + size_ * (is_float(type_) ? sizeof(float) : sizeof(int64_t)));
    std::vector<char> content(length);
    source.read(offset, std::as_writable_bytes(std::span(content)));
    read_bytes(content);
  }

  const TensorProto& tensor_;
  const DataFolder& folder_;
  DataType type_;
  uint64_t size_ = 0;
  Constant constant_;
};

}  // namespace

ConstantPointer read_tensor(const TensorProto& tensor, const DataFolder& folder) {
  return TensorReader(tensor, folder).read();
}

ConstantPointer read_sparse_tensor(const wire::SparseTensorProto& tensor, const DataFolder& folder) {
  const ConstantPointer values = read_tensor(tensor.values(), folder),
                        indices = read_tensor(tensor.indices(), folder);
  const std::string& name = tensor.values().name();
  const auto fail = [&](const std::string& why) {
    throw Error(fmt::format("the sparse tensor {}: {}", excerpt(name), why));
  };
  const Dims dims(tensor.dims().begin(), tensor.dims().end());
  uint64_t elements = 0;
  try {
    elements = elements_of(dims);
  } catch (const Error& error) {
    fail(error.what());
  }
  const uint64_t count = values->size();
  constexpr uint64_t kFew = uint64_t{1} << 20, kMostOfEach = 1000;  // zeros that few bytes may ask for
  if (elements > kFew + kMostOfEach * count)
    fail(fmt::format("{} has far more elements than the {} that are stored", to_string(dims), count));
  const bool by_place = indices->dims.size() == 1;
  const uint64_t each = by_place ? 1 : dims.size();
  if (indices->has_floats() || indices->size() != count * each)
    fail(fmt::format("{} values need as many whole indices, or {} for each", count, dims.size()));
  const uint64_t bytes = values->has_floats() ? sizeof(float) : sizeof(int64_t);
  base::require_memory(elements * bytes + elements / 8 + count * sizeof(uint64_t),
                       fmt::format("the sparse tensor {}", excerpt(name)));
  std::vector<uint64_t> places(count);
  std::vector<bool> is_set(elements);
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t place = 0;
    for (uint64_t d = 0; d < each; ++d) {
      const int64_t index = indices->integers()[i * each + d];
      const uint64_t size = by_place ? elements : static_cast<uint64_t>(dims[d]);
      if (index < 0 || static_cast<uint64_t>(index) >= size)
        fail(fmt::format("the index {} is beyond {}", index, to_string(dims)));
      place = place * size + static_cast<uint64_t>(index);
    }
    if (is_set[place]) fail(fmt::format("its element {} is given twice", place));
    is_set[place] = true;
    places[i] = place;
  }
  const auto dense = [&]<class T>(const std::vector<T>& numbers) {
    std::vector<T> all(elements);
    for (uint64_t i = 0; i < count; ++i) all[places[i]] = numbers[i];
    return std::make_shared<const std::vector<T>>(std::move(all));
  };
  Constant constant{.type = values->type, .dims = dims, .name = name};
  if (values->has_floats())
    constant.values = dense(values->floats());
  else
    constant.values = dense(values->integers());
  return std::make_shared<const Constant>(std::move(constant));
}

}  // namespace tessera::onnx
