#include "engine/session.h"

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/model.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "compiler/compile.h"
#include "model/lowering.h"
#include "model/simplify.h"
#include "model/state_file.h"
#include "product/numbers.h"

namespace tessera::model {

using program::FieldView;
using program::Variable;

struct Session::Impl {
  Impl(const Graph& network, const machine::Machine& machine, const SessionOptions& chosen,
       std::shared_ptr<const Impl> owner_of_parameters = nullptr)
      : graph(network), options(chosen), owner(std::move(owner_of_parameters)) {
    remove_unused(graph);
    fuse_epilogues(graph);
    find_shared();
    program::Program program;
    const ops::Builder builder(program, machine);
    std::set<ValueId> bound;
    if (builder.is_host())
      for (const auto& [own, id] : shared) bound.insert(own);
    Lowering lowering(graph, builder, std::move(bound));
    program.set_main(lowering.build());
    lowered = lowering.take();
    session = std::make_unique<engine::Session>(compiler::compile(std::move(program), machine));
  }

  const compiler::Executable& executable() const { return session->executable(); }
  const Variable& variable(ValueId id) const {
    return executable().program->variable(lowered.operands[id]->variable);
  }
  bool is_state(ValueId id) const {
    return graph.info(id).kind == Kind::parameter || graph.info(id).kind == Kind::state;
  }

  /// The parameters that the owner has.
  void find_shared() {
    if (!owner) return;
    for (ValueId id = 0; id < graph.values().size(); ++id) {
      if (!is_state(id)) continue;
      for (ValueId other = 0; other < owner->graph.values().size(); ++other)
        if (owner->is_state(other) && owner->graph.info(other).name == graph.info(id).name)
          shared[id] = other;
      if (!shared.contains(id)) continue;
      const TensorType &own = graph.type(id), &its = owner->graph.type(shared[id]);
      if (!(own == its))
        throw UsageError(
            fmt::format("{} is {}; the owner's is {}", graph.info(id).name, to_string(own), to_string(its)));
      for (const Assignment& assignment : graph.assignments())
        if (assignment.state == id)
          throw UsageError(
              fmt::format("{} is another session's: it cannot be assigned to", graph.info(id).name));
    }
  }

  /// Takes the owner's parameters: on a host where they lie, on tiles as copies.
  void add_shared(std::vector<engine::Binding>& bindings) {
    for (const auto& [own, id] : shared) {
      if (LinearWeight* weight = this->weight(own); weight != nullptr && graph.type(own).capacity)
        follow_pattern(*weight, *owner->weight(id));
      if (is_host()) {
        const FieldView memory = owner->session->memory_of(owner->variable(id).name);
        bindings.push_back({lowered.operands[own]->variable, memory.data, memory.row_stride, 1});
      } else {
        write(own, owner->read(id));
      }
    }
  }

  static void follow_pattern(LinearWeight& weight, const LinearWeight& of_owner) {
    const Pattern pattern = of_owner.pattern();
    const Pattern own = weight.pattern();
    if (own.row_begin != pattern.row_begin || own.columns != pattern.columns) weight.set_pattern(pattern);
  }
  bool is_own_state(ValueId id) const { return is_state(id) && !shared.contains(id); }
  ValueId find_state(const std::string& name) const {
    for (ValueId id = 0; id < graph.values().size(); ++id)
      if (graph.info(id).name == name && is_state(id)) return id;
    throw UsageError(fmt::format("the graph has no parameter or state '{}'", name));
  }

  ValueId find_own_state(const std::string& name) const {
    const ValueId id = find_state(name);
    if (shared.contains(id)) throw UsageError(fmt::format("'{}' is another session's: set it there", name));
    return id;
  }

  LinearWeight* weight(ValueId id) const {
    const auto& stored = lowered.stored_as[id];
    return stored ? lowered.weights.at(*stored).get() : nullptr;
  }

  FieldView view(ValueId id, std::vector<std::byte>& bytes) const {
    const Variable& v = variable(id);
    return {bytes.data(), v.type, v.rows, v.cols, v.cols, 1};
  }

  void write(ValueId id, std::span<const float> values) {
    const uint64_t expected = weight(id) != nullptr && graph.type(id).pattern
                                  ? weight(id)->pattern().blocks() * graph.type(id).pattern->block_size *
                                        graph.type(id).pattern->block_size
                                  : graph.type(id).elements();
    if (values.size() != expected)
      throw UsageError(fmt::format("{}: {} values; it has {}", graph.info(id).name, values.size(), expected));
    const std::vector<float> stored =
        weight(id) != nullptr ? weight(id)->store(values) : reordered(values, variable(id).cols, id);
    std::vector<std::byte> bytes = product::as_type(stored, variable(id).type);
    session->write(variable(id).name, view(id, bytes));
  }

  std::vector<float> read(ValueId id) const {
    if (const auto found = shared.find(id); found != shared.end()) return owner->read(found->second);
    std::vector<std::byte> bytes(variable(id).bytes());
    session->read(variable(id).name, view(id, bytes));
    const std::vector<float> stored = product::as_floats(bytes, variable(id).type);
    return weight(id) != nullptr ? weight(id)->load(stored) : reordered(stored, variable(id).rows, id);
  }

  /// A matrix of `rows` rows, transposed if the value is stored so.
  std::vector<float> reordered(std::span<const float> values, uint32_t rows, ValueId id) const {
    std::vector<float> result(values.begin(), values.end());
    if (lowered.orders.values[id] != Order::transposed) return result;
    const size_t cols = values.size() / rows;
    for (size_t i = 0; i < values.size(); ++i) result[i % cols * rows + i / cols] = values[i];
    return result;
  }

  /// An array of the caller, for an operand that holds a value.
  engine::Binding bind(const ops::Operand& operand, ValueId id, void* data) const {
    const int64_t cols = graph.type(id).cols();
    if (lowered.orders.values[id] == Order::transposed) return {operand.variable, data, 1, cols};
    return {operand.variable, data, cols, 1};
  }

  std::vector<engine::Binding> metadata() const {
    std::vector<engine::Binding> bindings;
    for (const auto& [id, weight] : lowered.weights)
      for (const engine::Binding& binding : weight->bindings()) bindings.push_back(binding);
    return bindings;
  }

  /// What the caller binds.
  struct External {
    std::string name;
    ValueId id = 0;
    ops::Operand operand;

    bool operator==(std::string_view other) const { return name == other; }
  };
  std::vector<External> externals() const {
    std::vector<External> named;
    for (ValueId id = 0; id < graph.values().size(); ++id)
      if (graph.info(id).kind == Kind::input) named.push_back({graph.info(id).name, id, bound(id)});
    for (const auto& [name, operand] : lowered.outputs)
      named.push_back({name, graph.outputs().at(name), operand});
    return named;
  }

  ops::Operand bound(ValueId input) const {
    const auto whole = lowered.micro_batches.find(input);
    return whole != lowered.micro_batches.end() ? whole->second : *lowered.operands[input];
  }

  /// Outputs in the form of weights, which are converted after a run.
  struct StoredOutput {
    const External* external;
    void* to;
    std::vector<std::byte> bytes;
  };
  void unpack(const StoredOutput& output) const {
    const Type type = graph.type(output.external->id).type;
    const Variable& v = executable().program->variable(output.external->operand.variable);
    const std::vector<float> values =
        weight(output.external->id)->load(product::as_floats(output.bytes, v.type));
    const std::vector<std::byte> bytes = product::as_type(values, type);
    std::memcpy(output.to, bytes.data(), bytes.size());
  }

  engine::RunOptions run_options() const { return {.threads = options.threads, .profile = false}; }
  bool is_host() const { return executable().machine.kind == machine::Kind::host; }

  Graph graph;
  SessionOptions options;
  std::shared_ptr<const Impl> owner;
  std::map<ValueId, ValueId> shared;  ///< parameters, and the owner's
  Lowered lowered;
  std::unique_ptr<engine::Session> session;
};

Session::Session(const Graph& graph, const Machine& machine, const SessionOptions& options)
    : impl_(std::make_shared<Impl>(graph, machine.model(), options)) {
  if (fits()) set_state(initial_state(graph, options.seed));
}
Session::Session(const Graph& graph, const Session& owner)
    : impl_(std::make_shared<Impl>(graph, owner.impl_->executable().machine, owner.impl_->options,
                                   owner.impl_)) {
  if (!fits()) return;
  for (const auto& [name, values] : initial_state(graph, owner.impl_->options.seed))
    if (!impl_->shared.contains(impl_->find_state(name))) set(name, values);
}
Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const Graph& Session::graph() const { return impl_->graph; }
bool Session::fits() const { return impl_->executable().memory.fits(); }
uint64_t Session::compute_sets() const { return impl_->executable().program->compute_sets().size(); }
std::string Session::program() const { return to_string(*impl_->executable().program); }

double Session::run(std::span<const Tensor> arrays) {
  std::vector<engine::Binding> bindings;
  impl_->add_shared(bindings);
  std::ranges::copy(impl_->metadata(), std::back_inserter(bindings));
  const std::vector<Impl::External> externals = impl_->externals();
  std::vector<Impl::StoredOutput> stored;
  stored.reserve(externals.size());
  for (const Impl::External& external : externals) {
    const auto found = std::ranges::find(arrays, external.name, &Tensor::name);
    if (found == arrays.end() || found->data == nullptr)
      throw UsageError(fmt::format("'{}' is missing: pass an array", external.name));
    void* data = found->data;
    if (impl_->lowered.orders.values[external.id] == Order::stored) {
      const Variable& v = impl_->executable().program->variable(external.operand.variable);
      stored.push_back({&external, data, std::vector<std::byte>(v.bytes())});
      bindings.push_back({external.operand.variable, stored.back().bytes.data(), v.cols, 1});
    } else {
      bindings.push_back(impl_->bind(external.operand, external.id, data));
    }
  }
  const bool host = impl_->is_host();
  engine::RunOptions options = impl_->run_options();
  options.profile = !host;
  const engine::Profile profile = impl_->session->run(bindings, options);
  for (const Impl::StoredOutput& output : stored) impl_->unpack(output);
  return host ? profile.seconds : profile.cycles.total() / impl_->executable().machine.clock_hz;
}

Arrays Session::run(const Arrays& inputs) {
  std::map<std::string, std::vector<std::byte>> bytes;
  std::vector<Tensor> tensors;
  for (const auto& [name, id, operand] : impl_->externals()) {
    const TensorType type = impl_->graph.bound_type(id);
    std::vector<std::byte>& array = bytes[name];
    if (impl_->graph.info(id).kind == Kind::input) {
      const auto found = inputs.find(name);
      if (found == inputs.end()) throw UsageError(fmt::format("the input '{}' is missing", name));
      if (found->second.size() != type.elements())
        throw UsageError(fmt::format("the input '{}' has {} elements; {} has {}", name, found->second.size(),
                                     to_string(type), type.elements()));
      array = product::as_type(found->second, type.type);
    } else {
      array.resize(type.elements() * size_of(type.type));
    }
    tensors.push_back({name, array.data()});
  }
  run(tensors);
  Arrays outputs;
  for (const auto& [name, id] : impl_->graph.outputs())
    outputs[name] = product::as_floats(bytes.at(name), impl_->graph.type(id).type);
  return outputs;
}

void Session::set(const std::string& name, std::span<const float> values) {
  impl_->write(impl_->find_own_state(name), values);
}
std::vector<float> Session::get(const std::string& name) const {
  return impl_->read(impl_->find_state(name));
}

void Session::set_state(const Arrays& state) {
  for (const auto& [name, values] : state) set(name, values);
}

Arrays Session::state() const {
  Arrays state;
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id)
    if (impl_->is_own_state(id)) state[impl_->graph.info(id).name] = impl_->read(id);
  return state;
}

Pattern Session::pattern(const std::string& name) const {
  const ValueId id = impl_->find_state(name);
  if (!impl_->graph.type(id).pattern) throw UsageError(fmt::format("'{}' is not sparse", name));
  return impl_->weight(id) != nullptr ? impl_->weight(id)->pattern() : *impl_->graph.type(id).pattern;
}

namespace {

/// The values of blocks in another pattern; 0 for new ones.
std::vector<float> moved(const Pattern& from, std::span<const float> values, const Pattern& to) {
  const uint64_t block = uint64_t{from.block_size} * from.block_size;
  std::vector<float> result(to.blocks() * block);
  for (uint32_t row = 0; row < to.block_rows(); ++row)
    for (uint64_t t = to.row_begin[row], f = from.row_begin[row]; t < to.row_begin[row + 1]; ++t) {
      while (f < from.row_begin[row + 1] && from.columns[f] < to.columns[t]) ++f;
      if (f < from.row_begin[row + 1] && from.columns[f] == to.columns[t])
        std::copy_n(values.begin() + static_cast<int64_t>(f * block), block,
                    result.begin() + static_cast<int64_t>(t * block));
    }
  return result;
}

}  // namespace

void Session::set_pattern(const std::string& name, const Pattern& pattern) {
  const ValueId parameter = impl_->find_own_state(name);
  LinearWeight* weight = impl_->weight(parameter);
  const Pattern before = this->pattern(name);
  if (weight == nullptr) throw UsageError(fmt::format("'{}' is not the weight of a linear operation", name));
  if (pattern.rows != before.rows || pattern.cols != before.cols || pattern.block_size != before.block_size)
    throw UsageError(fmt::format(
        "{}: the new pattern is {} × {} with block size {}; the present one {} × {} with {}", name,
        pattern.rows, pattern.cols, pattern.block_size, before.rows, before.cols, before.block_size));
  std::vector<std::pair<ValueId, std::vector<float>>> values;
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id)
    if (impl_->is_state(id) && impl_->lowered.stored_as[id] == parameter)
      values.emplace_back(id, impl_->read(id));
  weight->set_pattern(pattern);
  for (const auto& [id, old] : values) impl_->write(id, moved(before, old, pattern));
  for (ValueId id : impl_->lowered.gaps) {
    if (impl_->lowered.stored_as[id] != parameter) continue;
    std::vector<std::byte> zeros(impl_->variable(id).bytes());
    impl_->session->write(impl_->variable(id).name, impl_->view(id, zeros));
  }
}

RunCost Session::cost() const {
  const compiler::Executable& executable = impl_->executable();
  const engine::Profile profile = impl_->session->run(impl_->metadata(), {.dry = true});
  const double clock = executable.machine.clock_hz;
  const auto by_phase = [](const program::PhaseTimes& times) {
    std::map<std::string, double> phases;
    for (size_t p = 0; p < program::kPhases; ++p)
      if (times.at[p] != 0) phases.emplace(name_of(static_cast<program::Phase>(p)), times.at[p]);
    return phases;
  };
  RunCost cost;
  cost.seconds = profile.cycles.total() / clock;
  cost.cycles = by_phase(profile.cycles);
  for (size_t n = 0; n < impl_->graph.nodes().size(); ++n) {
    const Lowered::Sets& sets = impl_->lowered.sets[n];
    const Node& node = impl_->graph.nodes()[n];
    program::PhaseTimes times;
    for (uint32_t s = sets.first_set; s < sets.last_set; ++s) times += profile.sets[s].cycles;
    for (uint32_t c = sets.first_copy; c < sets.last_copy; ++c) times += profile.copies[c].cycles;
    cost.operations.push_back({std::string(node.operation->name), impl_->graph.info(node.outputs[0]).name,
                               times.total() / clock, by_phase(times)});
  }
  for (const Conversion& conversion : impl_->lowered.conversions)
    cost.conversions.push_back({impl_->graph.info(conversion.value).name, conversion.bytes});
  const compiler::MemoryReport& memory = executable.memory;
  cost.bytes = {memory.total_purposes.begin(), memory.total_purposes.end()};
  cost.total_bytes = memory.total_bytes;
  cost.fullest_tile_bytes = memory.max_tile_bytes;
  cost.tile_bytes = memory.tile_capacity_bytes;
  for (const compiler::TileMemory& tile : memory.tiles) {
    const compiler::Categories purposes = tile.by_purpose();
    cost.tiles.emplace_back(purposes.begin(), purposes.end());
  }
  if (!memory.fits())
    cost.overflow =
        overflow_text(memory) +
        "; a smaller batch, sparser or smaller layers, or a machine with more tiles would need less";
  return cost;
}

void Session::save(const std::string& path) const {
  StateFile file;
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id) {
    if (!impl_->is_own_state(id)) continue;
    const ValueInfo& info = impl_->graph.info(id);
    file.add(info, impl_->read(id));
    if (info.type.pattern && info.kind == Kind::parameter) file.add_pattern(info.name, pattern(info.name));
  }
  file.write(path);
}

void Session::load(const std::string& path) {
  const StateFile file(path);
  std::map<std::string, Pattern> patterns;
  std::vector<std::pair<ValueId, std::vector<float>>> values;
  for (ValueId id = 0; id < impl_->graph.values().size(); ++id) {
    if (!impl_->is_own_state(id)) continue;
    const ValueInfo& info = impl_->graph.info(id);
    const ValueInfo& owner = info.belongs ? impl_->graph.info(*info.belongs) : info;
    std::optional<Pattern> pattern;
    if (info.type.pattern) pattern = file.pattern(owner.name, *info.type.pattern, info.type.capacity);
    values.emplace_back(id, file.values(info, pattern ? &*pattern : nullptr));
    if (pattern && info.kind == Kind::parameter) patterns[info.name] = *pattern;
  }
  for (const auto& [name, pattern] : patterns)
    if (impl_->graph.type(impl_->find_state(name)).capacity) set_pattern(name, pattern);
  for (const auto& [id, array] : values) impl_->write(id, array);
}

}  // namespace tessera::model
