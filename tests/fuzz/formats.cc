#include "fuzz/formats.h"

#include <tessera/error.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

#include "data/image_files.h"
#include "io/matrix_market.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/smtx.h"
#include "io/source.h"
#include "packing/length_file.h"
#include "sparse/pattern.h"
#include "support/event_files.h"
#include "support/gzipped.h"

namespace tessera::fuzz {
namespace {

template <class Matrix>
void require_sound(const Matrix& matrix) try {
  sparse::validate(matrix);
} catch (const Error& error) {
  throw std::logic_error(std::string("a reader returned an unsound matrix: ") + error.what());
}

template <class Read>
bool accepts(std::span<const std::byte> content, Read read) {
  return fuzz::accepts([&] { read(io::Source("w", content)); });
}

bool read_smtx(std::span<const std::byte> content) {
  return accepts(content, [](const io::Source& source) { require_sound(io::read_smtx(source)); });
}

bool read_matrix_market(std::span<const std::byte> content) {
  return accepts(content, [](const io::Source& source) {
    const io::MatrixMarket market = io::read_matrix_market(source);
    if (market.has_values) {
      require_sound(market.matrix);
    } else {
      require_sound(market.matrix.pattern);
    }
  });
}

bool read_npy(std::span<const std::byte> content) {
  return accepts(content, [](const io::Source& source) { require_sound(io::read_npy(source)); });
}

bool read_safetensors(std::span<const std::byte> content) {
  return accepts(content, [](const io::Source& source) {
    const auto tensors = io::list_safetensors(source);
    for (const io::TensorInfo& tensor : tensors) {
      accepts({}, [&](const io::Source&) { require_sound(io::read_safetensors(source, tensor.name)); });
    }
  });
}

constexpr uint32_t kMaxLength = 1000;
constexpr size_t kIdxLabelsBytes = 10;  // of two labels

// Counts the lengths with every policy, and checks that the sums agree.
void require_sound(const pack::Lengths& lengths) {
  for (const pack::TooLong policy : {pack::TooLong::drop, pack::TooLong::truncate, pack::TooLong::split}) {
    const pack::Input input = pack::count(lengths, kMaxLength, policy);
    const bool agrees =
        input.sequences == lengths.size() && input.histogram.tokens() + input.lost_tokens == input.tokens;
    if (!agrees) throw std::logic_error("a reader counted lengths wrong");
  }
}

bool read_length_array(std::span<const std::byte> content, bool offsets) {
  return accepts(content, [&](const io::Source& source) {
    require_sound(pack::LengthFile::from_npy(source, nullptr, content.data(), offsets));
  });
}

bool read_lengths(std::span<const std::byte> content) { return read_length_array(content, false); }
bool read_offsets(std::span<const std::byte> content) { return read_length_array(content, true); }

bool read_lengths_text(std::span<const std::byte> content) {
  return accepts(content, [&](const io::Source& source) {
    pack::TextLengths text(source.name(), {reinterpret_cast<const char*>(content.data()), content.size()});
    require_sound(pack::LengthFile::from_text(text));
  });
}

bool read_length_histogram(std::span<const std::byte> content) {
  return accepts(content, [](const io::Source& source) {
    for (const pack::TooLong policy : {pack::TooLong::drop, pack::TooLong::truncate, pack::TooLong::split})
      pack::LengthFile::histogram(source, kMaxLength, policy);
  });
}

void require_sound(const ImageSet& set) {
  if (set.pixels.size() != set.count() * set.image_size())
    throw std::logic_error("images without all their pixels");
  for (uint8_t label : set.labels)
    if (label >= set.classes) throw std::logic_error("a class that does not exist");
}

// The file of images also stands in for that of labels, whose part begins after it.
bool read_idx_images(std::span<const std::byte> content) {
  const size_t labels = std::min<size_t>(content.size(), kIdxLabelsBytes);
  return accepts(content.first(content.size() - labels), [&](const io::Source& images) {
    require_sound(train::read_idx_images(images, io::Source("l", content.last(labels))));
  });
}

bool read_cifar10(std::span<const std::byte> content) {
  return accepts(content, [](const io::Source& source) { require_sound(train::read_cifar10(source)); });
}

std::vector<std::string> smtx_examples() {
  return {"3, 5, 4\n0 2 2 4\n1 4 0 3\n", "0, 0, 0\n0\n\n", "2, 2, 4\n0 2 4\n1 0 1 0\n",
          "4, 12, 7\n0 1 3 7 7\n11 0 10 2 3 4 5\n"};
}

std::vector<std::string> matrix_market_examples() {
  const std::string banner = "%%MatrixMarket matrix ";
  return {banner + "coordinate real general\n% note\n2 3 3\n2 3 -1.5e1\n1 1 .25\n2 1 nan\n",
          banner + "coordinate integer skew-symmetric\n3 3 2\n2 1 -7\n3 1 9\n",
          banner + "coordinate pattern symmetric\n3 3 2\n2 1\n3 3\n",
          banner + "array real general\n2 3\n1\n2\n0\n4\n5\n6\n",
          banner + "array integer symmetric\n2 2\n1 2 3\n"};
}

std::string npy_example(const std::string& descr, const std::string& shape, bool fortran, size_t data_bytes) {
  std::string data;
  for (size_t i = 0; i < data_bytes; ++i) data += i % 3 == 0 ? '\0' : '\x3F';
  return test::npy_file("'" + descr + "'", shape, data, fortran);
}

std::vector<std::string> npy_examples() {
  return {npy_example("<f4", "(2, 3)", false, 24), npy_example(">f8", "(3, 2)", true, 48),
          npy_example("<f2", "(4, 4)", false, 32), npy_example("|b1", "(5, 1)", true, 5),
          npy_example("<i8", "(0, 7)", false, 0)};
}

std::string safetensors_example(const std::string& json, size_t data_bytes) {
  std::string text;
  for (size_t i = 0; i < 8; ++i) text += static_cast<char>(json.size() >> 8 * i & 0xFF);
  text += json;
  for (size_t i = 0; i < data_bytes; ++i) text += i % 4 == 0 ? '\0' : '\x3F';
  return text;
}

std::vector<std::string> safetensors_examples() {
  return {
      safetensors_example("{}", 0),
      safetensors_example(
          R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24),
      safetensors_example(
          R"({"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},"a":{"dtype":"F16","shape":[1,2],"data_offsets":[0,4]},"c":{"dtype":"F64","shape":[3],"data_offsets":[12,36]}})",
          36)};
}

std::vector<std::string> lengths_examples() {
  return {npy_example("|u1", "(1,)", false, 0) + "\x07",
          npy_example("<u2", "(2,)", false, 0) + std::string("\1\0\x90\x3F", 4),
          npy_example(">i8", "(1,)", true, 0) + std::string("\0\0\0\0\0\0\1\2", 8),
          npy_example("<i4", "(0,)", false, 0)};
}

std::vector<std::string> offsets_examples() {
  return {npy_example("|u1", "(4,)", false, 0) + "\x01\x07\x08\xFF",
          npy_example(">u2", "(3,)", false, 0) + std::string("\0\1\1\0\xFF\0", 6),
          npy_example("<i8", "(1,)", false, 8)};
}

std::vector<std::string> lengths_text_examples() {
  return {"5\n7\n1200\n", " 4611686018427387904 \r\n1\t\n", "12", ""};
}

std::vector<std::string> length_histogram_examples() {
  return {"length,count\n3,4\n0,0\n17,5000000000\n", "5,1\r\n2000,3\r\n", "1,9\n1,2", ""};
}

std::vector<std::string> idx_examples() {
  const std::string images = std::string(
      "\0\0\x08\x03\0\0\0\x02\0\0\0\x01\0\0\0\x03"
      "abcdef",
      22);
  const std::string labels = std::string("\0\0\x08\x01\0\0\0\x02\x07\x01", kIdxLabelsBytes);
  return {images + labels, test::gzipped(images) + labels};
}

std::vector<std::string> cifar10_examples() {
  const std::string record = std::string(1, '\x05') + std::string(3072, 'p');
  return {record, record + record, test::gzipped(record)};
}

}  // namespace

const Format kSmtx{"smtx", read_smtx, smtx_examples};
const Format kMatrixMarket{"matrix_market", read_matrix_market, matrix_market_examples};
const Format kNpy{"npy", read_npy, npy_examples};
const Format kSafetensors{"safetensors", read_safetensors, safetensors_examples};
const Format kLengths{"lengths", read_lengths, lengths_examples};
const Format kLengthsText{"text of lengths", read_lengths_text, lengths_text_examples};
const Format kOffsets{"offsets", read_offsets, offsets_examples};
const Format kLengthHistogram{"histogram of lengths", read_length_histogram, length_histogram_examples};
const Format kIdxImages{"IDX images", read_idx_images, idx_examples};
const Format kCifar10{"CIFAR-10", read_cifar10, cifar10_examples};

}  // namespace tessera::fuzz
