// From a weight matrix to a prepared product that is called repeatedly.
//   example_spmm [FILE]      .smtx, .mtx, .npy or .safetensors; without it, a generated layer
#include <tessera/io.h>
#include <tessera/spmm.h>

#include <cstdint>
#include <cstdio>
#include <vector>

#include "arguments.h"

namespace {

int run(const example::Arguments& arguments) {
  const tessera::SparseMatrix matrix =
      arguments.has("FILE")
          ? tessera::read_matrix(arguments.text("FILE"))
          : tessera::generate({.rows = 1024, .cols = 768, .density = 1.0 / 8, .block_size = 16});

  // Once per matrix: prepack, for every n. The weight does not refer to `matrix`, which may be destroyed.
  const tessera::Weight weight(matrix);

  // Once per number of columns: plan, build, compile. The product shares the weight's storage, so the weight
  // object may be destroyed too.
  const uint32_t n = 64;
  const tessera::Spmm product(weight, n);

  // As often as there are inputs. X (k x n) and Y (m x n) are the caller's arrays, used in place, and may
  // differ in each call. All cores work on each product; any thread may call, and concurrent calls take
  // turns.
  std::vector<float> x(size_t{weight.cols()} * n, 1.0F);
  std::vector<float> y(size_t{weight.rows()} * n);
  for (int batch = 0; batch < 3; ++batch) {
    product(x.data(), y.data());
    for (float& element : x) element /= 2;
  }

  std::printf("%u x %u with %llu non-zeros in %llu bytes; y[0] = %g\n%s\n", weight.rows(), weight.cols(),
              static_cast<unsigned long long>(weight.non_zeros()),
              static_cast<unsigned long long>(weight.bytes()), static_cast<double>(y[0]),
              product.plan().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return example::run({.program = "example_spmm", .takes_file = true}, argc, argv, run);
}
