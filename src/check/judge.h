// Compares one element of a result with its reference.
#pragma once

#include "check/verification.h"

namespace tessera::check {

/// Larger products are checked in samples, unless a full check is requested.
inline constexpr double kFullUpToFlops = 2e9;

/// Adds an element to a verdict. If the reference is infinite or NaN, the element must be equal; otherwise
/// its error, minus underflow, must be within the verdict's tolerance of `magnitude`, the sum of absolute
/// terms.
void judge(double element, double reference, double magnitude, Verification& verdict);

/// The error of a sum of `length` products due to values below the normal range of their types: half the
/// spacing of numbers there, per rounding.
double underflow_of(uint64_t length, Type partials, Type result);

/// Merges the verdict of another thread.
void merge(const Verification& own, Verification& verdict);

}  // namespace tessera::check
