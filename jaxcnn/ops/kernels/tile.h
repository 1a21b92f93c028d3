// Tiles of a matrix product, kept in registers: the innermost loop of all kernels.
//
// A tile has up to MaxRows(vectors) rows of `vectors` vectors each. Its right factor is a panel:
// rows of `vectors` vectors, packed or as they lie in the caller's memory. Its sums are stored row
// by row, as far apart as those of a full panel. Tiles always compute whole vectors. Elements
// behind the last column of a panel are read but not used, so they must belong to our own memory or
// to the same array.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "epilogue.h"
#include "vectors.h"

namespace jaxcnn {

constexpr int kMaxRows = 8;  // there are no registers for the addresses of more rows
constexpr int MaxRows(int vectors) { return std::min(kMaxRows, kAccumulators / vectors); }

// Where a tile is stored. While more products are to come, it is added to its partial sums, whose
// rows are `pitch` apart. In the end it goes to the result, with the epilogue if there is one.
struct Sink {
  float* sums;
  Index pitch;              // at least the tile's columns, in whole vectors
  bool is_first = true;     // the partial sums are uninitialized
  float* result = nullptr;  // null while more products are to come
  Index stride = 0;         // between the rows of the result
  Index columns = 0;        // of the result, from the tile's first one on
  Epilogue epilogue = {};   // from the tile's first column on
};

template <int ROWS, int VECTORS>
inline __attribute__((always_inline)) void StoreTile(Vector (&tile)[ROWS][VECTORS],
                                                     const Sink& sink) {
  const auto for_each = [&](auto f) __attribute__((always_inline)) {
    JAXCNN_UNROLL
    for (int row = 0; row < ROWS; ++row) JAXCNN_UNROLL
      for (int v = 0; v < VECTORS; ++v) f(row, v, tile[row][v]);
  };
  const auto sums = [&](int row, int v) { return sink.sums + row * sink.pitch + v * kLanes; };
  const auto result = [&](int row, int v) { return sink.result + row * sink.stride + v * kLanes; };
  if (!sink.is_first) for_each([&](int row, int v, Vector& sum) { sum += Load(sums(row, v)); });
  if (!sink.result) return for_each([&](int row, int v, Vector& sum) { Store(sums(row, v), sum); });
  if (sink.columns == VECTORS * kLanes)
    for_each([&](int row, int v, Vector& sum) { Store(result(row, v), sum); });
  else
    for_each([&](int row, int v, Vector& sum) {
      StorePartial(result(row, v), sum, sink.columns - v * kLanes);
    });
  if (sink.epilogue) Finish(sink.epilogue, ROWS, sink.columns, sink.result, sink.stride);
}

// tile[row][:] += left(row) * panel_row[:]
template <int ROWS, int VECTORS, class Left>
inline __attribute__((always_inline)) void AddOuterProduct(Vector (&tile)[ROWS][VECTORS],
                                                           const float* panel_row, Left left) {
  Vector right[VECTORS];
  JAXCNN_UNROLL
  for (int v = 0; v < VECTORS; ++v)
    right[v] = Load(panel_row + v * kLanes);
  JAXCNN_UNROLL
  for (int row = 0; row < ROWS; ++row) JAXCNN_UNROLL
    for (int v = 0; v < VECTORS; ++v) tile[row][v] += left(row) * right[v];
}

// Rows of a panel; `stride` is the distance from one to the next. While they are used, the floats
// at `next` are fetched into a cache, `step` further after each row; null if nothing is to be
// fetched.
struct PanelRows {
  const float* data;
  Index stride;
  const float* next = nullptr;
  Index step = 0;
};

// A tile whose left factor is given row by row: the sum over runs and k < length of
//   lefts[row][offsets[run] + offset + k] * right[run * length + k][:]
// If it fetches, `right.next` is not null.
template <int ROWS, int VECTORS, bool FETCHES>
void MultiplyRows(const float* const* lefts, const Index* offsets, Index runs, Index offset,
                  Index length, const PanelRows& right, const Sink& sink) {
  Vector tile[ROWS][VECTORS] = {};
  const float* left[ROWS];
  for (int row = 0; row < ROWS; ++row) left[row] = lefts[row] + offset;
  const float *panel_row = right.data, *next = right.next;
  const Index stride = right.stride, step = right.step;
  for (Index run = 0; run < runs; ++run) JAXCNN_UNROLL_4
    for (Index k = offsets[run]; k < offsets[run] + length; ++k, panel_row += stride) {
      AddOuterProduct(tile, panel_row, [&](int row) { return left[row][k]; });
      if constexpr (FETCHES) {
        __builtin_prefetch(next, 0, 2);
        next += step;
      }
    }
  StoreTile(tile, sink);
}

// A tile whose left factor is given column by column: the sum over lines and k < length of
//   lefts[line][offset + k * step + row] * panels[line][k][:]
// where `stride` is the distance between the rows of the panels.
template <int ROWS, int VECTORS>
void MultiplyColumns(const float* const* lefts, const float* const* panels, Index lines,
                     Index length, Index offset, Index step, Index stride, const Sink& sink) {
  Vector tile[ROWS][VECTORS] = {};
  if (!sink.is_first)  // the partial sums of a large gradient are in no near cache
    for (int row = 0; row < ROWS; ++row)
      for (int v = 0; v < VECTORS; ++v)
        __builtin_prefetch(sink.sums + row * sink.pitch + v * kLanes, 1);
  for (Index line = 0; line < lines; ++line) {
    const float* left = lefts[line] + offset;
    const float* panel_row = panels[line];
    JAXCNN_UNROLL_4
    for (Index k = 0; k < length; ++k, left += step, panel_row += stride)
      AddOuterProduct(tile, panel_row, [&](int row) { return left[row]; });
  }
  StoreTile(tile, sink);
}

using RowsFunction = decltype(&MultiplyRows<1, 1, false>);
using ColumnsFunction = decltype(&MultiplyColumns<1, 1>);

// The functions for tiles of one size.
struct TileFunctions {
  RowsFunction rows, rows_that_fetch;
  ColumnsFunction columns;
};

template <int VECTORS, int... ROW>
constexpr std::array<TileFunctions, kMaxRows> FunctionsOfVectors(
    std::integer_sequence<int, ROW...>) {
  return {{{MultiplyRows<std::min(ROW + 1, MaxRows(VECTORS)), VECTORS, false>,
            MultiplyRows<std::min(ROW + 1, MaxRows(VECTORS)), VECTORS, true>,
            MultiplyColumns<std::min(ROW + 1, MaxRows(VECTORS)), VECTORS>}...}};
}

template <int... V>
constexpr auto AllFunctions(std::integer_sequence<int, V...>) {
  return std::array<std::array<TileFunctions, kMaxRows>, kMaxVectors>{
      {FunctionsOfVectors<V + 1>(std::make_integer_sequence<int, kMaxRows>{})...}};
}

// [vectors - 1][rows - 1]
constexpr auto kTileFunctions = AllFunctions(std::make_integer_sequence<int, kMaxVectors>{});

// Floats of packed kernels that are read from beyond the second-level cache, also for the next
// block.
constexpr Index kLargeKernel = 1 << 18;

// How the columns of a right factor are divided into panels. All take `width` floats a row in
// memory, but only as many vectors of the last one are computed as it has columns.
struct Panels {
  Index columns;  // of the right factor
  Index count;    // of panels
  Index vectors;  // of a full panel's row
  Index width;    // of a full panel, in floats

  explicit Panels(Index columns) : columns(columns) {
    const Index all_vectors = CeilDiv(columns, kLanes);
    count = CeilDiv(all_vectors, kMaxVectors);
    vectors = CeilDiv(all_vectors, count);
    width = vectors * kLanes;
    count = CeilDiv(all_vectors, vectors);
  }

  Index FirstColumn(Index panel) const { return panel * width; }
  Index ColumnCount(Index panel) const { return std::min(width, columns - FirstColumn(panel)); }

  Index VectorCount(Index panel) const { return CeilDiv(ColumnCount(panel), kLanes); }

  // Rows of the largest tile, and floats of its sums.
  Index TileRows() const { return MaxRows(static_cast<int>(vectors)); }
  Index TileSize() const { return TileRows() * width; }

  // The functions for a panel's tiles of this many rows.
  RowsFunction RowsTile(Index panel, Index rows, bool fetches = false) const {
    const TileFunctions& functions = kTileFunctions[VectorCount(panel) - 1][rows - 1];
    return fetches ? functions.rows_that_fetch : functions.rows;
  }
  ColumnsFunction ColumnsTile(Index panel, Index rows) const {
    return kTileFunctions[VectorCount(panel) - 1][rows - 1].columns;
  }

  // Calls f(first, count) for each tile of this many rows, as equal in size as possible.
  template <class F>
  void ForEachTile(Index rows, F f) const {
    const Index tiles = CeilDiv(rows, TileRows());
    for (Index tile = 0; tile < tiles; ++tile) {
      const Range part = PartOf(rows, tile, tiles);
      f(part.first, part.Size());
    }
  }
};

// Rows of a panel for all tiles of it, and those that are used after them, to be fetched into a
// cache; null if they need not be.
struct PanelPiece {
  PanelRows rows;
  const float* next = nullptr;
  Index next_stride = 0;

  // The rows, `count` of them, for the tile that has these of `all` rows of the left factor. The
  // tile fetches its share of as many next ones. Packed ones it fetches a little with each of its
  // rows: all at once, as others, would keep the processor from computing.
  PanelRows ForTile(const Panels& panels, Index count, Range tile, Index all) const {
    if (!next) return rows;
    if (next_stride == panels.width)
      return {rows.data, rows.stride, next + count * panels.width * tile.first / all,
              CeilDiv(panels.width * tile.Size(), all)};
    for (Index row = count * tile.first / all; row < count * tile.last / all; ++row)
      for (Index lane = 0; lane < panels.width; lane += kLanes)
        __builtin_prefetch(next + row * next_stride + lane, 0, 2);
    return rows;
  }
};

}  // namespace jaxcnn
