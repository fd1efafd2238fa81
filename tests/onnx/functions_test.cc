// Functions of ONNX files, and branches.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "onnx/run.h"
#include "support/error_of.h"

namespace tessera::onnx {
namespace {

using test::import;
using test::Numbers;
using test::OnnxFile;
using test::run;

TEST(OnnxFunctions, BranchesAndFunctionsAreThoseThatRun) {
  OnnxFile file;
  file.input("x", {2}).output("y").integers("yes", {}, {1});
  file.node("Cast", {"yes"}, {"c"}, {{"to", int64_t{9}}}).node("If", {"c"}, {"y"});
  wire::NodeProto& branch = *file.model().mutable_graph()->mutable_node(1);
  for (const char* name : {"then_branch", "else_branch"}) {
    wire::AttributeProto& attribute = *branch.add_attribute();
    attribute.set_name(name);
    wire::NodeProto& node = *attribute.mutable_g()->add_node();
    const bool is_then = std::string(name) == "then_branch";
    node.set_op_type(is_then ? "Twice" : "Unknown");
    if (is_then) node.set_domain("own");
    node.add_input("x");
    node.add_output("r");
    attribute.mutable_g()->add_output()->set_name("r");
  }
  wire::FunctionProto& function = *file.model().add_functions();
  function.set_name("Twice");
  function.set_domain("own");
  function.add_input("a");
  function.add_output("b");
  wire::NodeProto& sum = *function.add_node();
  sum.set_op_type("Add");
  sum.add_input("a");
  sum.add_input("a");
  sum.add_output("b");
  EXPECT_EQ(run(file, {{"x", {1, -2}}}).at("y"), (Numbers{2, -4}));
}

/// Adds the function of the first node. In it, a branch that is always taken computes an operation on the
/// function's inputs; returns that operation's node.
wire::NodeProto& add_branching_function(OnnxFile& file, const std::string& name,
                                        const std::vector<std::string>& inputs, const char* operation) {
  file.model().mutable_graph()->mutable_node(0)->set_domain("own");
  wire::FunctionProto& function = *file.model().add_functions();
  function.set_name(name);
  function.set_domain("own");
  for (const std::string& input : inputs) function.add_input(input);
  function.add_output("b");
  wire::NodeProto &yes = *function.add_node(), &branch = *function.add_node();
  yes.set_op_type("Constant");
  yes.add_output("yes");
  yes.add_attribute()->set_name("value");
  yes.mutable_attribute(0)->mutable_t()->set_data_type(test::kBool);
  yes.mutable_attribute(0)->mutable_t()->add_int32_data(1);
  branch.set_op_type("If");
  branch.add_input("yes");
  branch.add_output("b");
  wire::AttributeProto& then = *branch.add_attribute();
  then.set_name("then_branch");
  wire::NodeProto& node = *then.mutable_g()->add_node();
  node.set_op_type(operation);
  for (const std::string& input : inputs) node.add_input(input);
  node.add_output("r");
  then.mutable_g()->add_output()->set_name("r");
  return node;
}

TEST(OnnxFunctions, BranchesWithinFunctionsHaveAttributesOfTheCaller) {
  OnnxFile file;
  file.input("x", {2, 1, 3}).output("y");
  file.node("Turned", {"x"}, {"y"}, {{"order", std::vector<int64_t>{0, 2, 1}}});
  wire::NodeProto& node = add_branching_function(file, "Turned", {"a"}, "Transpose");
  node.add_attribute()->set_name("perm");
  node.mutable_attribute(0)->set_ref_attr_name("order");
  EXPECT_EQ(run(file, {{"x", {1, 2, 3, 4, 5, 6}}}).at("y"), (Numbers{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(to_string(import(file).outputs[0]), "float32[2, 3, 1]");
}

TEST(OnnxFunctions, BranchesWithinFunctionsLackInputsThatTheCallerLeavesOut) {
  OnnxFile file;
  file.input("x", {3}).output("y").floats("most", {}, {2}).node("Limited", {"x", "", "most"}, {"y"});
  add_branching_function(file, "Limited", {"a", "low", "high"}, "Clip");
  EXPECT_EQ(run(file, {{"x", {-9, 1, 5}}}).at("y"), (Numbers{-9, 1, 2}));
}

TEST(OnnxFunctions, InputsThatNothingTakesAreRefused) {
  const auto error_with = [](const std::string& operation, const std::vector<std::string>& inputs) {
    OnnxFile file;
    file.input("x", {2}).output("y").node(operation, inputs, {"y"});
    if (operation == "Own") {
      file.model().mutable_graph()->mutable_node(0)->set_domain("own");
      wire::FunctionProto& function = *file.model().add_functions();
      function.set_name("Own");
      function.set_domain("own");
      function.add_input("a");
      function.add_output("b");
      wire::NodeProto& node = *function.add_node();
      node.set_op_type("Relu");
      node.add_input("a");
      node.add_output("b");
    }
    return test::error_of([&] { import(file); });
  };
  for (const char* operation : {"Relu", "Own"}) {
    EXPECT_TRUE(test::says(error_with(operation, {"x", "x", "x"}), "is given 3 inputs; it takes at most 1"));
    EXPECT_EQ(error_with(operation, {"x", "", ""}), "(no error)");
  }
  EXPECT_TRUE(test::says(error_with("Add", {"x", "x", "", "x"}), "is given 4 inputs; it takes at most 2"));
  EXPECT_EQ(error_with("Sum", {"x", "x", "x", "x"}), "(no error)");
}

TEST(OnnxFunctions, NodesMayBeInAnyOrder) {
  OnnxFile file;
  file.input("x", {2}).output("y").node("If", {"yes"}, {"y"}).node("Add", {"x", "z"}, {"t"});
  file.node("Neg", {"x"}, {"z"})
      .node("Cast", {"one"}, {"yes"}, {{"to", int64_t{9}}})
      .integers("one", {}, {1});
  wire::AttributeProto& then = *file.model().mutable_graph()->mutable_node(0)->add_attribute();
  then.set_name("then_branch");
  const auto add = [&](const char* operation, const char* from, const char* to) {
    wire::NodeProto& node = *then.mutable_g()->add_node();
    node.set_op_type(operation);
    node.add_input(from);
    node.add_output(to);
  };
  add("Exp", "r", "e");
  add("Abs", "t", "r");
  then.mutable_g()->add_output()->set_name("e");
  EXPECT_EQ(run(file, {{"x", {1, -2}}}).at("y"), (Numbers{1, 1}));
}

TEST(OnnxFunctions, FunctionsOfOneNameAreToldApart) {
  OnnxFile file;
  file.input("x", {2}).output("y").node("F", {"x"}, {"h"}).node("F", {"h"}, {"y"});
  for (const int i : {0, 1}) {
    const char* const operation = i == 0 ? "Neg" : "Abs";
    wire::NodeProto& call = *file.model().mutable_graph()->mutable_node(i);
    wire::FunctionProto& function = *file.model().add_functions();
    call.set_domain("own");
    call.set_overload(operation);
    function.set_name("F");
    function.set_domain("own");
    function.set_overload(operation);
    function.add_input("a");
    function.add_output("b");
    wire::NodeProto& node = *function.add_node();
    node.set_op_type(operation);
    node.add_input("a");
    node.add_output("b");
  }
  EXPECT_EQ(run(file, {{"x", {1, -2}}}).at("y"), (Numbers{1, 2}));
  *file.model().add_functions() = file.model().functions(0);
  EXPECT_NE(test::error_of([&] { import(file); }).find("it has two functions \"F\""), std::string::npos);
}

}  // namespace
}  // namespace tessera::onnx
