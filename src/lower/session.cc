#include <algorithm>
#include <set>
#include <string_view>

#include "base/clock.h"
#include "graph/initial.h"
#include "graph/operation.h"
#include "graph/state_file.h"
#include "lower/missing_row.h"
#include "lower/session_impl.h"

namespace tessera::graph {

Session::Session(const Graph& graph, const Machine& machine, const SessionOptions& options)
    : impl_(Impl::from_options(graph, machine.model(), options)) {
  if (fits())
    each_initial(graph, options.seed, [&](const std::string& name, const std::vector<float>& values) {
      impl_->write(impl_->find_own_state(name), values);
    });
  impl_->graph.drop_initial_values();
}
std::shared_ptr<Session::Impl> Session::Impl::sharing(const Graph& graph, const std::shared_ptr<Impl>& owner,
                                                      const std::string& executable) {
  if (owner->owner)
    throw UsageError(
        "a session cannot share the parameters of one that shares them: give the one that has them");
  const Lock lock(*owner);
  SessionOptions options = owner->options;
  options.parts = 0;  // of the owner's graph
  options.executable = executable;
  return from_options(graph, owner->whole_machine, options, owner_of(owner));
}

Session::Session(const Graph& graph, const Session& owner, const std::string& executable)
    : impl_(Impl::sharing(graph, owner.impl_, executable)) {
  if (!fits()) return;
  const Impl::Lock lock(*impl_);
  each_initial(graph, owner.impl_->options.seed,
               [&](const std::string& name, const std::vector<float>& values) {
                 if (const ValueId id = impl_->find_state(name); !impl_->shared.contains(id))
                   impl_->write(id, values);
               });
  impl_->graph.drop_initial_values();
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const Graph& Session::graph() const { return impl_->parts ? impl_->parts->graph : impl_->graph; }
bool Session::fits() const { return impl_->executable().memory.fits(); }
uint64_t Session::compute_sets() const { return impl_->executable().program->compute_sets().size(); }
std::string Session::program() const { return to_string(*impl_->executable().program); }

namespace {

/// Throws errors of a run, which refer to the program, as errors in the graph of `of`, part of `whole`.
template <class Run>
auto in_terms_of_graph(const Session::Impl& of, const Session::Impl& whole, const Run& run) {
  try {
    return run();
  } catch (const program::MissingRow& error) {
    throw UsageError(text_of(error, of.graph, of.lowered, whole.parts ? &*whole.parts : nullptr));
  } catch (const program::Overflow& error) {
    throw UsageError(text_of(error, of.graph, of.lowered));
  }
}

/// The arrays of a run, bound.
class BoundRun {
 public:
  BoundRun(Session::Impl& impl, std::span<const Tensor> arrays) : BoundRun(impl) {
    impl.check_arrays(arrays, externals_);
    for (const Session::Impl::External& external : externals_) bind(external, arrays);
    impl_.check_lists(arrays);
  }
  BoundRun(Session::Impl& impl, std::span<void* const> arrays) : BoundRun(impl) {
    if (arrays.size() != externals_.size())
      throw UsageError(
          fmt::format("{} arrays; the graph has {} inputs and outputs", arrays.size(), externals_.size()));
    for (size_t i = 0; i < arrays.size(); ++i) bind(externals_[i], arrays[i]);
  }

  /// Runs the first part only, if the graph runs in parts; outputs are not changed.
  engine::Profile run_one(const engine::RunOptions& options) && {
    std::vector<std::vector<std::byte>> scratch;
    for (const DividedArray& array : divided_)
      if (!array.is_input) arrays_.set(array.position, scratch.emplace_back(array.bytes).data());
    return in_terms_of_graph(impl_, impl_, [&] { return impl_.run(arrays_, options); });
  }
  engine::Profile run(const engine::RunOptions& options) {
    if (impl_.parts) {
      run_parts();
      return {};
    }
    return in_terms_of_graph(impl_, impl_, [&] { return run_whole(options); });
  }

 private:
  explicit BoundRun(Session::Impl& impl)
      : impl_(prepared(impl)), externals_(impl.externals()), arrays_(impl.program()) {}

  /// `arrays_` begins with the metadata of patterns, which move when the owner's patterns have changed.
  static Session::Impl& prepared(Session::Impl& impl) {
    impl.require_whole();
    impl.take_shared();
    return impl;
  }

  /// An input or output of all parts, as the caller has it.
  struct DividedArray {
    size_t position;
    void* data;
    size_t bytes;  ///< of a part
    bool is_divided;
    bool is_input;

    void* of_part(size_t part) const {
      return is_divided ? static_cast<std::byte*>(data) + part * bytes : data;
    }
  };

  void bind(const Session::Impl::External& external, std::span<const Tensor> arrays) {
    const auto found = std::ranges::find(arrays, external.name, &Tensor::name);
    const bool is_empty =
        impl_.graph.type(external.id).pattern && impl_.weight(external.id)->pattern().blocks() == 0;
    if (found == arrays.end() || (found->data == nullptr && !is_empty))
      throw UsageError(fmt::format("'{}' is missing: pass an array", external.name));
    bind(external, found->data);
  }

  engine::Profile run_whole(const engine::RunOptions& options) const {
    const engine::Profile profile = impl_.run(arrays_, options);
    for (const Session::Impl::StoredOutput& output : stored_) impl_.unpack(output);
    return profile;
  }
  void run_as(uint32_t part) const {
    try {
      run_whole(impl_.run_options());
    } catch (program::MissingRow& error) {
      error.at.part = part;
      throw;
    }
  }

  void run_parts() {
    const Parts& parts = *impl_.parts;
    const std::span<const engine::Binding> all = arrays_.all();
    std::vector<std::vector<engine::Binding>> runs(parts.count - parts.last, {all.begin(), all.end()});
    for (size_t part = 0; part < runs.size(); ++part)
      for (const DividedArray& array : divided_) runs[part][array.position].data = array.of_part(part);
    engine::Session& session = impl_.program().state();
    in_terms_of_graph(impl_, impl_, [&] { session.run_side_by_side(runs, impl_.threads()); });
    for (size_t part = runs.size(); part < parts.count; ++part) {
      std::vector<void*> arrays;
      for (const DividedArray& array : divided_) arrays.push_back(array.of_part(part));
      const BoundRun run(*impl_.last_parts, arrays);
      in_terms_of_graph(*impl_.last_parts, impl_, [&] { run.run_as(static_cast<uint32_t>(part)); });
    }
  }

  void bind(const Session::Impl::External& external, void* data) {
    if (const TensorType& type = impl_.graph.type(external.id); !type.pattern) {
      const size_t bytes = type.bytes();
      if (impl_.parts)
        divided_.push_back(
            {external.position, data, bytes, impl_.parts->whole.contains(external.name), external.is_input});
      return impl_.bind(arrays_, external, data);
    }
    if (impl_.graph.replicas() > 1)
      throw UsageError(fmt::format(
          "'{}' is sparse, and replicas have no sparse outputs: read it after the run, as a parameter "
          "or a state",
          external.name));
    const Variable& v = impl_.executable().program->variable(external.binding.variable);
    stored_.push_back({&external, data, std::vector<std::byte>(v.bytes())});
    arrays_.set(external.position, stored_.back().bytes.data());
  }

  Session::Impl& impl_;
  const std::vector<Session::Impl::External>& externals_;
  std::vector<Session::Impl::StoredOutput> stored_;
  bound::Arrays arrays_;
  std::vector<DividedArray> divided_;  ///< if the graph runs in parts
};

}  // namespace

engine::Profile Session::Impl::run(const bound::Arrays& arrays, const engine::RunOptions& how) {
  try {
    return program().run(arrays, how);
  } catch (...) {
    const std::vector<program::VariableId> written = program().state().half_written();
    const auto is_written = [&](const Assignment& assignment) {
      return std::ranges::find(written, kept_variable_of(assignment.state)) != written.end();
    };
    if (std::ranges::any_of(graph.assignments(), is_written))
      for (const Assignment& assignment : graph.assignments()) torn.insert(assignment.state);
    throw;
  }
}

void Session::Impl::require_whole() const {
  if (torn.empty()) return;
  throw Error(fmt::format(
      "a run has failed when it had begun to change parameters or state, so '{}'{} may be half changed: load "
      "or set all of them, or make another session",
      graph.info(*torn.begin()).name, torn.size() == 1 ? "" : fmt::format(" and {} more", torn.size() - 1)));
}

void Session::Impl::check_lists(std::span<const Tensor> arrays) const {
  const auto array_of = [&](ValueId id) -> const void* {
    const auto given = std::ranges::find(arrays, graph.info(id).name, &Tensor::name);
    return given == arrays.end() ? nullptr : given->data;
  };
  for (const ListInputs& each : lists) {
    const void *ids = array_of(each.ids), *num = array_of(each.num);
    if (ids != nullptr && num != nullptr)
      ops::check_lists(static_cast<const uint16_t*>(ids), static_cast<const uint32_t*>(num),
                       graph.bound_type(each.ids, own_replicas()).rows(), each.room);
  }
}

TensorType Session::Impl::type_of(const External& external, uint32_t replicas) const {
  if (parts)
    if (const auto whole = parts->whole.find(external.name); whole != parts->whole.end())
      return whole->second;
  TensorType type = graph.bound_type(external.id, replicas);
  if (type.pattern && weight(external.id) != nullptr)
    type.pattern = std::make_shared<const Pattern>(weight(external.id)->pattern());
  return type;
}

void Session::Impl::check_arrays(std::span<const Tensor> arrays, std::span<const External> externals) const {
  std::set<std::string_view> seen;
  for (const Tensor& array : arrays) {
    const auto found = std::ranges::find(externals, array.name, &External::name);
    if (found == externals.end()) {
      std::string names;
      for (const External& external : externals)
        names += fmt::format("{}'{}'", names.empty() ? "" : ", ", external.name);
      throw UsageError(fmt::format("'{}' is neither an input nor an output of the graph, which has {}",
                                   array.name, names));
    }
    if (!seen.insert(array.name).second)
      throw UsageError(fmt::format("'{}' is given twice: pass one array", array.name));
    if (!array.elements) continue;
    if (const TensorType type = type_of(*found); *array.elements != type.elements())
      throw UsageError(fmt::format("the array of '{}' has {} elements; {} has {}", array.name,
                                   *array.elements, to_string(type), type.elements()));
  }
}

namespace {

void run_bound(Session::Impl& impl, BoundRun&& run) {
  engine::RunOptions options = impl.run_options();
  options.profile = !impl.is_host();
  impl.last_seconds = impl.seconds_of(run.run(options));
}

}  // namespace

void Session::run(std::span<const Tensor> arrays) {
  const Impl::Lock lock(*impl_);
  run_bound(*impl_, BoundRun(*impl_, arrays));
}
void Session::run_in_order(std::span<void* const> arrays) {
  const Impl::Lock lock(*impl_);
  run_bound(*impl_, BoundRun(*impl_, arrays));
}
double Session::last_seconds() const {
  const Impl::Lock lock(*impl_);
  return impl_->last_seconds;
}

uint64_t Session::sent_bytes() const {
  const Impl::Lock lock(*impl_);
  return impl_->program().state().sent_bytes();
}

RunCost Session::measure(std::span<const Tensor> arrays) {
  const Impl::Lock lock(*impl_);
  engine::RunOptions options = impl_->run_options();
  options.profile = true;
  BoundRun run(*impl_, arrays);
  if (!impl_->parts) {
    const engine::Profile profile = run.run(options);
    impl_->last_seconds = impl_->seconds_of(profile);
    return impl_->cost_of(profile, impl_->is_host());
  }
  const double whole = base::seconds_of([&] { run.run(options); });
  RunCost cost = impl_->cost_of(std::move(run).run_one(options), true);
  impl_->add_parts(cost, whole);
  return cost;
}

Arrays Session::run(const Arrays& inputs) {
  for (const auto& [name, values] : inputs)
    if (std::ranges::none_of(impl_->graph.inputs(),
                             [&](ValueId id) { return impl_->graph.info(id).name == name; }))
      throw UsageError(fmt::format("the graph has no input '{}'", name));
  const Impl::Lock lock(*impl_);
  const std::vector<ArrayType> arrays = this->arrays();
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<Tensor> tensors;
  for (const auto& [name, type, is_input] : arrays) {
    std::vector<std::byte>& array = bytes[name];
    if (is_input) {
      const auto found = inputs.find(name);
      if (found == inputs.end()) throw UsageError(fmt::format("the input '{}' is missing", name));
      if (found->second.size() != type.elements())
        throw UsageError(fmt::format("the input '{}' has {} elements; {} has {}", name, found->second.size(),
                                     to_string(type), type.elements()));
      kernels::require_held(fmt::format("the input '{}'", name), found->second, type.type);
      array = kernels::as_type(found->second, type.type);
    } else {
      array.resize(type.bytes());
    }
    tensors.push_back({name, array.data()});
  }
  run(tensors);
  Arrays outputs;
  for (const auto& [name, type, is_input] : arrays)
    if (!is_input) outputs[name] = kernels::as_floats(bytes.at(name), type.type);
  return outputs;
}

std::vector<ArrayType> Session::arrays() const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  std::vector<ArrayType> arrays;
  for (const Impl::External& external : impl_->externals())
    arrays.push_back({external.name, impl_->type_of(external), external.is_input});
  return arrays;
}

void Session::set(const std::string& name, std::span<const float> values) {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  const ValueId id = impl_->find_own_state(name);
  kernels::require_held(fmt::format("'{}'", name), values, impl_->graph.type(id).type);
  impl_->write(id, values);
}
std::vector<float> Session::get(const std::string& name) const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  return impl_->read(impl_->find_state(name));
}

Arrays Session::state() const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  Arrays state;
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id)
    if (impl_->is_own_state(id)) state[impl_->graph.info(id).name] = impl_->read(id);
  return state;
}

Pattern Session::pattern(const std::string& name) const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  const ValueId id = impl_->find_state(name);
  if (!impl_->graph.type(id).pattern) throw UsageError(fmt::format("'{}' is not sparse", name));
  return impl_->pattern_of(id);
}

namespace {

/// The values of blocks in another pattern; 0 for new ones.
std::vector<float> moved(const Pattern& from, std::span<const float> values, const Pattern& to) {
  const uint64_t block = uint64_t{from.block_size} * from.block_size;
  std::vector<float> result(to.blocks() * block);
  for (uint32_t row = 0; row < to.block_rows(); ++row)
    for (uint64_t t = to.crow_indices[row], f = from.crow_indices[row]; t < to.crow_indices[row + 1]; ++t) {
      while (f < from.crow_indices[row + 1] && from.col_indices[f] < to.col_indices[t]) ++f;
      if (f < from.crow_indices[row + 1] && from.col_indices[f] == to.col_indices[t])
        std::copy_n(values.begin() + static_cast<int64_t>(f * block), block,
                    result.begin() + static_cast<int64_t>(t * block));
    }
  return result;
}

}  // namespace

void Session::Impl::change_patterns(const std::map<ValueId, Pattern>& patterns,
                                    const ReadValues& replacements) {
  if (patterns.empty()) return;
  for (const auto& [parameter, pattern] : patterns)
    require_in_groups(groups, graph.info(parameter).name, pattern);
  std::map<ValueId, Pattern> before;
  for (const auto& [parameter, pattern] : patterns) before[parameter] = weight(parameter)->pattern();
  const auto changed_with = [&](ValueId id) {
    return lowered.forms[id] ? patterns.find(*lowered.forms[id]) : patterns.end();
  };
  const auto is_replaced = [&](ValueId id) {
    return std::ranges::any_of(replacements, [&](const auto& each) { return each.first == id; });
  };
  ReadValues values;
  for (ValueId id = 0; id < graph.values().size(); ++id)
    if (is_own_state(id) && changed_with(id) != patterns.end() && !is_replaced(id))
      values.emplace_back(id, read(id));
  auto next = patterns.begin();
  try {
    for (; next != patterns.end(); ++next) weight(next->first)->set_pattern(next->second);
  } catch (...) {
    while (next != patterns.begin()) {
      --next;
      weight(next->first)->set_pattern(before.at(next->first));
    }
    placed.bind_metadata();
    throw;
  }
  placed.bind_metadata();
  for (const auto& [id, old] : values) {
    const auto& [parameter, pattern] = *changed_with(id);
    write(id, moved(before.at(parameter), old, pattern));
  }
  for (const Lowered::Gap& gap : lowered.gaps) {
    if (!patterns.contains(gap.weight)) continue;
    const Variable& v = executable().program->variable(gap.variable);
    std::vector<std::byte> zeros(v.bytes());
    program().state().write(v.name, view(v, zeros));
  }
}

void Session::Impl::replace(const std::map<ValueId, Pattern>& patterns, const ReadValues& values) {
  for (const auto& [id, pattern] : patterns) {
    const std::string& name = graph.info(id).name;
    if (!graph.type(id).pattern) throw UsageError(fmt::format("'{}' is not sparse", name));
    const Pattern before = pattern_of(id);
    if (weight(id) == nullptr || graph.info(id).belongs)
      throw UsageError(fmt::format("'{}' is not the weight of a linear operation", name));
    if (pattern.rows != before.rows || pattern.cols != before.cols || pattern.block_size != before.block_size)
      throw UsageError(fmt::format(
          "{}: the new pattern is {} × {} with block size {}; the present one {} × {} with {}", name,
          pattern.rows, pattern.cols, pattern.block_size, before.rows, before.cols, before.block_size));
  }
  for (const auto& [id, array] : values) {
    const auto changed = lowered.forms[id] ? patterns.find(*lowered.forms[id]) : patterns.end();
    check_size(id, array.size(),
               changed != patterns.end() ? changed->second
               : graph.type(id).pattern  ? pattern_of(id)
                                         : Pattern());
  }
  change_patterns(patterns, values);
  for (const auto& [id, array] : values) write(id, array);
}

void Session::set_pattern(const std::string& name, const Pattern& pattern) {
  const Impl::Lock lock(*impl_);
  impl_->replace({{impl_->find_own_state(name), pattern}}, {});
}

void Session::set_state(const Arrays& state, const std::map<std::string, Pattern>& patterns) {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  std::map<ValueId, Pattern> changed;
  for (const auto& [name, pattern] : patterns) changed[impl_->find_own_state(name)] = pattern;
  std::vector<std::pair<ValueId, std::vector<float>>> values;
  for (const auto& [name, array] : state) {
    values.emplace_back(impl_->find_own_state(name), array);
    kernels::require_held(fmt::format("'{}'", name), array, impl_->graph.type(values.back().first).type);
  }
  impl_->replace(changed, values);
}

void Session::save(const std::string& path) const {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  StateFile file;
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id) {
    if (!impl_->is_own_state(id)) continue;
    const ValueInfo& info = impl_->graph.info(id);
    if (impl_->is_matrix_of_integers(id))
      file.add(info, impl_->read_integers(id));
    else
      file.add(info, impl_->read(id));
    if (!info.type.pattern) continue;
    const ValueId owner = info.belongs.value_or(id);
    const std::string& name = impl_->graph.info(owner).name;
    const bool is_saved = info.belongs && (impl_->is_own_state(owner) || file.has_pattern(name));
    if (!is_saved) file.add_pattern(name, impl_->pattern_of(owner));
  }
  impl_->write_once([&] { file.write(path); });
}

void Session::load(const std::string& path) {
  const Impl::Lock lock(*impl_);
  impl_->follow_patterns();
  std::map<ValueId, Pattern> patterns;  // of parameters that may change theirs
  std::vector<std::pair<ValueId, std::vector<float>>> values;
  std::vector<std::pair<ValueId, std::vector<std::byte>>> integers;
  impl_->on_each([&] {
    const StateFile file(io::Source::open(path));
    for (ValueId id = 0; id < impl_->graph.values().size(); ++id) {
      if (!impl_->is_own_state(id)) continue;
      const ValueInfo& info = impl_->graph.info(id);
      if (impl_->is_matrix_of_integers(id)) {
        integers.emplace_back(id, file.elements(info, nullptr));
        continue;
      }
      const ValueId owner = info.belongs.value_or(id);
      const std::string& name = impl_->graph.info(owner).name;
      std::optional<Pattern> pattern;
      if (info.type.pattern) pattern = file.pattern(name, *info.type.pattern, info.type.capacity);
      values.emplace_back(id, file.values(info, pattern ? &*pattern : nullptr));
      if (!info.type.capacity) continue;
      if (!impl_->is_own_state(owner) && *pattern != impl_->pattern_of(owner))
        throw Error(
            fmt::format("{}: '{}' has another pattern than in the session that it is shared with: load "
                        "that one first",
                        path, name));
      if (!info.belongs) patterns[id] = *pattern;
    }
  });
  impl_->require_same(patterns, values, integers);
  impl_->replace(patterns, values);
  for (auto& [id, elements] : integers) impl_->write_integers(id, std::move(elements));
}

}  // namespace tessera::graph
