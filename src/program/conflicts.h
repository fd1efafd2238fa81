// Detects conflicting accesses.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "program/program.h"

namespace tessera::program {

/// What touches elements: a numbered vertex of a compute set or copy of a copy set. Owners with the same
/// number and different rounds run one after another.
struct Owner {
  uint64_t number = 0;
  uint32_t round = 0;
  uint32_t place = 0;  ///< boxes of one owner are the same elements only if they have the same place
};

/// All reads and writes of the vertices of one compute set, or the copies of one copy set. An owner may read
/// exactly what it writes (an update in place), and in another round any elements. One log is reused for many
/// sets.
class TouchLog {
 public:
  explicit TouchLog(const Program& program) : program_(program), variables_(program.variables().size()) {}

  void add_write(VariableId variable, const Box& box, Owner owner) {
    if (!box.empty()) log(variable).writes.add(box, owner);
  }
  void add_read(VariableId variable, const Box& box, Owner owner) {
    if (!box.empty()) log(variable).reads.add(box, owner);
  }

  /// Throws Error, beginning with `where`, for an element that is written twice, or written by one owner and
  /// read by another, or read by its writer as part of another box. Clears the log.
  void check_and_clear(std::string_view where);

 private:
  struct Touches {
    std::vector<Box> boxes;
    std::vector<Owner> owners;

    void add(const Box& box, Owner owner) {
      boxes.push_back(box);
      owners.push_back(owner);
    }
    void clear() {
      boxes.clear();
      owners.clear();
    }
  };
  struct OfVariable {
    Touches writes;
    Touches reads;
  };

  OfVariable& log(VariableId id) {
    OfVariable& log = variables_[id];
    if (log.writes.boxes.empty() && log.reads.boxes.empty()) touched_.push_back(id);
    return log;
  }
  void check(std::string_view where, VariableId id) const;

  const Program& program_;
  std::vector<OfVariable> variables_;
  std::vector<VariableId> touched_;
};

/// "rows 0:4 × columns 8:16"
std::string box_text(const Box& box);

/// Throws the Error of an unsound program.
[[noreturn]] void reject(const std::string& what);

}  // namespace tessera::program
