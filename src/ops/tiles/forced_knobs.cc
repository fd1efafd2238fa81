#include "ops/tiles/forced_knobs.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera::ops {
namespace {

using machine::Machine;

struct Knob {
  std::string_view name;
  uint32_t* value;
};

/// Sets forced knobs; the others become 0.
template <size_t count>
void enter(const ForcedKnobs& force, const std::array<Knob, count>& knobs, uint64_t tiles) {
  for (const Knob& knob : knobs) *knob.value = 0;
  for (const auto& [name, value] : force) {
    const auto knob = std::find_if(knobs.begin(), knobs.end(),
                                   [&, n = std::string_view(name)](const Knob& k) { return k.name == n; });
    if (knob == knobs.end()) {
      std::string names;
      for (const Knob& k : knobs) names += fmt::format("{}{}", names.empty() ? "" : ", ", k.name);
      throw UsageError(fmt::format("unknown knob '{}' (choose from {})", name, names));
    }
    const bool slices = name.ends_with("slices");
    const int64_t most = slices ? 1 << 16 : static_cast<int64_t>(tiles);
    if (value < 1 || value > most)
      throw UsageError(
          slices ? fmt::format("{}={}: this knob takes 1 to {}", name, value, most)
                 : fmt::format("{}={}: a machine of {} tiles takes 1 to {}", name, value, tiles, tiles));
    *knob->value = static_cast<uint32_t>(value);
  }
}

void check_product(std::initializer_list<uint32_t> parts, std::string_view names, uint32_t tiles) {
  uint64_t product = 1;
  for (uint32_t p : parts) product *= std::max(1U, p);
  if (product > tiles)
    throw UsageError(fmt::format("{} is {}, more than the machine's {} tiles", names, product, tiles));
}

/// The vendor's planner leaves the tiles of a band to its blocks, and dW to the forward product.
void check_vendors(const ProductProblem& problem, const ForcedKnobs& force) {
  if (problem.planner != Planner::vendor) return;
  if (problem.product == ProductKind::sddmm && !force.empty())
    throw UsageError(
        fmt::format("{}={}: the vendor's planner computes an SDDMM in the forward product's partition; force "
                    "no knobs, or plan freely",
                    force.begin()->first, force.begin()->second));
  if (const auto tiles = force.find("band_tiles"); tiles != force.end())
    throw UsageError(fmt::format(
        "band_tiles={}: the vendor's planner gives each band tiles by its blocks; force col_parts "
        "and bands alone, or plan freely",
        tiles->second));
}

}  // namespace

StaticPartition forced_static(const ForcedKnobs& force, const Machine& m) {
  StaticPartition partition;
  enter<3>(force,
           {{{"col_parts", &partition.col_parts},
             {"bands", &partition.bands},
             {"band_tiles", &partition.band_tiles}}},
           m.tiles);
  check_product({partition.col_parts, partition.bands, partition.band_tiles},
                "col_parts × bands × band_tiles", m.tiles);
  return partition;
}

DensePartition forced_dense(const ForcedKnobs& force, const Machine& m) {
  DensePartition partition;
  enter<5>(force,
           {{{"m_parts", &partition.m_parts},
             {"k_parts", &partition.k_parts},
             {"n_parts", &partition.n_parts},
             {"m_slices", &partition.m_slices},
             {"n_slices", &partition.n_slices}}},
           m.tiles);
  check_product({partition.m_parts, partition.k_parts, partition.n_parts}, "m_parts × k_parts × n_parts",
                m.tiles);
  if (partition.m_slices > 1 && partition.n_slices > 1)
    throw UsageError("m_slices and n_slices: only one of m and n is split serially");
  return partition;
}

DynamicTiling forced_dynamic(const ForcedKnobs& force, const Machine& m) {
  DynamicTiling partition;
  enter<3>(
      force,
      {{{"m_parts", &partition.m_parts}, {"k_parts", &partition.k_parts}, {"n_parts", &partition.n_parts}}},
      m.tiles);
  check_product({partition.m_parts, partition.k_parts, partition.n_parts}, "m_parts × k_parts × n_parts",
                m.tiles);
  return partition;
}

void check_tile_product(const ProductProblem& problem, const Machine& machine, const ForcedKnobs& force) {
  check_kind(problem.product);
  if (problem.type != Type::f32 && problem.type != Type::f16)
    throw UsageError(fmt::format("a tiled machine computes in f32 or f16, not in {}", name_of(problem.type)));
  if (problem.partials != problem.type && problem.partials != Type::f32)
    throw UsageError(fmt::format("partial sums of {0} are {1}, not {2}; use f32", name_of(problem.type),
                                 problem.type == Type::f32 ? "f32" : "f16 or f32",
                                 name_of(problem.partials)));
  check_epilogue(problem);
  if (problem.dense) {
    (void)forced_dense(force, machine);
  } else if (problem.capacity) {
    (void)forced_dynamic(force, machine);
  } else {
    (void)forced_static(force, machine);
    check_vendors(problem, force);
  }
}

}  // namespace tessera::ops
