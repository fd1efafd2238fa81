#include "machine/host/measure.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>

#include "base/clock.h"
#include "machine/host/probes.h"
#include "machine/host/team.h"

namespace tessera::machine {
namespace {

constexpr int kRounds = 10;
/// Duration of a compute round, long enough to make starting and stopping negligible.
constexpr double kRoundSeconds = 4e-3;
/// Duration of a round that reads a small buffer.
constexpr double kReadSeconds = 5e-4;
constexpr uint64_t kGranule = 4096;  ///< buffers are split at multiples of it
constexpr uint64_t kLargest = uint64_t{1} << 29;

/// Keeps the compiler from removing loops.
std::atomic<uint64_t> sink;

/// An aligned buffer whose pages are mapped.
class Buffer {
 public:
  explicit Buffer(uint64_t bytes)
      : bytes_(std::max(bytes / kGranule, uint64_t{1}) * kGranule),
        data_(static_cast<float*>(std::aligned_alloc(kGranule, bytes_))) {
    if (data_ == nullptr) throw std::bad_alloc();
    std::fill_n(data_.get(), bytes_ / sizeof(float), 1.0F);
  }
  uint64_t bytes() const { return bytes_; }
  float* data() const { return data_.get(); }

  struct Part {
    float* data;
    size_t words;
  };
  /// The part of thread `index`, in whole granules.
  Part part(unsigned index, unsigned threads) const {
    const uint64_t granules = bytes_ / kGranule;
    const uint64_t begin = granules * index / threads, end = granules * (index + 1) / threads;
    constexpr uint64_t kWords = kGranule / sizeof(float);
    return {data_.get() + begin * kWords, (end - begin) * kWords};
  }

 private:
  struct Free {
    void operator()(float* data) const { std::free(data); }
  };
  uint64_t bytes_;
  std::unique_ptr<float, Free> data_;
};

/// The clock during the additions that follow a vector load.
double loaded_ghz(unsigned threads) {
  constexpr uint64_t kWarm = 1 << 18, kChain = 1 << 17;
  std::atomic<double> best = 0;
  best_round_seconds(threads, kRounds, [&](unsigned thread) {
    sink += static_cast<uint64_t>(fma_loop(kWarm));
    const double seconds = base::seconds_of([] { sink += cycle_chain(kChain); });
    if (thread == 0) best = std::max(best.load(), static_cast<double>(kChain) / seconds * 1e-9);
  });
  return best;
}

/// Moves a thread's part this many times.
using Passes = std::function<void(unsigned thread, int repeats)>;

/// 10^9 bytes per second of passes that move `bytes` in total.
double gbps(uint64_t bytes, unsigned threads, const Passes& passes) {
  const double once = best_round_seconds(threads, 3, [&](unsigned thread) { passes(thread, 1); });
  const int repeats = std::max(1, static_cast<int>(kReadSeconds / once));
  const double seconds =
      best_round_seconds(threads, kRounds, [&](unsigned thread) { passes(thread, repeats); });
  return static_cast<double>(bytes) * repeats / seconds * 1e-9;
}

double read_gbps(const Buffer& buffer, unsigned threads) {
  return gbps(buffer.bytes(), threads, [&](unsigned thread, int repeats) {
    const Buffer::Part part = buffer.part(thread, threads);
    sink += static_cast<uint64_t>(read_loop(part.data, part.words, repeats));
  });
}

double write_gbps(const Buffer& buffer, unsigned threads) {
  return gbps(buffer.bytes(), threads, [&](unsigned thread, int repeats) {
    const Buffer::Part part = buffer.part(thread, threads);
    for (int i = 0; i < repeats; ++i) write_loop(part.data, part.words);
  });
}

/// Copies the first half of the buffer to the second.
double copy_gbps(const Buffer& buffer, unsigned threads) {
  return gbps(buffer.bytes(), threads, [&](unsigned thread, int repeats) {
    const Buffer::Part from = buffer.part(thread, 2 * threads);
    const Buffer::Part to = buffer.part(thread + threads, 2 * threads);
    const size_t words = std::min(from.words, to.words);
    for (int i = 0; i < repeats; ++i) copy_loop(from.data, to.data, words);
  });
}

Rate one_and_all(unsigned threads, const std::function<double(unsigned threads)>& measure) {
  const double one = measure(1);
  return {one, threads == 1 ? one : measure(threads)};
}

/// A thread's working set in each level: half of the cache, so that it stays there.
std::vector<LevelRate> levels_of(const HostFacts& facts, unsigned threads) {
  const uint64_t l2_total = facts.l2_bytes * threads;
  // Far larger than the last cache, but at most a quarter of memory.
  uint64_t memory = std::clamp(2 * facts.l3_bytes, uint64_t{256} << 20, kLargest);
  if (facts.memory_bytes != 0) memory = std::min(memory, facts.memory_bytes / 4);
  std::vector<LevelRate> levels = {{"L1", facts.l1_bytes / 2, {}}, {"L2", facts.l2_bytes / 2, {}}};
  // A part of L3 that would fit in the L2 caches says nothing about L3.
  if (facts.l3_bytes >= 4 * l2_total)
    levels.push_back({"L3", std::min(facts.l3_bytes / 2 / threads, 4 * facts.l2_bytes), {}});
  levels.push_back({"memory", memory / threads, {}});
  return levels;
}

/// Restores the active instruction set.
class IsaGuard {
 public:
  IsaGuard() : before_(active_isa()) {}
  ~IsaGuard() { restrict_isa(before_); }
  IsaGuard(const IsaGuard&) = delete;
  IsaGuard& operator=(const IsaGuard&) = delete;

 private:
  Isa before_;
};

std::vector<PeakRate> measure_peaks(unsigned threads, const std::function<void(std::string)>& step) {
  const IsaGuard guard;
  std::vector<PeakRate> peaks;
  for (Isa isa : available_isas()) {
    step("peak of " + std::string(name_of(isa)));
    restrict_isa(isa);
    peaks.push_back({isa, one_and_all(threads, measure_peak_gflops), loaded_ghz(threads)});
  }
  return peaks;
}

}  // namespace

double measure_peak_gflops(unsigned threads) {
  uint64_t iterations = 1 << 12;
  while (base::seconds_of([&] { sink += static_cast<uint64_t>(fma_loop(iterations)); }) < kRoundSeconds)
    iterations *= 2;
  const double seconds = best_round_seconds(
      threads, kRounds, [&](unsigned) { sink += static_cast<uint64_t>(fma_loop(iterations)); });
  return static_cast<double>(iterations * fma_loop_flops()) * threads / seconds * 1e-9;
}

double measure_read_gbps(uint64_t bytes, unsigned threads) { return read_gbps(Buffer(bytes), threads); }

HostMeasurement measure_host(const HostFacts& facts, unsigned threads, const Progress& progress) {
  HostMeasurement result;
  result.cpu = facts.cpu;
  result.threads = threads;
  result.levels = levels_of(facts, threads);
  const size_t steps = available_isas().size() + result.levels.size() + 3;
  size_t done = 0;
  const auto step = [&](const std::string& what) {
    if (progress) progress(what, static_cast<double>(done++) / static_cast<double>(steps));
  };
  result.peaks = measure_peaks(threads, step);
  for (LevelRate& level : result.levels) {
    step("reads from " + level.level);
    level.read =
        one_and_all(threads, [&](unsigned t) { return read_gbps(Buffer(level.thread_bytes * t), t); });
  }
  const Buffer buffer(result.levels.back().thread_bytes);
  step("writes to memory");
  result.memory_write = one_and_all(threads, [&](unsigned t) { return write_gbps(buffer, t); });
  step("copies in memory");
  result.memory_copy = one_and_all(threads, [&](unsigned t) { return copy_gbps(buffer, t); });
  step("superstep");
  result.superstep_seconds = superstep_seconds(threads);
  if (progress) progress("done", 1);
  return result;
}

HostFigures measured_figures(const HostMeasurement& measurement, const HostFacts& facts, Isa isa,
                             unsigned threads) {
  HostFigures figures = builtin_figures(facts, isa, threads);
  const double used = std::min(threads, measurement.threads);
  for (const PeakRate& peak : measurement.peaks) {
    if (peak.isa != isa) continue;
    // Rates with all threads active are those of real runs.
    const double gflops = used > 1 ? peak.gflops.all / measurement.threads : peak.gflops.one;
    figures.ghz = gflops / figures.flops_per_cycle;
  }
  for (const LevelRate& level : measurement.levels) {
    const double core = used > 1 ? level.read.all / measurement.threads : level.read.one;
    const double bytes_per_cycle = core / figures.ghz;
    if (level.level == "L2") figures.l2_bytes_per_cycle = bytes_per_cycle;
    if (level.level == "L3") figures.l3_bytes_per_cycle = bytes_per_cycle;
    if (level.level != "memory") continue;
    figures.memory_core_gbps = level.read.one;
    figures.memory_gbps = std::min(level.read.one * threads, level.read.all);
  }
  if (threads > 1) figures.superstep_seconds = measurement.superstep_seconds;
  return figures;
}

}  // namespace tessera::machine
