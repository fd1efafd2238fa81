#include <fmt/format.h>
#include <tessera/communicator.h>
#include <tessera/error.h>

#include <chrono>
#include <memory>

#ifdef TESSERA_MPI
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ranks/cores.h"
#include "ranks/lost.h"

// Constants of MPI are macros with casts of C.
#pragma GCC diagnostic ignored "-Wold-style-cast"
#endif

namespace tessera {

#ifdef TESSERA_MPI
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMessage = 1, kFailure = 2, kEnd = 3, kWaits = 4;  // tags
/// A rank waits at most this many times the longest silence, whatever the other ranks report.
constexpr int kMostSilences = 3;
constexpr size_t kMostInPiece = size_t{1} << 30;  // counts are int

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) return fmt::format("error {}", error);
  return {text, static_cast<size_t>(length)};
}

void require(int result, const char* what) {
  if (result != MPI_SUCCESS) throw Error(fmt::format("MPI: {}: {}", what, text_of(result)));
}

/// Calls visit(piece) for each piece of a message; an empty one has one piece.
template <class Byte, class Visit>
void each_piece(std::span<Byte> bytes, const Visit& visit) {
  do {
    const size_t length = std::min(bytes.size(), kMostInPiece);
    visit(bytes.first(length));
    bytes = bytes.subspan(length);
  } while (!bytes.empty());
}

class MpiCommunicator final : public Communicator {
 public:
  explicit MpiCommunicator(std::chrono::milliseconds longest_wait) : longest_wait_(longest_wait) {
    int is_initialized = 0, provided = 0, rank = 0, size = 0;
    require(MPI_Initialized(&is_initialized), "it does not start");
    if (is_initialized == 0)
      require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided), "it does not start");
    else
      require(MPI_Query_thread(&provided), "it does not say how many threads may call it");
    is_own_ = is_initialized == 0;
    if (provided < MPI_THREAD_SERIALIZED)
      throw Error(
          "MPI may only be called by the thread that started it: start it with MPI_THREAD_SERIALIZED");
    require(MPI_Comm_dup(MPI_COMM_WORLD, &all_), "the ranks do not connect");
    require(MPI_Comm_set_errhandler(all_, MPI_ERRORS_RETURN), "it keeps its errors");
    require(MPI_Comm_rank(all_, &rank), "it does not number the ranks");
    require(MPI_Comm_size(all_, &size), "it does not count the ranks");
    rank_ = static_cast<uint32_t>(rank);
    size_ = static_cast<uint32_t>(size);
    heard_.resize(size_);
  }

  /// Does not free MPI if a rank is gone or hangs, as MPI would wait for it forever.
  ~MpiCommunicator() override {
    if (!failure_.empty() || !all_end()) return;
    MPI_Comm_free(&all_);
    if (is_own_) MPI_Finalize();
  }

  uint32_t rank() const override { return rank_; }
  uint32_t size() const override { return size_; }
  std::chrono::milliseconds longest_wait() const override { return longest_wait_; }

  void exchange(std::span<const Outgoing> sent, std::span<const Incoming> received) override {
    transfer(sent, received, kMessage);
  }

  void abort(const std::string& message) noexcept override {
    const std::lock_guard lock(mutex_);
    if (told_) return;
    try {
      told_ = message;
      if (failure_.empty()) failure_ = message;
      tell_all(*told_);
    } catch (...) {
      // The others notice that no further messages arrive.
    }
  }

 private:
  void transfer(std::span<const Outgoing> sent, std::span<const Incoming> received, int tag) {
    std::vector<Transfer> transfers;
    try {
      begin(sent, received, tag, transfers);
      wait(transfers);
    } catch (...) {
      give_up(transfers);
      throw;
    }
  }

  /// Tells all others that this rank ends; returns whether all of them end too.
  bool all_end() {
    std::vector<Outgoing> sent;
    std::vector<Incoming> received;
    for (uint32_t other = 0; other < size_; ++other) {
      if (other == rank_) continue;
      sent.push_back({other, {}});
      received.push_back({other, {}});
    }
    try {
      transfer(sent, received, kEnd);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  struct Transfer {
    MPI_Request request;
    uint32_t other;
    int bytes;
    bool is_received;
  };

  [[noreturn]] void fail(std::string message) {
    failure_ = std::move(message);
    throw RankError(failure_);
  }

  void begin(std::span<const Outgoing> sent, std::span<const Incoming> received, int tag,
             std::vector<Transfer>& transfers) {
    const std::lock_guard lock(mutex_);
    require_no_failure();
    const auto add = [&](uint32_t other, size_t bytes, bool is_received) -> Transfer& {
      return transfers.emplace_back(Transfer{MPI_REQUEST_NULL, other, static_cast<int>(bytes), is_received});
    };
    for (const Incoming& message : received)
      each_piece(message.bytes, [&](std::span<std::byte> piece) {
        Transfer& t = add(message.from, piece.size(), true);
        require_begun(
            MPI_Irecv(piece.data(), t.bytes, MPI_BYTE, static_cast<int>(t.other), tag, all_, &t.request),
            t.other);
      });
    for (const Outgoing& message : sent)
      each_piece(message.bytes, [&](std::span<const std::byte> piece) {
        Transfer& t = add(message.to, piece.size(), false);
        require_begun(
            MPI_Isend(piece.data(), t.bytes, MPI_BYTE, static_cast<int>(t.other), tag, all_, &t.request),
            t.other);
      });
  }

  void require_begun(int result, uint32_t other) {
    if (result != MPI_SUCCESS) fail(fmt::format("rank {} is out of reach: {}", other, text_of(result)));
  }

  void wait(std::vector<Transfer>& transfers) {
    for (Waiting waiting; !are_complete(transfers, waiting);) pause(Clock::now() - waiting.start);
  }

  /// How long a thread has been waiting.
  struct Waiting {
    Clock::time_point start = Clock::now();
    Clock::time_point told = start;  ///< when the others last learned of it
  };

  /// Whether all transfers are complete. Throws if one of them can no longer complete.
  bool are_complete(std::vector<Transfer>& transfers, Waiting& waiting) {
    const std::lock_guard lock(mutex_);
    const Transfer* missing = first_missing(transfers);
    if (missing == nullptr) return true;
    require_no_failure();
    hear_of_failure();
    // Messages that an ended rank sent earlier have arrived before its end.
    if (has_ended(missing->other) && first_missing(transfers) == missing)
      fail(ranks::text_of_end(missing->other));
    hear_who_waits();
    const Clock::time_point now = Clock::now(), heard = std::max(waiting.start, heard_[missing->other]);
    if (now - heard > longest_wait_ || now - waiting.start > kMostSilences * longest_wait_)
      fail(ranks::text_of_silence(missing->other, rank_, longest_wait_));
    if (now - waiting.told > longest_wait_ / 4) {
      tell_that_it_waits();
      waiting.told = now;
    }
    return false;
  }

  /// A waiting rank is not the one that hangs: ranks that wait for it let it report which rank hangs.
  void tell_that_it_waits() const {
    for (uint32_t other = 0; other < size_; ++other) {
      MPI_Request request = MPI_REQUEST_NULL;
      if (other != rank_ &&
          MPI_Isend(nullptr, 0, MPI_BYTE, static_cast<int>(other), kWaits, all_, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
  }

  void hear_who_waits() {
    for (int is_there = 0;;) {
      MPI_Status status;
      if (MPI_Iprobe(MPI_ANY_SOURCE, kWaits, all_, &is_there, &status) != MPI_SUCCESS || is_there == 0)
        return;
      MPI_Recv(nullptr, 0, MPI_BYTE, status.MPI_SOURCE, kWaits, all_, MPI_STATUS_IGNORE);
      heard_[static_cast<size_t>(status.MPI_SOURCE)] = Clock::now();
    }
  }

  /// Throws the failure that another thread has received.
  void require_no_failure() const {
    if (!failure_.empty()) throw RankError(failure_);
  }

  /// Most waits are short; long ones leave the core to others.
  static void pause(Clock::duration waited) {
    if (waited < std::chrono::milliseconds(2)) return std::this_thread::yield();
    std::this_thread::sleep_for(std::min<Clock::duration>(waited / 16, std::chrono::milliseconds(1)));
  }

  bool has_ended(uint32_t other) const {
    int is_there = 0;
    return MPI_Iprobe(static_cast<int>(other), kEnd, all_, &is_there, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
           is_there != 0;
  }

  /// The first incomplete transfer; null: all are complete.
  const Transfer* first_missing(std::vector<Transfer>& transfers) {
    const Transfer* missing = nullptr;
    for (Transfer& t : transfers)
      if (t.request != MPI_REQUEST_NULL && !is_complete(t) && missing == nullptr) missing = &t;
    return missing;
  }

  bool is_complete(Transfer& t) {
    int is_done = 0, count = t.bytes;
    MPI_Status status;
    int result = MPI_Test(&t.request, &is_done, &status);
    if (result == MPI_SUCCESS && is_done == 0) return false;
    if (result == MPI_SUCCESS && t.is_received) result = MPI_Get_count(&status, MPI_BYTE, &count);
    if (result != MPI_SUCCESS)
      fail(fmt::format("what rank {} and rank {} exchange is lost: {}", t.other, rank_, text_of(result)));
    if (count != t.bytes)
      fail(ranks::text_of_size(t.other, static_cast<size_t>(count), rank_, static_cast<size_t>(t.bytes)));
    return true;
  }

  /// Throws a failure that another rank reports.
  void hear_of_failure() {
    int is_there = 0, length = 0;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, kFailure, all_, &is_there, &status) != MPI_SUCCESS || is_there == 0)
      return;
    MPI_Get_count(&status, MPI_BYTE, &length);
    std::string message(static_cast<size_t>(length), '\0');
    MPI_Recv(message.data(), length, MPI_BYTE, status.MPI_SOURCE, kFailure, all_, MPI_STATUS_IGNORE);
    fail(std::move(message));
  }

  /// Waits a moment for messages that are not sent immediately.
  void tell_all(const std::string& message) {
    std::vector<MPI_Request> requests;
    for (uint32_t other = 0; other < size_; ++other)
      if (other != rank_)
        MPI_Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, static_cast<int>(other),
                  kFailure, all_, &requests.emplace_back(MPI_REQUEST_NULL));
    const Clock::time_point deadline = Clock::now() + std::chrono::seconds(1);
    for (int are_sent = 0; are_sent == 0 && Clock::now() < deadline; std::this_thread::yield())
      if (MPI_Testall(static_cast<int>(requests.size()), requests.data(), &are_sent, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        return;
  }

  void give_up(std::vector<Transfer>& transfers) {
    const std::lock_guard lock(mutex_);
    for (Transfer& t : transfers) {
      if (t.request == MPI_REQUEST_NULL) continue;
      if (t.is_received) MPI_Cancel(&t.request);
      MPI_Request_free(&t.request);
    }
  }

  const std::chrono::milliseconds longest_wait_;
  MPI_Comm all_ = MPI_COMM_NULL;
  uint32_t rank_ = 0;
  uint32_t size_ = 1;
  bool is_own_ = false;  ///< whether MPI was started here
  std::mutex mutex_;     ///< for MPI, which one thread may call at a time, and for the following members
  std::vector<Clock::time_point> heard_;  ///< by rank: when it last said that it waits
  std::optional<std::string> told_;       ///< failure that ends the others; MPI may still be sending it
  std::string failure_;                   ///< why the ranks cannot go on; empty: they can
};

}  // namespace

std::shared_ptr<Communicator> connect_mpi(std::chrono::milliseconds longest_wait, bool divides_cores) {
  auto made = std::make_shared<MpiCommunicator>(longest_wait);
  ranks::divide_cores(*made, divides_cores);
  return made;
}
#else
std::shared_ptr<Communicator> connect_mpi(std::chrono::milliseconds, bool) {
  throw Error("this build of the library has no MPI: install libopenmpi-dev, and build it again");
}
#endif

}  // namespace tessera
