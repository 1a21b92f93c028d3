// Blocks of a matrix product of bfloat16 numbers with sums in float32, by the instructions that
// some processors have for it: AMX, or AVX512-BF16.
//
// A block has up to 32 rows and 32 columns. Its left factor is read as it lies in memory, in pieces
// of `depth` elements of each row. The right factor is a packed panel, [piece][tile][depth / 2][16]
// pairs of elements, which belong to neighboring rows of the factor; a tile has 16 columns.
//
// Functions that use these instructions are between JAXCNN_BEGIN_BFLOAT16 and JAXCNN_END_BFLOAT16:
// the rest of the library runs on processors without them.
#pragma once

#include "tile.h"

#if defined(__AVX512F__) && defined(__linux__) && (__GNUC__ >= 11 || __clang_major__ >= 12)
#define JAXCNN_HAS_BFLOAT16
#endif

#ifdef JAXCNN_HAS_BFLOAT16
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__clang__)
#define JAXCNN_BEGIN_BFLOAT16 \
  _Pragma(                    \
      "clang attribute push(__attribute__((target(                                            \
      \"avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16\"))), apply_to = function)")
#define JAXCNN_END_BFLOAT16 _Pragma("clang attribute pop")
#else
#define JAXCNN_BEGIN_BFLOAT16 \
  _Pragma("GCC push_options") \
      _Pragma("GCC target(\"avx512bw,avx512vl,avx512bf16,amx-tile,amx-bf16\")")
#define JAXCNN_END_BFLOAT16 _Pragma("GCC pop_options")
#endif
#endif

namespace jaxcnn {

// The instructions for bfloat16, as in jaxcnn/ops/native/loader.py.
constexpr Index kAvx512Bfloat16 = 1, kAmxBfloat16 = 2;

#ifdef JAXCNN_HAS_BFLOAT16

using Bfloat16 = std::uint16_t;  // the bits

constexpr Index kTileSide = 16;              // rows and columns of a tile
constexpr Index kBlockSide = 2 * kTileSide;  // and of a block of sums
constexpr Index kBlockSize = kBlockSide * kBlockSide;
constexpr Index kMaxDepth = 32;  // elements of a tile's row

inline bool HasAvx512Bfloat16() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
         __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) && (eax >> 5 & 1);
}

// Whether the processor has AMX for bfloat16 and Linux lets this process use it.
inline bool HasAmxBfloat16() {
  static const bool has = [] {
    constexpr long kRequestPermission = 0x1023, kTileData = 18;  // of arch_prctl
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return HasAvx512Bfloat16() && __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) &&
           (edx >> 22 & 1) && (edx >> 24 & 1) &&
           syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  }();
  return has;
}

inline bool HasBfloat16(Index instructions) {
  return instructions == kAmxBfloat16      ? HasAmxBfloat16()
         : instructions == kAvx512Bfloat16 ? HasAvx512Bfloat16()
                                           : false;
}

// The left factor of a block.
struct LeftRows {
  const Bfloat16* data;
  Index stride;          // from one row to the next, in elements
  const Index* offsets;  // of the pieces, from the beginning of a row
  Index pieces;
  Index depth;  // of a piece: even, at most kMaxDepth

  LeftRows From(Index row) const { return {data + row * stride, stride, offsets, pieces, depth}; }
};

JAXCNN_BEGIN_BFLOAT16

// Products by AMX's tiles. An object configures them for the thread that creates it.
class AmxTiles {
 public:
  explicit AmxTiles(Index depth) {
    struct {
      std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
      std::uint16_t row_bytes[16] = {};
      std::uint8_t rows[16] = {};
    } config;
    for (int tile = 0; tile < 8; ++tile) {
      const bool is_left = tile == 4 || tile == 5, is_right = tile >= 6;
      config.rows[tile] = static_cast<std::uint8_t>(is_right ? depth / 2 : kTileSide);
      config.row_bytes[tile] = static_cast<std::uint16_t>(is_left ? 2 * depth : 4 * kTileSide);
    }
    _tile_loadconfig(&config);
  }
  AmxTiles(const AmxTiles&) = delete;
  AmxTiles& operator=(const AmxTiles&) = delete;
  ~AmxTiles() { _tile_release(); }

  // sums[row][column] = the product of a block of DOWN x ACROSS tiles, added to the sums unless
  // `is_first`.
  template <int DOWN, int ACROSS>
  void Multiply(const LeftRows& left, const Bfloat16* right, bool is_first, float* sums) const {
    constexpr Index kRow = kBlockSide * sizeof(float);
    float* const below = sums + kTileSide * kBlockSide;
    if (is_first) {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    } else {
      _tile_loadd(0, sums, kRow);
      if constexpr (ACROSS > 1) _tile_loadd(1, sums + kTileSide, kRow);
      if constexpr (DOWN > 1) _tile_loadd(2, below, kRow);
      if constexpr (DOWN > 1 && ACROSS > 1) _tile_loadd(3, below + kTileSide, kRow);
    }
    const Index stride = left.stride * sizeof(Bfloat16), size = kTileSide * left.depth;
    for (Index piece = 0; piece < left.pieces; ++piece, right += ACROSS * size) {
      const Bfloat16* const from = left.data + left.offsets[piece];
      _tile_loadd(4, from, stride);
      _tile_loadd(6, right, 4 * kTileSide);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (ACROSS > 1) _tile_loadd(7, right + size, 4 * kTileSide);
      if constexpr (ACROSS > 1) _tile_dpbf16ps(1, 4, 7);
      if constexpr (DOWN > 1) _tile_loadd(5, from + kTileSide * left.stride, stride);
      if constexpr (DOWN > 1) _tile_dpbf16ps(2, 5, 6);
      if constexpr (DOWN > 1 && ACROSS > 1) _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, kRow);
    if constexpr (ACROSS > 1) _tile_stored(1, sums + kTileSide, kRow);
    if constexpr (DOWN > 1) _tile_stored(2, below, kRow);
    if constexpr (DOWN > 1 && ACROSS > 1) _tile_stored(3, below + kTileSide, kRow);
  }
};

// The same by AVX512-BF16's products of pairs.
class Avx512Pairs {
 public:
  explicit Avx512Pairs(Index) {}

  template <int DOWN, int ACROSS>
  void Multiply(const LeftRows& left, const Bfloat16* right, bool is_first, float* sums) const {
    constexpr int kRows = 8;  // whose sums are kept in registers
    for (int first = 0; first < DOWN * kTileSide; first += kRows)
      MultiplyRows<kRows, ACROSS>(left.From(first), right, is_first, sums + first * kBlockSide);
  }

 private:
  template <int ROWS, int ACROSS>
  static void MultiplyRows(const LeftRows& left, const Bfloat16* right, bool is_first,
                           float* sums) {
    __m512 tile[ROWS][ACROSS];
    JAXCNN_UNROLL
    for (int row = 0; row < ROWS; ++row) JAXCNN_UNROLL
      for (int v = 0; v < ACROSS; ++v)
        tile[row][v] = is_first ? _mm512_setzero_ps()
                                : _mm512_loadu_ps(sums + row * kBlockSide + v * kTileSide);
    const Index size = kTileSide * left.depth;
    for (Index piece = 0; piece < left.pieces; ++piece, right += ACROSS * size) {
      const Bfloat16* const from = left.data + left.offsets[piece];
      for (Index k = 0; k < left.depth; k += 2) {
        __m512bh pairs[ACROSS];
        JAXCNN_UNROLL
        for (int v = 0; v < ACROSS; ++v)
          pairs[v] = (__m512bh)_mm512_loadu_si512(right + v * size + k * kTileSide);
        JAXCNN_UNROLL
        for (int row = 0; row < ROWS; ++row) {
          int pair;
          __builtin_memcpy(&pair, from + row * left.stride + k, sizeof pair);
          const __m512bh both = (__m512bh)_mm512_set1_epi32(pair);
          JAXCNN_UNROLL
          for (int v = 0; v < ACROSS; ++v)
            tile[row][v] = _mm512_dpbf16_ps(tile[row][v], both, pairs[v]);
        }
      }
    }
    JAXCNN_UNROLL
    for (int row = 0; row < ROWS; ++row) JAXCNN_UNROLL
      for (int v = 0; v < ACROSS; ++v)
        _mm512_storeu_ps(sums + row * kBlockSide + v * kTileSide, tile[row][v]);
  }
};

// Computes a block of up to 32 x 32 sums; whole tiles are computed.
template <class Unit>
void MultiplyBlock(const Unit& unit, Index rows, Index columns, const LeftRows& left,
                   const Bfloat16* right, bool is_first, float* sums) {
  if (rows > kTileSide && columns > kTileSide) {
    unit.template Multiply<2, 2>(left, right, is_first, sums);
  } else if (rows > kTileSide) {
    unit.template Multiply<2, 1>(left, right, is_first, sums);
  } else if (columns > kTileSide) {
    unit.template Multiply<1, 2>(left, right, is_first, sums);
  } else {
    unit.template Multiply<1, 1>(left, right, is_first, sums);
  }
}

// Lanes first <= lane < count of 16.
inline __mmask16 FirstLanes(Index count) {
  return static_cast<__mmask16>((1u << std::clamp<Index>(count, 0, kTileSide)) - 1);
}

// Rounds up to 32 sums and stores them.
inline void StoreRounded(const float* sums, Index count, Bfloat16* to) {
  for (Index first = 0; first < count; first += kTileSide) {
    const __mmask16 lanes = FirstLanes(count - first);
    const __m512 sum = _mm512_loadu_ps(sums + first);
    _mm256_mask_storeu_epi16(to + first, lanes, (__m256i)_mm512_cvtneps_pbh(sum));
  }
}

// Pairs of the elements of two rows from a column on; a row that is null is zero.
inline __m512i PairRows(const Bfloat16* even, const Bfloat16* odd, __mmask16 lanes) {
  const auto load = [&](const Bfloat16* row) __attribute__((always_inline)) {
    return row ? _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row)) : __m512i{};
  };
  return _mm512_or_si512(load(even), _mm512_slli_epi32(load(odd), 16));
}

// Packs up to 32 columns of a right factor. pairs(row, column, lanes) are those of the factor's
// rows `row` and `row + 1`, in pieces of `depth` rows.
template <class Pairs>
void PackPanel(Index pieces, Index depth, Index columns, Pairs pairs, Bfloat16* to) {
  for (Index piece = 0; piece < pieces; ++piece)
    for (Index column = 0; column < columns; column += kTileSide)
      for (Index k = 0; k < depth; k += 2, to += 2 * kTileSide)
        _mm512_storeu_si512(to, pairs(piece, k, column, FirstLanes(columns - column)));
}

JAXCNN_END_BFLOAT16

#endif  // JAXCNN_HAS_BFLOAT16

}  // namespace jaxcnn
