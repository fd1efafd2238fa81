// The available peers: one factory each, in its own file. A factory throws Error if the library is not
// installed.
#pragma once

#include <memory>

#include "peers/peer.h"

namespace tessera::bench {

std::unique_ptr<Peer> tessera_sparse(const Limits& limits);
std::unique_ptr<Peer> tessera_dynamic(const Limits& limits);
std::unique_ptr<Peer> tessera_dense(const Limits& limits);
std::unique_ptr<Peer> mkl(const Limits& limits);
std::unique_ptr<Peer> onednn(const Limits& limits);
std::unique_ptr<Peer> openblas(const Limits& limits);
std::unique_ptr<Peer> mkl_csr(const Limits& limits);
std::unique_ptr<Peer> mkl_bsr(const Limits& limits);
std::unique_ptr<Peer> libxsmm(const Limits& limits);
std::unique_ptr<Peer> eigen(const Limits& limits);

}  // namespace tessera::bench
