// OpenBLAS: dense, its own pool of POSIX threads.
#include <fmt/format.h>

#include "peers/blas.h"
#include "peers/library.h"
#include "peers/registry.h"

namespace tessera::bench {
namespace {

/// The kernels of the oldest core with the instruction set; OpenBLAS picks AVX-512 ones itself.
const char* core_type(Isa isa) {
  switch (isa) {
    case Isa::generic: return "Nehalem";
    case Isa::avx2: return "Haswell";
    default: return nullptr;
  }
}

Library open_library(const Limits& limits) {
  if (const char* core = core_type(limits.isa)) setenv("OPENBLAS_CORETYPE", core, 1);
  setenv("OPENBLAS_NUM_THREADS", std::to_string(limits.threads).c_str(), 1);
  // Idle workers spin 2^n cycles; the default of 2^26 would occupy the cores of the library measured next.
  default_environment("OPENBLAS_THREAD_TIMEOUT", "20");
  return Library({"libopenblas.so.0", "libopenblas.so"});
}

class OpenBlas : public Peer {
 public:
  explicit OpenBlas(const Limits& limits) : library_(open_library(limits)) {
    library_.function<void(int)>("openblas_set_num_threads")(static_cast<int>(limits.threads));
  }

  std::string_view name() const override { return "openblas"; }
  Kind kind() const override { return Kind::dense; }

  std::string version() const override {
    return fmt::format("{}, core {}", library_.function<char*()>("openblas_get_config")(),
                       library_.function<char*()>("openblas_get_corename")());
  }

  std::string why_not(const Work&) const override { return {}; }

  std::unique_ptr<PreparedProduct> prepare(const Work& work) override {
    return blas_product(library_.function<Sgemm>("cblas_sgemm"), library_.function<Sgemv>("cblas_sgemv"),
                        work);
  }

 private:
  Library library_;
};

}  // namespace

std::unique_ptr<Peer> openblas(const Limits& limits) { return std::make_unique<OpenBlas>(limits); }

}  // namespace tessera::bench
