// The cost of a call of a small product.
#pragma once

/// Prints the time of calls through the public API, on one thread and on two.
void measure_calls();
