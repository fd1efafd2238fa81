// Parameters of a session in the files of models.
#include <cstddef>
#include <utility>
#include <vector>

#include "graph/state_file.h"
#include "io/model_files.h"
#include "lower/session_impl.h"
#include "sparse/pattern.h"

namespace tessera::graph {
namespace {

/// A parameter's values, which files have as a dense array.
std::vector<float> values_in(const StateFile& file, const ValueInfo& info, const Pattern* pattern) {
  std::vector<float> values = file.dense_values(info);
  kernels::require_held(fmt::format("{}: '{}'", file.path(), info.name), values, info.type.type);
  if (pattern == nullptr) return values;
  const auto non_zeros = [](std::span<const float> all) {
    return std::ranges::count_if(all, [](float value) { return value != 0; });
  };
  std::vector<float> stored = sparse::values_at(*pattern, values);
  if (const auto lost = non_zeros(values) - non_zeros(stored); lost != 0)
    throw Error(
        fmt::format("{}: '{}' has {} non-zeros outside the session's pattern", file.path(), info.name, lost));
  return stored;
}

}  // namespace

void Session::load_parameters(const std::string& path) {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  std::vector<std::pair<ValueId, std::vector<float>>> values;
  std::vector<std::pair<ValueId, std::vector<std::byte>>> integers;
  impl_->on_each([&] {
    std::vector<StateFile> files;
    for (const std::string& file : io::find_model_files(path).paths)
      files.emplace_back(io::Source::open(file));
    for (ValueId id = 0; id < impl_->graph.values().size(); ++id) {
      const ValueInfo& info = impl_->graph.info(id);
      if (info.kind != Kind::parameter || !impl_->is_own_state(id)) continue;
      const auto file =
          std::ranges::find_if(files, [&](const StateFile& each) { return each.has(info.name); });
      if (file == files.end()) throw Error(fmt::format("{}: it lacks '{}'", path, info.name));
      if (impl_->is_matrix_of_integers(id) && file->has_type_of(info)) {
        integers.emplace_back(id, file->elements(info, nullptr));
        continue;
      }
      const Pattern pattern = info.type.pattern ? impl_->pattern_of(id) : Pattern();
      values.emplace_back(id, values_in(*file, info, info.type.pattern ? &pattern : nullptr));
    }
  });
  impl_->require_same({}, values, integers);
  impl_->replace({}, values);
  for (auto& [id, elements] : integers) impl_->write_integers(id, std::move(elements));
}

void Session::save_parameters(const std::string& path) const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  StateFile file;
  file.metadata()["format"] = "pt";
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id) {
    ValueInfo info = impl_->graph.info(id);
    if (info.kind != Kind::parameter || !impl_->is_own_state(id)) continue;
    if (impl_->is_matrix_of_integers(id)) {
      file.add(info, impl_->read_integers(id));
      continue;
    }
    std::vector<float> values = impl_->read(id);
    if (info.type.pattern) {
      values = sparse::to_dense({impl_->pattern_of(id), std::move(values)});
      info.type.pattern = nullptr;
    }
    file.add(info, values);
  }
  impl_->write_once([&] { file.write(path); });
}

}  // namespace tessera::graph
