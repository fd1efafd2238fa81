// One element of a result beside its reference.
#pragma once

#include "check/verification.h"

namespace tessera::check {

/// Takes an element into a verdict. Where the reference is infinite or NaN, so must it be; else its
/// error, its underflow aside, must be within the verdict's tolerance of `magnitude`, that of what was
/// added up.
void judge(double element, double reference, double magnitude, Verification& verdict);

/// The error of a sum of `length` products where it and its parts fall below the normal range of
/// their types: half the distance between numbers there, for each rounding.
double underflow_of(uint64_t length, Type partials, Type result);

/// Takes in what another thread found.
void merge(const Verification& own, Verification& verdict);

}  // namespace tessera::check
