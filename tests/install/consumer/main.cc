// A project that uses the installed library: a product with a known result.
#include <tessera/error.h>
#include <tessera/io.h>
#include <tessera/product.h>
#include <tessera/spmm.h>

#include <cstdio>
#include <vector>

namespace {

// Non-zeros of W are 2, and elements of X are 1: each element of Y is twice the number of non-zeros in its
// row.
bool multiplies() {
  tessera::SparseMatrix matrix =
      tessera::generate({.rows = 96, .cols = 64, .density = 0.25, .block_size = 4, .seed = 1});
  matrix.values.assign(matrix.values.size(), 2.0F);
  const uint32_t n = 5;
  const tessera::Weight weight(matrix);
  const tessera::Spmm product(weight, n);

  std::vector<float> x(size_t{64} * n, 1.0F);
  std::vector<float> y(size_t{96} * n, -1.0F);
  product(x.data(), y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t block_row = i / n / 4;
    const uint64_t blocks =
        matrix.pattern.crow_indices[block_row + 1] - matrix.pattern.crow_indices[block_row];
    if (y[i] != 2.0F * 4 * static_cast<float>(blocks)) return false;
  }
  return true;
}

// A product on a modelled machine, estimated.
bool estimates() {
  const tessera::Machine machine = tessera::Machine::find("bow").with("tiles", 64);
  const tessera::Product product(
      tessera::generate({.rows = 96, .cols = 64, .density = 0.25, .block_size = 4, .seed = 1}), 5, machine);
  return product.fits() && product.estimate().seconds > 0 && product.memory(product.fullest_tile()).total > 0;
}

// Exceptions cross the library's boundary with their type.
bool throws() {
  try {
    tessera::read_matrix("weights.unknown");
  } catch (const tessera::UsageError&) {
    return true;
  }
  return false;
}

}  // namespace

int main() {
  if (!multiplies()) {
    std::puts("wrong product");
    return 1;
  }
  if (!estimates()) {
    std::puts("wrong estimate");
    return 1;
  }
  if (!throws()) {
    std::puts("no UsageError");
    return 1;
  }
}
