// All resets of spiking neurons, with names for tests.
#pragma once

#include <tessera/spiking.h>

#include <utility>

namespace tessera::test {

inline constexpr std::pair<const char*, Reset> kResets[] = {{"none", Reset::none},
                                                            {"zero", Reset::zero},
                                                            {"subtract", Reset::subtract},
                                                            {"late_zero", Reset::late_zero},
                                                            {"late_subtract", Reset::late_subtract}};
inline constexpr std::pair<const char*, ResetGradient> kResetGradients[] = {
    {"detached", ResetGradient::detached},
    {"gated", ResetGradient::gated},
    {"attached", ResetGradient::attached}};

}  // namespace tessera::test
