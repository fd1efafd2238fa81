// What the replicas of a process exchange with those of other ranks.
#pragma once

#include <tessera/communicator.h>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera::engine {

/// The replicas of a program that one rank runs: consecutive ones, as many as each other rank.
struct OwnReplicas {
  uint32_t first = 0;
  uint32_t count = 1;

  bool has(uint32_t replica) const { return replica >= first && replica - first < count; }
  uint32_t rank_of(uint32_t replica) const { return replica / count; }
};

/// Those of a rank. Without a communicator, or of a program without replicas, it runs all. Throws UsageError
/// if they cannot be divided equally.
OwnReplicas own_replicas(uint32_t replicas, const Communicator* communicator);

/// What both ranks have to agree on before they use what is in a message, which begins with it.
struct LetterHeader {
  uint64_t round = 0;
  uint64_t noted = 0;

  bool operator==(const LetterHeader&) const = default;
};

/// The length of a message to another rank.
struct LetterLength {
  size_t bytes = 0;  ///< 0: there is none

  /// Adds a piece, and returns where it begins.
  size_t add(size_t piece, size_t alignment);
};

/// Exchanges rounds of messages. Each round is one message to and from every rank with which there is
/// anything to exchange: pieces, in the order in which both ranks name them.
class RankExchange {
 public:
  explicit RankExchange(std::shared_ptr<Communicator> communicator);

  /// Notes something that all ranks do alike, such as a decision. A rank that notes another is refused in the
  /// next round that begins with it.
  void note(uint64_t what);
  /// What stands for all that was noted. Unlike the functions below, these may be called during a round.
  uint64_t noted() const { return noted_; }
  /// Bytes of all messages that this rank has sent.
  uint64_t sent_bytes() const { return sent_bytes_; }

  /// A round: pieces are named, exchanged, and taken. Each is aligned to so many bytes, at most 16. `noted`
  /// is what all ranks had noted when they decided to begin the round.
  void begin(uint64_t noted);
  void send(uint32_t to, std::span<const std::byte> piece, size_t alignment);
  void expect(uint32_t from, size_t bytes, size_t alignment);
  void exchange();
  /// The next piece from a rank, in the order of expect(), until the next round begins.
  std::byte* take(uint32_t from, size_t bytes, size_t alignment);

  /// A round in which each rank gets what all have, rank by rank.
  void all_gather(std::span<const std::byte> own, std::span<std::byte> all);

  /// Lets the other ranks end with the error that ends this one, which has not come from them.
  void abort(const std::string& error) noexcept;
  /// With one that has.
  void abort(const RankError& error) noexcept { communicator_->abort(error.what()); }

 private:
  struct Letter {
    std::vector<std::byte> bytes;  ///< with room behind the end, as kernels may read a vector past it
    LetterLength length;           ///< in this round
    LetterLength taken;

    void make_room();
    std::span<std::byte> whole() { return {bytes.data(), length.bytes}; }
  };

  void check(uint32_t from) const;

  std::shared_ptr<Communicator> communicator_;
  uint64_t noted_ = 0;
  uint64_t sent_bytes_ = 0;
  LetterHeader place_;
  std::vector<Letter> sent_, received_;  ///< by rank
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
};

/// Runs what all ranks do together. If it throws here, the others end as well. `ranks` is null for a process
/// that has all replicas.
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
