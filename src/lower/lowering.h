// Builds a graph into a tile program: each operation is planned and built between the values' variables.
#pragma once

#include <tessera/graph.h>
#include <tessera/pipeline_actions.h>

#include <any>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "lower/layout.h"
#include "lower/parameter_updates.h"
#include "lower/weight.h"
#include "ops/builder.h"
#include "ops/map/map.h"
#include "ops/map/reduce_all.h"

namespace tessera::graph {

/// An operand with words that differ between replicas.
struct ByReplica {
  ops::Operand operand;
  std::shared_ptr<const std::vector<uint32_t>> words;
};

struct LoweredFunction;
class SequentialPasses;

/// A lowered graph: the operands of its values, and its steps in the program.
struct Lowered {
  ChosenLayouts layouts;
  std::vector<std::optional<ops::Operand>> operands;  ///< by value
  std::map<std::string, ops::Operand> outputs;        ///< the graph's outputs, by name
  std::map<ValueId, ops::Operand> parts;              ///< of parameters of which each replica keeps a part
  std::map<ValueId, std::unique_ptr<LinearWeight>> weights;
  WeightForms forms;
  /// A gradient to clear when the pattern of its weight changes.
  struct Gap {
    ValueId weight = 0;
    program::VariableId variable = 0;
  };
  std::vector<Gap> gaps;
  std::vector<ByReplica> by_replica;
  /// Ranges [first, last) of the program's compute sets, copy sets and collectives.
  struct Sets {
    uint32_t first_set = 0, last_set = 0, first_copy = 0, last_copy = 0;
    uint32_t first_collective = 0, last_collective = 0;

    bool hold(const Sets& some) const {
      return first_set <= some.first_set && some.last_set <= last_set && first_copy <= some.first_copy &&
             some.last_copy <= last_copy;
    }
  };
  /// A conversion of a value between layouts. Its sets are among the sets of the operation that takes the
  /// result.
  struct Conversion {
    std::string value;
    uint64_t bytes = 0;
    Sets sets;
  };
  std::vector<Conversion> conversions;
  /// A step that is a pass of a micro-batch through a stage, or sends what a pass computes.
  struct PassStep {
    ChipSpan::Kind kind = ChipSpan::Kind::forward;
    uint32_t stage = 0;
    uint32_t micro_batch = 0;  ///< the first time
    uint32_t next = 0;         ///< by which the micro-batch advances from one time to the next
    uint32_t first_chip = 0;   ///< of the stage
    uint32_t chips = 1;

    bool is_on(uint32_t chip) const { return chip >= first_chip && chip - first_chip < chips; }
  };
  std::map<program::StepId, PassStep> passes;
  /// What the chips of a pipeline do, in the program's order.
  std::optional<ActionList> actions;
  std::vector<std::vector<Sets>> sets;  ///< by node: sets added by the node, or by lowering its function
  /// By node that calls a function: the first node that calls it, with which all sets of the function count.
  std::map<uint32_t, uint32_t> counted_with;
  std::map<std::pair<std::shared_ptr<const Graph>, uint32_t>, LoweredFunction>
      functions;                                       ///< by function
                                                       ///< and part of the chips
  std::map<uint32_t, std::unique_ptr<Lowered>> loops;  ///< bodies of loops, by node

  std::vector<program::StepId> steps_of_passes() const {
    std::vector<program::StepId> steps;
    for (const auto& [step, pass] : passes) steps.push_back(step);
    return steps;
  }
};

struct LoweredFunction {
  ops::Function function;
  Lowered body;
  uint32_t first_call = 0;  ///< node
};

/// Lowers one graph. Operations' `lower` functions use it.
class Lowering {
 public:
  /// Values of `bound` are parameters of another session, to be bound where that one has them.
  Lowering(const Graph& graph, const ops::Builder& builder, Stages stages, std::set<ValueId> bound = {});
  /// Lowers the body of a loop of the graph that `around` lowers.
  Lowering(const Lowering& around, const Node& loop);

  /// Adds the whole graph, returns its step and records the passes: forms of weights, layouts, lowering.
  program::StepId build(std::vector<PassRecord>& passes);
  /// Adds the graph as a function of its inputs and outputs, in the layouts that it took.
  ops::Function build_function(const std::string& name);
  /// Takes the layouts that were chosen for a function, and those in which callers pass and take its values.
  void take(ChosenLayouts layouts, Boundary boundary);
  Lowered release() { return std::move(lowered_); }

  const Graph& graph() const { return graph_; }
  uint32_t replicas() const { return replicas_; }
  /// A builder for the tiles of the current node's stage.
  const ops::Builder& builder() const {
    return builder_of_stage(node_ < graph_.nodes().size() ? stages_.nodes[node_] : 0);
  }
  bool on_host() const { return builders_.front().is_host(); }

  /// An input or output of the node being lowered, in its chosen layout.
  ops::Operand input(size_t i);
  ops::Operand output(size_t i);
  /// An output; if it is a new temporary, with this mapping to tiles. Empty: spread over all tiles.
  ops::Operand output(size_t i, std::vector<program::MappedBox> mapping);
  /// For a call: an input in the layout that the function takes.
  ops::Operand argument(size_t i, const LoweredFunction& function);
  /// Whether an output of a call has the layout that the function gives it; if it has not, take_result()
  /// converts it.
  bool takes_result_as_it_is(size_t i, const LoweredFunction& function) const;
  void take_result(size_t i, const LoweredFunction& function, const ops::Operand& result);
  /// For a loop: the layouts of its inputs and outputs; and its lowering.
  LayoutChoice layout_of_loop(const Node& node);
  void lower_loop(const Node& node);
  /// Whether a value is an input of a loop's body that each pass copies.
  bool is_part(ValueId id) const { return parts_of_passes_.contains(id); }
  /// Whether replicas have parts of a value. They lie beside the boxes of the value as whose elements they
  /// lie, in one row, whatever that value's layout.
  bool is_shard(ValueId id) const { return replicas_ > 1 && graph_.type(id).sharded; }
  /// The operand beside whose boxes parts of a value lie; and a value in the layout that it has there.
  const ops::Operand& whole_of_parts(ValueId id) const;
  ops::Operand brought_to_parts(ValueId id, ValueId whole);
  /// An output on the tiles of an operand of the same shape, as for elementwise results.
  ops::Operand output_beside(size_t i, const ops::Operand& operand);
  /// The result of a node that is lowered together with the current one, on the tiles of an operand.
  ops::Operand result_beside(ValueId id, const ops::Operand& operand);
  const ValueLayout& input_layout(size_t i) const { return choice().inputs.at(i); }
  const ValueLayout& output_layout(size_t i) const { return choice().outputs.at(i); }
  bool is_transposed() const { return choice().is_transposed(); }
  /// The plan from which the cost of the chosen layouts was computed; null: there is none.
  template <class Plan>
  const Plan* planned() const {
    return std::any_cast<Plan>(&choice().plan);
  }
  /// Let an output be stored in an operand, or a value where another value is.
  void alias_output(size_t i, const ops::Operand& operand);
  void copy_to_output(size_t i, const ops::Operand& operand);
  /// Initialises an output with the contents of an input: in place, if nothing reads the input later, or as a
  /// copy.
  void begin_output_with(size_t i, size_t input);
  /// Stores a result besides an operation's outputs for another operation, which finds it by the id of an
  /// output.
  void add_side_result(ValueId output, std::any what) { side_results_[output] = std::move(what); }
  template <class T>
  const T* side_result(ValueId output) const {
    const auto found = side_results_.find(output);
    return found == side_results_.end() ? nullptr : std::any_cast<T>(&found->second);
  }
  void alias(ValueId value, ValueId of) { lowered_.operands.at(value) = operand_of(of); }
  /// A result lies in an operand of this layout.
  void set_operand(ValueId value, const ops::Operand& operand, const ValueLayout& layout) {
    lowered_.operands.at(value) = operand;
    lowered_.layouts.values.at(value) = layout;
  }
  /// A value in a layout: the value itself, or a conversion. Throws UsageError for a sparse value with the
  /// form of another weight.
  ops::Operand in_layout(ValueId id, const ValueLayout& layout);
  /// A value in the layout of another one.
  ops::Operand brought(ValueId id, ValueId as) { return in_layout(id, layout_of(as)); }
  /// The operand in another layout: the operand itself, or a temporary that `steps` fill. The costs of
  /// conversions are computed by building them with this function.
  ops::Operand convert(const ops::Builder& builder, const ops::Operand& operand, const TensorType& type,
                       const ValueLayout& from, const ValueLayout& to,
                       std::vector<program::StepId>& steps) const;
  ops::OperandLayout operand_layout(const TensorType& type, const ValueLayout& layout) const;
  const ValueLayout& layout_of(ValueId id) const { return lowered_.layouts.values.at(id); }
  /// The operand of a value that has been computed.
  const ops::Operand& operand_of(ValueId id) const { return lowered_.operands.at(id).value(); }
  bool is_computed(ValueId id) const { return lowered_.operands.at(id).has_value(); }
  /// Whether a node computes what is assigned to state that is not on the tiles as a whole.
  bool sets_fetched(const Node& node) const;
  /// The replica's part of a parameter, if the replica keeps only that part.
  std::optional<ops::Operand> kept_part(ValueId id) const;
  /// Stores the replica's part of the new contents of such state, a value that nothing else takes; false: it
  /// cannot.
  bool store_part(ValueId state, ValueId becomes, const ops::Operand& part);
  /// Calls `lower` for the node that each_from() visits, with what it takes from homes on the tiles.
  void lower_joined(const std::function<void()>& lower);
  ops::Operand temporary(const std::string& name, Type type, uint32_t rows, uint32_t cols);
  /// A row of u32 that many tiles may take: on a machine of tiles it lies on one, from which it comes in one
  /// piece.
  ops::Operand row_of_words(const std::string& name, uint32_t words);
  std::string name_beside_result(std::string_view name) const;
  /// A temporary that lies where another operand, a whole variable, lies, box for box.
  ops::Operand temporary_like(const std::string& name, Type type, const ops::Operand& like);
  /// On tiles, whole columns on each, so that rows can be chosen at run time.
  static std::vector<program::MappedBox> columns_on_tiles(const ops::Builder& builder, uint32_t rows,
                                                          uint32_t cols);
  /// Number of words of sub-streams; a row of a step, which is this input, and the current sub-stream, as
  /// codelets take it, the same for all that take this step; a copy of the sub-stream, of the current call or
  /// of `call` inside it, into a row; and a new row with the sub-stream of a call.
  uint32_t substream_words() const { return substream_words_; }
  ops::Operand with_substream(size_t i);
  void copy_substream(program::CopySet& set, const ops::Operand& to, std::optional<uint32_t> call = {});
  ops::Operand substream_of_call(uint32_t call);
  /// A constant of rows of words.
  ops::Operand constant_words(const std::string& name, std::vector<uint32_t> words, uint32_t rows = 1);
  /// The weight whose form a value has.
  const std::optional<ValueId>& form_of(ValueId id) const { return lowered_.forms.at(id); }
  /// Whether a dense value with the form of a weight has padding there that may be NaN.
  bool may_have_nan_padding(ValueId id);
  /// The layout in which products read a value as a weight.
  ValueLayout weight_layout(ValueId id) const { return {.weight = weight_of(lowered_.forms, id)}; }
  /// The weight as which products read a value.
  LinearWeight& weight(ValueId id) const {
    const ValueId of = weight_of(lowered_.forms, id);
    const auto given = given_weights_.find(of);
    return given != given_weights_.end() ? *given->second : *lowered_.weights.at(of);
  }
  /// The lowering of a call's function, of which there is one for all its calls on a stage; and the function
  /// itself, lowered at its first call.
  Lowering& body_of(const Node& call);
  const LoweredFunction& function(const Node& call);
  /// The layout in which a function gives a value that is an output.
  ValueLayout result_layout(ValueId id) const { return *given_layout(boundary_, id, layout_of(id)); }
  /// The layout of a value in the parts of a product's X or Y; and all such layouts so far for values of a
  /// type's size.
  ValueLayout parted(const ops::OperandLayout& layout);
  std::vector<ValueLayout> parted(const TensorType& type) const;
  /// The layout of a value in exactly these parts, mapping included; and adds it, unless it is known. A
  /// layout of another graph in this one.
  ValueLayout placed(const ops::OperandLayout& parts);
  bool add_parts(const ops::OperandLayout& parts);
  ValueLayout placed(const ValueLayout& layout) { return layout.parts ? placed(*layout.parts) : layout; }
  /// The operand in another type: the operand itself, or a temporary, on tiles where it lies.
  ops::Operand as_type(const ops::Operand& operand, Type type);
  /// Converts an operand's elements into another operand, unless they are the same.
  void convert_type(const ops::Operand& from, const ops::Operand& to);
  /// The nodes that take a value, in their order: each once for every input at which it does.
  const std::vector<uint32_t>& users_of(ValueId id) const { return users_[id]; }
  /// Whether anything uses a value.
  bool is_used(ValueId id) const { return outlasts_[id] || !users_[id].empty(); }
  /// The later node that is the only user of an output of the current node; null: there is none.
  const Node* sole_user(size_t output) const;
  /// Whether a value, or a value aliased with it, is read after the node being lowered by other nodes than
  /// its update.
  bool is_read_later(ValueId id, const Node& update) const;
  /// Marks a later node as lowered together with the current one.
  void skip(const Node& node);
  /// Calls visit(node) for the node being lowered and all later ones, as if each were being lowered; nodes
  /// for which it returns true are lowered together with the current one.
  template <class Visit>
  void each_from(const Visit& visit) {
    const uint32_t first = node_;
    for (; node_ < graph_.nodes().size(); ++node_) {
      const Node& other = graph_.nodes()[node_];
      const program::PartScope part = as_part(part_of_stage(stages_.nodes[node_]));
      if (!skipped_[node_] && are_of_one_pass(first, node_) && visit(other) && node_ != first) skip(other);
    }
    node_ = first;
  }

  template <class Problem>
  void add(const Problem& problem, const std::vector<ops::Operand>& operands) {
    run(ops::add(builder(), problem, operands));
  }
  /// Adds a reduction of all of an operand. On tiles, reductions of operands that lie alike share code.
  void add_sharing_code(const ops::ReduceAllProblem& problem, const ops::Operand& in,
                        const ops::Operand& out);
  /// A row on one tile for numbers that are summed over replicas, and the function that sums them.
  struct SharedSum {
    uint32_t group = 0;
    ops::Operand row = {};
    ops::Function function = {};
  };
  /// The sum of `count` numbers where `number` lies, and of its type, which all sums of as many there share.
  /// null: in functions and loops' bodies.
  const SharedSum* shared_sum(const ops::Operand& number, uint32_t count, uint32_t group);
  void run(program::StepId step) { steps_.push_back(step); }
  /// For sums over replicas that may begin early: lists of positions in `variables`, which the steps so far
  /// write: one for each time at which some of them are complete, in order. For other sums, one list has all.
  std::vector<std::vector<size_t>> by_completion(std::span<const program::VariableId> variables) const;

 private:
  friend class PipelineLowering;
  friend class SequentialPasses;

  /// A copy, and the part of the program to which it belongs.
  struct PlannedCopy {
    ops::Operand from, to;
    uint32_t part = program::kEveryPart;
  };

  void choose(WeightForms forms);
  void choose_weights(WeightForms forms);
  void set_parts();
  program::StepId build_steps();
  ops::Operand in_layout(ValueId id, const ValueLayout& layout, const ops::Builder& builder);
  void place_weights();
  std::map<ValueId, WeightUse> uses_inside(const Node& node) const;
  void place_values();
  /// A row of words for each replica, all of equal length.
  ops::Operand by_replica(const std::string& name, std::vector<uint32_t> words);
  /// A result on the tiles of an operand of this builder.
  ops::Operand result_beside(ValueId id, const ops::Operand& operand, const ops::Builder& builder);
  // Lowering of loops.
  ValueLayout layout_of_result(const LoopForm& form, size_t output) const;
  void begin_passes(const Node& node, const LoopForm& form, Lowering& body);
  void begin_draws(uint32_t number, Lowering& body);
  void place_carried(ValueId inside, const ops::Operand& given, Lowering& body);
  program::CopyGroup place_part(ValueId inside, const ops::Operand& given, const ops::Builder& builder,
                                Lowering& body);
  ops::Operand matrix_of_pass(ValueId inside, const ops::Builder& builder,
                              std::vector<program::MappedBox> mapping);
  bool lies_flat(ValueId given, const TensorType& of_pass, const LoopForm& form) const;
  program::CopyGroup place_flat(ValueId inside, const ops::Operand& given, const ops::Builder& builder,
                                Lowering& body, std::vector<program::StepId>& steps);
  ops::Operand placed_on(const ops::Operand& given, const std::string& name, const ops::Builder& builder,
                         const std::vector<program::MappedBox>& mapping);
  void gather_list(ValueId inside, const ops::Builder& builder, program::CopySet& copies);
  void end_passes(const LoopForm& form, Lowering& body, SequentialPasses& passes);
  void run_passes(const LoopForm& form, Lowering& body, size_t first_giving, size_t end_of_giving);
  bool ends_apart(const LoopForm& form) const;
  std::set<program::StepId> give_early(size_t first_giving, size_t end_of_giving);
  std::vector<program::StepId> parts_of_pass(size_t first_giving, size_t end_of_giving);
  bool is_given(const LoopForm& form, const ops::Operand& operand) const;
  ops::Operand kept_of_pass(const LoopForm& form, ValueId inside, const ops::Operand& own);
  void add_to_sum(const ops::Operand& sum, const ops::Operand& own, double scale, const ops::Builder& builder,
                  Lowering& body);
  ops::Operand stacked_output(size_t i, const ops::Operand& own, uint32_t count, const ops::Builder& builder);
  std::optional<ops::Operand> stack_pass(const ops::Operand& wanted, const ops::Operand& own,
                                         const ops::Builder& builder, Lowering& body);
  void copy_at_once(std::vector<PlannedCopy> all);
  /// Where a value lies between the operations that take it: in streaming memory, divided into a part per
  /// replica, or both.
  struct Home {
    ops::Operand kept;   ///< the value, or the replica's part
    ops::Operand whole;  ///< lies as the value does on the tiles; if it is not in parts, `kept`
    bool in_parts = false;
  };
  /// Where a value lies outside a loop.
  struct Outside {
    ops::Operand operand;
    ops::OperandLayout layout;
  };
  /// A value with a home, while operations take it on the tiles.
  struct FetchedValue {
    ValueId id = 0;
    Home home;
    ops::Operand on_tiles = {};
    bool is_read = false;
    std::optional<ValueId> result = {};  ///< the operations' result that is assigned to it
  };
  bool is_offloaded(ValueId id) const;
  bool is_in_parts(ValueId id) const;
  /// Whether a variable of that role for a value is in streaming memory. Throws UsageError as
  /// require_streaming() does.
  bool lies_in_streaming(ValueId id, program::Role role) const;
  bool is_in_streaming(const ops::Operand& operand) const;
  /// Sets the operand of a value, and notes it if it is in streaming memory.
  void set_placed(ValueId id, const ops::Operand& operand);
  ops::Operand add_part(ValueId id, const ops::Operand& whole, program::Role role);
  void place_in_parts(ValueId id, const ops::OperandLayout& layout);
  /// Throws UsageError for a machine without streaming memory, in which `name` is to lie.
  void require_streaming(const std::string& name) const;
  bool is_fetched_inside(const Node& loop, const LoopForm& form, size_t input) const;
  /// What the body of a loop takes as an input.
  ops::Operand given_to(Lowering& body, const Node& loop, const LoopForm& form, size_t input);
  std::vector<ValueId> taken_on_tiles(const Node& node) const;
  std::vector<FetchedValue> fetched_by(std::span<const uint32_t> nodes) const;
  /// Lowers nodes while their operands that have homes are on the tiles.
  void lower_with_fetched(std::span<const uint32_t> nodes, const std::function<void()>& lower);
  /// Calls `give`, which makes outputs and sets state, with what that takes from homes on the tiles.
  void with_fetched_results(const std::function<void()>& give);
  void fetch(std::vector<FetchedValue>& values);
  void store(const std::vector<FetchedValue>& values);
  /// A temporary on the tiles with the mapping of an operand there or beside them.
  ops::Operand on_tiles_like(const ops::Operand& operand) const;
  /// What is to be copied to a home, on the tiles beside it: the operand itself, a copy, or a part.
  ops::Operand beside(const ops::Operand& operand, const Home& home);
  /// Calls `before` with each node before it is lowered, unless it is null.
  void lower_all(const std::function<void(uint32_t)>& before = {});
  std::vector<bool> early_nodes() const;
  /// Notes the steps of the node being lowered if they may come early.
  void note_early();
  void begin_early();
  /// Adds the sums of gradients to the list of actions, at their positions among the steps.
  void list_sums();
  std::map<program::VariableId, uint32_t> stages_of_summed() const;
  /// The steps, with fetches begun early where they may.
  std::vector<program::StepId> fetched_ahead(std::vector<program::StepId> steps) const;
  void lower(uint32_t node);
  // Lowering of updates on tiles, which share code.
  /// One of several updates that are alike.
  struct SharedUpdate {
    ParameterUpdate of;
    std::vector<bool> is_read_later = {};  ///< by value that it gives: whether the old state is read later
    size_t kind = 0;                       ///< the same for all updates that are alike
  };
  /// The function that updates of a kind call: its operands are the values that they take, and then further
  /// ones that they give.
  struct UpdateFunction {
    size_t kind = 0;
    std::vector<uint32_t> nodes = {};  ///< of the first update
    ops::Function function = {};
    /// A value that it gives: one of its operands, or a value that only rounding takes, right after the call,
    /// where the function has it.
    struct Given {
      ops::Operand inside;
      std::optional<size_t> position = {};
    };
    std::vector<Given> given = {};
  };
  void find_shared_updates();
  SharedUpdate shared_update(ParameterUpdate of);
  bool are_alike(const SharedUpdate& a, const SharedUpdate& b) const;
  void lower_shared_update(const SharedUpdate& update);
  const UpdateFunction* function_of(const SharedUpdate& update);
  UpdateFunction build_function(const SharedUpdate& update);
  size_t position_as_given(const ops::Operand& given, std::vector<ops::FunctionOperand>& operands);
  void call(const UpdateFunction& function, const ParameterUpdate& update);
  /// A function that reduces its first operand to its second one.
  struct SharedReduction {
    ops::ReduceAllProblem problem;
    ops::Function function;
    uint32_t node = 0;  ///< the first node
  };
  bool is_of_shared_update(uint32_t node) const { return skipped_[node] || shared_updates_.contains(node); }
  bool may_share_code(const ops::Operand& in, const ops::Operand& out) const;
  void count_with(uint32_t first, uint32_t node) {
    if (node != first) lowered_.counted_with[node] = first;
  }
  const ops::Function& function_of(const ops::ReduceAllProblem& problem, const ops::Operand& in,
                                   const ops::Operand& out);
  /// Calls `add`, and records the sets that it adds to the program as sets of the node.
  void add_as(uint32_t node, const std::function<void()>& add);
  void place(ValueId id, std::vector<program::MappedBox> mapping = {});
  void place_part(ValueId id);
  std::shared_ptr<const std::byte> contents_of(ValueId id);
  void place_outputs();
  ops::Operand give_converted(ValueId id);
  void assign();
  bool may_overwrite(size_t input);
  bool is_read_after(ValueId id) const;
  /// Whether the caller binds an array for a value as an output.
  bool is_output(ValueId id) const;
  /// Whether a value as an output is converted to the caller's layout.
  bool is_converted_output(ValueId id) const {
    if (boundary_.contains(id)) return !(result_layout(id) == layout_of(id));
    return layout_of(id).parts || (!is_function_ && layout_of(id).weight && !graph_.type(id).pattern);
  }
  /// For a pipeline's body: whether two nodes run in the same pass through a stage, and whether one runs
  /// after another.
  bool are_of_one_pass(uint32_t a, uint32_t b) const { return parts_.empty() || parts_[a] == parts_[b]; }
  bool is_later(uint32_t node, uint32_t than) const {
    return parts_.empty() || parts_[node] == parts_[than] ? node > than : parts_[node] > parts_[than];
  }
  uint32_t index_of(const Node& node) const { return static_cast<uint32_t>(&node - graph_.nodes().data()); }
  const LayoutChoice& choice() const { return lowered_.layouts.nodes.at(node_); }
  /// Allocates the entries of values and nodes, and finds what uses values.
  void prepare();
  program::Purpose purpose_of(ValueId id) const;
  std::vector<program::MappedBox> wanted_mapping(ValueId id) const;

  /// The part of the program to which the steps of a stage belong, and those for a value. The stages of a
  /// host, which has no chips for them, are parts that ranks may divide.
  uint32_t part_of_stage(uint32_t stage) const {
    if (!has_parts_) return program::kEveryPart;
    return stage < places_.size() ? places_[stage] : stage;
  }
  uint32_t part_of(ValueId id) const {
    return has_parts_ ? part_of_stage(stage_of(graph_, stages_, id)) : program::kEveryPart;
  }
  /// While the result exists, steps belong to a part.
  program::PartScope as_part(uint32_t part) const { return {builders_.front().program(), part}; }

  /// The part of the chips on which a stage runs.
  uint32_t place_of_stage(uint32_t stage) const {
    if (builders_.size() == 1) return 0;
    return places_.empty() ? stage : places_.at(stage);
  }
  const ops::Builder& builder_of_stage(uint32_t stage) const { return builders_.at(place_of_stage(stage)); }
  /// A builder for the stage that computes a value, or that uses it first.
  const ops::Builder& builder_of(ValueId id) const {
    return builders_.size() == 1 ? builders_.front() : builder_of_stage(stage_of(graph_, stages_, id));
  }

  const Graph& graph_;
  Stages stages_;
  PartialSums partial_sums_;
  bool prefetches_;
  std::vector<uint32_t> places_;        ///< by stage: part of the chips; empty: a part for each
  bool has_parts_ = false;              ///< whether stages are parts of the program
  std::vector<ops::Builder> builders_;  ///< by part of the chips, if they are divided among stages
  std::set<ValueId> bound_;
  Lowered lowered_;
  std::map<ValueId, std::vector<std::pair<ValueLayout, ops::Operand>>> converted_;
  std::optional<std::pair<ValueId, ops::Operand>> row_of_step_;  ///< a step, and its row for codelets
  std::vector<ValueLayout> parted_;
  std::map<ValueId, std::any> side_results_;
  std::optional<std::vector<bool>> nan_padding_;  ///< padding_may_be_nan() of the forms, once asked for
  std::vector<bool> skipped_;
  std::vector<std::vector<uint32_t>> users_;  ///< by value: see users_of()
  std::vector<bool> outlasts_;                ///< by value: whether it is an output or assigned to state
  std::vector<program::StepId> steps_;
  std::map<program::StepId, size_t> actions_until_;  ///< by step: how many of the listed actions end with it
  size_t first_step_ = 0;                            ///< of the node being lowered
  std::vector<bool> early_nodes_;                    ///< while all nodes are being lowered
  std::set<program::StepId> early_;    ///< steps that come as soon as what they take is complete
  std::set<program::StepId> fetches_;  ///< steps that fetch, if they may begin early
  uint32_t replicas_ = 1;
  std::optional<ops::Operand> counter_, pass_;  ///< for a loop's body: number of passes so far, and the
                                                ///< current pass, whose rows it takes
  std::optional<ops::Operand> micro_batch_;
  uint32_t substream_words_;
  std::optional<ops::Operand> own_substream_;  ///< for a function, its argument; for a loop's body, the
                                               ///< sub-stream of the pass
  bool is_function_ = false;
  bool is_body_ = false;                            ///< whether this is the body of a loop, which takes
                                                    ///< outputs in the layouts in which they are computed
  std::string prefix_;                              ///< prefix of the names of state
  std::map<ValueId, LinearWeight*> given_weights_;  ///< for a loop's body: the weights outside
  std::map<ValueId, WeightUse> given_uses_;         ///< for a body on tiles: see uses_inside()
  std::set<ValueId> parts_of_passes_;
  std::map<uint32_t, std::unique_ptr<Lowering>> loops_;  ///< lowerings of loops' bodies, by node
  std::vector<uint32_t> parts_;  ///< of a pipeline's body, by node: the pass in which it runs
  std::map<uint32_t, SharedUpdate> shared_updates_;  ///< by the node that comes last
  std::list<UpdateFunction> update_functions_;
  std::list<SharedReduction> shared_reductions_;
  std::list<SharedSum> shared_sums_;
  std::map<ValueId, Home> homes_;             ///< of values in streaming memory, and of parameters in parts
  std::set<ValueId> stored_;                  ///< of these values: state that has its new contents
  std::map<ValueId, Outside> outside_;        ///< of inputs that passes of a loop take in another layout
  std::multimap<ValueId, ValueId> assigned_;  ///< by value: the state to which it is assigned
  std::set<ValueId> given_by_function_;       ///< results that are arguments of the function being built
  std::set<ValueId> outputs_;                 ///< outputs that are computed directly into the
                                              ///< caller's arrays
  uint32_t node_ = 0;
  Boundary boundary_;
  std::map<std::pair<const Graph*, uint32_t>, std::unique_ptr<Lowering>>
      bodies_;  ///< of functions, by part of the chips
};

}  // namespace tessera::graph
