// Records of passes.
#pragma once

#include <tessera/pass_record.h>

#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"

namespace tessera::base {

/// Runs a pass, which returns what it did, and records that with its time.
template <class Pass>
void record_pass(std::vector<PassRecord>& records, std::string name, const Pass& pass) {
  std::string did;
  const double seconds = seconds_of([&] { did = pass(); });
  records.push_back({std::move(name), std::move(did), seconds});
}

}  // namespace tessera::base
