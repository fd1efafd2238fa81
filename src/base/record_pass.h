// Records of passes.
#pragma once

#include <tessera/pass_record.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace tessera::base {

/// Runs a pass, which returns what it did, and records that with its time.
template <class Pass>
void record_pass(std::vector<PassRecord>& records, std::string name, const Pass& pass) {
  const auto start = std::chrono::steady_clock::now();
  std::string did = pass();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  records.push_back({std::move(name), std::move(did), took.count()});
}

}  // namespace tessera::base
