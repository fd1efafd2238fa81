#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/inspect.h>

#include <algorithm>
#include <cctype>
#include <deque>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "bound/zeros.h"
#include "io/dense_values.h"
#include "io/fail.h"
#include "io/model_files.h"
#include "io/non_zeros.h"
#include "io/safetensors.h"
#include "io/stored_weights.h"
#include "io/weights.h"
#include "sparse/pattern.h"

namespace tessera {
namespace {

/// A model whose files are open.
class OpenModel {
 public:
  explicit OpenModel(const std::string& path) : files_(io::find_model_files(path)) {
    std::vector<io::StoredTensor> tensors;
    for (size_t i = 0; i < files_.paths.size(); ++i) add_file(i, tensors);
    if (listed_ < files_.file_of.size()) report_missing(tensors);
    weights_ = io::group_weights(std::move(tensors));
  }

  const std::vector<io::StoredWeight>& weights() const { return weights_; }

 private:
  /// Adds the tensors that the index assigns to one of several files.
  void add_file(size_t file, std::vector<io::StoredTensor>& tensors) {
    const io::Source& source = sources_.emplace_back(io::Source::open(files_.paths[file]));
    for (io::TensorInfo& info : io::list_safetensors(source)) {
      const auto listed = files_.file_of.find(info.name);
      if (!files_.file_of.empty() && (listed == files_.file_of.end() || listed->second != file)) continue;
      ++listed_;
      tensors.push_back({&source, std::move(info)});
    }
  }

  [[noreturn]] void report_missing(const std::vector<io::StoredTensor>& tensors) const {
    std::map<std::string, size_t> missing = files_.file_of;
    for (const io::StoredTensor& tensor : tensors) missing.erase(tensor.info.name);
    const auto& [name, file] = *missing.begin();
    io::fail(files_.paths[file], "it lacks the tensor {}, which the index says it has", io::excerpt(name));
  }

  io::ModelFiles files_;
  std::deque<io::Source> sources_;  // which do not move
  size_t listed_ = 0;
  std::vector<io::StoredWeight> weights_;
};

/// Rows of embeddings are selected, not multiplied.
bool is_embedding(std::string name) {
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  for (const char* part : {"embed", "wte.", "wpe."})
    if (name.find(part) != std::string::npos) return true;
  return false;
}

/// Whether the shape is [outputs, channels, taps...] of one group; with one channel the groups are the
/// channels.
bool is_convolution_weight(const io::WeightHeader& header) {
  return (header.shape.size() == 3 || header.shape.size() == 4) && header.shape[1] > 1;
}

bool has_sane_sides(const io::WeightHeader& header) {
  return std::max(header.rows(), header.cols()) <= sparse::kMaxDimension;
}

InspectedTensor inspect_weight(const io::StoredWeight& weight, bound::ZerosAnalysis& analysis) {
  const io::WeightHeader header = io::read_header(weight);
  const std::optional<io::Element> element = io::element_of(header.dtype);
  InspectedTensor tensor{.name = weight.name,
                         .form = std::string(io::name_of(weight.form)),
                         .dtype = header.dtype,
                         .shape = header.shape,
                         .elements = header.elements(),
                         .dense_bytes = element ? header.elements() * io::size_of(*element) : 0,
                         .zeros = {}};
  if (!header.type || !has_sane_sides(header)) return tensor;
  const bool is_convolution = is_convolution_weight(header);
  const bool is_product = (header.shape.size() == 2 || is_convolution) && !is_embedding(weight.name);
  sparse::NonZeros non_zeros = io::read_non_zeros(weight, header);
  if (is_convolution) non_zeros = sparse::taps_first(non_zeros, static_cast<uint32_t>(header.shape[1]));
  tensor.zeros = analysis.analyse(non_zeros, *header.type, is_product);
  return tensor;
}

std::vector<io::StoredWeight> chosen_weights(const std::string& path, std::vector<io::StoredWeight> weights,
                                             const std::string& tensor) {
  if (tensor.empty()) return weights;
  std::erase_if(weights, [&](const io::StoredWeight& weight) { return weight.name != tensor; });
  if (weights.empty())
    throw UsageError(
        fmt::format("{}: it has no tensor {}; without a name, all are listed", path, io::excerpt(tensor)));
  return weights;
}

/// The name of a model on a hub is read as the path of a folder.
void require_there(const std::string& path) {
  std::error_code ignored;
  if (io::extension_of(path).empty() && !std::filesystem::exists(path, ignored))
    io::fail(path, "there is no such folder; models are read from folders and files, and not downloaded");
}

/// A file of one matrix without a name.
InspectedTensor inspect_matrix(const std::string& path, const std::string& tensor,
                               bound::ZerosAnalysis& analysis) {
  io::Weights weights = io::read_weights(path, tensor);
  Pattern& pattern = weights.matrix.pattern;
  const uint64_t elements = uint64_t{pattern.rows} * pattern.cols;
  InspectedTensor inspected{.name = path,
                            .form = weights.has_values ? "dense" : "pattern",
                            .dtype = "F32",
                            .shape = {pattern.rows, pattern.cols},
                            .elements = elements,
                            .dense_bytes = elements * sizeof(float),
                            .zeros = {}};
  inspected.zeros = analysis.analyse(std::move(pattern), Type::f32);
  return inspected;
}

}  // namespace

InspectedTotals bound::totals_of(const std::vector<InspectedTensor>& tensors) {
  InspectedTotals totals;
  for (const InspectedTensor& tensor : tensors) {
    const bool pays = tensor.zeros && tensor.zeros->pays();
    totals.dense_bytes += tensor.dense_bytes;
    totals.sparse_bytes +=
        pays ? std::min(tensor.zeros->sparse_bytes, tensor.dense_bytes) : tensor.dense_bytes;
    if (!tensor.zeros) continue;
    totals.elements += tensor.elements;
    totals.zeros += tensor.elements - tensor.zeros->non_zeros;
    totals.dense_seconds += tensor.zeros->dense_seconds;
    totals.sparse_seconds += pays ? tensor.zeros->sparse_seconds : tensor.zeros->dense_seconds;
  }
  return totals;
}

InspectedModel inspect(const std::string& path, const std::string& tensor, const ZerosOptions& options,
                       const InspectProgress& progress) {
  bound::ZerosAnalysis analysis(options);
  InspectedModel model{.path = path, .n = options.n, .tensors = {}, .totals = {}};
  require_there(path);
  if (!io::is_model(path)) {
    model.tensors.push_back(inspect_matrix(path, tensor, analysis));
  } else {
    const OpenModel open(path);
    const std::vector<io::StoredWeight> weights = chosen_weights(path, open.weights(), tensor);
    for (size_t i = 0; i < weights.size(); ++i) {
      if (progress) progress(i, weights.size(), weights[i].name);
      model.tensors.push_back(inspect_weight(weights[i], analysis));
    }
  }
  model.totals = bound::totals_of(model.tensors);
  return model;
}

}  // namespace tessera
