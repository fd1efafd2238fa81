#include "kernels/tile/bucket/codelet.h"

#include <algorithm>
#include <vector>

#include "kernels/common/element.h"
#include "kernels/tile/bucket/cost.h"
#include "kernels/tile/bucket/metadata.h"
#include "kernels/tile/bucket/multiply.h"
#include "kernels/tile/tile_codelet.h"

namespace tessera::kernels {
namespace {

using program::FieldSpec;
using program::FieldView;
using program::Vertex;

constexpr FieldSpec kProductFields[] = {TESSERA_BUCKET_PRODUCT_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kProductParams[] = {TESSERA_BUCKET_PRODUCT_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kSddmmFields[] = {TESSERA_BUCKET_SDDMM_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kSddmmParams[] = {TESSERA_BUCKET_SDDMM_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kCountFields[] = {TESSERA_COUNT_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kCountParams[] = {TESSERA_COUNT_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kPendingFields[] = {TESSERA_BUCKET_PENDING_FIELDS(TESSERA_FIELD)};
constexpr std::string_view kPendingParams[] = {TESSERA_BUCKET_PENDING_PARAMS(TESSERA_NAME)};
constexpr FieldSpec kAnyFields[] = {TESSERA_ANY_FLAG_FIELDS(TESSERA_FIELD)};

/// y(row, j) += the blocks of one block row, of which `first` is the first in the bucket, times X.
void add_row_reference(const Vertex& v, uint32_t block_row, uint32_t first,
                       std::span<const uint16_t> columns) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  for (uint32_t r = block_row * b; r < std::min((block_row + 1) * b, out.rows); ++r)
    for (uint32_t j = 0; j < out.cols; ++j) {
      auto sum = static_cast<float>(number_at(out, r, j));
      for (size_t i = 0; i < columns.size(); ++i)
        for (uint32_t c = 0; c < b && columns[i] * b + c < in.rows; ++c)
          sum += static_cast<float>(number_at(v.fields[values], first + static_cast<int64_t>(i),
                                              int64_t{r - block_row * b} * b + c)) *
                 static_cast<float>(number_at(in, columns[i] * b + c, j));
      set_number(out, r, j, sum);
    }
}

/// The same blocks as their transposes: each adds to its rows of dX.
void add_row_transposed_reference(const Vertex& v, uint32_t block_row, uint32_t first,
                                  std::span<const uint16_t> columns) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  for (size_t i = 0; i < columns.size(); ++i)
    for (uint32_t c = 0; c < b && columns[i] * b + c < out.rows; ++c)
      for (uint32_t j = 0; j < out.cols; ++j) {
        auto sum = static_cast<float>(number_at(out, columns[i] * b + c, j));
        for (uint32_t r = 0; r < b && block_row * b + r < in.rows; ++r)
          sum += static_cast<float>(
                     number_at(v.fields[values], first + static_cast<int64_t>(i), int64_t{r} * b + c)) *
                 static_cast<float>(number_at(in, block_row * b + r, j));
        set_number(out, columns[i] * b + c, j, sum);
      }
}

void clear(const FieldView& out) {
  for (uint32_t r = 0; r < out.rows; ++r)
    for (uint32_t j = 0; j < out.cols; ++j) set_number(out, r, j, 0);
}

void product_reference(const Vertex& v) {
  using namespace bucket_product_field;
  if (v.params[bucket_product_param::is_first] != 0) clear(v.fields[y]);
  const auto add =
      v.params[bucket_product_param::transposed] != 0 ? add_row_transposed_reference : add_row_reference;
  each_row_of(
      v.fields[metadata], static_cast<uint32_t>(v.params[bucket_product_param::partition]),
      static_cast<uint32_t>(v.params[bucket_product_param::block_size]),
      [&](uint32_t row, uint32_t first, std::span<const uint16_t> columns) { add(v, row, first, columns); });
}

void sddmm_reference(const Vertex& v) {
  using namespace bucket_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_sddmm_param::block_size]);
  if (v.params[bucket_sddmm_param::is_first] != 0) clear(v.fields[dw]);
  each_row_of(v.fields[metadata], static_cast<uint32_t>(v.params[bucket_sddmm_param::partition]),
              static_cast<uint32_t>(v.params[bucket_sddmm_param::block_size]),
              [&](uint32_t row, uint32_t first, std::span<const uint16_t> columns) {
                for (size_t i = 0; i < columns.size() * b * b; ++i) {
                  const auto block = static_cast<uint32_t>(i / (b * b));
                  const auto element = static_cast<uint32_t>(i % (b * b));
                  set_number(v.fields[dw], first + block, element,
                             row_product(v.fields[dy], row * b + element / b, v.fields[x],
                                         columns[block] * b + element % b));
                }
              });
}

void sddmm_simd(const Vertex& v) {
  if (!apply_bucket_sddmm(v)) sddmm_reference(v);
}

void count_up(const Vertex& v) {
  for (uint32_t i = 0; i < v.fields[count_field::counts].rows; ++i) {
    uint32_t& count = v.fields[count_field::counts].matrix<uint32_t>()(i, 0);
    count =
        (v.params[count_param::is_first] != 0 ? 0 : count) + static_cast<uint32_t>(v.params[count_param::by]);
  }
}

void product_simd(const Vertex& v) {
  if (!apply_bucket_product(v)) product_reference(v);
}

void pending(const Vertex& v) {
  const auto partition = static_cast<uint32_t>(v.params[bucket_pending_param::partition]);
  const auto partitions = static_cast<uint32_t>(v.params[bucket_pending_param::partitions]);
  const BucketView bucket(v.fields[bucket_pending_field::metadata].as<const uint16_t>());
  // How far the bucket has moved, and how far it has to.
  const auto steps_to = [&](uint32_t to) { return (bucket.number() + partitions - to) % partitions; };
  bool pending = false;
  bucket.each_subgroup([&](const Subgroup& subgroup, uint32_t) {
    pending |= steps_to(subgroup.partition()) > steps_to(partition);
  });
  v.fields[bucket_pending_field::flag].matrix<uint32_t>()(0, 0) = pending ? 1 : 0;
}

void any_flag(const Vertex& v) {
  bool any = false;
  for (uint32_t i = 0; i < v.fields[any_flag_field::flags].rows; ++i)
    any |= v.fields[any_flag_field::flags].matrix<const uint32_t>()(i, 0) != 0;
  v.fields[any_flag_field::any].matrix<uint32_t>()(0, 0) = any ? 1 : 0;
}

// Defined here, where the list sees its definition.
program::PhaseTimes product_cost(const Vertex& v, const machine::Machine& m) {
  return bucket_product_cost(v, m);
}
program::PhaseTimes sddmm_cost(const Vertex& v, const machine::Machine& m) { return bucket_sddmm_cost(v, m); }
program::PhaseTimes counts_cost(const Vertex& v, const machine::Machine& m) { return count_cost(v, m); }
program::PhaseTimes pending_cost(const Vertex& v, const machine::Machine& m) {
  return bucket_pending_cost(v, m);
}
program::PhaseTimes any_cost(const Vertex& v, const machine::Machine& m) { return any_flag_cost(v, m); }

}  // namespace

constexpr program::Codelet bucket_product_codelet = tile_codelet(
    "bucket_product", kProductFields, kProductParams, {product_reference, product_simd, product_cost}, 900);
constexpr program::Codelet bucket_sddmm_codelet =
    tile_codelet("bucket_sddmm", kSddmmFields, kSddmmParams, {sddmm_reference, sddmm_simd, sddmm_cost}, 900);
constexpr program::Codelet count_codelet =
    integer_codelet("count", kCountFields, kCountParams, {count_up, nullptr, counts_cost}, 32);
constexpr program::Codelet bucket_pending_codelet =
    integer_codelet("bucket_pending", kPendingFields, kPendingParams, {pending, nullptr, pending_cost}, 160);
constexpr program::Codelet any_flag_codelet =
    integer_codelet("any_flag", kAnyFields, {}, {any_flag, nullptr, any_cost}, 64);

std::span<const ListedCodelet> bucket_codelets() {
  static constexpr ListedCodelet kListed[] = {bucket_product_codelet, bucket_sddmm_codelet, count_codelet,
                                              bucket_pending_codelet, any_flag_codelet};
  return kListed;
}

}  // namespace tessera::kernels
