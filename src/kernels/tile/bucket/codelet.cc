#include "kernels/tile/bucket/codelet.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kernels/common/element.h"
#include "kernels/tile/bucket/cost.h"
#include "kernels/tile/bucket/metadata.h"
#include "kernels/tile/bucket/multiply.h"

namespace tessera::kernels {
namespace {

using program::Access;
using program::FieldSpec;
using program::FieldView;
using program::Vertex;

// Alignments and over-reads as in sparse_product.
constexpr std::array<FieldSpec, bucket_product_field::count> kProductFields = {{
    {.name = "values", .alignment = 8},
    {.name = "metadata"},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "y", .access = Access::inout, .alignment = 16, .interleaved = true, .over_read = 128},
}};
constexpr std::array<std::string_view, 4> kProductParams = {"block_size", "partition", "is_first",
                                                            "transposed"};

constexpr std::array<FieldSpec, bucket_sddmm_field::count> kSddmmFields = {{
    {.name = "dw", .access = Access::inout, .alignment = 16, .interleaved = true, .over_read = 128},
    {.name = "metadata"},
    {.name = "x", .alignment = 8, .over_read = 16},
    {.name = "dy", .alignment = 8, .over_read = 16},
}};
constexpr std::array<std::string_view, 3> kSddmmParams = {"block_size", "partition", "is_first"};

constexpr FieldSpec kCountFields[] = {{"counts", Access::inout}};
constexpr std::array<std::string_view, 2> kCountParams = {"by", "is_first"};

constexpr FieldSpec kPendingFields[] = {{"metadata"}, {"flag", Access::out}};
constexpr std::array<std::string_view, 2> kPendingParams = {"partition", "partitions"};

constexpr FieldSpec kAnyFields[] = {{"flags"}, {"any", Access::out}};

/// y(row, j) += the blocks of one block row, of which `first` is the first in the bucket, times X.
void add_row_reference(const Vertex& v, uint32_t block_row, uint32_t first,
                       std::span<const uint16_t> columns) {
  using namespace bucket_product_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
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
  const auto b = static_cast<uint32_t>(v.params[0]);
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
  if (v.params[2] != 0) clear(v.fields[y]);
  const auto add = v.params[3] != 0 ? add_row_transposed_reference : add_row_reference;
  each_row_of(
      v.fields[metadata], static_cast<uint32_t>(v.params[1]), static_cast<uint32_t>(v.params[0]),
      [&](uint32_t row, uint32_t first, std::span<const uint16_t> columns) { add(v, row, first, columns); });
}

void sddmm_reference(const Vertex& v) {
  using namespace bucket_sddmm_field;
  const auto b = static_cast<uint32_t>(v.params[0]);
  if (v.params[2] != 0) clear(v.fields[dw]);
  each_row_of(v.fields[metadata], static_cast<uint32_t>(v.params[1]), static_cast<uint32_t>(v.params[0]),
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
  for (uint32_t i = 0; i < v.fields[0].rows; ++i) {
    uint32_t& count = v.fields[0].matrix<uint32_t>()(i, 0);
    count = (v.params[1] != 0 ? 0 : count) + static_cast<uint32_t>(v.params[0]);
  }
}

void product_simd(const Vertex& v) {
  if (!apply_bucket_product(v)) product_reference(v);
}

void pending(const Vertex& v) {
  const auto partition = static_cast<uint32_t>(v.params[0]);
  const auto partitions = static_cast<uint32_t>(v.params[1]);
  const BucketView bucket(v.fields[0].as<const uint16_t>());
  // How far the bucket has moved, and how far it has to.
  const auto steps_to = [&](uint32_t to) { return (bucket.number() + partitions - to) % partitions; };
  bool pending = false;
  bucket.each_subgroup([&](const Subgroup& subgroup, uint32_t) {
    pending |= steps_to(subgroup.partition()) > steps_to(partition);
  });
  v.fields[1].matrix<uint32_t>()(0, 0) = pending ? 1 : 0;
}

void any_flag(const Vertex& v) {
  bool any = false;
  for (uint32_t i = 0; i < v.fields[0].rows; ++i) any |= v.fields[0].matrix<const uint32_t>()(i, 0) != 0;
  v.fields[1].matrix<uint32_t>()(0, 0) = any ? 1 : 0;
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

constexpr uint32_t kSampleWorkers = 6;
constexpr uint32_t kSamplePartition = 3;

/// A bucket with two subgroups of the sample's partition around one of another; each has every third block of
/// a square of blocks.
struct SampleBucket {
  std::vector<uint16_t> words;
  uint32_t side;
  uint32_t blocks = 0;

  SampleBucket(uint32_t scale, uint32_t block_size)
      : words(64 + 200 * (scale + 1) * (scale + 1)), side(2 * scale) {
    BucketWriter writer(words, 5, block_size, kSampleWorkers);
    for (uint32_t partition : {kSamplePartition, kSamplePartition + 1, kSamplePartition}) {
      writer.begin_subgroup(partition);
      for (uint32_t r = partition % 2; r < side; ++r) {
        std::vector<uint32_t> columns;
        for (uint32_t c = r % 3; c < side; c += 3) columns.push_back(c);
        writer.add_row(r, columns);
        blocks += static_cast<uint32_t>(columns.size());
      }
      writer.end_subgroup();
    }
    words.resize(writer.words_written());
  }

  void add_to(Sample& sample) const {
    sample.values(Type::u16, 1, static_cast<uint32_t>(words.size()), [&](uint64_t i) { return words[i]; })
        .packed();
  }
};

/// The last blocks of X and of Y are short by one row where possible.
template <Type in, Type out, uint32_t block_size, bool is_first, bool transposed = false>
Sample product_sample(uint32_t scale, uint64_t seed) {
  constexpr uint32_t kCols = 9;
  const SampleBucket bucket(scale, block_size);
  const uint32_t rows = bucket.side * block_size - (scale > 0 && block_size > 1 ? 1 : 0);
  Sample s(bucket_product_codelet);
  s.random(in, bucket.blocks, block_size * block_size, seed);
  bucket.add_to(s);
  s.random(in, rows, kCols, seed + 1).random(out, rows, kCols, seed + 2);
  return s.param(block_size)
      .param(kSamplePartition)
      .param(is_first)
      .param(transposed)
      .tolerance(product_tolerance(in, out, 2.0 * bucket.side * block_size))
      .flops(4.0 / 3 * bucket.blocks * block_size * block_size * kCols);
}

/// The SIMD form adds in another order than the reference.
template <Type in, Type out, uint32_t block_size, bool is_first>
Sample sddmm_sample(uint32_t scale, uint64_t seed) {
  const uint32_t cols = 11 * scale;
  const SampleBucket bucket(scale, block_size);
  const uint32_t rows = bucket.side * block_size - (scale > 0 && block_size > 1 ? 1 : 0);
  Sample s(bucket_sddmm_codelet);
  s.random(out, bucket.blocks, block_size * block_size, seed);
  bucket.add_to(s);
  s.random(in, rows, cols, seed + 1).random(in, rows, cols, seed + 2);
  return s.param(block_size)
      .param(kSamplePartition)
      .param(is_first)
      .tolerance({epsilon_of(out), cols * epsilon_of(Type::f32)})
      .flops(4.0 / 3 * bucket.blocks * block_size * block_size * cols);
}

template <int64_t by, bool is_first>
Sample count_sample(uint32_t scale, uint64_t seed) {
  Sample s(count_codelet);
  s.values(Type::u32, 2 * scale, 1, [&](uint64_t i) { return static_cast<double>(3 + (i + seed) % 5); });
  return s.param(by).param(is_first);
}

template <uint32_t at>
Sample pending_sample(uint32_t scale, uint64_t) {
  std::vector<uint16_t> words(kBucketHeaderWords + 7 * scale);
  BucketWriter writer(words, 5, 4, kSampleWorkers);
  for (uint32_t s = 0; s < scale; ++s) {
    writer.begin_subgroup(5 - s % 3);
    writer.end_subgroup();
  }
  Sample s(bucket_pending_codelet);
  s.values(Type::u16, 1, static_cast<uint32_t>(words.size()), [&](uint64_t i) { return words[i]; }).packed();
  return s.unset(Type::u32, 1, 1).param(at).param(7);
}

Sample any_sample(uint32_t scale, uint64_t seed) {
  Sample s(any_flag_codelet);
  return s.values(Type::u32, 3 * scale, 1, [&](uint64_t i) { return i == seed % 5 ? 1.0 : 0.0; })
      .unset(Type::u32, 1, 1);
}

constexpr NamedSample kProductSamples[] = {
    {"b1-f32", product_sample<Type::f32, Type::f32, 1, false>},
    {"b1-f16", product_sample<Type::f16, Type::f16, 1, true>},
    {"b4-f16", product_sample<Type::f16, Type::f16, 4, false>},
    {"b8-f16-f32", product_sample<Type::f16, Type::f32, 8, true>},
    {"b16-f16", product_sample<Type::f16, Type::f16, 16, true>},
    {"b16-f32", product_sample<Type::f32, Type::f32, 16, false>},
    {"b1-f16-t", product_sample<Type::f16, Type::f32, 1, true, true>},
    {"b4-f32-t", product_sample<Type::f32, Type::f32, 4, false, true>},
    {"b16-f16-t", product_sample<Type::f16, Type::f16, 16, true, true>},
};
constexpr NamedSample kSddmmSamples[] = {
    {"b1-f16", sddmm_sample<Type::f16, Type::f32, 1, true>},
    {"b4-f16", sddmm_sample<Type::f16, Type::f16, 4, false>},
    {"b8-f32", sddmm_sample<Type::f32, Type::f32, 8, true>},
    {"b16-f16-f32", sddmm_sample<Type::f16, Type::f32, 16, true>},
};
constexpr NamedSample kCountSamples[] = {
    {"first", count_sample<0, true>}, {"up", count_sample<1, false>}, {"down", count_sample<-1, false>}};
constexpr NamedSample kPendingSamples[] = {
    {"at-home", pending_sample<5>}, {"on-its-way", pending_sample<4>}, {"done", pending_sample<3>}};
constexpr NamedSample kAnySamples[] = {{"flags", any_sample}};

}  // namespace

constexpr program::Codelet bucket_product_codelet = {
    .name = "bucket_product",
    .workers = program::Workers::whole_tile,
    .fields = kProductFields,
    .params = kProductParams,
    .reference = product_reference,
    .simd = product_simd,
    .cost = product_cost,
    .code_bytes = 900,
    .runs_on = program::RunsOn::tiles,
};

constexpr program::Codelet bucket_sddmm_codelet = {
    .name = "bucket_sddmm",
    .workers = program::Workers::whole_tile,
    .fields = kSddmmFields,
    .params = kSddmmParams,
    .reference = sddmm_reference,
    .simd = sddmm_simd,
    .cost = sddmm_cost,
    .code_bytes = 900,
    .runs_on = program::RunsOn::tiles,
};

constexpr program::Codelet count_codelet = {
    .name = "count",
    .workers = program::Workers::whole_tile,
    .fields = kCountFields,
    .params = kCountParams,
    .reference = count_up,
    .cost = counts_cost,
    .code_bytes = 32,
    .runs_on = program::RunsOn::tiles,
    .integer_only = true,
};

constexpr program::Codelet bucket_pending_codelet = {
    .name = "bucket_pending",
    .workers = program::Workers::whole_tile,
    .fields = kPendingFields,
    .params = kPendingParams,
    .reference = pending,
    .cost = pending_cost,
    .code_bytes = 160,
    .runs_on = program::RunsOn::tiles,
    .integer_only = true,
};

constexpr program::Codelet any_flag_codelet = {
    .name = "any_flag",
    .workers = program::Workers::whole_tile,
    .fields = kAnyFields,
    .params = {},
    .reference = any_flag,
    .cost = any_cost,
    .code_bytes = 64,
    .runs_on = program::RunsOn::tiles,
    .integer_only = true,
};

std::span<const ListedCodelet> bucket_codelets() {
  static constexpr ListedCodelet kListed[] = {{bucket_product_codelet, kProductSamples},
                                              {bucket_sddmm_codelet, kSddmmSamples},
                                              {count_codelet, kCountSamples},
                                              {bucket_pending_codelet, kPendingSamples},
                                              {any_flag_codelet, kAnySamples}};
  return kListed;
}

}  // namespace tessera::kernels
