#include <vector>

#include "kernels/samples/list.h"
#include "kernels/tile/bucket/codelet.h"
#include "kernels/tile/bucket/metadata.h"

namespace tessera::kernels {
namespace {

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

constexpr NamedSample bucket_product_uses[] = {
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
constexpr NamedSample bucket_sddmm_uses[] = {
    {"b1-f16", sddmm_sample<Type::f16, Type::f32, 1, true>},
    {"b4-f16", sddmm_sample<Type::f16, Type::f16, 4, false>},
    {"b8-f32", sddmm_sample<Type::f32, Type::f32, 8, true>},
    {"b16-f16-f32", sddmm_sample<Type::f16, Type::f32, 16, true>},
};
constexpr NamedSample count_uses[] = {
    {"first", count_sample<0, true>}, {"up", count_sample<1, false>}, {"down", count_sample<-1, false>}};
constexpr NamedSample bucket_pending_uses[] = {
    {"at-home", pending_sample<5>}, {"on-its-way", pending_sample<4>}, {"done", pending_sample<3>}};
constexpr NamedSample any_flag_uses[] = {{"flags", any_sample}};

}  // namespace

TESSERA_DEFINE_SAMPLES(bucket, TESSERA_BUCKET_CODELETS)

}  // namespace tessera::kernels
