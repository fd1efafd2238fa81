// A model file in memory.
#pragma once

#include <tessera/onnx.h>

#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "onnx/constant.h"
#include "onnx/tensor_file.h"
#include "onnx/weights.h"
#include "onnx/wire.pb.h"

namespace tessera::onnx {

inline constexpr int64_t kLeastOpset = 13;
inline constexpr size_t kLongestPlace = 200;  // characters of a message that say where a node is

struct Model::Impl {
  std::string name;
  DataFolder folder;
  wire::ModelProto proto;
  int64_t opset = 0;
  std::map<std::string, ConstantPointer> initializers;
  std::vector<ValueType> inputs;
  std::vector<DataType> input_types;
  std::vector<ValueType> outputs;
  /// Functions by domain, name and overload.
  std::map<std::tuple<std::string, std::string, std::string>, const wire::FunctionProto*> functions;
  WeightForms forms;

  /// The function that a node calls; null: it is none of the model's.
  const wire::FunctionProto* function_of(const wire::NodeProto& node) const {
    const auto found = functions.find({node.domain(), node.op_type(), node.overload()});
    return found == functions.end() ? nullptr : found->second;
  }
};

/// Calls visit(name) for each value that a node takes, also in the graphs within it.
void each_input(const wire::NodeProto& node, const std::function<void(const std::string&)>& visit);

/// Whether a domain is the standard's.
inline bool is_standard(const std::string& domain) { return domain.empty() || domain == "ai.onnx"; }

}  // namespace tessera::onnx
