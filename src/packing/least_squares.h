// Non-negative least squares.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "packing/basis.h"

namespace tessera::pack {

/// min ‖A·x − b‖ over x ≥ 0, for sparse columns of A, by the active-set method of Lawson and Hanson (1974,
/// chapter 23). If `stop` ends it, x so far, which is also non-negative.
std::vector<double> non_negative_least_squares(std::span<const Column> columns, const std::vector<double>& b,
                                               const std::function<bool()>& stop);

}  // namespace tessera::pack
