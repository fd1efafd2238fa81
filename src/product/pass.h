// A program whose external variables are bound in the order in which they were added.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compiler/compile.h"
#include "engine/engine.h"
#include "machine/model/machine.h"
#include "ops/builder.h"

namespace tessera {

class Pass {
 public:
  explicit Pass(const machine::Machine& machine) : machine_(machine), builder_(program_, machine_) {}
  Pass(const Pass&) = delete;
  Pass& operator=(const Pass&) = delete;

  const ops::Builder& builder() const { return builder_; }

  ops::Operand external(std::string name, program::Role role, Type type, uint32_t rows, uint32_t cols) {
    externals_.push_back(builder_.external(std::move(name), role, type, rows, cols));
    return externals_.back();
  }

  void compile(std::vector<program::StepId> steps) {
    program_.set_main(builder_.sequence(std::move(steps)));
    engine_.emplace(compiler::compile(std::move(program_), machine_));
  }

  /// An array for each variable, without gaps. May be called from several threads.
  void run(std::span<void* const> arrays) const {
    std::vector<engine::Binding> bindings;
    for (size_t i = 0; i < externals_.size(); ++i)
      bindings.push_back({externals_[i].variable, arrays[i], externals_[i].cols(), 1});
    engine_->run(bindings, {.profile = false});
  }

 private:
  const machine::Machine& machine_;
  program::Program program_;
  ops::Builder builder_;
  std::vector<ops::Operand> externals_;
  std::optional<engine::Engine> engine_;
};

}  // namespace tessera
