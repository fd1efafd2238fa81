#include "io/stored_weights.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "io/fail.h"

namespace tessera::io {
namespace {

/// The tensors of a model by name, from which weights take theirs.
class Tensors {
 public:
  explicit Tensors(std::vector<StoredTensor> tensors) {
    for (StoredTensor& tensor : tensors) {
      const std::string name = tensor.info.name;
      const Source* source = tensor.source;
      if (!tensors_.emplace(name, std::move(tensor)).second)
        fail(source->name(), "tensor {} is in another file of the model too", excerpt(name));
    }
  }

  std::vector<StoredWeight> group() && {
    const std::vector<std::string> all = names();
    has_whole_names_ = std::ranges::any_of(all, is_of_whole_name);
    for (const std::string& name : all) {
      if (taken_.contains(name)) continue;
      if (const auto base = without(name, "_mask")) take_masked(*base);
      if (const auto base = without(name, ".crow_indices")) take_rows(*base);
      for (const char* part : {".bitmask", ".compressed"})
        if (const auto base = without(name, part)) take_bitmask(*base);
    }
    for (const auto& [name, tensor] : tensors_)
      if (!taken_.contains(name)) weights_.push_back({name, WeightForm::dense, {{"values", tensor}}});
    std::ranges::sort(weights_, is_naturally_before, &StoredWeight::name);
    return std::move(weights_);
  }

 private:
  using Part = std::pair<const char*, std::string>;  // role, and name of the tensor

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }

  static std::optional<std::string> without(const std::string& name, std::string_view suffix) {
    if (!name.ends_with(suffix)) return std::nullopt;
    return name.substr(0, name.size() - suffix.size());
  }

  /// Whether NAME in NAME.bitmask is the whole name of a parameter, as compressed-tensors wrote it for each
  /// parameter at first, and not the layer of NAME.weight.
  static bool is_of_whole_name(const std::string& name) { return ("." + name).ends_with(".weight.bitmask"); }

  bool has(const std::string& name) const { return tensors_.contains(name); }

  void take(const std::string& name, WeightForm form, const std::vector<Part>& parts) {
    StoredWeight weight{name, form, {}};
    for (const auto& [role, tensor] : parts) {
      const auto found = tensors_.find(tensor);
      if (found == tensors_.end()) {
        const auto given = std::ranges::find_if(parts, [&](const Part& part) { return has(part.second); });
        fail(tensors_.at(given->second).source->name(),
             "{} has {} and lacks {}: a weight is all of its tensors or none", excerpt(name),
             excerpt(given->second), excerpt(tensor));
      }
      weight.parts.emplace(role, found->second);
      taken_.insert(tensor);
    }
    weights_.push_back(std::move(weight));
  }

  void take_masked(const std::string& base) {
    if (has(base + "_orig"))
      take(base, WeightForm::masked, {{"mask", base + "_mask"}, {"values", base + "_orig"}});
  }

  void take_rows(const std::string& base) {
    std::vector<Part> parts = {{"crow_indices", base + ".crow_indices"},
                               {"col_indices", base + ".col_indices"}};
    if (has(base + ".packed_format") && has(base + ".weight") && has(base + ".sizes")) {
      parts.insert(parts.end(), {{"values", base + ".weight"},
                                 {"packed_format", base + ".packed_format"},
                                 {"sizes", base + ".sizes"}});
      return take(base + ".weight", WeightForm::packed, parts);
    }
    parts.emplace_back("values", has(base) ? base : base + ".values");
    if (has(base + ".shape")) parts.emplace_back("shape", base + ".shape");
    take(base, WeightForm::compressed_rows, parts);
  }

  void take_bitmask(const std::string& base) {
    std::vector<Part> parts = {
        {"bitmask", base + ".bitmask"}, {"values", base + ".compressed"}, {"shape", base + ".shape"}};
    const auto is_there = [&](const char* part) { return has(base + part); };
    constexpr const char* kParts[] = {".bitmask", ".compressed", ".shape", ".row_offsets"};
    if (std::ranges::count_if(kParts, is_there) < 2) return;  // another tensor with such a name
    const bool has_offsets = has(base + ".row_offsets");
    if (has_offsets) parts.emplace_back("row_offsets", base + ".row_offsets");
    const bool is_whole = has_whole_names_ || has(base + ".weight");
    take(is_whole ? base : base + ".weight",
         has_offsets ? WeightForm::sparse_bitmask : WeightForm::sparse_24_bitmask, parts);
  }

  std::map<std::string, StoredTensor> tensors_;
  std::set<std::string> taken_;
  bool has_whole_names_ = false;  ///< whether the names of bitmasks have whole names
  std::vector<StoredWeight> weights_;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// The digits at the front, without leading zeros; `text` continues behind them.
std::string_view take_number(std::string_view& text) {
  const size_t length = std::min(text.size(), text.find_first_not_of("0123456789"));
  std::string_view number = text.substr(0, length);
  text.remove_prefix(length);
  number.remove_prefix(std::min(number.size(), number.find_first_not_of('0')));
  return number;
}

}  // namespace

std::string_view name_of(WeightForm form) {
  switch (form) {
    case WeightForm::dense: return "dense";
    case WeightForm::masked: return "masked";
    case WeightForm::compressed_rows: return "CSR or BSR";
    case WeightForm::packed: return "SparseLinear";
    case WeightForm::sparse_bitmask: return "sparse-bitmask";
    case WeightForm::sparse_24_bitmask: return "sparse-24-bitmask";
  }
  return "";
}

uint64_t StoredWeight::bytes() const {
  uint64_t bytes = 0;
  for (const auto& [role, tensor] : parts) bytes += tensor.info.end - tensor.info.begin;
  return bytes;
}

std::vector<StoredWeight> group_weights(std::vector<StoredTensor> tensors) {
  return Tensors(std::move(tensors)).group();
}

bool is_naturally_before(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    if (is_digit(a[0]) && is_digit(b[0])) {
      const std::string_view left = take_number(a), right = take_number(b);
      if (left != right) return left.size() != right.size() ? left.size() < right.size() : left < right;
    } else {
      if (a[0] != b[0]) return a[0] < b[0];
      a.remove_prefix(1);
      b.remove_prefix(1);
    }
  }
  return a.empty() && b.empty() ? whole_a < whole_b : a.empty() && !b.empty();
}

}  // namespace tessera::io
