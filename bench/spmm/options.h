// The command line of bench_spmm.
#pragma once

#include <tessera/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "peers/peer.h"

namespace tessera::bench {

struct Options {
  uint32_t m = 4096;
  uint32_t k = 4096;
  std::vector<uint32_t> n = {512, 64};
  std::vector<double> densities = {1. / 2, 1. / 4, 1. / 8, 1. / 16, 1. / 32};
  std::vector<uint32_t> blocks = {1, 4, 8, 16, 32};
  std::vector<Type> types = {Type::f32};
  std::vector<Layout> layouts = {Layout::row_major};
  std::vector<Task> tasks = {Task::forward};
  std::vector<std::string> smtx;  ///< files, or folders to search for them
  Limits limits;
  std::vector<std::string> peers;  ///< empty: all
  int rounds = 7;
  bool cold = false;
  uint32_t array_offset = 0;  ///< offset of arrays from a cache line, in bytes
  bool plans = false;
  std::string csv;
  std::string json;
};

/// Parses the command line; prints the help and exits if requested. Throws UsageError, naming option and
/// value, if one is out of range.
Options parse_options(int argc, char** argv);

}  // namespace tessera::bench
