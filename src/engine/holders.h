// Which ranks hold which elements of a replica's variables, if each runs parts of the program.
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

/// Elements that some ranks lack, and the first rank that holds them.
struct Lack {
  program::VariableId variable = 0;
  program::Box box;
  uint32_t from = 0;
  Positions to = 0;
};

/// Follows the steps of a program, and knows after each step which ranks hold the present contents of each
/// variable: after a write the ranks that ran the step, and later also those that have received them. At
/// first, and until a variable is written, all ranks hold it. All ranks do this alike, so they agree without
/// messages on what to send. An argument of a function counts as the variable for which it stands.
class Holders {
 public:
  /// For a program whose parts are divided equally among the ranks.
  Holders(const program::Program& program, Touches& touches, uint32_t ranks);

  Positions all() const { return all_; }
  /// The ranks that run the steps of a part.
  Positions ranks_of(uint32_t part) const;
  /// The ranks whose steps touch a variable, or all if none do.
  Positions home(program::VariableId variable) const { return home_[variable]; }

  /// For a step that these ranks run: adds what they lack to `lacks` and counts it as received; what they
  /// write, only they hold.
  void meet(std::span<const Touch> touches, Positions ranks, std::vector<Lack>& lacks);
  /// What the ranks lack of a variable, without counting it as received.
  std::vector<Lack> lacks_of(program::VariableId variable, Positions ranks) const;
  /// These ranks, and no others, have new contents of a whole variable.
  void set(program::VariableId variable, Positions ranks);
  /// The first of the ranks that hold all of a variable, or else some of it.
  uint32_t holder_of(program::VariableId variable) const;
  /// Sets what the arguments of the called function stand for from now on.
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
  std::vector<std::vector<Held>> held_;  ///< by variable: boxes that not all ranks hold, without overlaps
  std::vector<Positions> home_;          ///< by variable
};

}  // namespace tessera::engine
