// What the steps of a program touch, for ranks that divide its parts.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "program/program.h"

namespace tessera::engine {

/// Elements of a variable that a step reads, writes or both: those that it needs, and those that are new
/// after it.
struct Touch {
  program::VariableId variable = 0;
  program::Box box;
  bool reads = false;
  bool writes = false;
};

/// Finds the touches of compute sets and copy sets, each once. What is touched at rows that only a run knows
/// counts as the whole variable, which is read as well, since the rest of it stays as it is.
class Touches {
 public:
  explicit Touches(const program::Program& program)
      : program_(program), sets_(program.compute_sets().size()), copies_(program.copy_sets().size()) {}

  std::span<const Touch> of(const program::Execute& execute);
  std::span<const Touch> of(const program::Copy& copy);

 private:
  const program::Program& program_;
  std::vector<std::optional<std::vector<Touch>>> sets_, copies_;
};

/// What a call passes and its function may read.
std::vector<Touch> passed_by(const program::Program& program, const program::Call& call);

/// Follows the steps of a program with the parts to which they belong, without running them.
class PartWalk {
 public:
  PartWalk(const program::Program& program, Touches& touches) : program_(program), touches_(touches) {}
  PartWalk(const PartWalk&) = delete;
  PartWalk& operator=(const PartWalk&) = delete;
  virtual ~PartWalk() = default;

  void walk() { walk(program_.main()); }

 protected:
  const program::Program& program() const { return program_; }

 private:
  /// A step of this part touches something; kEveryPart: it runs on all ranks.
  virtual void touch(std::span<const Touch> touches, uint32_t part) = 0;
  virtual void collect(const program::Collective& collective) = 0;
  /// Called before the steps of a called function.
  virtual void pass(const program::Call& call, uint32_t part) = 0;
  /// How often a body is followed.
  virtual uint32_t times(const program::Repeat& repeat) const = 0;
  /// Whether steps that conditions decide about are followed, each once.
  virtual bool follows_conditions() const = 0;

  void walk(program::StepId id);
  void walk_inside(const program::Sequence& sequence);
  void walk_inside(const program::Execute& execute);
  void walk_inside(const program::Copy& copy);
  void walk_inside(const program::Collect& collect);
  void walk_inside(const program::Repeat& repeat);
  void walk_inside(const program::While& loop);
  void walk_inside(const program::If& branch);
  void walk_inside(const program::Call& call);
  void touch_everywhere(program::VariableId variable, bool writes);

  const program::Program& program_;
  Touches& touches_;
  uint32_t present_ = program::kEveryPart;  ///< of the step
  uint32_t called_ = program::kEveryPart;   ///< of the call around it
};

/// The part that runs a step, given the part `around` of what contains or calls it.
inline uint32_t part_within(const program::Program& program, program::StepId step, uint32_t around) {
  const uint32_t own = program.part_of(step);
  return own == program::kEveryPart ? around : own;
}

}  // namespace tessera::engine
