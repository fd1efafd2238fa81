// From a model file to a graph.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "onnx/call.h"
#include "onnx/model_file.h"

namespace tessera::onnx {

/// The handlers of an operator: for values, and for constants alone; null: there is none.
struct Handlers {
  Handler of_values = nullptr;
  Handler of_constants = nullptr;
  size_t most_inputs = 0;
};

/// Handlers by the standard's names of operators.
const std::map<std::string, Handlers, std::less<>>& operator_table();

/// Name of a node, or of its first output; and its operator, with the domain unless it is the standard's.
std::string name_of(const wire::NodeProto& node);
std::string type_of(const wire::NodeProto& node);
/// Whether graphs support its operator, or it calls one of the model's functions.
bool is_supported(const Model::Impl& model, const wire::NodeProto& node);

/// Makes one graph.
class Importer {
 public:
  /// `is_again`: an earlier importer has already noted the forms of the weights as far as it could.
  Importer(Model::Impl& model, const ImportOptions& options, bool is_again = false);
  ImportedModel run();

 private:
  /// The known values by name; none: it depends on an operator that is not supported. A graph within a node
  /// also sees the values around it.
  struct Scope {
    std::map<std::string, std::optional<Known>> values = {};
    const Scope* around = nullptr;
    int64_t opset = 0;
    int depth = 0;
    std::string path = {};  ///< names of the nodes around, each before a "/"

    const std::optional<Known>* find(const std::string& name) const;
  };
  using Nodes = google::protobuf::RepeatedPtrField<wire::NodeProto>;

  std::map<std::string, uint32_t> sizes_given() const;
  graph::Shape shape_of(const ValueType& input, const std::map<std::string, uint32_t>& sizes) const;
  void add_inputs(Scope& scope);
  void add_outputs(const Scope& scope);
  void fold();
  void require_memory() const;
  void require_memory(uint64_t bytes, std::string_view what) const;
  void run(const Nodes& nodes, Scope& scope);
  void apply(const wire::NodeProto& node, Scope& scope);
  std::optional<std::vector<std::optional<Known>>> inputs_of(const wire::NodeProto& node,
                                                             const Scope& scope) const;
  /// Results of a node; none: it needs something that a graph lacks, which has been noted.
  std::optional<Results> results_of(const wire::NodeProto& node,
                                    const std::vector<std::optional<Known>>& inputs, Scope& scope);
  void require_no_quantised(const wire::NodeProto& node,
                            const std::vector<std::optional<Known>>& inputs) const;
  Results of_constants(const wire::NodeProto& node, const std::vector<std::optional<Known>>& inputs,
                       const Handlers& handlers, int64_t opset);
  std::optional<Results> branch(const wire::NodeProto& node, const std::vector<std::optional<Known>>& inputs,
                                const Scope& scope);
  std::optional<Results> function(const wire::FunctionProto& function, const wire::NodeProto& node,
                                  const std::vector<std::optional<Known>>& inputs, const Scope& scope);
  graph::Value add_input(const std::string& name, const graph::Shape& shape, DataType type);
  /// An empty scope for what a node of `scope` contains.
  Scope within(const wire::NodeProto& node, const Scope& scope) const;
  void set(Scope& scope, const std::string& name, std::optional<Known> value);
  void set_missing(const wire::NodeProto& node, Scope& scope);
  void note_missing(const wire::NodeProto& node, const std::string& reason, Scope& scope);
  /// Whether a node or an output takes a value of this name, in any graph or function of the model.
  bool is_taken(const std::string& name);
  /// Counts bytes of nodes that are copied because a function is called again, or has a caller's attributes.
  void count_copied(uint64_t bytes);

  Model::Impl& file_;
  const ImportOptions& options_;
  const bool is_again_;
  ImportedModel imported_;
  Context context_;
  std::vector<Missing> missing_;
  std::set<const wire::FunctionProto*> called_;
  std::unordered_set<std::string> taken_;  ///< see is_taken()
  uint64_t nodes_ = 0, copied_ = 0;
};

}  // namespace tessera::onnx
