// What ranks decide together.
#pragma once

#include <fmt/format.h>
#include <tessera/communicator.h>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "ranks/gather.h"

namespace tessera::ranks {

/// Does what each rank does for itself; if it fails on one of them, it fails on all, and they can go on.
template <class Work>
void do_on_each(Communicator& communicator, const Work& work) {
  std::exception_ptr own;
  std::string error;  // empty: none
  try {
    work();
  } catch (const std::exception& thrown) {
    own = std::current_exception();
    error = fmt::format("rank {}: {}", communicator.rank(), thrown.what());
  }
  const std::vector<std::string> errors = all_gather(communicator, error);
  if (own) std::rethrow_exception(own);
  for (const std::string& of_other : errors)
    if (!of_other.empty()) throw RankError(of_other);
}

/// Does what the first rank does for all, such as writing a file. Without ranks, one process does it.
template <class Work>
void do_once(Communicator* communicator, const Work& work) {
  if (communicator == nullptr) return work();
  do_on_each(*communicator, [&] {
    if (communicator->rank() == 0) work();
  });
}

/// Whether it holds for any rank.
inline bool is_any(Communicator* communicator, bool own) {
  if (communicator == nullptr) return own;
  for (const std::string& each : all_gather(*communicator, std::string(own ? 1 : 0, 'x')))
    if (!each.empty()) return true;
  return false;
}

/// What ranks have to have in common, by names for messages, and values of one line.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// Throws RankError on all ranks, naming the first fact that differs, unless all have the same.
void require_equal(Communicator& communicator, const Facts& facts);

}  // namespace tessera::ranks
