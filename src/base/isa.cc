#include "base/isa.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "base/bf16_units.h"
#include "base/simd.h"
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace tessera {
namespace {

struct Entry {
  Isa isa;
  std::string_view name;
  int64_t target;                            // Highway's
  bool (*has_more)() = [] { return true; };  // whether the processor has the extensions beyond the target
};

constexpr Entry kEntries[] = {
    {Isa::generic, "generic", HWY_EMU128 | HWY_SCALAR},
    {Isa::neon, "neon", HWY_NEON},
    {Isa::avx2, "avx2", HWY_AVX2},
    {Isa::avx512, "avx512", HWY_AVX3},
    {Isa::avx512_bf16, "avx512_bf16", HWY_AVX3, has_bf16_dots},
    {Isa::avx512_bf16_sparse, "avx512_bf16_sparse", HWY_AVX3, has_slow_bf16_dots},
    {Isa::amx, "amx", HWY_AVX3, [] { return has_bf16_dots() && has_bf16_tiles(); }},
};

bool is_available(const Entry& entry, int64_t targets) {
  return entry.isa == Isa::generic || ((entry.target & targets) != 0 && entry.has_more());
}

Isa best_of(int64_t targets) {
  Isa best = Isa::generic;
  for (const Entry& entry : kEntries)
    if (is_available(entry, targets)) best = entry.isa;
  return best;
}

int64_t targets_of_processor() {
  static const int64_t targets = hwy::SupportedTargets();
  return targets;
}

/// The processor's targets for which this build has kernels.
int64_t all_targets() { return targets_of_processor() & HWY_TARGETS; }

/// What restrict_isa permits. Highway is not asked for it, because its SupportedTargets() also resets the
/// dispatch to everything the processor has.
std::atomic<Isa>& allowed_isa() {
  static std::atomic<Isa> isa = best_of(all_targets());
  return isa;
}

void allow_up_to(Isa highest) {
  int64_t allowed = 0, others = 0;
  for (const Entry& entry : kEntries) (entry.isa <= highest ? allowed : others) |= entry.target;
  const int64_t disabled = others & ~allowed;
  allowed_isa() = highest;
  hwy::DisableTargets(disabled);
  hwy::GetChosenTarget().Update(all_targets() & ~disabled);
}

void require_available(Isa isa) {
  const Entry& entry = kEntries[static_cast<int>(isa)];
  if (is_available(entry, all_targets())) return;
  const char* what = is_available(entry, targets_of_processor()) ? "build" : "processor";
  throw UsageError(fmt::format("this {} has no {}: the best here is {}", what, name_of(isa),
                               name_of(best_of(all_targets()))));
}

void apply_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    targets_of_processor();
    const char* name = std::getenv("TESSERA_ISA");
    if (name == nullptr || *name == '\0') return;
    try {
      require_available(isa_of(name));
      allow_up_to(isa_of(name));
    } catch (const UsageError& e) {
      throw UsageError(fmt::format("TESSERA_ISA: {}", e.what()));
    }
  });
}

}  // namespace

std::string_view name_of(Isa isa) { return kEntries[static_cast<int>(isa)].name; }

Isa isa_of(std::string_view name) {
  for (const Entry& entry : kEntries)
    if (entry.name == name) return entry.isa;
  throw UsageError(
      fmt::format("unknown instruction set '{}' (choose from generic, neon, avx2, avx512, avx512_bf16, "
                  "avx512_bf16_sparse, amx)",
                  name));
}

bool has_fast_bf16_products(Isa isa) { return isa >= Isa::avx512_bf16 && isa != Isa::avx512_bf16_sparse; }

std::vector<Isa> available_isas() {
  apply_environment();
  std::vector<Isa> isas;
  for (const Entry& entry : kEntries)
    if (is_available(entry, all_targets())) isas.push_back(entry.isa);
  return isas;
}

std::string_view missing_isa() {
  if (best_of(all_targets()) != Isa::generic) return {};
  const Isa best = best_of(targets_of_processor());
  return best == Isa::generic ? std::string_view() : name_of(best);
}

Isa active_isa() {
  apply_environment();
  return allowed_isa();
}

void restrict_isa(Isa highest) {
  apply_environment();
  require_available(highest);
  allow_up_to(highest);
}

}  // namespace tessera
