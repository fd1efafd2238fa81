#include "studies/spmm/case.h"

#include <fmt/format.h>

#include <algorithm>

#include "sparse/blocks/packed_blocks.h"

namespace tessera::studies::spmm {

std::string_view flag_of(ProductKind product) {
  switch (product) {
    case ProductKind::forward: return "forward";
    case ProductKind::input_gradient: return "input_gradient";
    case ProductKind::sddmm: return "sddmm";
  }
  return "";
}

std::vector<SpmmCase> cases_of(const SpmmRequest& r) {
  const auto has = [&](Mode mode) {
    return std::find(r.modes.begin(), r.modes.end(), mode) != r.modes.end();
  };
  std::vector<std::optional<double>> densities(r.densities.begin(), r.densities.end());
  if (!r.weights.empty()) densities = {std::nullopt};
  const std::vector<uint32_t> blocks = r.blocks.empty() ? std::vector<uint32_t>{1} : r.blocks;
  std::vector<SpmmCase> cases;
  for (const std::string& machine : r.machines)
    for (const Settings& settings : machine == "host" ? std::vector<Settings>{{}} : r.settings)
      for (const Precision& precision : r.types)
        for (const ProductKind product : r.products) {
          if (has(Mode::dense))
            for (uint32_t n : r.n)
              cases.push_back({machine, settings, Mode::dense, product, precision, std::nullopt,
                               sparse::kDenseBlockSize, n});
          for (const auto& density : densities)
            for (uint32_t block : blocks)
              for (const Mode mode : {Mode::static_sparse, Mode::dynamic_sparse})
                if (has(mode))
                  for (uint32_t n : r.n)
                    cases.push_back({machine, settings, mode, product, precision, density, block, n});
        }
  return cases;
}

std::string machine_title(const SpmmCase& what) {
  std::string title = what.machine;
  for (const machine::Setting& setting : what.settings)
    title += fmt::format(" {}={}", setting.key, setting.value);
  return title;
}

}  // namespace tessera::studies::spmm
