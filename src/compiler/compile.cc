#include "compiler/compile.h"

#include <chrono>
#include <functional>

#include "compiler/passes.h"

namespace tessera::compiler {

std::shared_ptr<const Executable> compile(program::Program program, const machine::Machine& machine) {
  auto executable = std::make_shared<Executable>();
  executable->program = std::make_shared<const program::Program>(std::move(program));
  executable->machine = machine;
  Compilation c{*executable->program, executable->machine, {}, {}, {}, {}, 0, {}, executable};

  const auto run = [&](std::string name, const std::function<std::string(Compilation&)>& pass) {
    const auto start = std::chrono::steady_clock::now();
    std::string did = pass(c);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    executable->passes.push_back({std::move(name), std::move(did), took.count()});
  };
  run("verify", [](Compilation& x) {
    program::verify(x.program, x.machine.tiles, x.machine.has_shared_space());
    return std::to_string(x.program.variables().size()) + " variables";
  });
  run("exchange", plan_exchange);
  run("liveness", find_liveness);
  run("code", count_code);
  run("placement", place);
  run("control", find_control);
  run("resolve", resolve);
  run("check", check);
  run("account", account);
  return executable;
}

}  // namespace tessera::compiler
