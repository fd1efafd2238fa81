// Work sharing between the threads of a superstep: those that have finished their own vertices help the
// others.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/thread_clock.h"
#include "program/program.h"

namespace tessera::engine {

/// One thread: offers the parts of its running vertex, and takes parts that others offer. Which thread
/// computes a part does not affect its bits.
class SharingThread final : public program::Helpers {
 public:
  ThreadClock clock;  ///< stopped in runs without timing

  /// Sets the vertex about to run: its codelet and its scratch, if any, which is free again afterwards. A
  /// thread helps vertices of the codelet that it ran last, or ran last with scratch, if its scratch is large
  /// enough for theirs.
  void set_vertex(const program::Codelet& codelet, std::span<std::byte> scratch) {
    codelet_ = &codelet;
    needs_ = scratch.size();
    if (scratch.empty() && !scratch_.empty()) return;
    scratch_ = scratch;
    scratch_codelet_ = &codelet;
  }

  /// Prepares for the thread's part of a superstep.
  void reset(bool is_timed) {
    codelet_ = scratch_codelet_ = nullptr;
    scratch_ = {};
    is_timed_ = is_timed;
  }

  void share(uint32_t count, Job job, const void* context) override;

  /// Takes parts that `owner` offers until none are left; returns whether there were any.
  bool help(SharingThread& owner);

  void enter(program::Phase phase) {
    if (is_timed_) clock.enter(phase);
  }

 private:
  void work_on(SharingThread& owner);
  bool can_help(const SharingThread& owner) const {
    return codelet_ != nullptr && (owner.codelet_ == codelet_ || owner.codelet_ == scratch_codelet_) &&
           owner.needs_ <= scratch_.size();
  }

  const program::Codelet* codelet_ = nullptr;  ///< codelet of the running vertex
  size_t needs_ = 0;                           ///< bytes of its scratch
  const program::Codelet* scratch_codelet_ = nullptr;
  std::span<std::byte> scratch_;  ///< scratch of the last vertex that had any
  bool is_timed_ = true;
  // The offered work: constant while it is open or a thread helps.
  Job job_ = nullptr;
  const void* context_ = nullptr;
  uint32_t count_ = 0;
  program::Phase phase_ = program::Phase::compute;
  alignas(64) std::atomic<bool> open_{false};  // polled by idle threads
  alignas(64) std::atomic<uint32_t> next_{0};
  std::atomic<uint32_t> helpers_{0};
};

/// The threads of one run, superstep by superstep.
class WorkSharing {
 public:
  /// Reserves data for `threads` threads; only between supersteps.
  void reserve(uint32_t threads);

  SharingThread& operator[](uint32_t thread) { return members_[thread]; }

  /// Prepares a superstep of `threads` threads, whose clocks run if it is timed.
  void start(uint32_t threads, bool is_timed = true);

  /// One thread's work in a superstep: its own vertices, then parts of others' vertices until all are done.
  /// If `helps` is false, it returns after its own.
  template <class Vertices>
  void run(uint32_t thread, bool helps, const Vertices& vertices) {
    members_[thread].reset(is_timed_);
    {
      const Working working{working_};
      vertices(members_[thread]);
    }
    if (helps) help_others(thread);
  }

 private:
  /// Marks a thread as finished when its own vertices are done, or a vertex threw.
  struct Working {
    std::atomic<uint32_t>& count;
    ~Working() { count.fetch_sub(1, std::memory_order_release); }
  };

  void help_others(uint32_t thread);

  std::unique_ptr<SharingThread[]> members_;
  uint32_t room_ = 0;
  uint32_t threads_ = 0;
  bool is_timed_ = true;
  alignas(64) std::atomic<uint32_t> working_{0};
};

}  // namespace tessera::engine
