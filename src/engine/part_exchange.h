// Exchange between the ranks that run the parts of one replica.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/communication_thread.h"
#include "engine/holders.h"
#include "engine/rank_exchange.h"
#include "engine/run_memory.h"
#include "engine/touches.h"
#include "program/program.h"

namespace tessera::engine {

/// Lets ranks run the parts of a replica's program together. Each follows all steps in their order, runs the
/// steps of its own parts, and sends and receives what steps need that their rank does not have: as all ranks
/// know who holds what, none has to ask. A thread exchanges the messages in the order of the steps, which is
/// the same on all ranks, so they cannot wait for each other in a circle. The sender continues meanwhile, and
/// so does the receiver, until it needs the data. Collectives, which go to ranks of other replicas, have
/// another thread, so these messages need not wait for them.
class PartExchange {
 public:
  /// `holders` are the holders at the program's beginning, found with `touches`.
  PartExchange(const program::Program& program, const OwnReplicas& own, Touches touches, Holders holders,
               RankExchange& ranks);

  /// Begin a run, whose bound arrays all ranks have, and end it, so that all ranks have its results.
  void begin();
  void end(const RunMemory& memory);
  /// Gives what a step of a part reads to all ranks that run it; returns whether this rank does.
  bool meet(const program::Execute& execute, uint32_t part, const RunMemory& memory);
  bool meet(const program::Copy& copy, uint32_t part, const RunMemory& memory);
  /// The collective of those variables that this rank exchanges with other replicas.
  program::Collective meet(const program::Collective& collective, const RunMemory& memory);
  /// To be called before all ranks read a variable.
  void meet_all(program::VariableId variable, const RunMemory& memory);
  /// Notes that all ranks have new contents of a variable.
  void set_all(program::VariableId variable) { holders_.set(variable, holders_.all()); }
  /// To be called before a call of a part: brings what it passes to the ranks that run it.
  void meet(const program::Call& call, uint32_t part, const RunMemory& memory);

  // For state, between runs.

  /// Whether this rank has to store new contents of a variable, which all ranks are given.
  bool takes(program::VariableId variable);
  /// Brings a variable to all ranks.
  void share(program::VariableId variable, const RunMemory& memory);
  /// Copies a variable to an array on all ranks.
  void read(program::VariableId variable, const RunMemory& memory, const program::FieldView& to);

  /// Its destructor waits until nothing is under way any more, whether that succeeded or failed.
  class Settling {
   public:
    explicit Settling(PartExchange& exchange) : exchange_(exchange) {}
    Settling(const Settling&) = delete;
    Settling& operator=(const Settling&) = delete;
    ~Settling() { exchange_.settle(); }

   private:
    PartExchange& exchange_;
  };

  /// Integer state whose present contents only other ranks have.
  std::vector<program::VariableId> lacked_integers() const;

  /// Bytes that this rank sends in a run from now on, not counting steps that conditions decide about.
  uint64_t predicted_bytes() const;

 private:
  struct UnderWay {
    std::unique_ptr<Messages> messages;
    std::vector<Lack> wanted;  ///< what this rank lacks
    const RunMemory* memory;
    std::optional<program::FieldView> to;  ///< an array, instead of where the variables lie
    std::future<void> done;
  };
  class Prediction;

  /// Begins to bring what a step of a part reads to the ranks that run it; returns whether this rank does.
  bool bring(std::span<const Touch> touches, uint32_t part, const RunMemory& memory);
  bool meet(std::span<const Touch> touches, uint32_t part, const RunMemory& memory);
  /// Begins to exchange what ranks lack. Data goes to where the variables lie, or to the array `to`.
  void exchange(std::span<const Lack> lacks, const RunMemory& memory,
                const std::optional<program::FieldView>& to = {});
  /// Waits for data under way to a variable.
  void await(program::VariableId variable);
  std::unique_ptr<Messages> empty_messages();
  void settle() noexcept;
  void send(const program::FieldView& piece, uint32_t to, Messages& messages);
  /// Waits for the first exchange under way, stores the data that it brings, and throws what it threw.
  void finish_first();
  void finish_all();
  uint32_t rank_at(uint32_t position) const { return own_.rank_of(own_.first, position); }

  const program::Program& program_;
  const OwnReplicas own_;
  mutable Touches touches_;
  Holders holders_;
  RankExchange& ranks_;
  uint64_t exchanges_ = 0;  ///< so far, of all ranks
  std::vector<Lack> lacks_;
  std::vector<std::byte> packed_;
  std::deque<UnderWay> under_way_;
  std::vector<uint32_t> awaited_;  ///< by variable: pieces that are under way to this rank
  std::vector<std::unique_ptr<Messages>> idle_;
  uint32_t size_;               ///< ranks of all replicas
  CommunicationThread thread_;  ///< what it does uses the above
};

/// A collective of the variables that a rank exchanges, if it is the rank's turn among the ranks of its
/// replica. Adds what the rank lacks of them to `lacks`.
program::Collective own_part(const program::Collective& collective, const program::Program& program,
                             uint32_t position, Holders& holders, std::vector<Lack>& lacks);

}  // namespace tessera::engine
