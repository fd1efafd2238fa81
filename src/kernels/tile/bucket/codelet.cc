#include "kernels/tile/bucket/codelet.h"

#include <algorithm>

#include "kernels/common/element.h"
#include "kernels/tile/bucket/metadata.h"

namespace tessera::kernels {
namespace {

using program::FieldView;
using program::Vertex;

/// y(row, j) += the blocks of one block row, of which `first` is the first in the bucket, times X.
void add_row_reference(const Vertex& v, uint32_t block_row, uint32_t first,
                       std::span<const uint16_t> columns) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  for (uint32_t r = block_row * b; r < std::min((block_row + 1) * b, out.rows); ++r)
    for (uint32_t j = 0; j < out.cols; ++j) {
      auto sum = f32_at(out, r, j);
      for (size_t i = 0; i < columns.size(); ++i)
        for (uint32_t c = 0; c < b && columns[i] * b + c < in.rows; ++c)
          sum +=
              f32_at(v.fields[values], first + static_cast<int64_t>(i), int64_t{r - block_row * b} * b + c) *
              f32_at(in, columns[i] * b + c, j);
      set_number(out, r, j, sum);
    }
}

/// Multiplies the transposes of a row's blocks: each adds to its rows of dX.
void add_row_transposed_reference(const Vertex& v, uint32_t block_row, uint32_t first,
                                  std::span<const uint16_t> columns) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[bucket_product_param::block_size]);
  const FieldView& in = v.fields[x];
  const FieldView& out = v.fields[y];
  for (size_t i = 0; i < columns.size(); ++i)
    for (uint32_t c = 0; c < b && columns[i] * b + c < out.rows; ++c)
      for (uint32_t j = 0; j < out.cols; ++j) {
        auto sum = f32_at(out, columns[i] * b + c, j);
        for (uint32_t r = 0; r < b && block_row * b + r < in.rows; ++r)
          sum += f32_at(v.fields[values], first + static_cast<int64_t>(i), int64_t{r} * b + c) *
                 f32_at(in, block_row * b + r, j);
        set_number(out, columns[i] * b + c, j, sum);
      }
}

}  // namespace

void bucket_product_reference(const Vertex& v) {
  using namespace bucket_product_field;
  if (v.params[bucket_product_param::is_first] != 0) clear(v.fields[y]);
  const auto add =
      v.params[bucket_product_param::transposed] != 0 ? add_row_transposed_reference : add_row_reference;
  each_row_of(
      v.fields[metadata], static_cast<uint32_t>(v.params[bucket_product_param::partition]),
      static_cast<uint32_t>(v.params[bucket_product_param::block_size]),
      [&](uint32_t row, uint32_t first, std::span<const uint16_t> columns) { add(v, row, first, columns); });
}

void bucket_sddmm_reference(const Vertex& v) {
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

void count_reference(const Vertex& v) {
  for (uint32_t i = 0; i < v.fields[count_field::counts].rows; ++i) {
    uint32_t& count = v.fields[count_field::counts].matrix<uint32_t>()(i, 0);
    count =
        (v.params[count_param::is_first] != 0 ? 0 : count) + static_cast<uint32_t>(v.params[count_param::by]);
  }
}

void bucket_pending_reference(const Vertex& v) {
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

void any_flag_reference(const Vertex& v) {
  bool any = false;
  for (uint32_t i = 0; i < v.fields[any_flag_field::flags].rows; ++i)
    any |= v.fields[any_flag_field::flags].matrix<const uint32_t>()(i, 0) != 0;
  v.fields[any_flag_field::any].matrix<uint32_t>()(0, 0) = any ? 1 : 0;
}

TESSERA_DEFINE_FAMILY(bucket, TESSERA_BUCKET_CODELETS, TESSERA_TILE_CODELET)

}  // namespace tessera::kernels
