#include "engine/collective.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <vector>

#include "engine/run_memory.h"
#include "program/collective.h"

namespace tessera::engine {
namespace {

using program::FieldView;

/// Calls visit(exchanged, box, begin, end) for the elements of each box that a message has.
template <class Visit>
void each_box(const program::Program& program, const program::Collective& collective,
              const program::Message& message, const Visit& visit) {
  const uint32_t group = program::group_size(collective, program.replicas());
  for (const program::Exchanged& exchanged : collective.variables) {
    const auto& mapping = program.variable(exchanged.whole).mapping;
    for (size_t box = 0; box < mapping.size(); ++box) {
      const uint64_t elements = mapping[box].box.elements(),
                     begin = program::chunk_begin(elements, message.first, group),
                     end = program::chunk_begin(elements, message.first + message.chunks, group);
      if (begin < end) visit(exchanged, box, begin, end);
    }
  }
}

class CollectiveRun {
 public:
  CollectiveRun(const program::Program& program, const program::Collective& collective, RunState& state,
                bool reference, uint64_t noted, Pool::Team* team)
      : program_(program),
        collective_(collective),
        own_(state.own),
        ranks_(state.ranks.get()),
        noted_(noted),
        team_(team),
        memories_(state.memories),
        count_(program.replicas()),
        group_(program::group_size(collective, count_)),
        add_(collective.add == nullptr                      ? nullptr
             : reference || collective.add->simd == nullptr ? collective.add->reference
                                                            : collective.add->simd) {}

  void run() const {
    if (program::reads_part(collective_.kind))
      each_own(
          [](const FieldView& part, const FieldView& chunk) { copy_elements(first(part, chunk), chunk); });
    for (const program::Round& round : program::rounds_of(collective_, count_)) {
      if (ranks_ != nullptr) exchange(round);
      for (const program::Message& message : round.messages)
        if (own_.has(message.to)) receive(message, round.adds);
    }
    if (program::writes_part(collective_.kind))
      each_own([](const FieldView& part, const FieldView& chunk) {
        copy_elements(chunk, first(part, chunk));
        std::memset(part.data + chunk.cols * size_of(part.type), 0,
                    (part.cols - chunk.cols) * size_of(part.type));
      });
  }

 private:
  FieldView chunks(const program::Exchanged& exchanged, size_t box, uint32_t replica, uint32_t first,
                   uint32_t chunks) const {
    const uint64_t elements = program_.variable(exchanged.whole).mapping[box].box.elements();
    return memories_[replica - own_.first].line(exchanged.whole, box,
                                                program::chunk_begin(elements, first, group_),
                                                program::chunk_begin(elements, first + chunks, group_));
  }

  /// Calls visit(exchanged, box, line) for what a message has of each box, in the memory of the sender or the
  /// receiver.
  template <class Visit>
  void each_line(const program::Message& message, uint32_t replica, const Visit& visit) const {
    const RunMemory& memory = memories_[replica - own_.first];
    each_box(program_, collective_, message,
             [&](const program::Exchanged& exchanged, size_t box, uint64_t begin, uint64_t end) {
               visit(exchanged, box, memory.line(exchanged.whole, box, begin, end));
             });
  }

  static size_t bytes_of(const FieldView& line) { return line.elements() * size_of(line.type); }

  /// Exchanges the messages of a round with other ranks. Nothing that is sent is received in the same round.
  void exchange(const program::Round& round) const {
    ranks_->begin(noted_);
    for (const program::Message& message : round.messages) {
      const bool is_sent = own_.has(message.from), is_received = own_.has(message.to);
      if (is_sent == is_received) continue;
      each_line(message, is_sent ? message.from : message.to,
                [&](const program::Exchanged&, size_t, const FieldView& line) {
                  if (is_sent)
                    ranks_->send(own_.rank_of(message.to), {line.data, bytes_of(line)}, size_of(line.type));
                  else
                    ranks_->expect(own_.rank_of(message.from), bytes_of(line), size_of(line.type));
                });
    }
    ranks_->exchange();
  }

  /// Elements of a message, and where they go.
  struct Piece {
    FieldView from;
    FieldView to;
  };

  void receive(const program::Message& message, bool adds) const {
    const bool is_own = own_.has(message.from);
    std::vector<Piece> pieces;
    each_line(message, message.to, [&](const program::Exchanged& exchanged, size_t box, const FieldView& to) {
      FieldView from = to;
      if (is_own)
        from = chunks(exchanged, box, message.from, message.first, message.chunks);
      else
        from.data = ranks_->take(own_.rank_of(message.from), bytes_of(to), size_of(to.type));
      divide({from, to}, pieces);
    });
    each_piece(pieces, [&](const Piece& piece) {
      if (!adds) return copy_elements(piece.from, piece.to);
      const std::array<FieldView, 3> fields = {piece.to, piece.from, piece.to};
      add_({fields, {}});
    });
  }

  static constexpr uint32_t kPieceElements = 1 << 16;

  /// Adds a line to pieces, several if threads can divide it.
  void divide(const Piece& line, std::vector<Piece>& pieces) const {
    const uint32_t most = team_ == nullptr ? line.to.cols : kPieceElements;
    for (uint32_t begin = 0; begin < line.to.cols; begin += std::min(most, line.to.cols - begin)) {
      Piece piece = line;
      for (FieldView* field : {&piece.from, &piece.to}) {
        field->data += begin * size_of(field->type);
        field->cols = std::min(most, line.to.cols - begin);
        field->row_stride = field->cols;
      }
      pieces.push_back(piece);
    }
  }

  template <class Visit>
  void each_piece(const std::vector<Piece>& pieces, const Visit& visit) const {
    uint64_t elements = 0;
    for (const Piece& piece : pieces) elements += piece.to.cols;
    std::atomic<size_t> next{0};
    const auto work = [&](uint32_t) {
      for (size_t p; (p = next.fetch_add(1, std::memory_order_relaxed)) < pieces.size();) visit(pieces[p]);
    };
    if (team_ == nullptr || elements <= kPieceElements)
      work(0);
    else
      team_->run(work);
  }

  /// The elements of a part that a chunk fills.
  static FieldView first(FieldView part, const FieldView& chunk) {
    part.cols = chunk.cols;
    return part;
  }

  /// Calls visit(part, chunk) for the boxes of each replica's part and their places in the whole; chunks may
  /// be shorter.
  template <class Visit>
  void each_own(const Visit& visit) const {
    for (uint32_t replica = own_.first; own_.has(replica); ++replica)
      for (const program::Exchanged& exchanged : collective_.variables)
        for (size_t box = 0; box < program_.variable(exchanged.whole).mapping.size(); ++box) {
          const uint64_t elements = program_.variable(*exchanged.part).mapping[box].box.elements();
          if (elements == 0) continue;
          visit(memories_[replica - own_.first].line(*exchanged.part, box, 0, elements),
                chunks(exchanged, box, replica, replica % group_, 1));
        }
  }

  const program::Program& program_;
  const program::Collective& collective_;
  const OwnReplicas own_;
  RankExchange* ranks_;
  const uint64_t noted_;
  Pool::Team* team_;                       ///< null: one thread does it all
  const std::deque<RunMemory>& memories_;  ///< by replica, from the first own one
  uint32_t count_;
  uint32_t group_;
  program::RunVertex add_;
};

}  // namespace

void run_collective(const program::Program& program, const program::Collective& collective, RunState& state,
                    bool reference, uint64_t noted, Pool::Team* team) {
  CollectiveRun(program, collective, state, reference, noted, team).run();
}

uint64_t sent_bytes(const program::Program& program, const program::Collective& collective,
                    const OwnReplicas& own) {
  uint64_t bytes = 0;
  for (const program::Round& round : program::rounds_of(collective, program.replicas())) {
    std::map<uint32_t, MessageLength> to;
    for (const program::Message& message : round.messages)
      if (own.has(message.from) && !own.has(message.to))
        each_box(program, collective, message,
                 [&, &length = to[own.rank_of(message.to)]](const program::Exchanged& exchanged, size_t,
                                                            uint64_t begin, uint64_t end) {
                   const size_t element = size_of(program.variable(exchanged.whole).type);
                   length.add((end - begin) * element, element);
                 });
    for (const auto& [rank, length] : to) bytes += length.bytes;
  }
  return bytes;
}

}  // namespace tessera::engine
