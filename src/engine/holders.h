// Which ranks hold what of a replica's variables, where each of them runs parts of its program.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/touches.h"
#include "program/program.h"

namespace tessera::engine {

/// A set of the ranks that have parts of one replica: a bit for each, by position.
using Positions = uint64_t;
inline constexpr uint32_t kMostPositions = 64;

inline bool has(Positions positions, uint32_t position) { return ((positions >> position) & 1) != 0; }

/// Elements that some ranks lack, and the first of those that hold them.
struct Lack {
  program::VariableId variable = 0;
  program::Box box;
  uint32_t from = 0;
  Positions to = 0;
};

/// Follows the steps of a program, and knows after each who holds the present contents of what: after a write
/// those that ran the step, and after that whoever has got them. At first, and of whatever is not written,
/// all hold it. All ranks do this alike, so they agree without messages on what to send. Variables are those
/// that the arguments of functions stand for.
class Holders {
 public:
  /// Of a program whose parts are divided equally among the ranks.
  Holders(const program::Program& program, Touches& touches, uint32_t ranks);

  Positions all() const { return all_; }
  /// The ranks that run the steps of a part.
  Positions ranks_of(uint32_t part) const;
  /// The ranks whose steps touch a variable, or all if none do.
  Positions home(program::VariableId variable) const { return home_[variable]; }

  /// For a step that these ranks run: adds what they lack to `lacks`, which they have got then, and takes
  /// what they write as theirs.
  void meet(std::span<const Touch> touches, Positions ranks, std::vector<Lack>& lacks);
  /// What they lack of a variable. They do not get it.
  std::vector<Lack> lacks_of(program::VariableId variable, Positions ranks) const;
  /// These ranks, and no others, have new contents of a whole variable.
  void set(program::VariableId variable, Positions ranks);
  /// The first of the ranks that hold all of a variable, or else some of it.
  uint32_t holder_of(program::VariableId variable) const;
  /// What the arguments of the function that is called stand for from now on.
  void pass(const program::Call& call);
  /// What a variable stands for: itself, unless it is an argument.
  program::VariableId meant_by(program::VariableId variable) const {
    return program_->variable(variable).is_argument() ? passed_[variable].variable : variable;
  }

 private:
  struct Place {
    program::VariableId variable = 0;
    program::Box box;
  };
  struct Held {
    program::Box box;
    Positions by = 0;
  };
  class HomeSearch;

  Place place_of(program::VariableId variable, const program::Box& box) const;
  void add_lacks(const Place& place, Positions ranks, std::vector<Lack>& lacks) const;
  void mark(const Place& place, Positions by);

  const program::Program* program_;
  Positions all_;
  uint32_t parts_each_;
  std::vector<Place> passed_;            ///< by argument
  std::vector<std::vector<Held>> held_;  ///< by variable: boxes that not all hold, none of which overlap
  std::vector<Positions> home_;          ///< by variable
};

}  // namespace tessera::engine
