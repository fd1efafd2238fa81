#include "fuzz/formats.h"

#include <tessera/error.h>
#include <tessera/onnx.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <utility>
#include <variant>

#include "data/events/aedat.h"
#include "data/events/binning.h"
#include "data/events/event_array.h"
#include "data/events/n_mnist.h"
#include "data/image_files.h"
#include "data/text/token_file.h"
#include "io/matrix_market.h"
#include "io/model_files.h"
#include "io/non_zeros.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "io/smtx.h"
#include "io/source.h"
#include "io/stored_weights.h"
#include "packing/length_file.h"
#include "sparse/pattern.h"
#include "support/event_files.h"
#include "support/gzipped.h"
#include "support/onnx_file.h"
#include "support/safetensors_file.h"

namespace tessera::fuzz {
namespace {

using test::aedat_event;
using test::aedat_header;
using test::aedat_packet;
using test::little_endian;
using test::n_mnist_event;
using test::npy_file;

void require(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

template <class Matrix>
void require_sound(const Matrix& matrix) try {
  sparse::validate(matrix);
} catch (const Error& error) {
  throw std::logic_error(std::string("a reader returned an unsound matrix: ") + error.what());
}

void read_matrix_market(const io::Source& source) {
  const io::MatrixMarket market = io::read_matrix_market(source);
  if (market.has_values) {
    require_sound(market.matrix);
  } else {
    require_sound(market.matrix.pattern);
  }
}

void read_safetensors(const io::Source& source) {
  for (const io::TensorInfo& tensor : io::list_safetensors(source)) {
    try {
      require_sound(io::read_safetensors(source, tensor.name));
    } catch (const Error&) {  // of this tensor
    }
  }
}

/// Weights in all forms.
void read_stored_weights(const io::Source& source) {
  std::vector<io::StoredTensor> tensors;
  for (io::TensorInfo& info : io::list_safetensors(source)) tensors.push_back({&source, std::move(info)});
  for (const io::StoredWeight& weight : io::group_weights(std::move(tensors))) {
    const io::WeightHeader header = io::read_header(weight);
    if (!header.type) continue;
    const sparse::NonZeros non_zeros = io::read_non_zeros(weight, header);
    if (const auto* pattern = std::get_if<Pattern>(&non_zeros)) require_sound(*pattern);
    const bool has_size = std::visit(
        [&](const auto& found) {
          if constexpr (requires { found.block_size; })
            return found.rows == header.rows() && found.cols == header.cols() && found.block_size == 1;
          else
            return found.rows() == header.rows() && found.cols() == header.cols();
        },
        non_zeros);
    require(has_size, "non-zeros of another size");
  }
}

constexpr uint32_t kMaxLength = 1000;
constexpr size_t kIdxLabelsBytes = 10;  // of two labels
constexpr pack::Overlong kPolicies[] = {pack::Overlong::drop, pack::Overlong::truncate,
                                        pack::Overlong::split};

// Counts the lengths with every policy, and checks that the sums agree.
void require_sound(const pack::Lengths& lengths) {
  for (const pack::Overlong policy : kPolicies) {
    const pack::Input input = pack::count(lengths, kMaxLength, policy);
    require(input.sequences == lengths.size() && input.histogram.tokens() + input.lost_tokens == input.tokens,
            "a reader counted lengths wrong");
  }
}

template <bool kOffsets>
void read_length_array(const io::Source& source) {
  const std::vector<char> content = source.read_all();
  require_sound(pack::LengthFile::from_npy(source, nullptr, content.data(), kOffsets));
}

void read_lengths_text(const io::Source& source) {
  const std::vector<char> content = source.read_all();
  pack::TextLengths text(source.name(), {content.data(), content.size()});
  require_sound(pack::LengthFile::from_text(text));
}

void read_length_histogram(const io::Source& source) {
  for (const pack::Overlong policy : kPolicies) pack::LengthFile::histogram(source, kMaxLength, policy);
}

void require_sound(const ImageSet& set) {
  require(set.pixels.size() == set.count() * set.image_size(), "images without all their pixels");
  for (const uint8_t label : set.labels) require(label < set.classes, "a class that does not exist");
}

// The file of images also stands for the file of labels, whose part begins after it.
void read_idx_images(const io::Source& source) {
  const std::vector<char> content = source.read_all();
  const auto bytes = std::as_bytes(std::span(content));
  const size_t labels = std::min(bytes.size(), kIdxLabelsBytes);
  require_sound(train::read_idx_images(io::Source("w", bytes.first(bytes.size() - labels)),
                                       io::Source("l", bytes.last(labels))));
}

void require_sound(const Recordings& r) {
  require(r.begin.size() == r.count() + 1, "a recording without its spikes");
  for (const uint32_t label : r.labels) require(label < r.classes, "a class that does not exist");
  for (size_t i = 0; i < r.count(); ++i) {
    const auto spikes = r.spikes(i);
    for (const SpikeEvent& event : spikes)
      require(event.step < r.steps && event.unit < r.units, "a spike that does not exist");
    require(std::ranges::adjacent_find(spikes, std::greater_equal<>()) == spikes.end(), "spikes in disorder");
  }
}

/// Through a sensor's view into steps.
void require_sound(const std::vector<train::PixelEvent>& events, uint32_t side) {
  for (const train::PixelEvent& event : events)
    require(event.x < side && event.y < side && event.polarity < 2 && event.time >= 0, "an impossible event");
  const train::SensorView view(side, side, {.downscale = std::max(1U, side / 34)});
  Recordings to{.steps = 10, .units = view.units(), .classes = 1};
  train::Binning binning(to, 100'000);
  uint64_t outside = 0;
  binning.add(train::seen_through(view, events, 0, outside), 0);
  require_sound(to);
}

void read_gestures(const io::Source& source) {
  for (const train::Gesture& gesture : train::read_gestures(source))
    require(gesture.label < train::kGestures && gesture.begin < gesture.end, "an impossible gesture");
}

void read_onnx_file(const io::Source& source) {
  const std::vector<char> content = source.read_all();
  const onnx::Model model = onnx::Model::parse(std::as_bytes(std::span(content)));
  for (const auto& [name, count] : model.operators()) require(count > 0, "an operator that no node has");
}

void read_token_file(const io::Source& source) {
  const TokenText text =
      train::read_tokens({std::shared_ptr<void>(), &source});  // the bytes outlive the text
  for (const uint32_t token : text.tokens.all())
    require(token < text.vocabulary, "a token that does not exist");
  require(text.sentences.back() == text.tokens.size() && text.documents.back() + 1 == text.sentences.size(),
          "tokens of no sentence, or sentences of no document");
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
  return npy_file("'" + descr + "'", shape, data, fortran);
}

std::vector<std::string> npy_examples() {
  return {npy_example("<f4", "(2, 3)", false, 24), npy_example(">f8", "(3, 2)", true, 48),
          npy_example("<f2", "(4, 4)", false, 32), npy_example("|b1", "(5, 1)", true, 5),
          npy_example("<i8", "(0, 7)", false, 0)};
}

std::string safetensors_example(const std::string& json, size_t data_bytes) {
  std::string text = little_endian(json.size(), 8) + json;
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

std::vector<std::string> stored_weights_examples() {
  const std::vector<float> four = {1, 2, 0, 4};
  return {
      test::SafetensorsFile().floats("w_orig", {2, 2}, four).bytes("w_mask", {2, 2}, {1, 0, 1, 1}).content(),
      test::SafetensorsFile()
          .integers("w.crow_indices", {0, 2, 3})
          .integers("w.col_indices", {0, 2, 1})
          .floats("w.values", {3}, {1, 2, 3})
          .integers("w.shape", {2, 3})
          .content(),
      test::SafetensorsFile()
          .integers("w.crow_indices", {0, 1})
          .integers("w.col_indices", {1})
          .floats("w", {1, 2, 2}, four)
          .content(),
      test::SafetensorsFile()
          .floats("l.weight", {8}, std::vector<float>(8, 1))
          .integers("l.crow_indices", {0, 1, 2})
          .integers("l.col_indices", {1, 0})
          .integers("l.packed_format", {3})
          .integers("l.sizes", {3, 4, 2})
          .content(),
      test::SafetensorsFile()
          .bytes("l.bitmask", {2, 2}, {5, 1, 0, 2})
          .floats("l.compressed", {4}, four)
          .integers("l.shape", {2, 10})
          .integers("l.row_offsets", {0, 3})
          .content(),
      test::SafetensorsFile()
          .bytes("l.bitmask", {2, 1}, {3, 6})
          .floats("l.compressed", {2, 2}, four)
          .integers("l.shape", {2, 4})
          .content()};
}

std::vector<std::string> token_file_examples() {
  const auto file = [](const std::string& dtype, const std::string& tokens,
                       const std::vector<int64_t>& limits) {
    return test::SafetensorsFile()
        .metadata({{"format", "tessera tokens 1"},
                   {"vocabulary", "300"},
                   {"pad", "0"},
                   {"cls", "1"},
                   {"sep", "2"},
                   {"mask", "3"}})
        .add("tokens", dtype, {4}, tokens)
        .integers("sentences", limits)
        .integers("documents", {0, 1, static_cast<int64_t>(limits.size()) - 1})
        .content();
  };
  return {file("U16", std::string("\7\0\x2B\1\5\0\6\0", 8), {0, 1, 4}),
          file("U32", std::string("\7\0\0\0\x2B\1\0\0\5\0\0\0\6\0\0\0", 16), {0, 1, 3, 4})};
}

std::vector<std::string> model_config_examples() {
  return {
      R"({"quantization_config": {"sparsity_config": {"format": "sparse-bitmask"}}})",
      R"({"compression_config": {"config_groups": {}, "format": "dense", "quant_method": "compressed-tensors"}})",
      R"({"a": [1.5, null, {"b": true}], "quantization_config": null})"};
}

std::vector<std::string> model_index_examples() {
  return {R"({"metadata": {"total_size": 8}, "weight_map": {"a": "m-1", "b": "m-2"}})",
          R"({"weight_map": {}})"};
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

std::vector<std::string> n_mnist_examples() {
  const std::string overflow = n_mnist_event(0, 240, 0, 0);
  return {"", n_mnist_event(3, 33, 1, 70'000),
          n_mnist_event(3, 3, 0, 5) + overflow + n_mnist_event(3, 3, 0, 6)};
}

std::vector<std::string> aedat_examples() {
  const std::string packet =
      aedat_packet(1, 8, 0, 2, aedat_event(127, 0, 1, 5) + aedat_event(3, 4, 0, 6, /*valid=*/false));
  return {aedat_header(), aedat_header() + packet,
          aedat_header() + aedat_packet(2, 4, 1, 2, "abcdefgh") + packet};
}

std::vector<std::string> gestures_examples() {
  return {"class,startTime_usec,endTime_usec\n1,10,20\n11,25,30\n",
          "h\r\n 2 , 5 , 4611686018427387904\r\n\r\n"};
}

std::vector<std::string> event_array_examples() {
  const std::string row =
      little_endian(5, 4) + little_endian(6, 4) + little_endian(70, 4) + little_endian(1, 4);
  return {npy_file("'<i4'", "(2, 4)", row + row), npy_file("'>i2'", "(1, 4)", std::string(8, '\0'), true),
          npy_file("[('t', '<u4'), ('x', '>u2'), ('y', '|u1'), ('p', '|b1')]", "(1,)", std::string(8, '\1')),
          npy_file("[('x', '|u1'), ('t', '<i8')]", "(0,)", "")};
}

constexpr Format kFormats[] = {
    {"smtx", [](const io::Source& s) { require_sound(io::read_smtx(s)); }, smtx_examples},
    {"matrix_market", read_matrix_market, matrix_market_examples},
    {"npy", [](const io::Source& s) { require_sound(io::read_npy(s)); }, npy_examples},
    {"safetensors", read_safetensors, safetensors_examples},
    {"weights", read_stored_weights, stored_weights_examples},
    {"tokens", read_token_file, token_file_examples},
    {"config", [](const io::Source& s) { io::check_model_config(s); }, model_config_examples},
    {"model_index", [](const io::Source& s) { io::read_model_index(s); }, model_index_examples},
    {"onnx", read_onnx_file, onnx_examples},
    {"lengths", read_length_array<false>, lengths_examples},
    {"lengths_text", read_lengths_text, lengths_text_examples},
    {"offsets", read_length_array<true>, offsets_examples},
    {"length_histogram", read_length_histogram, length_histogram_examples},
    {"idx_images", read_idx_images, idx_examples},
    {"cifar10", [](const io::Source& s) { require_sound(train::read_cifar10(s)); }, cifar10_examples},
    {"n_mnist", [](const io::Source& s) { require_sound(train::read_n_mnist(s), train::kNMnistSide); },
     n_mnist_examples},
    {"aedat", [](const io::Source& s) { require_sound(train::read_aedat(s), train::kDvsSide); },
     aedat_examples},
    {"gestures", read_gestures, gestures_examples},
    {"event_array", [](const io::Source& s) { require_sound(train::read_event_array(s), train::kMostUnits); },
     event_array_examples}};

}  // namespace

std::span<const Format> formats() { return kFormats; }

std::vector<std::string> onnx_examples() {
  using test::OnnxFile;
  OnnxFile product;
  product.input("x", {-1, 3}).output("y").floats("w", {3, 2}, {1, 0, 3, 0, 5, 6}).floats("b", {2}, {7, 8});
  product.node("MatMul", {"x", "w"}, {"p"}).node("Add", {"p", "b"}, {"s"}).node("Relu", {"s"}, {"y"});
  OnnxFile shapes;
  shapes.input("x", {2, 3, 4}).output("y").output("n").integers("i", {1}, {1}).integers("r", {1}, {-1});
  shapes.integers("axes", {1}, {0}).integers("ends", {1}, {9});
  shapes.node("Shape", {"x"}, {"s"})
      .node("Gather", {"s", "i"}, {"g"})
      .node("Concat", {"g", "r"}, {"c"}, {{"axis", int64_t{0}}})
      .node("Reshape", {"x", "c"}, {"f"})
      .node("Slice", {"f", "i", "ends", "axes"}, {"l"})
      .node("Transpose", {"l"}, {"t"}, {{"perm", std::vector<int64_t>{1, 0}}})
      .node("Softmax", {"t"}, {"y"})
      .node("ReduceSum", {"y", "axes"}, {"n"}, {{"keepdims", int64_t{0}}});
  OnnxFile computed;
  computed.input("x", {4})
      .output("y")
      .integers("size", {1}, {4})
      .integers("a", {}, {0})
      .integers("d", {}, {2});
  computed.node("ConstantOfShape", {"size"}, {"z"})
      .node("Cos", {"z"}, {"o"})
      .node("Range", {"a", "d", "i"}, {"r"})
      .node("Cast", {"r"}, {"f"}, {{"to", int64_t{1}}})
      .node("Mul", {"x", "o"}, {"m"})
      .node("ArgMax", {"m"}, {"y"}, {{"axis", int64_t{0}}});
  computed.integers("i", {}, {1});
  OnnxFile image;
  using List = std::vector<int64_t>;
  image.input("x", {-1, 1, 5, 5}).output("y").floats("w", {2, 1, 2, 2}, {1, 2, 3, 4, 5, 6, 7, 8});
  image.floats("a", {2}, {1, 2}).floats("b", {2}, {3, 4}).floats("by", {4}, {1, 1, 2, 1.5F});
  image.node("Conv", {"x", "w"}, {"c"}, {{"pads", List{0, 1, 1, 0}}})
      .node("BatchNormalization", {"c", "a", "b", "b", "a"}, {"n"})
      .node("MaxPool", {"n"}, {"m"}, {{"kernel_shape", List{3, 2}}, {"ceil_mode", int64_t{1}}})
      .node("Resize", {"m", "", "by"}, {"r"}, {{"mode", "linear"}})
      .node("AveragePool", {"r"}, {"p"}, {{"kernel_shape", List{2, 2}}, {"auto_pad", "SAME_UPPER"}})
      .node("GlobalAveragePool", {"p"}, {"y"});
  OnnxFile stored;  // in few bits, and without zeros
  stored.input("x", {1, 2}).output("y").floats("scale", {}, {0.5F});
  constexpr int32_t kInt8 = 3, kInt4 = 22;
  stored.initializer("w", {2, 3}, kInt4).set_raw_data("\x21\x43\x65");
  auto& sparse = *stored.model().mutable_graph()->add_sparse_initializer();
  auto &values = *sparse.mutable_values(), &indices = *sparse.mutable_indices();
  for (const int64_t size : {3, 2}) sparse.add_dims(size);
  values.set_name("s");
  values.set_data_type(kInt8);
  indices.set_data_type(test::kInt64);
  for (auto* each : {&values, &indices}) each->add_dims(2);
  for (const int32_t place : {1, 5}) {
    values.add_int32_data(place);
    indices.add_int64_data(place);
  }
  for (const auto& [from, to] : {std::pair("w", "v"), {"s", "t"}})
    stored.node("DequantizeLinear", {from, "scale"}, {to});
  stored.node("MatMul", {"x", "v"}, {"p"}).node("MatMul", {"p", "t"}, {"y"});
  return {product.content(), shapes.content(), computed.content(), image.content(), stored.content()};
}

bool accepts(const Format& format, std::span<const std::byte> content) {
  try {
    format.read(io::Source("w", content));
    return true;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace tessera::fuzz
