// Builds a graph into a tile program: each operation is planned and built between the values' variables.
#pragma once

#include <tessera/graph.h>

#include <any>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "graph/loop.h"
#include "graph/operation.h"
#include "graph/stages.h"
#include "lower/layout.h"
#include "lower/weight.h"
#include "ops/builder.h"
#include "ops/map/map.h"

namespace tessera::graph {

/// Words of an operand, of which each replica has its own.
struct ByReplica {
  ops::Operand operand;
  std::shared_ptr<const std::vector<uint32_t>> words;
};

struct LoweredFunction;

/// Where the values of a lowered graph are.
struct Lowered {
  ChosenLayouts layouts;
  std::vector<std::optional<ops::Operand>> operands;  ///< by value
  std::map<std::string, ops::Operand> outputs;        ///< of the graph, in the order of their values
  std::map<ValueId, std::unique_ptr<LinearWeight>> weights;
  WeightForms forms;
  /// A gradient to clear when the pattern of its weight changes.
  struct Gap {
    ValueId weight = 0;
    program::VariableId variable = 0;
  };
  std::vector<Gap> gaps;
  std::vector<ByReplica> by_replica;
  /// Compute sets, copy sets and collectives [first, last) of the program.
  struct Sets {
    uint32_t first_set = 0, last_set = 0, first_copy = 0, last_copy = 0;
    uint32_t first_collective = 0, last_collective = 0;

    bool hold(const Sets& some) const {
      return first_set <= some.first_set && some.last_set <= last_set && first_copy <= some.first_copy &&
             some.last_copy <= last_copy;
    }
  };
  /// Of a value between layouts, among the sets of the operation that wants it.
  struct Conversion {
    std::string value;
    uint64_t bytes = 0;
    Sets sets;
  };
  std::vector<Conversion> conversions;
  std::vector<std::vector<Sets>> sets;  ///< by node: those that it added, or its function when it was lowered
  std::map<std::pair<std::shared_ptr<const Graph>, uint32_t>, LoweredFunction> functions;  ///< of a stage
  std::map<uint32_t, std::unique_ptr<Lowered>> loops;  ///< their bodies, by node
};

struct LoweredFunction {
  ops::Function function;
  Lowered body;
};

/// Lowers one graph. Operations' `lower` functions use it.
class Lowering {
 public:
  /// Values of `bound` are parameters that each run binds where another session has them.
  Lowering(const Graph& graph, const ops::Builder& builder, Stages stages, std::set<ValueId> bound = {});
  /// The body of a loop, beside what it stands in.
  Lowering(const Lowering& around, const Node& loop);

  /// Adds the whole graph and returns its step.
  program::StepId build();
  /// Adds the graph as a function of its inputs and outputs.
  ops::Function build_function(const std::string& name, const WeightForms& forms);
  Lowered release() { return std::move(lowered_); }

  const Graph& graph() const { return graph_; }
  uint32_t replicas() const { return replicas_; }
  /// On the tiles of the stage of the node being lowered.
  const ops::Builder& builder() const {
    return builder_of_stage(node_ < graph_.nodes().size() ? stages_.nodes[node_] : 0);
  }
  bool on_host() const { return builders_.front().is_host(); }

  /// Of the node being lowered: an input or output in its chosen layout.
  ops::Operand input(size_t i);
  ops::Operand output(size_t i);
  /// Where a new temporary shall lie on tiles; empty: spread over all of them.
  ops::Operand output(size_t i, std::vector<program::MappedBox> mapping);
  /// Of a call: an input as the function takes it.
  ops::Operand argument(size_t i, const LoweredFunction& function);
  /// Whether an output of a call lies as the function gives it; and otherwise its conversion.
  bool takes_result_as_it_is(size_t i, const LoweredFunction& function) const;
  void take_result(size_t i, const LoweredFunction& function, const ops::Operand& result);
  /// Of a loop: how its body takes and gives values, and its steps.
  LayoutChoice layout_of_loop(const Node& node);
  void lower_loop(const Node& node);
  /// Whether a value is an input of a loop's body that each pass copies.
  bool is_part(ValueId id) const { return parts_of_passes_.contains(id); }
  /// On the tiles of an operand of the same shape, as elementwise results are.
  ops::Operand output_beside(size_t i, const ops::Operand& operand);
  /// The same of a node that is lowered together with the present one.
  ops::Operand result_beside(ValueId id, const ops::Operand& operand);
  const ValueLayout& input_layout(size_t i) const { return choice().inputs.at(i); }
  const ValueLayout& output_layout(size_t i) const { return choice().outputs.at(i); }
  /// The plan that its cost was taken from; null: there is none.
  template <class Plan>
  const Plan* planned() const {
    return std::any_cast<Plan>(&choice().plan);
  }
  /// An output is stored where an operand lies; a value where another one does.
  void alias_output(size_t i, const ops::Operand& operand);
  void copy_to_output(size_t i, const ops::Operand& operand);
  /// An output begins with the contents of an input: in its place, if nothing reads that later, or as a copy.
  void begin_output_with(size_t i, size_t input);
  /// What an operation leaves for another one beside its outputs, found by the id of one of them.
  void add_side_result(ValueId output, std::any what) { side_results_[output] = std::move(what); }
  template <class T>
  const T* side_result(ValueId output) const {
    const auto found = side_results_.find(output);
    return found == side_results_.end() ? nullptr : std::any_cast<T>(&found->second);
  }
  void alias(ValueId value, ValueId of) { lowered_.operands.at(value) = operand_of(of); }
  /// A value in a layout: itself, or a conversion. Throws UsageError for a sparse value whose form is another
  /// weight's.
  ops::Operand in_layout(ValueId id, const ValueLayout& layout);
  /// A value as another one lies.
  ops::Operand brought(ValueId id, ValueId as) { return in_layout(id, layout_of(as)); }
  /// The operand in another layout: itself, or a temporary that the steps fill. What conversions cost is
  /// counted with this as well.
  ops::Operand convert(const ops::Builder& builder, const ops::Operand& operand, const TensorType& type,
                       const ValueLayout& from, const ValueLayout& to,
                       std::vector<program::StepId>& steps) const;
  ops::OperandLayout operand_layout(const TensorType& type, const ValueLayout& layout) const;
  const ValueLayout& layout_of(ValueId id) const { return lowered_.layouts.values.at(id); }
  /// Where a value lies that is computed already.
  const ops::Operand& operand_of(ValueId id) const { return lowered_.operands.at(id).value(); }
  bool is_computed(ValueId id) const { return lowered_.operands.at(id).has_value(); }
  ops::Operand temporary(const std::string& name, Type type, uint32_t rows, uint32_t cols);
  /// How many words set apart the random numbers of sub-streams; the row of a step and these, as codelets
  /// take it; and a copy of them into a row: of the present call, or of one that is made here.
  uint32_t substream_words() const { return substream_words_; }
  ops::Operand with_substream(const ops::Operand& step);
  void copy_substream(program::CopySet& set, const ops::Operand& to, std::optional<uint32_t> call = {});
  ops::Operand substream_of_call(uint32_t call);
  /// A row of equally many words for each replica.
  ops::Operand by_replica(const std::string& name, std::vector<uint32_t> words);
  /// The weight in whose form a value lies.
  const std::optional<ValueId>& form_of(ValueId id) const { return lowered_.forms.at(id); }
  /// The layout of a value as products read it as a weight.
  ValueLayout weight_layout(ValueId id) const { return {.weight = weight_of(lowered_.forms, id)}; }
  /// The weight that products read a value as.
  LinearWeight& weight(ValueId id) const {
    const ValueId of = weight_of(lowered_.forms, id);
    const auto given = given_weights_.find(of);
    return given != given_weights_.end() ? *given->second : *lowered_.weights.at(of);
  }
  /// The function of a call, lowered when it is called first.
  const LoweredFunction& function(const Node& call);
  /// The layout of a value that lies as the parts of a product's X or Y; and all of these for values of a
  /// type's size.
  ValueLayout parted(const ops::OperandLayout& layout);
  std::vector<ValueLayout> parted(const TensorType& type) const;
  /// The operand in another type: itself, or a temporary.
  ops::Operand as_type(const ops::Operand& operand, Type type);
  /// Rounds an operand into another one, if they are not the same.
  void convert_type(const ops::Operand& from, const ops::Operand& to);
  /// Whether anything uses a value.
  bool is_used(ValueId id) const;
  /// The node that alone uses an output of this node, and comes later; null if there is none.
  const Node* sole_user(size_t output) const;
  /// Whether a value, or what lies where it does, is read after the node being lowered, besides by its
  /// update.
  bool is_read_later(ValueId id, const Node& update) const;
  /// Lowers a later node together with the current one.
  void skip(const Node& node);
  /// Calls visit(node) for the node being lowered and all later ones, as if each were being lowered; those
  /// for which it returns true are lowered with that.
  template <class Visit>
  void each_from(const Visit& visit) {
    const uint32_t first = node_;
    for (; node_ < graph_.nodes().size(); ++node_) {
      const Node& other = graph_.nodes()[node_];
      if (!skipped_[node_] && visit(other) && node_ != first) skip(other);
    }
    node_ = first;
  }

  template <class Problem>
  void add(const Problem& problem, const std::vector<ops::Operand>& operands) {
    run(ops::add(builder(), problem, operands));
  }
  void run(program::StepId step) { steps_.push_back(step); }

 private:
  void choose(WeightForms forms);
  program::StepId build_steps();
  ops::Operand in_layout(ValueId id, const ValueLayout& layout, const ops::Builder& builder);
  void place_weights();
  void place_values();
  std::string name_beside_result(std::string_view name) const;
  ops::Operand constant_words(const std::string& name, std::vector<uint32_t> words, uint32_t rows = 1);
  static std::vector<program::MappedBox> columns_on_tiles(const ops::Builder& builder, uint32_t rows,
                                                          uint32_t cols);
  // Of loops.
  ValueLayout layout_of_result(const LoopForm& form, size_t output) const;
  void begin_passes(const Node& node, const LoopForm& form, Lowering& body);
  void begin_draws(uint32_t number, Lowering& body);
  void place_carried(ValueId inside, const ops::Operand& given, Lowering& body);
  program::CopyGroup place_part(ValueId inside, const ops::Operand& given, Lowering& body);
  void end_passes(const LoopForm& form, Lowering& body);
  bool is_given(const LoopForm& form, const ops::Operand& operand) const;
  ops::Operand kept_of_pass(const LoopForm& form, ValueId inside, const ops::Operand& own);
  void add_to_sum(const ops::Operand& sum, const ops::Operand& own, double scale, const ops::Builder& builder,
                  Lowering& body);
  ops::Operand stacked_output(size_t i, const ops::Operand& own, uint32_t count, const ops::Builder& builder);
  std::optional<ops::Operand> stack_pass(const ops::Operand& wanted, const ops::Operand& own,
                                         const ops::Builder& builder, Lowering& body);
  void copy_at_once(std::vector<std::pair<ops::Operand, ops::Operand>> all);
  void lower_all();
  void lower(uint32_t node);
  /// Adds to a program, and notes what as the node's.
  void add_as(uint32_t node, const std::function<void()>& add);
  void place(ValueId id, std::vector<program::MappedBox> mapping = {});
  std::shared_ptr<const std::byte> contents_of(ValueId id);
  void place_outputs();
  void assign();
  std::vector<bool> differ_between_replicas() const;
  bool may_overwrite(size_t input);
  bool is_read_after(ValueId id) const;
  /// Whether a caller binds where a value goes.
  bool is_output(ValueId id) const;
  /// Whether a value does not lie as its caller wants it.
  bool is_converted_output(ValueId id) const {
    return layout_of(id).parts || (!is_function_ && layout_of(id).weight && !graph_.type(id).pattern);
  }
  uint32_t index_of(const Node& node) const { return static_cast<uint32_t>(&node - graph_.nodes().data()); }
  const LayoutChoice& choice() const { return lowered_.layouts.nodes.at(node_); }
  /// Makes room for each value and node, and finds the values that the backward pass takes.
  void prepare();
  program::Purpose purpose_of(ValueId id) const;
  std::vector<program::MappedBox> wanted_mapping(ValueId id) const;

  const ops::Builder& builder_of_stage(uint32_t stage) const {
    return builders_.size() == 1 ? builders_.front() : builders_.at(stage);
  }
  /// On the stage that computes a value, or that uses it first.
  const ops::Builder& builder_of(ValueId id) const {
    return builders_.size() == 1 ? builders_.front() : builder_of_stage(stage_of(graph_, stages_, id));
  }

  const Graph& graph_;
  Stages stages_;
  std::vector<ops::Builder> builders_;  ///< by stage, if a machine's chips are divided among them
  std::set<ValueId> bound_;
  Lowered lowered_;
  std::map<ValueId, std::vector<std::pair<ValueLayout, ops::Operand>>> converted_;
  std::vector<ValueLayout> parted_;
  std::map<ValueId, std::any> side_results_;
  std::vector<bool> skipped_;
  std::vector<bool> stashed_;  ///< by value: whether the backward pass takes it
  std::vector<program::StepId> steps_;
  uint32_t replicas_ = 1;
  std::optional<ops::Operand> counter_, pass_;  ///< of a loop's body: passes so far, and whose rows it takes
  std::optional<ops::Operand> micro_batch_;
  uint32_t substream_words_;
  std::optional<ops::Operand> own_substream_;  ///< of a function, an argument; of a pass of a loop
  bool is_function_ = false;
  bool is_body_ = false;                            ///< of a loop, which takes its outputs where they lie
  std::string prefix_;                              ///< of the names of state
  std::map<ValueId, LinearWeight*> given_weights_;  ///< of a loop's body: those outside
  std::set<ValueId> parts_of_passes_;
  std::map<uint32_t, std::unique_ptr<Lowering>> loops_;  ///< bodies, by node
  std::set<ValueId> outputs_;                            ///< computed where the caller wants them
  uint32_t node_ = 0;
};

}  // namespace tessera::graph
