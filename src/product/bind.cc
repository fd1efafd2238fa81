#include "product/bind.h"

#include <fmt/format.h>
#include <tessera/error.h>

namespace tessera {

MatrixView<float> view_of(const float* data, std::string_view name, uint32_t rows, uint32_t cols,
                          Layout layout, int64_t leading) {
  const int64_t inner = layout == Layout::row_major ? cols : rows;
  if (leading == 0) leading = inner;
  if (leading < inner)
    throw UsageError(fmt::format("the leading dimension of {} is {}; {} × {} needs at least {}", name,
                                 leading, rows, cols, inner));
  if (data == nullptr && rows != 0 && cols != 0)
    throw UsageError(fmt::format("{} is null; it must be an array of {} × {} floats", name, rows, cols));
  float* array = const_cast<float*>(data);
  return layout == Layout::row_major ? MatrixView<float>{array, leading, 1}
                                     : MatrixView<float>{array, 1, leading};
}

}  // namespace tessera
