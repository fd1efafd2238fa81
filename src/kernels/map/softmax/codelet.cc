#include "kernels/map/softmax/codelet.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/cost.h"
#include "kernels/common/element.h"
#include "kernels/map/softmax/softmax.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Phase;
using program::Vertex;

constexpr program::FieldSpec kFields[] = {TESSERA_SOFTMAX_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kParams[] = {TESSERA_SOFTMAX_PARAMS(TESSERA_NAME)};

void reference(const Vertex& v) {
  const FieldView& logits = v.fields[softmax_field::logits];
  for (uint32_t j = 0; j < logits.cols; ++j) {
    const auto logit = [&](uint32_t i) { return static_cast<float>(number_at(logits, i, j)); };
    float most = logit(0);
    for (uint32_t i = 1; i < logits.rows; ++i) most = std::max(most, logit(i));
    float sum = 0;
    for (uint32_t i = 0; i < logits.rows; ++i) sum += std::exp(logit(i) - most);
    const auto label = static_cast<uint32_t>(number_at(v.fields[softmax_field::labels], 0, j));
    const float nan = std::numeric_limits<float>::quiet_NaN();
    set_number(v.fields[softmax_field::loss], 0, j,
               label < logits.rows ? most + std::log(sum) - logit(label) : nan);
    for (uint32_t i = 0; i < logits.rows; ++i) {
      const float p = std::exp(logit(i) - most) / sum;
      set_number(v.fields[softmax_field::gradient], i, j,
                 label < logits.rows
                     ? float_of(v.params[softmax_param::scale]) * (p - (i == label ? 1.0F : 0.0F))
                     : nan);
    }
  }
}

void simd(const Vertex& v) {
  if (v.fields[softmax_field::logits].empty()) return;
  if (!has_contiguous_rows(v.fields[softmax_field::logits]) ||
      !has_contiguous_rows(v.fields[softmax_field::gradient]))
    return reference(v);
  apply_softmax_cross_entropy(v.fields[softmax_field::logits], v.fields[softmax_field::labels],
                              float_of(v.params[softmax_param::scale]), v.fields[softmax_field::loss],
                              v.fields[softmax_field::gradient]);
}

// Vector operations for each element on a host: an exponential, and five of the three passes.
constexpr double kHostOperations = 25;
// Cycles on a tile, derived from the elementwise operations (29 a worker, 3 a vector): an exponential is
// taken for 12 instructions a vector, the three passes for 9, and the logarithm with the label for 40 a
// column.
constexpr double kTileWorkerCycles = 29;
constexpr double kTileVectorCycles = 21;
constexpr double kTileColumnCycles = 40;

program::PhaseTimes cost(const Vertex& v, const machine::Machine& m) {
  const FieldView& logits = v.fields[softmax_field::logits];
  const auto elements = static_cast<double>(logits.elements());
  if (m.kind == machine::Kind::host) {
    const HostWork work{bytes_of(logits) + bytes_of(v.fields[softmax_field::labels]),
                        bytes_of(v.fields[softmax_field::loss]) + bytes_of(v.fields[softmax_field::gradient]),
                        kHostOperations * elements};
    return in_phase(Phase::compute, host_cycles(m, work));
  }
  const double columns = std::ceil(worker_slice(m, logits.cols));
  const double vectors = columns * logits.rows / tile_vector_width(logits.type);
  return in_phase(Phase::compute,
                  m.workers_per_tile * (kTileWorkerCycles + kTileVectorCycles * std::ceil(vectors) +
                                        kTileColumnCycles * columns));
}

}  // namespace

constexpr program::Codelet softmax_cross_entropy_codelet = {
    .name = "softmax_cross_entropy",
    .fields = kFields,
    .params = kParams,
    .reference = reference,
    .simd = simd,
    .cost = cost,
    .code_bytes = 768,
};

std::span<const ListedCodelet> softmax_codelets() {
  static constexpr ListedCodelet kListed[] = {softmax_cross_entropy_codelet};
  return kListed;
}

}  // namespace tessera::kernels
