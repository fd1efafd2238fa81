#include "kernels/common/bf16_product.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <utility>

#include "base/isa.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace tessera::kernels {

bool has_bf16_products() { return active_isa() >= Isa::avx512_bf16; }

#ifdef __x86_64__
namespace {

using base::Bfloat16;

#define TESSERA_TILE_CODE \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq"), noinline))
#define TESSERA_PAIR_CODE __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))

// The compilers' own intrinsics do not say which memory they read.
#define TESSERA_TILE_LOAD(tile, from, step) \
  __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #tile ::"r"(from), "r"(step) : "memory")
#define TESSERA_TILE_STORE(tile, to, step) \
  __asm__ volatile("tilestored %%tmm" #tile ", (%0,%1,1)" ::"r"(to), "r"(step) : "memory")
#define TESSERA_TILE_ZERO(tile) __asm__ volatile("tilezero %%tmm" #tile ::)
#define TESSERA_TILE_MULTIPLY(sums, a, b) \
  __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #sums ::)

constexpr uint32_t kTileRows = 16, kRowBytes = 64;

/// The operand of ldtilecfg: tiles 0 to 3 are sums, [half of the rows][panel], 4 and 5 halves of A, 6 and 7
/// panels of B.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};
};

TESSERA_TILE_CODE void configure_tiles(uint32_t rows) {
  const auto upper = static_cast<uint8_t>(std::min(rows, kTileRows));
  const auto lower = static_cast<uint8_t>(std::max(rows, kTileRows + 1) - kTileRows);
  TileConfiguration configuration;
  for (size_t tile = 0; tile < 8; ++tile) configuration.row_bytes[tile] = kRowBytes;
  const uint8_t heights[8] = {upper, upper, lower, lower, upper, lower, kTileRows, kTileRows};
  std::copy(std::begin(heights), std::end(heights), configuration.rows);
  __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
}

TESSERA_TILE_CODE void release_tiles() { __asm__ volatile("tilerelease" ::); }

// clang 16 fails to compile the intrinsic.
TESSERA_PAIR_CODE inline __m512 add_pairs(__m512 sums, __m512i a, __m512i b) {
  __asm__("vdpbf16ps %2, %1, %0" : "+v"(sums) : "v"(a), "v"(b));
  return sums;
}

// Rows of 16 columns, one term after the other, as pairs of terms.
#define TESSERA_PAIR_ORDER                                                                             \
  _mm512_set_epi32(0x001F000F, 0x001E000E, 0x001D000D, 0x001C000C, 0x001B000B, 0x001A000A, 0x00190009, \
                   0x00180008, 0x00170007, 0x00160006, 0x00150005, 0x00140004, 0x00130003, 0x00120002, \
                   0x00110001, 0x00100000)

template <bool kLower, bool kSecond, bool kPacks>
TESSERA_TILE_CODE void multiply_tiles(const Bf16Tile& tile, const Bf16Packing* packing) {
  constexpr size_t kPanels = kSecond ? 2 : 1;
  const size_t sums_bytes = tile.sums_step * sizeof(float), a_bytes = tile.a_step * sizeof(Bfloat16);
  float* const sums = tile.sums;
  float* const lower_sums = sums + kTileRows * tile.sums_step;
  if (tile.adds) {
    TESSERA_TILE_LOAD(0, sums, sums_bytes);
    if constexpr (kSecond) TESSERA_TILE_LOAD(1, sums + tile.sums_panel, sums_bytes);
    if constexpr (kLower) TESSERA_TILE_LOAD(2, lower_sums, sums_bytes);
    if constexpr (kLower && kSecond) TESSERA_TILE_LOAD(3, lower_sums + tile.sums_panel, sums_bytes);
  } else {
    TESSERA_TILE_ZERO(0);
    if constexpr (kSecond) TESSERA_TILE_ZERO(1);
    if constexpr (kLower) TESSERA_TILE_ZERO(2);
    if constexpr (kLower && kSecond) TESSERA_TILE_ZERO(3);
  }
  const Bfloat16* a = tile.a;
  const Bfloat16* lower = a + kTileRows * tile.a_step;
  const Bfloat16* b = tile.b;
  const Bfloat16* from[2] = {};
  Bfloat16* packed = nullptr;
  const __m512i pairs = TESSERA_PAIR_ORDER;
  if constexpr (kPacks) {
    from[0] = packing->from[0];
    from[1] = packing->from[1];
    packed = packing->to;
  }
  for (uint32_t step = tile.steps; step > 0; --step) {
    TESSERA_TILE_LOAD(6, b, size_t{kRowBytes});
    TESSERA_TILE_LOAD(4, a, a_bytes);
    TESSERA_TILE_MULTIPLY(0, 4, 6);
    if constexpr (kSecond) {
      TESSERA_TILE_LOAD(7, b + kBf16StepValues, size_t{kRowBytes});
      TESSERA_TILE_MULTIPLY(1, 4, 7);
    }
    if constexpr (kLower) {
      TESSERA_TILE_LOAD(5, lower, a_bytes);
      TESSERA_TILE_MULTIPLY(2, 5, 6);
      if constexpr (kSecond) TESSERA_TILE_MULTIPLY(3, 5, 7);
    }
    a += kBf16Step;
    lower += kBf16Step;
    b += kPanels * kBf16StepValues;
    if constexpr (kPacks) {
#pragma GCC unroll 2
      for (size_t p = 0; p < kPanels; ++p) {
#pragma GCC unroll 16
        for (size_t i = 0; i < kBf16StepValues; i += kBf16Step)
          _mm512_storeu_si512(packed + i, _mm512_permutexvar_epi16(pairs, _mm512_loadu_si512(from[p] + i)));
        from[p] += kBf16StepValues;
        packed += kBf16StepValues;
      }
    }
  }
  TESSERA_TILE_STORE(0, sums, sums_bytes);
  if constexpr (kSecond) TESSERA_TILE_STORE(1, sums + tile.sums_panel, sums_bytes);
  if constexpr (kLower) TESSERA_TILE_STORE(2, lower_sums, sums_bytes);
  if constexpr (kLower && kSecond) TESSERA_TILE_STORE(3, lower_sums + tile.sums_panel, sums_bytes);
}

// Tiles 0 to 3 are sums, 4 is of W, 5 to 7 of X.
TESSERA_TILE_CODE void configure_block_tiles(uint32_t block_size) {
  TileConfiguration configuration;
  for (size_t tile = 0; tile < 8; ++tile) {
    configuration.row_bytes[tile] = kRowBytes;
    configuration.rows[tile] = kTileRows;
  }
  configuration.row_bytes[4] = static_cast<uint16_t>(block_size * sizeof(Bfloat16));
  for (size_t tile = 5; tile < 8; ++tile) configuration.rows[tile] = static_cast<uint8_t>(block_size / 2);
  __asm__ volatile("ldtilecfg %0" ::"m"(configuration));
}

template <uint32_t kTiles>
TESSERA_TILE_CODE void multiply_block_tiles(const Bf16Blocks& of) {
  constexpr size_t kSumsBytes = kBf16BlockTiles * kBf16Columns * sizeof(float);
  TESSERA_TILE_ZERO(0);
  if constexpr (kTiles > 1) TESSERA_TILE_ZERO(1);
  if constexpr (kTiles > 2) TESSERA_TILE_ZERO(2);
  if constexpr (kTiles > 3) TESSERA_TILE_ZERO(3);
  const uint32_t of_step = kBf16Step / of.block_size;
  const size_t x_block = size_t{of.block_size} * kBf16Columns, x_step = of.x_step;
  for (uint32_t i = 0; i < of.count; ++i) {
    const Bfloat16* w = of.blocks + i / of_step * kBf16StepValues + i % of_step * of.block_size;
    const Bfloat16* x = of.x + of.columns[i] * x_block;
    TESSERA_TILE_LOAD(4, w, size_t{kRowBytes});
    TESSERA_TILE_LOAD(5, x, size_t{kRowBytes});
    TESSERA_TILE_MULTIPLY(0, 4, 5);
    if constexpr (kTiles > 1) {
      TESSERA_TILE_LOAD(6, x + x_step, size_t{kRowBytes});
      TESSERA_TILE_MULTIPLY(1, 4, 6);
    }
    if constexpr (kTiles > 2) {
      TESSERA_TILE_LOAD(7, x + 2 * x_step, size_t{kRowBytes});
      TESSERA_TILE_MULTIPLY(2, 4, 7);
    }
    if constexpr (kTiles > 3) {
      TESSERA_TILE_LOAD(5, x + 3 * x_step, size_t{kRowBytes});
      TESSERA_TILE_MULTIPLY(3, 4, 5);
    }
  }
  TESSERA_TILE_STORE(0, of.sums, kSumsBytes);
  if constexpr (kTiles > 1) TESSERA_TILE_STORE(1, of.sums + kBf16Columns, kSumsBytes);
  if constexpr (kTiles > 2) TESSERA_TILE_STORE(2, of.sums + 2 * kBf16Columns, kSumsBytes);
  if constexpr (kTiles > 3) TESSERA_TILE_STORE(3, of.sums + 3 * kBf16Columns, kSumsBytes);
}

void run_block_tiles(const Bf16Blocks& of) {
  switch (of.tiles) {
    case 1: return multiply_block_tiles<1>(of);
    case 2: return multiply_block_tiles<2>(of);
    case 3: return multiply_block_tiles<3>(of);
    default: return multiply_block_tiles<4>(of);
  }
}

// One tile of columns.
TESSERA_PAIR_CODE void multiply_block_pairs(const Bf16Blocks& of, uint32_t tile) {
  __m512 sum[kBf16BlockRows];
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kBf16BlockRows; ++r) sum[r] = _mm512_setzero_ps();
  const uint32_t of_step = kBf16Step / of.block_size;
  for (uint32_t i = 0; i < of.count; ++i) {
    const Bfloat16* w = of.blocks + i / of_step * kBf16StepValues + i % of_step * of.block_size;
    const Bfloat16* x = of.x + tile * of.x_step + size_t{of.columns[i]} * of.block_size * kBf16Columns;
    for (uint32_t pair = 0; pair < of.block_size / 2; ++pair, w += 2, x += 2 * kBf16Columns) {
      const __m512i column = _mm512_loadu_si512(x);
#pragma GCC unroll 16
      for (uint32_t r = 0; r < kBf16BlockRows; ++r) {
        int32_t terms;
        std::memcpy(&terms, w + r * kBf16Step, sizeof(terms));
        sum[r] = add_pairs(sum[r], _mm512_set1_epi32(terms), column);
      }
    }
  }
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kBf16BlockRows; ++r)
    _mm512_storeu_ps(of.sums + (r * kBf16BlockTiles + tile) * kBf16Columns, sum[r]);
}

using TileFunction = void (*)(const Bf16Tile&, const Bf16Packing*);

template <bool kPacks>
constexpr TileFunction kTileFunctions[2][2] = {
    {multiply_tiles<false, false, kPacks>, multiply_tiles<false, true, kPacks>},
    {multiply_tiles<true, false, kPacks>, multiply_tiles<true, true, kPacks>}};

void run_tiles(const Bf16Tile& tile, const Bf16Packing* packing) {
  const auto& functions = packing != nullptr ? kTileFunctions<true> : kTileFunctions<false>;
  functions[tile.rows > kTileRows ? 1 : 0][tile.panels - 1](tile, packing);
}

// The most sums that registers hold beside two vectors of B and a pair of A.
constexpr uint32_t kDotRows = 12;

template <uint32_t kRows, uint32_t kPanels>
TESSERA_PAIR_CODE void multiply_pairs(const Bf16Tile& tile) {
  __m512 sum[kRows][kPanels];
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (uint32_t p = 0; p < kPanels; ++p)
      sum[r][p] = tile.adds ? _mm512_loadu_ps(tile.sums + r * tile.sums_step + p * tile.sums_panel)
                            : _mm512_setzero_ps();
  }
  const Bfloat16* a = tile.a;
  const Bfloat16* b = tile.b;
  for (uint32_t step = 0; step < tile.steps; ++step, b += (kPanels - 1) * kBf16StepValues)
    for (uint32_t pair = 0; pair < kBf16Step / 2; ++pair, a += 2, b += 2 * kBf16Columns) {
      __m512i column[kPanels];
#pragma GCC unroll 2
      for (uint32_t p = 0; p < kPanels; ++p) column[p] = _mm512_loadu_si512(b + p * kBf16StepValues);
#pragma GCC unroll 16
      for (uint32_t r = 0; r < kRows; ++r) {
        int32_t terms;
        std::memcpy(&terms, a + r * tile.a_step, sizeof(terms));
        const __m512i row = _mm512_set1_epi32(terms);
#pragma GCC unroll 2
        for (uint32_t p = 0; p < kPanels; ++p) sum[r][p] = add_pairs(sum[r][p], row, column[p]);
      }
    }
#pragma GCC unroll 16
  for (uint32_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 2
    for (uint32_t p = 0; p < kPanels; ++p)
      _mm512_storeu_ps(tile.sums + r * tile.sums_step + p * tile.sums_panel, sum[r][p]);
  }
}

using PairFunction = void (*)(const Bf16Tile&);

template <uint32_t kPanels, size_t... i>
constexpr std::array<PairFunction, sizeof...(i)> pair_functions(std::index_sequence<i...>) {
  return {multiply_pairs<i + 1, kPanels>...};
}

void run_pairs(Bf16Tile tile) {
  constexpr auto kCounts = std::make_index_sequence<kDotRows>();
  static constexpr auto kOne = pair_functions<1>(kCounts), kTwo = pair_functions<2>(kCounts);
  const uint32_t parts = (tile.rows + kDotRows - 1) / kDotRows, all = tile.rows;
  for (uint32_t i = 0; i < parts; ++i) {
    const uint32_t begin = i * all / parts, rows = (i + 1) * all / parts - begin;
    Bf16Tile part = tile;
    part.a += begin * tile.a_step;
    part.sums += begin * tile.sums_step;
    (tile.panels == 2 ? kTwo : kOne)[rows - 1](part);
  }
}

}  // namespace

Bf16Product::Bf16Product() : has_tiles_(active_isa() >= Isa::amx) {}

Bf16Product::~Bf16Product() {
  if (tile_rows_ != 0 || block_size_ != 0) release_tiles();
}

void Bf16Product::run(const Bf16Tile& tile, const Bf16Packing* beside) {
  assert(tile.rows > 0 && tile.rows <= kBf16Rows);
  if (has_tiles_) {
    if (tile_rows_ != tile.rows) configure_tiles(tile_rows_ = tile.rows);
    block_size_ = 0;
    return run_tiles(tile, beside);
  }
  run_pairs(tile);
  for (uint32_t p = 0; beside != nullptr && p < tile.panels; ++p)
    pack_bf16_pairs(beside->from[p], kBf16Columns, tile.steps * kBf16Step, kBf16Columns,
                    beside->to + p * kBf16StepValues, tile.panels * kBf16StepValues);
}

void Bf16Product::run(const Bf16Blocks& blocks) {
  if (!has_tiles_) {
    for (uint32_t tile = 0; tile < blocks.tiles; ++tile) multiply_block_pairs(blocks, tile);
    return;
  }
  if (block_size_ != blocks.block_size) configure_block_tiles(block_size_ = blocks.block_size);
  tile_rows_ = 0;
  run_block_tiles(blocks);
}

TESSERA_PAIR_CODE void pack_bf16_pairs(const Bfloat16* from, size_t from_step, uint32_t terms,
                                       uint32_t columns, Bfloat16* to, size_t to_step) {
  constexpr size_t kValuesAhead = 1024;
  const __m512i pairs = TESSERA_PAIR_ORDER;
  uint32_t term = 0;
  if (from_step == kBf16Columns && columns == kBf16Columns)
    for (; term + kBf16Step <= terms; term += kBf16Step, from += kBf16StepValues, to += to_step) {
#pragma GCC unroll 16
      for (size_t i = 0; i < kBf16StepValues; i += kBf16Step) {
        _mm_prefetch(from + i + kValuesAhead, _MM_HINT_T0);
        _mm512_storeu_si512(to + i, _mm512_permutexvar_epi16(pairs, _mm512_loadu_si512(from + i)));
      }
    }
  const auto mask = static_cast<__mmask16>((1U << columns) - 1);
  for (; term < std::max(terms, 1U); term += kBf16Step, from += kBf16Step * from_step, to += to_step)
    for (uint32_t i = 0; i < kBf16Step; i += 2) {
      const auto rows = static_cast<__mmask16>(term + i < terms ? mask : 0);
      const auto next = static_cast<__mmask16>(term + i + 1 < terms ? mask : 0);
      const __m256i first = _mm256_maskz_loadu_epi16(rows, from + i * from_step);
      const __m256i second = _mm256_maskz_loadu_epi16(next, from + (i + 1) * from_step);
      const __m512i both = _mm512_maskz_inserti64x4(0xFF, _mm512_castsi256_si512(first), second, 1);
      _mm512_storeu_si512(to + i * kBf16Columns, _mm512_permutexvar_epi16(pairs, both));
    }
}

TESSERA_PAIR_CODE void pack_two_bf16_panels(const Bfloat16* from, size_t from_step, uint32_t terms,
                                            Bfloat16* to, size_t to_step, size_t to_panel) {
  constexpr size_t kRowsAhead = 16;  // too far apart for hardware prefetchers
  // Columns of the second row count from 32 on.
  const __m512i to_first = _mm512_add_epi16(TESSERA_PAIR_ORDER, _mm512_set1_epi32(0x00100000));
  const __m512i to_second = _mm512_add_epi16(to_first, _mm512_set1_epi16(int16_t{kBf16Columns}));
  for (uint32_t term = 0; term < std::max(terms, 1U); term += kBf16Step, to += to_step)
    for (uint32_t i = 0; i < kBf16Step; i += 2, from += 2 * from_step) {
      __m512i row = _mm512_setzero_si512(), next = row;
      if (term + i < terms) row = _mm512_loadu_si512(from);
      if (term + i + 1 < terms) next = _mm512_loadu_si512(from + from_step);
      if (term + i + kRowsAhead + 1 < terms) {
        _mm_prefetch(from + kRowsAhead * from_step, _MM_HINT_T0);
        _mm_prefetch(from + (kRowsAhead + 1) * from_step, _MM_HINT_T0);
      }
      Bfloat16* const at = to + i * kBf16Columns;
      _mm512_storeu_si512(at, _mm512_permutex2var_epi16(row, to_first, next));
      _mm512_storeu_si512(at + to_panel, _mm512_permutex2var_epi16(row, to_second, next));
    }
}

TESSERA_PAIR_CODE void round_to_bf16(const float* from, size_t from_step, uint32_t rows, uint32_t cols,
                                     Bfloat16* to, int64_t to_step) {
  for (uint32_t r = 0; r < rows; ++r, from += from_step, to += to_step) {
    uint32_t c = 0;
    for (; c + 2 * kBf16Columns <= cols; c += 2 * kBf16Columns) {
      const auto both =
          _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + c + kBf16Columns), _mm512_loadu_ps(from + c));
      _mm512_storeu_si512(to + c, reinterpret_cast<__m512i>(both));
    }
    for (; c < cols; c += kBf16Columns) {
      const auto mask = static_cast<__mmask16>((1U << std::min(kBf16Columns, cols - c)) - 1);
      const auto some = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, from + c));
      _mm256_mask_storeu_epi16(to + c, mask, reinterpret_cast<__m256i>(some));
    }
  }
}

TESSERA_PAIR_CODE void pack_bf16_sums(const float* from, uint32_t terms, Bfloat16* to, size_t to_step) {
  const __m512i pairs = TESSERA_PAIR_ORDER;
  for (uint32_t term = 0; term < std::max(terms, 1U); term += kBf16Step, to += to_step)
    for (uint32_t i = 0; i < kBf16Step; i += 2) {
      const float* at = from + size_t{term + i} * kBf16Columns;
      const __m512 first = term + i < terms ? _mm512_loadu_ps(at) : _mm512_setzero_ps();
      const __m512 second = term + i + 1 < terms ? _mm512_loadu_ps(at + kBf16Columns) : _mm512_setzero_ps();
      const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(second, first));
      _mm512_storeu_si512(to + i * kBf16Columns, _mm512_permutexvar_epi16(pairs, both));
    }
}
#else
Bf16Product::Bf16Product() : has_tiles_(false) {}
Bf16Product::~Bf16Product() = default;
void Bf16Product::run(const Bf16Tile&, const Bf16Packing*) {}
void Bf16Product::run(const Bf16Blocks&) {}
void pack_bf16_pairs(const base::Bfloat16*, size_t, uint32_t, uint32_t, base::Bfloat16*, size_t) {}
void pack_two_bf16_panels(const base::Bfloat16*, size_t, uint32_t, base::Bfloat16*, size_t, size_t) {}
void round_to_bf16(const float*, size_t, uint32_t, uint32_t, base::Bfloat16*, int64_t) {}
void pack_bf16_sums(const float*, uint32_t, base::Bfloat16*, size_t) {}
#endif

}  // namespace tessera::kernels
