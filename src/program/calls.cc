#include "program/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "program/conflicts.h"
#include "program/uses.h"

namespace tessera::program {
namespace {

class CallVerifier {
 public:
  explicit CallVerifier(const Program& program) : program_(program), uses_(program) {}

  void verify() {
    find_owners();
    each_call([&](const Call& call) { check_count(call); });
    each_call([&](const Call& call) { check(call); });
    check_body(program_.main(), nullptr, "the main step");
    for (const Function& function : program_.functions())
      check_body(function.body, &function, fmt::format("function '{}'", function.name));
  }

 private:
  const std::string& name(VariableId v) const { return program_.variable(v).name; }

  void find_owners() {
    for (const Function& function : program_.functions())
      for (const Argument& argument : function.arguments) {
        if (argument.variable >= program_.variables().size() || !variable(argument).is_argument())
          reject(fmt::format("an argument of function '{}' is not a variable of that role", function.name));
        const Variable& v = variable(argument);
        if (!v.is_shared() && std::ranges::count(v.mapping, kShared, &MappedBox::tile) > 0)
          reject(fmt::format("argument '{}' of function '{}' lies partly in the shared space", v.name,
                             function.name));
        if (!owners_.try_emplace(argument.variable, &function).second)
          reject(fmt::format("'{}' is an argument twice", name(argument.variable)));
      }
    for (VariableId v = 0; v < program_.variables().size(); ++v)
      if (program_.variable(v).is_argument() && owners_.count(v) == 0)
        reject(fmt::format("'{}' is an argument of no function", name(v)));
  }

  const Variable& variable(const Argument& argument) const { return program_.variable(argument.variable); }

  void check_body(StepId id, const Function* function, const std::string& where) {
    const StepUses uses = uses_.of(id);
    for (const auto& [v, is_written] : uses.own) {
      if (!program_.variable(v).is_argument()) continue;
      if (owners_.at(v) != function)
        reject(fmt::format("{} touches '{}', an argument of function '{}'", where, name(v),
                           owners_.at(v)->name));
      const auto argument = std::ranges::find(function->arguments, v, &Argument::variable);
      if (is_written && !writes(argument->access))
        reject(fmt::format("{} writes its argument '{}', which it declares as read", where, name(v)));
    }
  }

  template <class Visit>
  void each_call(const Visit& visit) const {
    for (const Step& step : program_.steps())
      if (const auto* call = std::get_if<Call>(&step)) visit(*call);
  }

  void check_count(const Call& call) const {
    const Function& function = program_.functions()[call.function];
    if (call.operands.size() != function.arguments.size())
      reject(fmt::format("a call of function '{}' passes {} operands; it takes {}", function.name,
                         call.operands.size(), function.arguments.size()));
  }

  void check(const Call& call) {
    const Function& function = program_.functions()[call.function];
    const Uses& touched = uses_.touched_by(call.function);
    for (size_t i = 0; i < call.operands.size(); ++i) {
      check(function, function.arguments[i], call.operands[i]);
      check_touched(function, function.arguments[i], call.operands[i], touched);
      for (size_t j = 0; j < i; ++j) check_distinct(function, call, i, j);
    }
  }

  void check(const Function& function, const Argument& argument, const CallOperand& operand) const {
    const auto where = [&] {
      return fmt::format("a call passes argument '{}' of function '{}'", name(argument.variable),
                         function.name);
    };
    if (operand.variable >= program_.variables().size())
      reject(fmt::format("{} variable {} of {}", where(), operand.variable, program_.variables().size()));
    const Variable& has = program_.variable(operand.variable);
    const Variable& wants = variable(argument);
    if (has.type != wants.type || operand.box.rows != wants.rows || operand.box.cols != wants.cols)
      reject(fmt::format("{} {} × {} {} of '{}'; it is {} × {} {}", where(), operand.box.rows,
                         operand.box.cols, name_of(has.type), has.name, wants.rows, wants.cols,
                         name_of(wants.type)));
    if (!contains(has.whole(), operand.box))
      reject(fmt::format("{} {}, outside '{}' ({} × {})", where(), box_text(operand.box), has.name, has.rows,
                         has.cols));
    if (wants.is_shared() && !has.is_shared())
      reject(fmt::format("{} '{}', which does not lie in the shared space", where(), has.name));
    if (!wants.is_shared() && (has.mapping != wants.mapping || operand.box != has.whole() || has.streaming))
      reject(fmt::format("{} '{}', which does not lie on the same tiles", where(), has.name));
    if (writes(argument.access) && has.is_read_only())
      reject(fmt::format("{}, which it writes, '{}', which is read only", where(), has.name));
  }

  /// Within the function both names would mean the same elements.
  void check_touched(const Function& function, const Argument& argument, const CallOperand& operand,
                     const Uses& touched) const {
    const auto found = touched.find(operand.variable);
    if (found != touched.end() && (found->second || writes(argument.access)))
      reject(fmt::format("a call passes '{}' to function '{}', which touches it itself",
                         name(operand.variable), function.name));
  }

  void check_distinct(const Function& function, const Call& call, size_t i, size_t j) const {
    const CallOperand& a = call.operands[i];
    const CallOperand& b = call.operands[j];
    const bool either_is_written =
        writes(function.arguments[i].access) || writes(function.arguments[j].access);
    if (a.variable == b.variable && either_is_written && overlap(a.box, b.box))
      reject(fmt::format("a call of function '{}' passes {} of '{}' twice, and it writes them", function.name,
                         box_text(intersection(a.box, b.box)), name(a.variable)));
  }

  const Program& program_;
  UsesOfSteps uses_;
  std::map<VariableId, const Function*> owners_;
};

}  // namespace

void verify_calls(const Program& program) {
  const auto passes = [](const Step& step) {
    const auto* call = std::get_if<Call>(&step);
    return call != nullptr && !call->operands.empty();
  };
  const bool has_arguments = std::ranges::any_of(program.variables(), &Variable::is_argument) ||
                             std::ranges::any_of(program.functions(), [](const Function& function) {
                               return !function.arguments.empty();
                             });
  if (has_arguments || std::ranges::any_of(program.steps(), passes)) CallVerifier(program).verify();
}

}  // namespace tessera::program
