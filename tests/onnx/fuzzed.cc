#include "fuzz/formats.h"

std::span<const tessera::fuzz::Format> tessera::fuzz::fuzzed_here() { return graph_formats(); }
