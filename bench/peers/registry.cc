#include "peers/registry.h"

#include <fmt/format.h>
#include <tessera/error.h>

#include <algorithm>

namespace tessera::bench {
namespace {

struct Entry {
  std::string_view name;
  std::unique_ptr<Peer> (*load)(const Limits& limits);  ///< null if the build lacks it
};

// Linked libraries are listed only if CMake found them.
constexpr Entry kEntries[] = {
    {"tessera", tessera_sparse},
    {"tessera-dynamic", tessera_dynamic},
    {"tessera-dense", tessera_dense},
    {"mkl", mkl},
#ifdef TESSERA_HAS_ONEDNN
    {"onednn", onednn},
#else
    {"onednn", nullptr},
#endif
    {"openblas", openblas},
    {"mkl-csr", mkl_csr},
    {"mkl-bsr", mkl_bsr},
#ifdef TESSERA_HAS_LIBXSMM
    {"libxsmm", libxsmm},
#else
    {"libxsmm", nullptr},
#endif
#ifdef TESSERA_HAS_EIGEN
    {"eigen", eigen},
#else
    {"eigen", nullptr},
#endif
};

void check_names(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool known = std::any_of(std::begin(kEntries), std::end(kEntries),
                                   [&](const Entry& entry) { return entry.name == name; });
    if (known) continue;
    std::string all;
    for (const Entry& entry : kEntries) all += fmt::format("{}{}", all.empty() ? "" : ", ", entry.name);
    throw UsageError(fmt::format("unknown library '{}' (choose from {})", name, all));
  }
}

}  // namespace

Peers load_peers(const Limits& limits, const std::vector<std::string>& names) {
  check_names(names);
  Peers peers;
  for (const Entry& entry : kEntries) {
    if (!names.empty() && std::find(names.begin(), names.end(), entry.name) == names.end()) continue;
    if (entry.load == nullptr) {
      peers.missing.push_back(fmt::format("{}: not found when this was built", entry.name));
      continue;
    }
    try {
      peers.loaded.push_back(entry.load(limits));
    } catch (const Error& error) {
      peers.missing.push_back(fmt::format("{}: {}", entry.name, error.what()));
    }
  }
  return peers;
}

}  // namespace tessera::bench
