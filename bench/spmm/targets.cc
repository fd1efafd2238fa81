#include "spmm/targets.h"

#include <cmath>

namespace tessera::bench {
namespace {

constexpr size_t kDensities = 5;
constexpr double kDensity[kDensities] = {1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 32};

/// Efficiencies at m = k = 4096, FP32, row-major, by density.
struct Efficiency {
  uint32_t n, first_block, last_block;
  double at_least[kDensities];
  double aim[kDensities];
};

constexpr Efficiency kEfficiencies[] = {
    {512, 1, 1, {.65, .58, .50, .42, .32}, {.75, .68, .60, .52, .42}},
    {512, 4, 4, {.88, .88, .82, .75, .62}, {.95, .95, .90, .85, .75}},
    {512, 8, 32, {.95, .95, .90, .82, .70}, {1.0, 1.0, .97, .92, .85}},
    {64, 1, 1, {.70, .65, .58, .50, .38}, {}},
    {64, 4, 4, {.90, .90, .85, .83, .80}, {}},
    {64, 8, 32, {1.0, 1.0, .97, .93, .90}, {}},
};
constexpr double kColumnMajorFraction = 0.9;
constexpr double kOwnDense = 0.97;

/// Maximum time relative to reading W, X and Y, at d = 1/8, in either layout.
struct SmallN {
  uint32_t n, first_block, last_block;
  double at_most;
};

constexpr SmallN kSmallN[] = {{1, 1, 1, 1.1}, {1, 4, 32, 1.1}, {8, 1, 1, 2.0}, {8, 8, 32, 1.2}};

/// Rate of FP16 and BF16 weights ÷ FP32's, if FP32's prepacked form is large.
constexpr double kHalfSpeedup = 1.7;
constexpr uint64_t kHalfBytes = uint64_t{64} << 20;

/// Layers of pruned networks, unstructured, 90 % sparse, n = 256.
constexpr double kLayerOverSparse = 2.5;
constexpr double kLayerOverDense = 3.5;

/// Preparation of W, seconds, at m = k = 4096, d = 1/16.
constexpr double kPrepareBlocks = 50e-3;
constexpr double kPrepareElements = 300e-3;

/// Training, m = k = 4096, FP32, n = 512, relative to Tessera's forward product in the same run: rates of
/// gradients; the three products together at d = 1/16, b = 16 relative to the dense three.
constexpr double kInputGradientRate = 0.85;
constexpr double kSddmmRate = 0.85;
constexpr double kSddmmRateOfElements = 0.6;
constexpr double kTripleOverDense = 11;
constexpr double kTripleOverDenseAim = 13;

/// Dynamic weights at d = 1/16: the rate ÷ the rate of static weights, and a new pattern ÷ one product.
constexpr double kDynamicRate = 0.9;
constexpr double kDynamicRateOfElements = 0.8;
constexpr double kNewPattern = 0.1;
constexpr double kNewPatternOfElements = 1;

bool near(double a, double b) { return std::abs(a - b) < 0.02 * b; }

class Judge {
 public:
  explicit Judge(const Comparison& comparison)
      : comparison_(comparison), work_(comparison.work), tessera_(comparison.tessera()) {}

  std::vector<Verdict> verdicts() {
    if (tessera_ == nullptr) return {};
    if (work_.label.empty() && work_.m == 4096 && work_.k == 4096 && work_.n == 512) training();
    if (work_.task != Task::forward) return std::move(verdicts_);
    if (work_.label.empty() && work_.m == 4096 && work_.k == 4096) {
      efficiency();
      small_n();
      preparation();
    }
    if (work_.type != Type::f32) halves();
    own_dense();
    never_slower();
    if (!work_.label.empty()) layers();
    return std::move(verdicts_);
  }

 private:
  void add(const char* what, double measured, double limit, double aim, bool at_least) {
    if (measured > 0) verdicts_.push_back({what, measured, limit, aim, at_least});
  }

  double dense_speedup() const {
    const Timing* dense = comparison_.best(Kind::dense);
    return dense == nullptr ? 0 : dense->seconds / tessera_->seconds;
  }

  double layout_slice() const { return work_.layout == Layout::column_major ? kColumnMajorFraction : 1; }

  void training() {
    if (work_.type != Type::f32) return;
    const bool elements = work_.block == 1, sparse = near(work_.asked_density, 1. / 16);
    if (const Timing* forward = comparison_.best(Kind::tessera, Task::forward)) {
      const double rate = forward->seconds / tessera_->seconds;
      if (work_.task == Task::input_gradient) add("dx rate", rate, kInputGradientRate, 0, true);
      if (work_.task == Task::sddmm && sparse)
        add("sddmm rate", rate, elements ? kSddmmRateOfElements : kSddmmRate, 0, true);
    }
    if (work_.task == Task::triple && sparse && work_.block == 16)
      add("x dense", dense_speedup(), kTripleOverDense, kTripleOverDenseAim, true);
    const Timing* dynamic = comparison_.best(Kind::tessera_dynamic);
    if (dynamic == nullptr || work_.task != Task::forward || !sparse) return;
    add("dynamic rate", tessera_->seconds / dynamic->seconds,
        elements ? kDynamicRateOfElements : kDynamicRate, 0, true);
    add("new pattern", dynamic->pattern.replaced / dynamic->seconds,
        elements ? kNewPatternOfElements : kNewPattern, 0, false);
  }

  void efficiency() {
    if (work_.type != Type::f32) return;
    for (const Efficiency& row : kEfficiencies) {
      if (row.n != work_.n || work_.block < row.first_block || work_.block > row.last_block) continue;
      for (size_t i = 0; i < kDensities; ++i)
        if (near(work_.asked_density, kDensity[i]))
          add("efficiency", comparison_.efficiency(*tessera_), row.at_least[i] * layout_slice(),
              row.aim[i] * layout_slice(), true);
    }
  }

  void small_n() {
    if (work_.type != Type::f32 || !near(work_.asked_density, 1. / 8)) return;
    for (const SmallN& row : kSmallN)
      if (row.n == work_.n && work_.block >= row.first_block && work_.block <= row.last_block)
        add("time/read", comparison_.against_bandwidth(*tessera_), row.at_most, 0, false);
  }

  void preparation() {
    if (work_.type != Type::f32 || !near(work_.asked_density, 1. / 16)) return;
    if (work_.block == 16) add("prepare s", tessera_->prepare_seconds, kPrepareBlocks, 0, false);
    if (work_.block == 1) add("prepare s", tessera_->prepare_seconds, kPrepareElements, 0, false);
  }

  void halves() {
    if (work_.block < 8 || work_.n > 4) return;
    for (const Timing& timing : comparison_.timings)
      if (timing.kind == Kind::tessera && timing.type == Type::f32 && timing.seconds > 0 &&
          timing.weight_bytes >= kHalfBytes)
        add("f32/half", timing.seconds / tessera_->seconds, kHalfSpeedup, 0, true);
  }

  void own_dense() {
    const Timing* own = comparison_.best(Kind::tessera_dense);
    if (own != nullptr && work_.n == 512 && work_.m == 4096 && work_.k == 4096)
      add("own dense", comparison_.efficiency(*own), kOwnDense * layout_slice(), 0, true);
  }

  /// Sparse beats dense below some density for every n and b, and below higher densities at n = 512.
  void never_slower() {
    double below = 1. / 4;
    if (work_.n == 512 && work_.block == 1) below = 1. / 2;
    if (work_.n == 512 && work_.block >= 8) below = 7. / 8;
    if (work_.density <= below * 1.001 && work_.n <= 4096) add("x dense", dense_speedup(), 1, 0, true);
  }

  void layers() {
    if (work_.n != 256 || work_.block != 1 || !near(1 - work_.density, 0.9)) return;
    const Timing* sparse = comparison_.best(Kind::sparse);
    if (sparse != nullptr) add("x sparse", sparse->seconds / tessera_->seconds, kLayerOverSparse, 0, true);
    add("x dense", dense_speedup(), kLayerOverDense, 0, true);
  }

  const Comparison& comparison_;
  const Case& work_;
  const Timing* tessera_;
  std::vector<Verdict> verdicts_;
};

}  // namespace

std::vector<Verdict> judge(const Comparison& comparison) { return Judge(comparison).verdicts(); }

}  // namespace tessera::bench
