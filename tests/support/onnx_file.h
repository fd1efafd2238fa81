// Handmade ONNX files, which may also be wrong.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "onnx/wire.pb.h"

namespace tessera::test {

namespace wire = onnx::wire;

inline constexpr int32_t kFloat = 1, kInt64 = 7, kBool = 9, kUint32 = 12;

/// A model, node by node.
class OnnxFile {
 public:
  /// An attribute of a node.
  struct Attribute {
    Attribute(std::string name, int64_t value) : name_(std::move(name)) { proto_.set_i(value); }
    Attribute(std::string name, float value) : name_(std::move(name)) { proto_.set_f(value); }
    Attribute(std::string name, const char* value) : name_(std::move(name)) { proto_.set_s(value); }
    Attribute(std::string name, const std::vector<int64_t>& values) : name_(std::move(name)) {
      for (const int64_t each : values) proto_.add_ints(each);
    }
    wire::AttributeProto proto() const {
      wire::AttributeProto named = proto_;
      named.set_name(name_);
      return named;
    }

   private:
    std::string name_;
    wire::AttributeProto proto_;
  };

  explicit OnnxFile(int64_t opset = 20) {
    model_.set_ir_version(8);
    model_.add_opset_import()->set_version(opset);
    model_.mutable_graph()->set_name("g");
  }

  /// Adds an input. Sizes below 0 are unknown, named "a", "b", …
  OnnxFile& input(const std::string& name, const std::vector<int64_t>& shape, int32_t type = kFloat) {
    describe(*model_.mutable_graph()->add_input(), name, shape, type);
    return *this;
  }
  OnnxFile& output(const std::string& name) {
    describe(*model_.mutable_graph()->add_output(), name, {}, kFloat);
    return *this;
  }
  OnnxFile& node(const std::string& type, const std::vector<std::string>& inputs,
                 const std::vector<std::string>& outputs, const std::vector<Attribute>& attributes = {}) {
    wire::NodeProto& node = *model_.mutable_graph()->add_node();
    node.set_op_type(type);
    for (const std::string& each : inputs) node.add_input(each);
    for (const std::string& each : outputs) node.add_output(each);
    for (const Attribute& each : attributes) *node.add_attribute() = each.proto();
    return *this;
  }
  OnnxFile& floats(const std::string& name, const std::vector<int64_t>& shape,
                   const std::vector<float>& values) {
    wire::TensorProto& tensor = initializer(name, shape, kFloat);
    tensor.set_raw_data(values.data(), values.size() * sizeof(float));
    return *this;
  }
  OnnxFile& integers(const std::string& name, const std::vector<int64_t>& shape,
                     const std::vector<int64_t>& values) {
    wire::TensorProto& tensor = initializer(name, shape, kInt64);
    for (const int64_t each : values) tensor.add_int64_data(each);
    return *this;
  }
  wire::TensorProto& initializer(const std::string& name, const std::vector<int64_t>& shape, int32_t type) {
    wire::TensorProto& tensor = *model_.mutable_graph()->add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(type);
    for (const int64_t each : shape) tensor.add_dims(each);
    return tensor;
  }

  wire::ModelProto& model() { return model_; }
  std::string content() const { return model_.SerializeAsString(); }

 private:
  static void describe(wire::ValueInfoProto& info, const std::string& name, const std::vector<int64_t>& shape,
                       int32_t type) {
    info.set_name(name);
    auto& tensor = *info.mutable_type()->mutable_tensor_type();
    tensor.set_elem_type(type);
    tensor.mutable_shape();
    for (const int64_t each : shape) {
      auto& dim = *tensor.mutable_shape()->add_dim();
      if (each >= 0)
        dim.set_dim_value(each);
      else
        dim.set_dim_param(std::string(1, static_cast<char>('a' - 1 - each)));
    }
  }

  wire::ModelProto model_;
};

}  // namespace tessera::test
