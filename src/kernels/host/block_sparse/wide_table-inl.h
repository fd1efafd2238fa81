// Selects the micro-kernel for a micro-tile of the wide kernel.
#if defined(TESSERA_BLOCK_SPARSE_WIDE_TABLE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TESSERA_BLOCK_SPARSE_WIDE_TABLE_INL_H_
#undef TESSERA_BLOCK_SPARSE_WIDE_TABLE_INL_H_
#else
#define TESSERA_BLOCK_SPARSE_WIDE_TABLE_INL_H_
#endif

#include <cstdint>
#include <span>
#include <type_traits>

#include "kernels/host/block_sparse/wide_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tessera::kernels::HWY_NAMESPACE {

// The micro-kernel for rows × vectors. AVX2's 16 registers hold 4 × 3, AVX-512's 32 hold 8 × 3 and 4 × 6.
template <bool kTransposed, XForm kForm>
WideTileFunction tile_function(bool small_block, uint32_t rows, uint32_t vectors) {
  static constexpr WideTileFunction kFour[] = {
    wide_tile<4, 1, 4, kTransposed, kForm>,
    wide_tile<4, 2, 4, kTransposed, kForm>,
    wide_tile<4, 3, 4, kTransposed, kForm>,
#if HWY_TARGET <= HWY_AVX3
    wide_tile<4, 4, 4, kTransposed, kForm>,
    wide_tile<4, 5, 4, kTransposed, kForm>,
    wide_tile<4, 6, 4, kTransposed, kForm>
#endif
  };
  static constexpr WideTileFunction kFourOfEight[] = {
    wide_tile<4, 1, 2, kTransposed, kForm>,
    wide_tile<4, 2, 2, kTransposed, kForm>,
    wide_tile<4, 3, 2, kTransposed, kForm>,
#if HWY_TARGET <= HWY_AVX3
    wide_tile<4, 4, 2, kTransposed, kForm>,
    wide_tile<4, 5, 2, kTransposed, kForm>,
    wide_tile<4, 6, 2, kTransposed, kForm>
#endif
  };
  static constexpr WideTileFunction kEight[] = {
    wide_tile<8, 1, 2, kTransposed, kForm>,
#if HWY_TARGET <= HWY_AVX3
    wide_tile<8, 2, 2, kTransposed, kForm>,
    wide_tile<8, 3, 2, kTransposed, kForm>
#endif
  };
  if (small_block) return kFour[vectors - 1];
  return rows == 4 ? kFourOfEight[vectors - 1] : kEight[vectors - 1];
}

// The micro-kernel for the first micro-tile of rotated rows.
template <bool kTransposed>
WideTileFunction rotated_tile_function(uint32_t vectors) {
  static constexpr WideTileFunction kEight[] = {
    wide_tile<8, 1, 2, kTransposed, XForm::rotated>,
#if HWY_TARGET <= HWY_AVX3
    wide_tile<8, 2, 2, kTransposed, XForm::rotated>,
    wide_tile<8, 3, 2, kTransposed, XForm::rotated>
#endif
  };
  return kEight[vectors - 1];
}

// The micro-kernel for the first micro-tile of a strip of 16-bit values; null if there is none.
template <bool kTransposed, class T>
WideTileFunction widening_tile_function(bool small_block, uint32_t rows, uint32_t vectors) {
  constexpr XForm kForm = XForm::packed;
  if constexpr (std::is_same_v<T, float>) {
    return nullptr;
  } else {
    static constexpr WideTileFunction kFour[] = {
      wide_tile<4, 1, 4, kTransposed, kForm, T>,
      wide_tile<4, 2, 4, kTransposed, kForm, T>,
      wide_tile<4, 3, 4, kTransposed, kForm, T>,
#if HWY_TARGET <= HWY_AVX3
      wide_tile<4, 4, 4, kTransposed, kForm, T>,
#endif
    };
#if HWY_TARGET <= HWY_AVX3
    constexpr uint32_t kRows = 8;
#else
    constexpr uint32_t kRows = 4;
#endif
    static constexpr WideTileFunction kOfEight[] = {
        wide_tile<kRows, 1, 2, kTransposed, kForm, T>,
        wide_tile<kRows, 2, 2, kTransposed, kForm, T>,
        wide_tile<kRows, 3, 2, kTransposed, kForm, T>,
    };
    const std::span<const WideTileFunction> functions(small_block ? std::span<const WideTileFunction>(kFour)
                                                                  : kOfEight);
    return vectors <= functions.size() && (small_block || rows == kRows) ? functions[vectors - 1] : nullptr;
  }
}

inline uint32_t most_vectors(uint32_t rows) {
  if (HWY_TARGET > HWY_AVX3) return rows == 4 ? 3 : 1;
  return rows == 4 ? 6 : 3;
}

}  // namespace tessera::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
