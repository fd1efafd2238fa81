// What the replicas of a process exchange with the replicas of other ranks.
#pragma once

#include <tessera/communicator.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace tessera::engine {

/// What one rank runs of a program: consecutive replicas, as many as each other rank; or consecutive parts of
/// one replica, as many as each other rank that has some of that replica.
struct OwnReplicas {
  uint32_t first = 0;
  uint32_t count = 1;
  uint32_t ranks = 1;     ///< number of ranks that have parts of one replica
  uint32_t position = 0;  ///< position of this rank among them

  bool has(uint32_t replica) const { return replica >= first && replica - first < count; }
  /// The rank that has a replica, or the one at a position among several that have it.
  uint32_t rank_of(uint32_t replica) const { return rank_of(replica, position); }
  uint32_t rank_of(uint32_t replica, uint32_t at) const { return replica / count * ranks + at; }
};

/// The replicas of a rank, of a program with `replicas` replicas of `parts` parts. Replicas are divided
/// first. Without a communicator, or if the program has neither replicas nor parts, the rank runs all. Throws
/// UsageError if they cannot be divided equally.
OwnReplicas own_replicas(uint32_t replicas, uint32_t parts, const Communicator* communicator);

/// The beginning of a message, on which both ranks have to agree before they use the rest.
struct MessageHeader {
  uint64_t round = 0;
  uint64_t noted = 0;

  bool operator==(const MessageHeader&) const = default;
};

/// The length of a message to another rank.
struct MessageLength {
  size_t bytes = 0;  ///< 0: there is none

  /// Adds a piece, and returns where it begins.
  size_t add(size_t piece, size_t alignment);
};

/// The messages of a round, which can be written before it begins, and read after it has ended: pieces, each
/// aligned to the bytes that it asks for, at most 16, in the order in which both ranks name them.
class Messages {
 public:
  explicit Messages(uint32_t ranks) : sent_(ranks), received_(ranks) {}

  /// Forgets the messages, but keeps their memory.
  void clear();
  void send(uint32_t to, std::span<const std::byte> piece, size_t alignment);
  void expect(uint32_t from, size_t bytes, size_t alignment);
  /// The next piece from a rank, in the order of expect().
  std::byte* take(uint32_t from, size_t bytes, size_t alignment);

 private:
  friend class RankExchange;

  struct Message {
    std::vector<std::byte> bytes;  ///< with room behind the end, as kernels may read a vector past it
    MessageLength length;
    MessageLength taken;

    void make_room();
    std::span<std::byte> whole() { return {bytes.data(), length.bytes}; }
  };

  /// Lists the messages, which begin with `place`; returns whether there are any.
  bool address(const MessageHeader& place);

  std::vector<Message> sent_, received_;  ///< by rank
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

/// Exchanges rounds of messages. Each round is one message to and from every rank with which there is
/// anything to exchange: pieces, in the order in which both ranks name them.
///
/// After a failed round, all later rounds fail with its error, which says which rank was lost first.
class RankExchange {
 public:
  explicit RankExchange(std::shared_ptr<Communicator> communicator);

  /// Notes something that all ranks do alike, such as a decision. A rank that notes something else is refused
  /// in the next round whose `noted` includes it.
  void note(uint64_t what);
  /// A number that stands for all that was noted. Unlike the functions below, these may be called during a
  /// round.
  uint64_t noted() const { return noted_; }
  /// Bytes of all messages that this rank has sent.
  uint64_t sent_bytes() const { return sent_bytes_; }

  /// A round: pieces are named, exchanged, and taken, until the next round begins. `noted` is what all ranks
  /// had noted when they decided to begin the round.
  void begin(uint64_t noted);
  void send(uint32_t to, std::span<const std::byte> piece, size_t alignment) {
    present_.send(to, piece, alignment);
  }
  void expect(uint32_t from, size_t bytes, size_t alignment) { present_.expect(from, bytes, alignment); }
  void exchange() { exchange(present_, place_); }
  std::byte* take(uint32_t from, size_t bytes, size_t alignment) {
    return present_.take(from, bytes, alignment);
  }

  /// A round outside the numbering of the rounds above, named by `place`. Another thread may exchange
  /// messages with other ranks meanwhile.
  void exchange(Messages& messages, const MessageHeader& place);

  /// A round in which each rank gets the data of all ranks, rank by rank.
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all);

  /// Ends the other ranks with the error that ends this rank and did not come from them.
  void abort(const std::string& error) noexcept;
  /// Ends them with an error that did.
  void abort(const RankError& error) noexcept { communicator_->abort(error.what()); }

 private:
  void check(const Incoming& message, const MessageHeader& place) const;
  /// The error of the first round that failed; `present` if none has failed before.
  std::string first_failure(const std::string& present);

  std::shared_ptr<Communicator> communicator_;
  uint64_t noted_ = 0;
  std::atomic<uint64_t> sent_bytes_{0};
  MessageHeader place_;
  Messages present_;
  std::mutex mutex_;
  std::string failure_;  ///< of the first round that failed
};

/// Runs what all ranks do together. If it throws on this rank, the others end as well. `ranks` is null for a
/// process that has all replicas.
template <class Run>
auto together(RankExchange* ranks, const Run& run) {
  if (ranks == nullptr) return run();
  try {
    return run();
  } catch (const RankError& error) {
    ranks->abort(error);
    throw;
  } catch (const std::exception& error) {
    ranks->abort(std::string(error.what()));
    throw;
  }
}

}  // namespace tessera::engine
