// The implementation of a session.
#pragma once

#include <fmt/format.h>
#include <tessera/error.h>
#include <tessera/graph.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/forked_mutex.h"
#include "base/integer_types.h"
#include "bound/bound_program.h"
#include "graph/initial.h"
#include "graph/list_inputs.h"
#include "graph/shards.h"
#include "graph/transforms/recompute.h"
#include "graph/transforms/transforms.h"
#include "kernels/common/numbers.h"
#include "lower/lowering.h"
#include "lower/parts.h"
#include "lower/pattern_groups.h"
#include "lower/placement.h"
#include "lower/session_file.h"
#include "lower/shards.h"
#include "sparse/pattern.h"

namespace tessera::graph {

using program::FieldView;
using program::Variable;

struct Session::Impl {
  /// The session whose parameters another one shares, and its graph; for costs, the graph alone, transformed
  /// for the machine.
  struct Owner {
    std::shared_ptr<const Impl> session;
    const Graph* graph;
  };
  static Owner owner_of(std::shared_ptr<const Impl> session) {
    const Graph& graph = session->graph;
    return {std::move(session), &graph};
  }

  /// `compiled` is the file of an equal session; null: the graph is compiled. SessionOptions::executable is
  /// only for from_options().
  Impl(const Graph& network, const machine::Machine& machine, const SessionOptions& chosen,
       const Owner& of = {}, bound::Runs runs = bound::Runs::resumed, const SessionFile* compiled = nullptr)
      : Impl(network, machine, chosen, of, runs, compiled,
             compiled != nullptr ? parts_of(*compiled, network, machine)
                                 : choose_parts(network, machine, chosen, of.graph)) {}
  Impl(const Graph& network, const machine::Machine& machine, const SessionOptions& chosen, const Owner& of,
       bound::Runs runs, const SessionFile* compiled, std::optional<Parts> divided)
      : graph(divided ? divided->graph : network),
        options(chosen),
        owner(of.session),
        whole_machine(machine),
        parts(std::move(divided)) {
    check_inputs();
    check_host_link();
    const machine::Machine own = parts ? host_of(machine, 1) : machine;
    groups = pattern_groups(network);
    passes = transform(graph, session_transforms(), own);
    if (of.graph != nullptr) {
      find_shared(*of.graph);
      if (machine.kind == machine::Kind::host) find_bound(*of.graph);
      list_shared();
    }
    placed = compiled != nullptr ? place_as(*compiled, own, runs)
                                 : place_graph(graph, own, in_place, options.on_chips, runs, ranks_of_runs());
    std::ranges::move(placed.passes, std::back_inserter(passes));
    lists = list_inputs(graph);
    if (owner && owner->program().fits())
      for (ValueId id : in_place) placed.program->bind(binding_of_shared(id, shared.at(id)));
    if (!parts) return;
    prepare_last_parts(of, runs);
    parts->graph = network;
    parts->graph.drop_initial_values();
  }

  static std::shared_ptr<Impl> from_options(const Graph& graph, const machine::Machine& machine,
                                            const SessionOptions& options, const Owner& of = {});
  static std::shared_ptr<Impl> sharing(const Graph& graph, const std::shared_ptr<Impl>& owner,
                                       const std::string& executable);

  /// One session, as all ranks have to make it. Fits a graph to its memory budget, if it has one.
  static std::shared_ptr<Impl> make(const Graph& graph, const machine::Machine& machine,
                                    const SessionOptions& options, const Owner& of, bound::Runs runs);
  /// Does what each rank does for itself, such as reading a file: if it fails on one, it fails on all.
  void on_each(const std::function<void()>& work) const;
  using ReadValues = std::vector<std::pair<ValueId, std::vector<float>>>;
  using ReadIntegers = std::vector<std::pair<ValueId, std::vector<std::byte>>>;
  /// Throws RankError unless all ranks have read the same from a file.
  void require_same(const std::map<ValueId, Pattern>& patterns, const ReadValues& values,
                    const ReadIntegers& integers) const;
  /// Writes a file, which `write` does: of several ranks, the first one does, and all of them wait for it.
  void write_once(const std::function<void()>& write) const;

  /// The parts of a graph that a file names.
  static std::optional<Parts> parts_of(const SessionFile& compiled, const Graph& network,
                                       const machine::Machine& machine);
  Placed place_as(const SessionFile& compiled, const machine::Machine& own, bound::Runs runs) const;
  void save_executable(const std::string& path) const;

  const bound::BoundProgram& program() const { return *placed.program; }
  const compiler::Executable& executable() const { return program().executable(); }
  program::VariableId variable_of(ValueId id) const { return lowered.operands[id]->variable; }
  const Variable& variable(ValueId id) const { return executable().program->variable(variable_of(id)); }
  /// The variable of a value, or of the replica's part if replicas have no more.
  program::VariableId kept_variable_of(ValueId id) const {
    const auto part = lowered.parts.find(id);
    return part == lowered.parts.end() ? variable_of(id) : part->second.variable;
  }
  const Variable& kept_variable(ValueId id) const {
    return executable().program->variable(kept_variable_of(id));
  }
  /// The replicas that this process runs.
  uint32_t own_replicas() const { return program().own_replicas(); }
  /// The ranks that divide the graph among them; null: none. A graph without replicas that shares parameters
  /// runs whole on each rank.
  std::shared_ptr<Communicator> ranks_of_runs() const {
    if (owner != nullptr && graph.replicas() == 1) return {};
    return options.communicator;
  }
  bool is_in_parts(ValueId id) const { return is_shard(graph, id) || lowered.parts.contains(id); }
  bool transposed(ValueId id) const { return bound_layout(lowered.layouts.values[id]).transposed; }
  bool is_state(ValueId id) const { return is_kept(graph.info(id)); }

  /// Throws UsageError for sparse inputs: callers bind matrices, only functions take sparse values.
  void check_inputs() const {
    for (ValueId id : graph.inputs())
      if (graph.type(id).pattern)
        throw UsageError(
            fmt::format("the input '{}' is sparse: make it a parameter, or call the graph as a function",
                        graph.info(id).name));
  }

  void check_host_link() const {
    const bool has_link = whole_machine.kind == machine::Kind::host || whole_machine.has_host_link();
    if (options.host_io && !has_link)
      throw UsageError(
          fmt::format("{} has no link to a host over which inputs and outputs could go: set its "
                      "'host_link_gb_per_second', or leave out the transfers",
                      whole_machine.name));
  }

  /// Makes the session for the last parts. All its parameters are this session's, or its owner's.
  void prepare_last_parts(const Owner& of, bound::Runs runs) {
    const auto states = std::ranges::count_if(graph.values(), [](const auto& info) { return is_kept(info); });
    const bool has_own = states != std::ssize(shared);
    if (of.graph != nullptr && has_own) parts->last = 0;
    if (parts->last == 0) return;
    const bool has_values = runs != bound::Runs::none;
    const Owner own{std::shared_ptr<const Impl>(std::shared_ptr<const Impl>(), has_values ? this : nullptr),
                    &graph};
    last_parts = std::make_unique<Impl>(parts->graph, whole_machine, undivided(options),
                                        of.graph == nullptr ? own : of, runs);
    last_parts->graph.drop_initial_values();
  }

  /// Finds the parameters that the owner has.
  void find_shared(const Graph& of_owner) {
    for (ValueId id = 0; id < graph.values().size(); ++id) {
      if (!is_state(id)) continue;
      for (ValueId other = 0; other < of_owner.values().size(); ++other)
        if (is_kept(of_owner.info(other)) && of_owner.info(other).name == graph.info(id).name)
          shared[id] = other;
      if (!shared.contains(id)) continue;
      const TensorType &own = graph.type(id), &its = of_owner.type(shared[id]);
      if (!(own == its))
        throw UsageError(
            fmt::format("{} is {}; the owner's is {}", graph.info(id).name, to_string(own), to_string(its)));
      for (const Assignment& assignment : graph.assignments())
        if (assignment.state == id)
          throw UsageError(
              fmt::format("{} is another session's: it cannot be assigned to", graph.info(id).name));
    }
  }

  /// Finds the parameters that are bound in place on a host: those with the form of weights in both sessions,
  /// or in neither.
  void find_bound(const Graph& of_owner) {
    const WeightForms forms = weight_forms(graph), its = weight_forms(of_owner);
    for (const auto& [own, id] : shared)
      if (forms[own].has_value() == its[id].has_value()) in_place.insert(own);
  }

  /// Lists what each run looks at: few or none of hundreds of parameters.
  void list_shared() {
    for (const auto& [own, id] : shared) {
      if (graph.type(own).capacity) shared_dynamic.emplace_back(own, id);
      if (!in_place.contains(own)) shared_copies.emplace_back(own, id);
    }
  }

  /// Gives shared parameters the owner's patterns.
  void follow_patterns() {
    std::map<ValueId, Pattern> changed;
    for (const auto& [own, id] : shared_dynamic) {
      Pattern pattern = owner->weight(id)->pattern();
      if (weight(own)->pattern() != pattern) changed[own] = std::move(pattern);
    }
    change_patterns(changed);
  }

  /// Takes the owner's parameters as they are now: copies, unless they are bound in place.
  void take_shared() {
    if (shared.empty()) return;
    owner->program().require_fit();
    owner->require_whole();
    follow_patterns();
    for (const auto& [own, id] : shared_copies) write(own, owner->read(id));
    engine::Session& state = owner->program().state();
    if (!state.is_divided()) return;
    for (const ValueId own : in_place) state.share(owner->variable(shared.at(own)).name);
  }

  engine::Binding binding_of_shared(ValueId own, ValueId id) const {
    const FieldView memory = owner->program().state().memory_of(owner->variable(id).name);
    const Variable& v = variable(own);
    if (transposed(own) == owner->transposed(id)) {
      if (v.rows == memory.rows && v.cols == memory.cols)
        return {variable_of(own), memory.data, memory.row_stride, 1};
      throw UsageError(fmt::format("'{}' has another form than in the session that it is shared with",
                                   graph.info(own).name));
    }
    return {variable_of(own), memory.data, 1, memory.row_stride};
  }

  /// Sets the patterns of weights, or none if one does not fit. Blocks in the old and new pattern keep their
  /// contents in this session's values, except the replaced ones, and gradients are set to 0 where products
  /// do not write them.
  void change_patterns(const std::map<ValueId, Pattern>& patterns, const ReadValues& replacements = {});
  /// Sets patterns, then the contents of this session's parameters and state, or nothing if one does not fit.
  void replace(const std::map<ValueId, Pattern>& patterns, const ReadValues& values);
  /// The present pattern of a sparse parameter or state.
  Pattern pattern_of(ValueId id) const {
    return weight(id) != nullptr ? weight(id)->pattern() : *graph.type(id).pattern;
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

  /// If replicas have parts of a value, the parameter with which its whole shares the layout; otherwise the
  /// value.
  ValueId lies_as(ValueId id) const { return is_shard(graph, id) ? graph.info(id).belongs.value() : id; }

  LinearWeight* weight(ValueId id) const {
    const auto& form = lowered.forms[lies_as(id)];
    return form ? lowered.weights.at(*form).get() : nullptr;
  }

  static FieldView view(const Variable& v, std::vector<std::byte>& bytes) {
    return {bytes.data(), v.type, v.rows, v.cols, v.cols, 1};
  }

  /// Number of values of a parameter or state; for a sparse weight, of the blocks of `pattern`.
  uint64_t elements_of(ValueId id, const Pattern& pattern) const {
    if (!graph.type(id).pattern) return graph.type(id).elements();
    return sparse::stored_values(pattern);
  }
  void check_size(ValueId id, size_t given, const Pattern& pattern) const {
    if (const uint64_t expected = elements_of(id, pattern); given != expected)
      throw UsageError(fmt::format("{}: {} values; it has {}", graph.info(id).name, given, expected));
  }

  /// Runs the program. If that throws, parameters and state may be torn.
  engine::Profile run(const bound::Arrays& arrays, const engine::RunOptions& how);
  /// Throw Error if parameters and state, or this one, are torn.
  void require_whole() const;
  void require_whole(ValueId id) const {
    if (torn.contains(id)) require_whole();
  }

  void write(ValueId id, std::span<const float> values) {
    check_size(id, values.size(), graph.type(id).pattern ? pattern_of(id) : Pattern());
    const ValueId like = lies_as(id);
    const std::vector<float> stored =
        weight(id) != nullptr ? weight(id)->store(values) : reordered(values, variable(like).cols, like);
    const auto write_to = [&](std::span<const float> own, auto... replica) {
      const Variable& kept = kept_variable(id);
      std::vector<std::byte> bytes = kernels::as_type(own, kept.type);
      program().state().write(kept.name, view(kept, bytes), replica...);
    };
    torn.erase(id);
    if (!is_in_parts(id)) return write_to(stored);
    const uint32_t first = program().first_replica();
    for (uint32_t r = 0; r < own_replicas(); ++r) write_to(take_part(part_of(id), stored, first + r), r);
  }

  PartOfVariable part_of(ValueId id) const {
    return {variable(lies_as(id)), kept_variable(id), graph.replicas()};
  }

  /// The contents of a variable, of which replicas may have parts.
  std::vector<float> stored(ValueId id) const {
    const Variable& kept = kept_variable(id);
    const bool in_parts = is_in_parts(id);
    std::vector<std::byte> bytes((in_parts ? graph.replicas() : 1) * kept.bytes());
    if (in_parts)
      program().state().read_all(kept.name, bytes);
    else
      program().state().read(kept.name, view(kept, bytes));
    const std::vector<float> values = kernels::as_floats(bytes, kept.type);
    if (!in_parts) return values;
    std::vector<float> whole(variable(lies_as(id)).elements());
    for (uint32_t r = 0; r < graph.replicas(); ++r)
      put_part(part_of(id), std::span(values).subspan(r * kept.elements(), kept.elements()), r, whole);
    return whole;
  }

  std::vector<float> read(ValueId id) const {
    if (const auto found = shared.find(id); found != shared.end()) return owner->read(found->second);
    require_whole(id);
    const ValueId like = lies_as(id);
    const std::vector<float> all = stored(id);
    return weight(id) != nullptr ? weight(id)->load(all) : reordered(all, variable(like).rows, like);
  }

  /// The values of a matrix of `rows` rows, transposed if the value is bound transposed.
  std::vector<float> reordered(std::span<const float> values, uint32_t rows, ValueId id) const {
    std::vector<float> result(values.begin(), values.end());
    if (!transposed(id)) return result;
    const size_t cols = values.size() / rows;
    for (size_t i = 0; i < values.size(); ++i) result[i % cols * rows + i / cols] = values[i];
    return result;
  }

  /// Whether a value consists of integers, which FP32 may not hold, and lies as a matrix.
  bool is_matrix_of_integers(ValueId id) const {
    return is_integer(graph.type(id).type) && weight(id) == nullptr && !is_shard(graph, id);
  }
  std::vector<std::byte> read_integers(ValueId id) const {
    require_whole(id);
    std::vector<std::byte> bytes(variable(id).bytes());
    program().state().read(variable(id).name, row_by_row(id, bytes));
    return bytes;
  }
  void write_integers(ValueId id, std::vector<std::byte> bytes) {
    torn.erase(id);
    program().state().write(variable(id).name, row_by_row(id, bytes));
  }
  /// The elements of a value, row by row, as its variable, which may have the rows as columns.
  FieldView row_by_row(ValueId id, std::vector<std::byte>& bytes) const {
    FieldView all = view(variable(id), bytes);
    if (transposed(id)) all.row_stride = 1, all.col_stride = all.rows;
    return all;
  }

  /// A value that the caller binds. externals() requires the lock.
  struct External {
    std::string name;
    ValueId id = 0;
    engine::Binding binding;  ///< of a matrix, without its data
    size_t position = 0;      ///< among the operands of the program
    bool is_input = false;

    bool operator==(std::string_view other) const { return name == other; }
  };
  const std::vector<External>& externals() const {
    if (!externals_.empty()) return externals_;
    for (ValueId id = 0; id < graph.values().size(); ++id)
      if (graph.info(id).kind == Kind::input)
        add_external(graph.info(id).name, id, *lowered.operands[id], true);
    for (const auto& [name, operand] : lowered.outputs)
      add_external(name, graph.outputs().at(name), operand, false);
    return externals_;
  }
  /// Binds an array of the caller to a matrix.
  static void bind(bound::Arrays& arrays, const External& external, void* data) {
    const engine::Binding& b = external.binding;
    arrays.set(external.position, data, b.row_stride, b.col_stride, b.replica_stride);
  }

  /// Throws UsageError if check_lists() of the graph refuses lists of spikes among the arrays.
  void check_lists(std::span<const Tensor> arrays) const;

  /// Throws UsageError for an array that is neither an input nor an output, given twice, or of another size.
  void check_arrays(std::span<const Tensor> arrays, std::span<const External> externals) const;
  /// The type of an input or output in a run, with the rows of `replicas` replicas and its present pattern.
  TensorType type_of(const External& external, uint32_t replicas) const;
  TensorType type_of(const External& external) const { return type_of(external, own_replicas()); }

  /// Outputs in the form of sparse weights, which are converted after a run.
  struct StoredOutput {
    const External* external;
    void* to;
    std::vector<std::byte> bytes;
  };
  void unpack(const StoredOutput& output) const {
    const Type type = graph.type(output.external->id).type;
    const Variable& v = executable().program->variable(output.external->binding.variable);
    const std::vector<float> values =
        weight(output.external->id)->load(kernels::as_floats(output.bytes, v.type));
    const std::vector<std::byte> bytes = kernels::as_type(values, type);
    if (!bytes.empty()) std::memcpy(output.to, bytes.data(), bytes.size());
  }

  /// The seconds of a run on a modelled machine; 0 on a host.
  double seconds_of(const engine::Profile& profile) const {
    if (is_host()) return 0;
    const std::optional<HostIoCost> io = host_io();
    return program().seconds_of(profile) + (io ? io->seconds : 0);
  }
  /// The transfers of a run from and to the hosts of a modelled machine, if its time is to have them.
  std::optional<HostIoCost> host_io() const;
  /// What does not fit, with what would help.
  std::string overflow_of(const compiler::MemoryReport& memory) const;
  /// The cost of a run, predicted or measured.
  RunCost cost_of(const engine::Profile& profile, bool measured) const;
  /// What chips do, from a watch that followed a run.
  std::vector<ChipLane> lanes_of(const compiler::StepWatch& watch) const;
  /// Turns the cost of one part into the cost of all parts. `measured`: the measured seconds of all parts.
  void add_parts(RunCost& cost, std::optional<double> measured = {}) const;
  /// The predicted cost of a run with these arrays, of which only integer inputs matter.
  RunCost cost(std::span<const Tensor> inputs) const;

  uint32_t threads() const { return threads_of(whole_machine, options); }
  engine::RunOptions run_options() const { return {.threads = options.threads, .profile = false}; }
  bool is_host() const { return executable().machine.kind == machine::Kind::host; }

  /// While a lock exists, no other thread uses the session, or changes the parameters that it shares.
  class Lock {
   public:
    /// Throws Error in a forked process if a thread of its parent had one.
    explicit Lock(const Impl& impl) : own_(impl.mutex_, std::defer_lock) {
      if (impl.owner) of_owner_ = std::unique_lock(impl.owner->mutex_);
      own_.lock();
    }

   private:
    std::unique_lock<base::ForkedMutex> of_owner_, own_;
  };

  Graph graph;
  SessionOptions options;
  std::shared_ptr<const Impl> owner;
  std::map<ValueId, ValueId> shared;  ///< maps shared parameters to the owner's
  std::set<ValueId> in_place;         ///< shared parameters that are bound where the owner has them
  /// Of the shared parameters and the owner's, those whose patterns may change, and those that are copied.
  std::vector<std::pair<ValueId, ValueId>> shared_dynamic, shared_copies;
  std::vector<ListInputs> lists;
  PatternGroups groups;
  std::vector<PassRecord> passes;
  Recomputation recomputation;       ///< what was chosen for a memory budget; make() sets it
  machine::Machine whole_machine;    ///< the machine, of which the executable may use a part
  std::optional<Parts> parts;        ///< the parts of the original graph, if `graph` computes some of its
                                     ///< samples
  std::unique_ptr<Impl> last_parts;  ///< session for the last parts, which run one at a time on all threads
  Placed placed;
  Lowered& lowered = placed.lowered;
  double last_seconds = 0;  ///< seconds of the last run on a modelled machine
  /// Parameters and state that a run may have half changed, as it threw: no run takes them until all are set.
  std::set<ValueId> torn;

 private:
  void add_external(const std::string& name, ValueId id, const ops::Operand& operand, bool is_input) const {
    const uint64_t of_replica = graph.type(id).elements();
    const int64_t next = graph.bound_type(id).elements() == of_replica ? 0 : static_cast<int64_t>(of_replica);
    engine::Binding binding{operand.variable, nullptr, operand.cols(), 1, next};
    if (transposed(id)) binding.row_stride = 1, binding.col_stride = operand.rows();
    externals_.push_back({name, id, binding, program().position_of(operand.variable), is_input});
  }

  mutable base::ForkedMutex mutex_;
  mutable std::vector<External> externals_;  ///< empty until externals() is called
};

}  // namespace tessera::graph
