#include "engine/holders.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

namespace tessera::engine {
namespace {

using program::Box;
using program::VariableId;

/// Calls visit(part) for the parts of a box outside another one.
template <class Visit>
void each_rest(const Box& box, const Box& without, const Visit& visit) {
  const Box common = intersection(box, without);
  const auto visit_filled = [&](uint32_t row, uint64_t row_end, uint32_t col, uint64_t col_end) {
    const Box rest{row, static_cast<uint32_t>(row_end - row), col, static_cast<uint32_t>(col_end - col)};
    if (!rest.empty()) visit(rest);
  };
  if (common.empty()) return visit(box);
  visit_filled(box.row, common.row, box.col, box.col_end());
  visit_filled(static_cast<uint32_t>(common.row_end()), box.row_end(), box.col, box.col_end());
  visit_filled(common.row, common.row_end(), box.col, common.col);
  visit_filled(common.row, common.row_end(), static_cast<uint32_t>(common.col_end()), box.col_end());
}

uint32_t first_of(Positions positions) { return static_cast<uint32_t>(std::countr_zero(positions)); }

}  // namespace

/// Finds the ranks that touch variables.
class Holders::HomeSearch final : public PartWalk {
 public:
  HomeSearch(Holders& holders, Touches& touches) : PartWalk(*holders.program_, touches), holders_(holders) {}

 private:
  void touch(std::span<const Touch> touches, uint32_t part) override {
    for (const Touch& touched : touches)
      holders_.home_[holders_.meant_by(touched.variable)] |= holders_.ranks_of(part);
  }
  // A collective runs on the ranks that hold its variables; other steps decide which ranks these are.
  void collect(const program::Collective&) override {}
  void pass(const program::Call& call, uint32_t part) override {
    if (part != program::kEveryPart) touch(passed_by(program(), call), part);
    holders_.pass(call);
  }
  uint32_t times(const program::Repeat& repeat) const override { return std::min(repeat.count, 1U); }
  bool follows_conditions() const override { return true; }

  Holders& holders_;
};

Holders::Holders(const program::Program& program, Touches& touches, uint32_t ranks)
    : program_(&program),
      all_(ranks == kMostPositions ? ~Positions{0} : (Positions{1} << ranks) - 1),
      parts_each_(program.parts() / ranks),
      passed_(program.variables().size()),
      held_(program.variables().size()),
      home_(program.variables().size()) {
  assert(ranks <= kMostPositions && program.parts() % ranks == 0);
  HomeSearch(*this, touches).walk();
  for (Positions& home : home_)
    if (home == 0) home = all_;
  for (VariableId v = 0; v < home_.size(); ++v)
    if (program.variable(v).role == program::Role::state) set(v, home_[v]);
}

Positions Holders::ranks_of(uint32_t part) const {
  return part == program::kEveryPart ? all_ : Positions{1} << (part / parts_each_);
}

void Holders::meet(std::span<const Touch> touches, Positions ranks, std::vector<Lack>& lacks) {
  for (const Touch& touched : touches) {
    if (!touched.reads) continue;
    const Place place = place_of(touched.variable, touched.box);
    const size_t before = lacks.size();
    add_lacks(place, ranks, lacks);
    if (lacks.size() == before) continue;
    std::vector<Held> got;
    for (const Held& held : held_[place.variable])
      if (const Box common = intersection(held.box, place.box); !common.empty())
        got.push_back({common, held.by | ranks});
    for (const Held& held : got) mark({place.variable, held.box}, held.by);
  }
  for (const Touch& touched : touches)
    if (touched.writes) mark(place_of(touched.variable, touched.box), ranks);
}

std::vector<Lack> Holders::lacks_of(VariableId variable, Positions ranks) const {
  std::vector<Lack> lacks;
  add_lacks(place_of(variable, program_->variable(variable).whole()), ranks, lacks);
  return lacks;
}

void Holders::set(VariableId variable, Positions ranks) {
  mark(place_of(variable, program_->variable(variable).whole()), ranks);
}

uint32_t Holders::holder_of(VariableId variable) const {
  const Place place = place_of(variable, program_->variable(variable).whole());
  Positions of_all = all_, of_some = 0;
  for (const Held& held : held_[place.variable]) {
    if (!overlap(held.box, place.box)) continue;
    of_all &= held.by;
    of_some |= held.by;
  }
  return first_of(of_all != 0 ? of_all : of_some);
}

void Holders::pass(const program::Call& call) {
  const std::vector<program::Argument>& arguments = program_->functions()[call.function].arguments;
  for (size_t i = 0; i < arguments.size(); ++i)
    passed_[arguments[i].variable] = place_of(call.operands[i].variable, call.operands[i].box);
}

Holders::Place Holders::place_of(VariableId variable, const Box& box) const {
  if (!program_->variable(variable).is_argument()) return {variable, box};
  const Place& passed = passed_[variable];
  return {passed.variable, {passed.box.row + box.row, box.rows, passed.box.col + box.col, box.cols}};
}

void Holders::add_lacks(const Place& place, Positions ranks, std::vector<Lack>& lacks) const {
  for (const Held& held : held_[place.variable]) {
    const Positions to = ranks & ~held.by;
    const Box common = intersection(held.box, place.box);
    if (to != 0 && !common.empty()) lacks.push_back({place.variable, common, first_of(held.by), to});
  }
}

void Holders::mark(const Place& place, Positions by) {
  if (place.box.empty()) return;
  std::vector<Held>& all_held = held_[place.variable];
  if (all_held.size() == 1 && all_held.front().box == place.box) {
    if (by == all_)
      all_held.clear();
    else
      all_held.front().by = by;
    return;
  }
  std::vector<Held> left;
  for (const Held& held : all_held)
    each_rest(held.box, place.box, [&](const Box& rest) { left.push_back({rest, held.by}); });
  if (by != all_) left.push_back({place.box, by});
  all_held = std::move(left);
}

}  // namespace tessera::engine
