// A compiled program whose operands have names: bound, run, estimated, saved and loaded.
#pragma once

#include <tessera/communicator.h>
#include <tessera/types.h>

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "engine/session.h"
#include "machine/model/machine.h"
#include "program/program.h"

namespace tessera::bound {

/// A matrix that the caller of a program binds.
struct NamedOperand {
  std::string name;
  program::VariableId variable = 0;
  Type type = Type::f32;
  uint32_t rows = 0;
  uint32_t cols = 0;
  program::Role role = program::Role::input;
  program::Purpose purpose = program::Purpose::activation;
};

class Arrays;

/// The runs that a program is compiled for.
enum class Runs : uint8_t {
  fresh,  ///< each begins with the initial contents of state and has its own memory, so that several threads
          ///< may run the program at once
  resumed,  ///< each begins with the state that the last one left; runs take turns
  none,     ///< the program is only estimated, and takes no memory
};

/// A compiled program whose operands are bound once, or for each run.
class BoundProgram {
 public:
  /// Compiles the program. Throws Error if it is unsound, unless it is compiled for no runs.
  BoundProgram(program::Program program, const machine::Machine& machine);
  /// With a communicator, resumed runs are those of one rank, as in engine::Session.
  BoundProgram(std::shared_ptr<const program::Program> program, const machine::Machine& machine, Runs runs,
               std::shared_ptr<Communicator> communicator = {});
  explicit BoundProgram(std::shared_ptr<const compiler::Executable> executable, Runs runs = Runs::fresh,
                        std::shared_ptr<Communicator> communicator = {});

  /// Save the executable in a file, and load one for the machine for which it was compiled; its operands must
  /// be bound again. Throw Error as compiler::save() and compiler::load() do.
  void save(const std::string& file) const;
  static BoundProgram load(const std::string& file, const machine::Machine& machine);

  const compiler::Executable& executable() const { return *executable_; }
  const machine::Machine& machine() const { return executable().machine; }

  /// The operands, in the order in which they were added to the program.
  const std::vector<NamedOperand>& operands() const { return operands_; }
  /// The position of an operand. Throws UsageError if there is none of that name or variable.
  size_t position_of(std::string_view name) const;
  size_t position_of(program::VariableId variable) const;

  /// Bind an array for all further runs: row by row without gaps, or as the binding says. Must not be called
  /// while the program runs.
  void bind(size_t operand, const void* data);
  void bind(const engine::Binding& array);

  /// Bytes by tile, use and purpose, and whether every tile's memory suffices.
  const compiler::MemoryReport& memory() const { return executable().memory; }
  bool fits() const { return memory().fits(); }
  void require_fit() const { engine::require_fit(executable()); }

  /// Runs the program once. Without a profile it allocates nothing, except memory for the first run and for
  /// concurrent runs. Throws Error for an operand without an array, and for a program that does not fit.
  engine::Profile run(const Arrays& arrays, const engine::RunOptions& options = {.profile = false}) const;

  /// The profile of a run on its machine, without floating-point work. Control flow and costs follow integer
  /// inputs whose arrays are bound. On several chips, `watch`, unless null, follows the chips.
  engine::Profile estimate(std::vector<engine::TraceEvent>* trace = nullptr) const;
  engine::Profile estimate(const Arrays& known, std::vector<engine::TraceEvent>* trace = nullptr,
                           compiler::StepWatch* watch = nullptr) const;
  /// The first replica that this process runs, and how many it does.
  uint32_t first_replica() const { return session_ ? session_->first_replica() : 0; }
  uint32_t own_replicas() const {
    return session_ ? session_->own_replicas() : executable().program->replicas();
  }
  /// The state of a program with resumed runs.
  engine::Session& state() const {
    assert(session_ != nullptr);
    return *session_;
  }
  /// The machine's time for the cycles of a profile.
  double seconds_of(const engine::Profile& profile) const {
    return machine().seconds(profile.cycles.total());
  }

 private:
  friend class Arrays;

  std::shared_ptr<const compiler::Executable> executable_;
  std::unique_ptr<const engine::Engine> engine_;  ///< for fresh runs
  std::unique_ptr<engine::Session> session_;      ///< for resumed runs
  std::vector<NamedOperand> operands_;
  std::vector<engine::Binding> bound_;  ///< by operand; without data unless the operand is bound for all runs
  std::vector<size_t> free_;            ///< operands that each run binds
};

/// The arrays of a run, or of many. Bindings of few operands are on the stack, as a small product takes less
/// time than an allocation.
class Arrays {
 public:
  /// Begins with the arrays that are bound for all runs.
  explicit Arrays(const BoundProgram& program);
  Arrays(const Arrays&) = delete;
  Arrays& operator=(const Arrays&) = delete;

  /// The array of the next operand that each run binds, row by row without gaps, or with strides.
  Arrays& add(const void* data) {
    set(next(), data);
    return *this;
  }
  Arrays& add(const MatrixView<float>& matrix) {
    set(next(), matrix.data, matrix.row_stride, matrix.col_stride);
    return *this;
  }

  /// Sets the array of any operand. Strides are in elements; the stride of replicas is 0 if all have the same
  /// array.
  void set(size_t operand, const void* data) { bindings_[operand].data = const_cast<void*>(data); }
  void set(size_t operand, void* data, int64_t row_stride, int64_t col_stride, int64_t replica_stride = 0) {
    bindings_[operand] = {bindings_[operand].variable, data, row_stride, col_stride, replica_stride};
  }

  std::span<const engine::Binding> all() const { return {bindings_, program_.bound_.size()}; }

 private:
  static constexpr size_t kFew = 32;

  size_t next() {
    assert(next_ < program_.free_.size());
    return program_.free_[next_++];
  }

  const BoundProgram& program_;
  size_t next_ = 0;  ///< position in BoundProgram::free_
  engine::Binding* bindings_;
  std::unique_ptr<std::byte[]> many_;
  alignas(engine::Binding) std::byte few_[kFew * sizeof(engine::Binding)];
};

}  // namespace tessera::bound
