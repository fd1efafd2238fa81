#include "onnx/weights.h"

#include <fmt/format.h>
#include <tessera/convolution.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "base/checksum.h"
#include "sparse/pattern.h"

namespace tessera::onnx {
namespace {

std::vector<float> transposed_values(const std::vector<float>& values, uint32_t rows, uint32_t cols) {
  constexpr uint32_t kBlock = 32;  // so that both sides stay in the cache
  std::vector<float> transposed(values.size());
  for (uint32_t r0 = 0; r0 < rows; r0 += kBlock)
    for (uint32_t c0 = 0; c0 < cols; c0 += kBlock)
      for (uint32_t r = r0; r < std::min(r0 + kBlock, rows); ++r)
        for (uint32_t c = c0; c < std::min(c0 + kBlock, cols); ++c)
          transposed[uint64_t{c} * rows + r] = values[uint64_t{r} * cols + c];
  return transposed;
}

/// The zeros of a weight that is stored in this type.
Zeros zeros_in(const std::vector<float>& values, Type type, uint32_t outputs, uint32_t inputs,
               const ConvolutionGroups& of, const ZerosOptions& options) {
  if (type == Type::f32 && of.groups == 1)
    return zeros_of(values.data(), type, outputs, inputs, inputs, options);
  const Pattern pattern = sparse::from_dense(row_major(values.data(), inputs), outputs, inputs).pattern;
  return of.groups == 1 ? zeros_of(pattern, type, options) : zeros_of_groups(pattern, type, of, options);
}

/// Compared bit by bit, so that NaN equals itself.
bool weights_are_same(const Constant& a, const Constant& b) {
  const std::vector<float>&x = a.floats(), &y = b.floats();
  return a.type == b.type && a.dims == b.dims && x.size() == y.size() &&
         (x.data() == y.data() || std::memcmp(x.data(), y.data(), x.size() * sizeof(float)) == 0);
}

}  // namespace

std::string_view LayerChoice::why_dense() const {
  if (is_sparse) return "";
  if (!reason.empty()) return reason;
  return zeros.density == 1 ? "no zeros" : tessera::name_of(zeros.reason);
}

LayerChoice left_dense(const std::string& name, const Constant& weight, std::string_view reason) {
  LayerChoice choice{.name = name, .zeros = {}, .reason = std::string(reason)};
  Zeros& zeros = choice.zeros;
  zeros.rows = static_cast<uint32_t>(weight.dims[0]);
  zeros.cols = static_cast<uint32_t>(weight.size() / zeros.rows);
  const std::vector<float>& values = weight.floats();
  zeros.non_zeros = values.size() - static_cast<size_t>(std::ranges::count(values, 0.0F));
  zeros.density = static_cast<double>(zeros.non_zeros) / static_cast<double>(values.size());
  return choice;
}

std::string WeightForms::name_of(const std::string& name, const Constant& constant) {
  const std::lock_guard lock(mutex_);
  const Constant unnamed{constant.type, constant.dims, constant.values};
  const auto [first, is_new] = named_.try_emplace(name, unnamed);
  if (is_new || weights_are_same(first->second, constant)) return name;
  // Found by checksum, as thousands of constants may have the same name.
  std::vector<std::string>& others =
      renamed_[{name, base::checksum(std::as_bytes(std::span(constant.floats())))}];
  for (const std::string& own : others)
    if (weights_are_same(named_.at(own), constant)) return own;
  for (uint64_t& count = renamed_counts_[name];;) {
    const std::string own = fmt::format("{}#{}", name, ++count + 1);
    if (!named_.try_emplace(own, unnamed).second) continue;
    others.push_back(own);
    return own;
  }
}

std::string WeightForms::name_of_folded(const std::string& name, const std::vector<float>& values) {
  const uint64_t sum = base::checksum(std::as_bytes(std::span(values)));
  const std::lock_guard lock(mutex_);
  std::string own = name + " folded";
  for (int number = 2;; ++number) {
    const auto [known, is_new] = folded_.try_emplace(own, sum);
    if (is_new || known->second == sum) return own;
    own = fmt::format("{} folded#{}", name, number);
  }
}

void WeightForms::note_table(const std::string& layer, uint32_t rows) {
  const std::lock_guard lock(mutex_);
  tables_.emplace(layer, rows);
}

std::optional<uint32_t> WeightForms::rows_of_table(const std::string& layer) {
  const std::lock_guard lock(mutex_);
  const auto found = tables_.find(layer);
  return found == tables_.end() ? std::nullopt : std::optional(found->second);
}

const WeightForms::Form& WeightForms::form_of(const std::string& layer, const Constant& weight,
                                              bool transposed, uint32_t rows, const ImportOptions& options,
                                              std::optional<uint64_t> group, const ConvolutionGroups& of) {
  const std::lock_guard lock(mutex_);
  const auto key = std::tuple(layer, group, transposed, options.sparse, of.groups, of.taps);
  const auto known = forms_.find(key);
  if (known != forms_.end()) return known->second;
  auto outputs = static_cast<uint32_t>(weight.dims[0]), inputs = static_cast<uint32_t>(weight.dims[1]);
  Floats values = std::get<Floats>(weight.values);
  if (transposed) {
    values = std::make_shared<const std::vector<float>>(transposed_values(*values, outputs, inputs));
    std::swap(outputs, inputs);
  }
  Zeros zeros;
  zeros.rows = outputs;
  zeros.cols = inputs;
  if (looks_for_zeros_)
    zeros = zeros_in(*values, graph_type_of(weight.type), outputs, inputs, of,
                     {.n = rows, .threads = options.threads});
  Form form;
  form.choice = {group ? fmt::format("{}[{}]", layer, *group) : layer, rows, std::move(zeros), false};
  form.initial = {graph::Initial::Kind::values, 0, values};
  if (options.sparse && form.choice.zeros.density < 1 && form.choice.zeros.pays()) {
    SparseMatrix matrix =
        sparse::cover(sparse::from_dense(row_major(values->data(), inputs), outputs, inputs),
                      form.choice.zeros.best_block_size);
    if (of.groups > 1) matrix = graph::ungrouped_convolution_weight(std::move(matrix), of);
    form.choice.is_sparse = true;
    form.pattern = std::make_shared<const Pattern>(std::move(matrix.pattern));
    form.initial = graph::Initial::from(std::move(matrix.values));
  }
  return forms_.emplace(key, std::move(form)).first->second;
}

}  // namespace tessera::onnx
