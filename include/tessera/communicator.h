// The ranks that run one program together, and what they exchange. A rank is a process or a thread; it has
// some of the program's replicas, or stages of one.
#pragma once

#include <tessera/error.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tessera {

/// Another rank failed, ended, does not answer, or is not at the same place of the same program. The message
/// names the rank. What the ranks run together cannot go on.
class RankError : public Error {
 public:
  using Error::Error;
};

/// A message to another rank.
struct Outgoing {
  uint32_t to = 0;
  std::span<const std::byte> bytes;
};

/// Room for a message from another rank.
struct Incoming {
  uint32_t from = 0;
  std::span<std::byte> bytes;
};

/// A rank's connection to all others. Any two ranks make the same calls that concern both of them in the same
/// order. Several threads may exchange messages at once, none of which is with a rank that another thread
/// exchanges with; apart from that one thread calls at a time, not always the same.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  /// Below size().
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  /// For how long exchange() waits for another rank.
  virtual std::chrono::milliseconds longest_wait() const = 0;
  /// Whether the ranks are threads of one process: their runs then have threads of their own, and do not take
  /// turns with those of the process.
  virtual bool is_within_process() const { return false; }

  /// Sends and receives messages side by side, so that ranks that all send first do not wait for each other,
  /// and returns when those in `received` have arrived and those in `sent` may be overwritten. Messages from
  /// one rank to another arrive in the order in which they are sent. Throws RankError if a rank from which a
  /// message is due has failed, ended, or not sent it in the time that the communicator allows, or has sent
  /// one of another size; and once any rank has called abort().
  virtual void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) = 0;

  /// Lets exchange() of all ranks throw RankError with this message, those that wait included.
  virtual void abort(const std::string& message) noexcept = 0;
};

/// The communicators of threads of this process, by rank. A rank has ended when its communicator is
/// destroyed. Sessions of such ranks have threads of their own, on an equal share of the process's cores if
/// there are enough.
std::vector<std::shared_ptr<Communicator>> connect_threads(
    uint32_t ranks, std::chrono::milliseconds longest_wait = std::chrono::seconds(10));

/// The communicator of a process that mpirun started, with all others that it did; a process that was started
/// without it is alone. MPI is started unless it is running, and ends with the communicator: a process has
/// one, once. It waits for the others before it ends, as MPI does without any limit. After a failure MPI is
/// not ended, since that would wait for ranks that are gone; mpirun then ends what is left. Throws Error if
/// MPI does not start, and in a build without MPI.
///
/// Ranks of one computer that may use the same cores divide them, unless not all of them are to: this process
/// is bound to its own. All ranks then have as many, on any computer. Machines of the host that were made
/// before keep their tiles.
std::shared_ptr<Communicator> connect_mpi(std::chrono::milliseconds longest_wait = std::chrono::seconds(10),
                                          bool divides_cores = true);

}  // namespace tessera
