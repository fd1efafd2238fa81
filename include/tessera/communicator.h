// The ranks that run one program together, and their messages. A rank is a process or a thread; it has some
// of the program's replicas, or some stages of one replica.
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
/// names the rank. The ranks' common program cannot go on.
class RankError : public Error {
 public:
  using Error::Error;
};

/// A message to another rank.
struct Outgoing {
  uint32_t to = 0;
  std::span<const std::byte> bytes;
};

/// A buffer for a message from another rank.
struct Incoming {
  uint32_t from = 0;
  std::span<std::byte> bytes;
};

/// A rank's connection to all others. Any two ranks make the calls that concern both of them in the same
/// order. Several threads may exchange messages at once if no two of them do so with the same rank; all other
/// calls come from one thread at a time, which need not always be the same.
class Communicator {
 public:
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  virtual ~Communicator() = default;

  /// The number of this rank, below size().
  virtual uint32_t rank() const = 0;
  virtual uint32_t size() const = 0;
  /// The longest time for which exchange() waits for another rank.
  virtual std::chrono::milliseconds longest_wait() const = 0;
  /// Whether the ranks are threads of one process: their runs then have threads of their own, and do not take
  /// turns with other runs of the process.
  virtual bool is_within_process() const { return false; }

  /// Sends and receives messages side by side, so that ranks that all send first do not wait for each other,
  /// and returns when the messages in `received` have arrived and the buffers in `sent` may be overwritten.
  /// Messages from one rank to another arrive in the order in which they are sent. Throws RankError if a rank
  /// from which a message is due has failed, ended, or not sent it within longest_wait(), or has sent a
  /// message of another size; and once any rank has called abort().
  virtual void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) = 0;

  /// Makes exchange() throw RankError with this message on all ranks, including ranks that wait in it.
  virtual void abort(const std::string& message) noexcept = 0;
};

/// The communicators of threads of this process, by rank. A rank has ended when its communicator is
/// destroyed. Sessions of such ranks have threads of their own, on an equal part of the process's cores if
/// there are enough.
std::vector<std::shared_ptr<Communicator>> connect_threads(
    uint32_t ranks, std::chrono::milliseconds longest_wait = std::chrono::seconds(10));

/// The communicator between a process that mpirun started and all other processes of the same mpirun; a
/// process started without mpirun is the only rank. MPI is started unless it is running, and ends with the
/// communicator: a process can have only one such communicator in its life. Its destructor waits for the
/// other ranks, without a time limit, as MPI does. After a failure MPI is not ended, since that would wait
/// for ranks that are gone; mpirun then ends the remaining processes. Throws Error if MPI does not start, and
/// in a build without MPI.
///
/// If all ranks pass true for `divides_cores`, ranks of one computer that may use the same cores divide them
/// equally, and each process is bound to its own cores; all ranks, on whatever computer, then have the same
/// number of cores. Machine objects of the host that were made before keep their tiles.
std::shared_ptr<Communicator> connect_mpi(std::chrono::milliseconds longest_wait = std::chrono::seconds(10),
                                          bool divides_cores = true);

}  // namespace tessera
