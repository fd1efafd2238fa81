#include "kernels/host/circulant/roots.h"

#include <array>
#include <bit>
#include <cmath>
#include <mutex>
#include <numbers>
#include <vector>

namespace tessera::kernels {
namespace {

std::vector<FourierRoots> roots_of(uint32_t blocks) {
  std::vector<double> turns(blocks);
  std::vector<FourierRoots> roots(blocks);
  for (uint32_t b = 1; b < blocks; ++b) {
    turns[b] = b == 1 ? 0.25 : (turns[b / 2] + b % 2) / 2;
    for (int power = 1; power <= 3; ++power) {
      const double angle = 2 * std::numbers::pi * turns[b] * power / 4;
      roots[b].real[power - 1] = static_cast<float>(std::cos(angle));
      roots[b].imaginary[power - 1] = static_cast<float>(std::sin(angle));
    }
  }
  return roots;
}

}  // namespace

const FourierRoots* fourier_roots(uint32_t blocks) {
  struct Table {
    std::once_flag made;
    std::vector<FourierRoots> roots;
  };
  static std::array<Table, 32> tables;
  Table& table = tables[static_cast<size_t>(std::countr_zero(blocks))];
  std::call_once(table.made, [&] { table.roots = roots_of(blocks); });
  return table.roots.data();
}

}  // namespace tessera::kernels
