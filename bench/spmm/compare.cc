#include "spmm/compare.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <span>
#include <thread>

#include "base/clock.h"
#include "base/median.h"
#include "base/random.h"
#include "machine/host/affinity.h"
#include "machine/host/measure.h"
#include "spmm/reference.h"

namespace tessera::bench {
namespace {

/// Longer than the idle threads of any library spin (GNU OpenMP's: 300,000 pauses of up to 140 cycles), so
/// that no library disturbs the next one.
constexpr auto kPause = std::chrono::milliseconds(15);
/// Calls of one round: at least one, and more until this time has passed.
constexpr double kRoundSeconds = 4e-3;
constexpr int kMaxCalls = 50;
/// Calls that take longer need no untimed call before them to wake up threads.
constexpr double kLongCall = 20e-3;
/// After this many rounds, libraries slower than the best of their kind by this factor skip the rest.
constexpr int kQualifying = 2;
constexpr double kHopeless = 2;
/// More than the caches that a core can fill on its own.
constexpr size_t kFlushBytes = size_t{256} << 20;

double seconds_of(PreparedProduct& product, const Arrays& arrays) {
  return base::seconds_of([&] { product.run(arrays); });
}

/// Reads more than the caches hold.
void empty_caches(const std::vector<float>& flush) {
  float sum = 0;
  for (size_t i = 0; i < flush.size(); i += 16) sum += flush[i];
  volatile float kept = sum;
  (void)kept;
}

struct Contestant {
  Timing timing;
  std::unique_ptr<PreparedProduct> product;
  std::vector<double> rounds;
  double last = INFINITY;  ///< seconds of the last call
};

/// An array of a product, at an offset from a cache line, in ordinary pages like the arrays of callers.
class Array {
 public:
  Array(size_t size, uint32_t offset)
      : storage_(size + kLineFloats + offset / sizeof(float)), size_(size), offset_(offset) {}

  float* data() {
    const auto begin = reinterpret_cast<uintptr_t>(storage_.data());
    const uintptr_t line = (begin + kLine - 1) / kLine * kLine;
    return reinterpret_cast<float*>(line + offset_);
  }
  std::span<float> all() { return {data(), size_}; }

 private:
  static constexpr uintptr_t kLine = 64;
  static constexpr size_t kLineFloats = kLine / sizeof(float);
  std::vector<float> storage_;
  size_t size_;
  uint32_t offset_;
};

class Contest {
 public:
  Contest(const Case& work, const Rules& rules)
      : work_(work),
        rules_(rules),
        x_(size_t{work.k} * work.n, rules.array_offset),
        dy_(size_t{work.m} * work.n, rules.array_offset),
        y_(size_t{work.m} * work.n, rules.array_offset),
        dx_(size_t{work.k} * work.n, rules.array_offset),
        dw_(0, rules.array_offset),
        flush_(rules.cold ? kFlushBytes / sizeof(float) : 0, 1.0F) {
    base::RandomStream(7).fill_symmetric(x_.all());
    base::RandomStream(8).fill_symmetric(dy_.all());
  }

  void add(Peer& peer, const Work& work) {
    Contestant contestant;
    contestant.timing.peer = peer.name();
    contestant.timing.kind = peer.kind();
    contestant.timing.type = work.type;
    contestant.timing.task = work.task;
    contestant.timing.absent = peer.why_not(work);
    if (contestant.timing.absent.empty()) {
      contestant.timing.prepare_seconds = base::seconds_of([&] { contestant.product = prepare(peer, work); });
      contestant.timing.weight_bytes = contestant.product->weight_bytes();
      contestant.timing.predicted_seconds = contestant.product->predicted_seconds();
      contestant.timing.plan = contestant.product->plan();
      if (const size_t size = contestant.product->gradient_size(); size > dw_.all().size())
        dw_ = Array(size, rules_.array_offset);
    }
    contestants_.push_back(std::move(contestant));
  }

  /// Checks the results of a first call of each library, in which it starts its threads.
  void check(const SparseMatrix& weights, Pinning& pinning) {
    const Reference reference(weights, work_, x_.all(), dy_.all());
    std::vector<float> gradient(weights.values.size());
    for (Contestant& contestant : contestants_) {
      if (!contestant.product) continue;
      for (Array* results : {&y_, &dx_, &dw_}) std::ranges::fill(results->all(), NAN);
      contestant.last = seconds_of(*contestant.product, arrays());
      pinning.bind_new_threads();
      if (contestant.product->gradient_size() > 0) contestant.product->get_gradient(dw_.data(), gradient);
      contestant.timing.error =
          reference.largest_error(contestant.timing.task, y_.all(), dx_.all(), gradient);
    }
  }

  void run(int cpu) {
    const machine::BoundHere bound(cpu);
    for (int round = 0; round < rules_.rounds; ++round) {
      if (round == kQualifying) dismiss_hopeless();
      for (Contestant& contestant : contestants_)
        if (contestant.product) one_round(contestant);
    }
    for (Contestant& contestant : contestants_) {
      contestant.timing.rounds = static_cast<int>(contestant.rounds.size());
      if (contestant.rounds.empty()) continue;
      contestant.timing.seconds = base::median(contestant.rounds);
      if (contestant.product) contestant.timing.pattern = contestant.product->change_pattern();
    }
  }

  std::vector<Timing> timings() const {
    std::vector<Timing> timings;
    for (const Contestant& contestant : contestants_) timings.push_back(contestant.timing);
    return timings;
  }

 private:
  Arrays arrays() { return {x_.data(), dy_.data(), y_.data(), dx_.data(), dw_.data()}; }

  void one_round(Contestant& contestant) {
    std::this_thread::sleep_for(kPause);
    if (contestant.last < kLongCall) seconds_of(*contestant.product, arrays());
    std::vector<double> calls;
    double spent = 0;
    while (calls.empty() || (spent < kRoundSeconds && calls.size() < kMaxCalls)) {
      if (rules_.cold) empty_caches(flush_);
      calls.push_back(seconds_of(*contestant.product, arrays()));
      spent += calls.back();
    }
    contestant.last = calls.back();
    const double fastest = *std::min_element(calls.begin(), calls.end());
    double& best = contestant.timing.fastest;
    best = best == 0 ? fastest : std::min(best, fastest);
    contestant.rounds.push_back(base::median(calls));
  }

  void dismiss_hopeless() {
    for (Kind kind : {Kind::dense, Kind::sparse}) {
      double best = INFINITY;
      for (const Contestant& contestant : contestants_)
        if (contestant.product && contestant.timing.kind == kind)
          best = std::min(best, contestant.timing.fastest);
      for (Contestant& contestant : contestants_)
        if (contestant.product && contestant.timing.kind == kind &&
            contestant.timing.fastest > kHopeless * best)
          contestant.product.reset();
    }
  }

  const Case& work_;
  const Rules& rules_;
  Array x_, dy_, y_, dx_, dw_;
  std::vector<float> flush_;
  std::vector<Contestant> contestants_;
};

/// The bytes that a product must read or write at least once.
double bytes_moved(const Case& work, const Timing& tessera) {
  return static_cast<double>(tessera.weight_bytes) +
         sizeof(float) * (static_cast<double>(work.m) + work.k) * work.n;
}

}  // namespace

const Timing* Comparison::best(Kind kind, Task task) const {
  const Timing* best = nullptr;
  for (const Timing& timing : timings) {
    // Beside 16-bit weights, Tessera's FP32 product runs only for the ratio.
    if (timing.kind != kind || timing.task != task || timing.seconds == 0) continue;
    if (kind == Kind::tessera && timing.type != work.type) continue;
    if (best == nullptr || timing.seconds < best->seconds) best = &timing;
  }
  return best;
}

double Comparison::gflops(const Timing& timing) const {
  const bool dense = timing.kind == Kind::dense || timing.kind == Kind::tessera_dense;
  const double multiplied = dense ? static_cast<double>(work.m) * work.k : static_cast<double>(work.nonzeros);
  const double products = timing.task == Task::triple ? 3 : 1;
  return 2 * products * multiplied * work.n / timing.seconds * 1e-9;
}

double Comparison::efficiency(const Timing& timing) const {
  const Timing* dense = best(Kind::dense);
  return dense == nullptr ? 0 : gflops(timing) / gflops(*dense);
}

double Comparison::against_bandwidth(const Timing& timing) const {
  return read_gbps == 0 ? 0 : timing.seconds / (bytes / (read_gbps * 1e9));
}

Comparison compare(const Case& work, const SparseMatrix& weights, const std::vector<float>& dense,
                   const std::vector<std::unique_ptr<Peer>>& peers, const Rules& rules, Pinning& pinning,
                   double peak_gflops) {
  Comparison result;
  result.work = work;
  result.peak_gflops = peak_gflops;
  Contest contest(work, rules);
  for (const auto& peer : peers) {
    // Dense and sparse libraries compute in FP32 whatever Tessera's weights are.
    const bool own = peer->kind() == Kind::tessera;
    Work asked{weights, dense, work.n, work.layout, own ? work.type : Type::f32, work.task};
    contest.add(*peer, asked);
    if (asked.type != Type::f32) {
      asked.type = Type::f32;
      contest.add(*peer, asked);
    }
    // Gradients are compared with the forward product.
    if (own && (work.task == Task::input_gradient || work.task == Task::sddmm)) {
      asked.task = Task::forward;
      contest.add(*peer, asked);
    }
  }
  contest.check(weights, pinning);
  contest.run(pinning.first_cpu());
  result.timings = contest.timings();
  if (const Timing* tessera = result.tessera()) {
    result.bytes = bytes_moved(work, *tessera);
    result.read_gbps = machine::measure_read_gbps(static_cast<uint64_t>(result.bytes), rules.threads);
  }
  return result;
}

}  // namespace tessera::bench
