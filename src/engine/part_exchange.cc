#include "engine/part_exchange.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <map>
#include <optional>
#include <utility>
#include <variant>

#include "base/integer_types.h"
#include "engine/collective.h"
#include "program/collective.h"

namespace tessera::engine {
namespace {

using program::FieldView;
using program::VariableId;

/// The rounds of these exchanges are numbered from here, apart from other rounds.
constexpr uint64_t kFirstExchange = uint64_t{1} << 63;
/// Messages that may wait for ranks that are behind.
constexpr size_t kMostUnderWay = 64;

size_t bytes_of(const FieldView& view) { return view.elements() * size_of(view.type); }

/// Calls visit(position) for each of the positions.
template <class Visit>
void each_position(Positions positions, const Visit& visit) {
  for (uint32_t position = 0; position < kMostPositions; ++position)
    if (has(positions, position)) visit(position);
}

}  // namespace

PartExchange::PartExchange(const program::Program& program, const OwnReplicas& own, Touches touches,
                           Holders holders, RankExchange& ranks)
    : program_(program),
      own_(own),
      touches_(std::move(touches)),
      holders_(std::move(holders)),
      ranks_(ranks),
      awaited_(program.variables().size()),
      size_(program.replicas() * own.ranks) {
  assert(own.ranks > 1 && own.count == 1);
}

void PartExchange::begin() {
  for (VariableId v = 0; v < program_.variables().size(); ++v)
    if (program_.variable(v).is_external()) set_all(v);
}

void PartExchange::end(const RunMemory& memory) {
  for (VariableId v = 0; v < program_.variables().size(); ++v)
    if (program_.variable(v).is_external() && !program_.variable(v).is_read_only()) meet_all(v, memory);
  finish_all();
}

void PartExchange::settle() noexcept {
  for (const UnderWay& each : under_way_)
    if (each.done.valid()) each.done.wait();
  under_way_.clear();
  std::ranges::fill(awaited_, 0);
}

bool PartExchange::meet(const program::Execute& execute, uint32_t part, const RunMemory& memory) {
  return meet(touches_.of(execute), part, memory);
}

bool PartExchange::meet(const program::Copy& copy, uint32_t part, const RunMemory& memory) {
  return meet(touches_.of(copy), part, memory);
}

void PartExchange::meet(const program::Call& call, uint32_t part, const RunMemory& memory) {
  if (part != program::kEveryPart) {
    const std::vector<Touch> passed = passed_by(program_, call);
    const program::StepId body = program_.functions()[call.function].body;
    const auto* steps =
        body == program::kNoStep ? nullptr : std::get_if<program::Sequence>(&program_.steps()[body]);
    const bool is_for_later = steps != nullptr && steps->steps.empty();
    if (is_for_later)
      bring(passed, part, memory);
    else
      meet(passed, part, memory);
  }
  holders_.pass(call);
}

bool PartExchange::bring(std::span<const Touch> touches, uint32_t part, const RunMemory& memory) {
  const Positions ranks = holders_.ranks_of(part);
  lacks_.clear();
  holders_.meet(touches, ranks, lacks_);
  exchange(lacks_, memory);
  return has(ranks, own_.position);
}

bool PartExchange::meet(std::span<const Touch> touches, uint32_t part, const RunMemory& memory) {
  if (!bring(touches, part, memory)) return false;
  for (const Touch& touched : touches) await(holders_.meant_by(touched.variable));
  return true;
}

void PartExchange::meet_all(VariableId variable, const RunMemory& memory) {
  const Touch read{variable, program_.variable(variable).whole(), true, false};
  meet(std::span(&read, 1), program::kEveryPart, memory);
}

program::Collective PartExchange::meet(const program::Collective& collective, const RunMemory& memory) {
  lacks_.clear();
  program::Collective own = own_part(collective, program_, own_.position, holders_, lacks_);
  exchange(lacks_, memory);
  program::each_variable(own, [&](VariableId v) { await(holders_.meant_by(v)); });
  return own;
}

program::Collective own_part(const program::Collective& collective, const program::Program& program,
                             uint32_t position, Holders& holders, std::vector<Lack>& lacks) {
  const program::CollectiveKind kind = collective.kind;
  program::Collective own = collective;
  own.variables.clear();
  for (const program::Exchanged& exchanged : collective.variables) {
    const uint32_t holder =
        holders.holder_of(program::reads_part(kind) ? exchanged.part.value() : exchanged.whole);
    std::vector<Touch> touches;
    const auto add = [&](std::optional<VariableId> v, bool reads, bool writes) {
      if (v) touches.push_back({*v, program.variable(*v).whole(), reads, writes});
    };
    add(exchanged.whole, program::reads_whole(kind), program::writes_whole(kind));
    add(exchanged.part, program::reads_part(kind), program::writes_part(kind));
    add(exchanged.buffer, false, true);
    holders.meet(touches, Positions{1} << holder, lacks);
    if (holder == position) own.variables.push_back(exchanged);
  }
  return own;
}

bool PartExchange::takes(VariableId variable) {
  const Positions home = holders_.home(variable);
  holders_.set(variable, home);
  return has(home, own_.position);
}

void PartExchange::share(VariableId variable, const RunMemory& memory) {
  const Settling settling(*this);
  meet_all(variable, memory);
  finish_all();
}

void PartExchange::read(VariableId variable, const RunMemory& memory, const FieldView& to) {
  const Settling settling(*this);
  memory.read(variable, to);
  exchange(holders_.lacks_of(variable, holders_.all()), memory, to);
  finish_all();
}

void PartExchange::exchange(std::span<const Lack> lacks, const RunMemory& memory,
                            const std::optional<FieldView>& to) {
  if (lacks.empty()) return;
  const MessageHeader place{kFirstExchange + exchanges_++, ranks_.noted()};
  for (const Lack& lack : lacks)
    if (lack.from == own_.position) await(lack.variable);
  UnderWay exchanged{empty_messages(), {}, &memory, to, {}};
  Messages& messages = *exchanged.messages;
  bool sends = false;
  for (const Lack& lack : lacks) {
    if (lack.from == own_.position) {
      sends = true;
      each_position(lack.to, [&](uint32_t position) {
        send(memory.box_of(lack.variable, lack.box), rank_at(position), messages);
      });
    } else if (has(lack.to, own_.position)) {
      const FieldView piece = memory.box_of(lack.variable, lack.box);
      messages.expect(rank_at(lack.from), bytes_of(piece), size_of(piece.type));
      exchanged.wanted.push_back(lack);
    }
  }
  if (!sends && exchanged.wanted.empty()) {
    idle_.push_back(std::move(exchanged.messages));
    return;
  }
  exchanged.done = thread_.submit([&ranks = ranks_, &messages, place] { ranks.exchange(messages, place); });
  for (const Lack& lack : exchanged.wanted) ++awaited_[lack.variable];
  under_way_.push_back(std::move(exchanged));
}

void PartExchange::await(VariableId variable) {
  while (awaited_[variable] > 0) finish_first();
}

std::unique_ptr<Messages> PartExchange::empty_messages() {
  while (under_way_.size() >= kMostUnderWay) finish_first();
  while (!under_way_.empty() &&
         under_way_.front().done.wait_for(std::chrono::seconds(0)) == std::future_status::ready)
    finish_first();
  if (idle_.empty()) return std::make_unique<Messages>(size_);
  std::unique_ptr<Messages> messages = std::move(idle_.back());
  idle_.pop_back();
  messages->clear();
  return messages;
}

void PartExchange::send(const FieldView& piece, uint32_t to, Messages& messages) {
  const bool is_dense = piece.col_stride == 1 && (piece.rows == 1 || piece.row_stride == piece.cols);
  if (is_dense) return messages.send(to, {piece.data, bytes_of(piece)}, size_of(piece.type));
  packed_.resize(bytes_of(piece));
  copy_elements(piece, {packed_.data(), piece.type, piece.rows, piece.cols, piece.cols, 1});
  messages.send(to, packed_, size_of(piece.type));
}

void PartExchange::finish_first() {
  UnderWay first = std::move(under_way_.front());
  under_way_.pop_front();
  for (const Lack& lack : first.wanted) --awaited_[lack.variable];
  first.done.get();
  for (const Lack& lack : first.wanted) {
    const FieldView own = first.memory->box_of(lack.variable, lack.box);
    FieldView piece = own;
    piece.data = first.messages->take(rank_at(lack.from), bytes_of(own), size_of(own.type));
    piece.row_stride = piece.cols;
    piece.col_stride = 1;
    copy_elements(piece, first.to ? part_of(*first.to, lack.box) : own);
  }
  idle_.push_back(std::move(first.messages));
}

void PartExchange::finish_all() {
  while (!under_way_.empty()) finish_first();
}

std::vector<VariableId> PartExchange::lacked_integers() const {
  std::vector<VariableId> lacked;
  for (VariableId v = 0; v < program_.variables().size(); ++v) {
    const program::Variable& variable = program_.variable(v);
    if (variable.role == program::Role::state && is_integer(variable.type) &&
        !holders_.lacks_of(v, Positions{1} << own_.position).empty())
      lacked.push_back(v);
  }
  return lacked;
}

/// Counts what this rank sends.
class PartExchange::Prediction final : public PartWalk {
 public:
  explicit Prediction(const PartExchange& of)
      : PartWalk(of.program_, of.touches_), of_(of), holders_(of.holders_) {}

  uint64_t bytes() {
    for (VariableId v = 0; v < program().variables().size(); ++v)
      if (program().variable(v).is_external()) holders_.set(v, holders_.all());
    walk();
    for (VariableId v = 0; v < program().variables().size(); ++v) {
      const program::Variable& variable = program().variable(v);
      const Touch read{v, variable.whole(), true, false};
      if (variable.is_external() && !variable.is_read_only()) touch({&read, 1}, program::kEveryPart);
    }
    return bytes_;
  }

 private:
  void touch(std::span<const Touch> touches, uint32_t part) override {
    std::vector<Lack> lacks;
    holders_.meet(touches, holders_.ranks_of(part), lacks);
    add(lacks);
  }
  void collect(const program::Collective& collective) override {
    std::vector<Lack> lacks;
    const program::Collective own = own_part(collective, program(), of_.own_.position, holders_, lacks);
    add(lacks);
    bytes_ += sent_bytes(program(), own, of_.own_);
  }
  void pass(const program::Call& call, uint32_t part) override {
    if (part != program::kEveryPart) touch(passed_by(program(), call), part);
    holders_.pass(call);
  }
  uint32_t times(const program::Repeat& repeat) const override { return repeat.count; }
  bool follows_conditions() const override { return false; }

  void add(std::span<const Lack> lacks) {
    std::map<uint32_t, MessageLength> to;
    for (const Lack& lack : lacks) {
      if (lack.from != of_.own_.position) continue;
      const size_t element = size_of(program().variable(lack.variable).type);
      each_position(lack.to,
                    [&](uint32_t position) { to[position].add(lack.box.elements() * element, element); });
    }
    for (const auto& [position, length] : to) bytes_ += length.bytes;
  }

  const PartExchange& of_;
  Holders holders_;
  uint64_t bytes_ = 0;
};

uint64_t PartExchange::predicted_bytes() const { return Prediction(*this).bytes(); }

}  // namespace tessera::engine
