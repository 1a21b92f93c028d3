// Tiles of a product of matrices, held in registers: the innermost loop of every kernel here.
//
// A tile has up to MostRows(vectors) rows, each of so many vectors. Its right factor is a panel, rows of so many vectors, packed or as they lie in
// the caller's memory; its sums are [row][vectors * kLanes]. No tile has a remainder: what stands behind the last column is read, so that it must
// be memory of ours or of the same array, and never used.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace jaxcnn {

using Index = std::int64_t;

inline Index Ceil(Index numerator, Index denominator) { return (numerator + denominator - 1) / denominator; }

// From the first to before the last.
struct Range {
  Index first, last;

  Index Size() const { return last - first; }
};

// One of so many parts, as even as can be.
inline Range Part(Index all, Index part, Index parts) { return {all * part / parts, all * (part + 1) / parts}; }

// The size of parts of at most so many, the last of which is not much smaller.
inline Index Even(Index all, Index most) { return Ceil(all, Ceil(all, most)); }

#if defined(__AVX512F__)
constexpr int kLanes = 16, kMostVectors = 4, kSums = 24;  // of 32 registers
#elif defined(__aarch64__)
constexpr int kLanes = 4, kMostVectors = 4, kSums = 24;
#elif defined(__AVX__)
constexpr int kLanes = 8, kMostVectors = 2, kSums = 12;  // of 16
#else
constexpr int kLanes = 4, kMostVectors = 2, kSums = 12;
#endif

constexpr int kMostRows = 8;  // more have no register for their addresses
constexpr int MostRows(int vectors) { return std::min(kMostRows, kSums / vectors); }

typedef float Vector __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline Vector Load(const float* from) { return *reinterpret_cast<const Vector*>(from); }
inline void Store(float* to, Vector vector) { *reinterpret_cast<Vector*>(to) = vector; }

// The lanes that there are, and zeros.
inline Vector LoadSome(const float* from, Index have) {
  if (have >= kLanes) return Load(from);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << std::max<Index>(0, have)) - 1), from);
#else
  Vector some{};
  for (Index lane = 0; lane < have; ++lane) some[lane] = from[lane];
  return some;
#endif
}

// Only the lanes that there are.
inline void StoreSome(float* to, Vector vector, Index have) {
  if (have >= kLanes) return Store(to, vector);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << std::max<Index>(0, have)) - 1), vector);
#else
  for (Index lane = 0; lane < have; ++lane) to[lane] = vector[lane];
#endif
}

// Negatives cut off; what is no number stays none.
inline Vector Rectified(Vector vector) { return vector < 0 ? Vector{} : vector; }

// Where a tile goes: to its sums [row][vectors * kLanes] while more is to come, with what they hold already; in the end to the result, whose rows lie
// `apart`, as it is or with a bias added and negatives cut off.
struct Sink {
  float* sums;
  bool fresh = true;  // the sums hold nothing
  float* result = nullptr;
  Index apart = 0, have = 0;    // of the result; so many columns from the tile's first
  const float* bias = nullptr;  // from the tile's first column on
};

template <int ROWS, int VECTORS>
inline __attribute__((always_inline)) void Put(Vector (&tile)[ROWS][VECTORS], const Sink& sink) {
  const auto each = [&](auto f) {
#pragma GCC unroll 8
    for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
      for (int v = 0; v < VECTORS; ++v) f(row, v, tile[row][v]);
  };
  const auto sums = [&](int row, int v) { return sink.sums + (row * VECTORS + v) * kLanes; };
  const auto result = [&](int row, int v) { return sink.result + row * sink.apart + v * kLanes; };
  if (!sink.fresh) each([&](int row, int v, Vector& sum) { sum += Load(sums(row, v)); });
  if (!sink.result) return each([&](int row, int v, Vector& sum) { Store(sums(row, v), sum); });
  if (sink.bias) {
    Vector shift[VECTORS];
    for (int v = 0; v < VECTORS; ++v) shift[v] = LoadSome(sink.bias + v * kLanes, sink.have - v * kLanes);
    each([&](int row, int v, Vector& sum) { sum = Rectified(sum + shift[v]); });
  }
  if (sink.have == VECTORS * kLanes) return each([&](int row, int v, Vector& sum) { Store(result(row, v), sum); });
  each([&](int row, int v, Vector& sum) { StoreSome(result(row, v), sum, sink.have - v * kLanes); });
}

// tile[row][:] += left(row) * panel[:]
template <int ROWS, int VECTORS, class Left>
inline __attribute__((always_inline)) void AddProducts(Vector (&tile)[ROWS][VECTORS], const float* panel, Left left) {
  Vector right[VECTORS];
#pragma GCC unroll 4
  for (int v = 0; v < VECTORS; ++v) right[v] = Load(panel + v * kLanes);
#pragma GCC unroll 8
  for (int row = 0; row < ROWS; ++row)
#pragma GCC unroll 4
    for (int v = 0; v < VECTORS; ++v) tile[row][v] += left(row) * right[v];
}

// A part of a panel, whose rows lie `apart`.
struct Right {
  const float* panel;
  Index apart;
};

// sum over runs and k < length of lefts[row][offsets[run] + offset + k] * right[run * length + k][:]
template <int ROWS, int VECTORS>
void Inner(const float* const* lefts, const Index* offsets, Index runs, Index offset, Index length, Right right, const Sink& sink) {
  Vector tile[ROWS][VECTORS] = {};
  const float* left[ROWS];
  for (int row = 0; row < ROWS; ++row) left[row] = lefts[row] + offset;
  for (Index run = 0; run < runs; ++run)
#pragma GCC unroll 4
    for (Index k = offsets[run]; k < offsets[run] + length; ++k, right.panel += right.apart)
      AddProducts(tile, right.panel, [&](int row) { return left[row][k]; });
  Put(tile, sink);
}

// sum over lines and k < length of lefts[line][offset + k * step + row] * panels[line][k][:], whose rows lie `apart`
template <int ROWS, int VECTORS>
void Outer(const float* const* lefts, const float* const* panels, Index lines, Index length, Index offset, Index step, Index apart,
           const Sink& sink) {
  Vector tile[ROWS][VECTORS] = {};
  for (Index line = 0; line < lines; ++line) {
    const float* left = lefts[line] + offset;
    const float* panel = panels[line];
#pragma GCC unroll 4
    for (Index k = 0; k < length; ++k, left += step, panel += apart)
      AddProducts(tile, panel, [&](int row) { return left[row]; });
  }
  Put(tile, sink);
}

using InnerTile = decltype(&Inner<1, 1>);
using OuterTile = decltype(&Outer<1, 1>);

template <int VECTORS, int... ROW>
constexpr std::array<std::pair<InnerTile, OuterTile>, kMostRows> OfVectors(std::integer_sequence<int, ROW...>) {
  return {{{Inner<std::min(ROW + 1, MostRows(VECTORS)), VECTORS>, Outer<std::min(ROW + 1, MostRows(VECTORS)), VECTORS>}...}};
}

template <int... V>
constexpr auto AllTiles(std::integer_sequence<int, V...>) {
  return std::array<std::array<std::pair<InnerTile, OuterTile>, kMostRows>, kMostVectors>{
      {OfVectors<V + 1>(std::make_integer_sequence<int, kMostRows>{})...}};
}

constexpr auto kTiles = AllTiles(std::make_integer_sequence<int, kMostVectors>{});  // [vectors - 1][rows - 1]

// How the columns of a right factor are cut into panels of equal width.
struct Panels {
  Index columns, count, vectors, width;

  explicit Panels(Index columns) : columns(columns) {
    const Index needed = Ceil(columns, kLanes);
    count = Ceil(needed, kMostVectors);
    vectors = Ceil(needed, count);
    width = vectors * kLanes;
    count = Ceil(needed, vectors);
  }

  Index First(Index panel) const { return panel * width; }
  Index Have(Index panel) const { return std::min(width, columns - First(panel)); }
  Index TileRows() const { return MostRows(static_cast<int>(vectors)); }  // of the largest tile,
  Index TileSize() const { return TileRows() * width; }                   // and numbers of its sums
  InnerTile OfPointers(Index rows) const { return kTiles[vectors - 1][rows - 1].first; }
  OuterTile OfColumns(Index rows) const { return kTiles[vectors - 1][rows - 1].second; }

  // Calls f(first, count) for each tile's share of so many rows, as even as can be.
  template <class F>
  void EachTile(Index rows, F f) const {
    const Index tiles = Ceil(rows, TileRows());
    for (Index tile = 0; tile < tiles; ++tile) {
      const Range part = Part(rows, tile, tiles);
      f(part.first, part.Size());
    }
  }
};

}  // namespace jaxcnn
