// The convolution and its gradient by the kernel as they are defined, for any window.
#pragma once

#include "geometry.h"

namespace jaxcnn {

// All panels of a kernel: [panel][row][width].
inline void PackAll(ffi::ThreadPool& pool, const Panels& panels, const Kernel& kernel, float* to) {
  const Index size = kernel.Rows() * panels.width, shares = Shares(pool, panels.count, size);
  InParallel(pool, shares, [=](Index share) {
    for (Index panel = panels.count * share / shares; panel < panels.count * (share + 1) / shares; ++panel)
      kernel.Pack(panels, panel, 0, kernel.Rows(), to + panel * size);
  });
}

// Whether a pixel of the result is of one of the images alone, in its place: a product of matrices.
inline bool IsProduct(const Geometry& g) {
  return g.Taps() == 1 && g.strides[0] == 1 && g.strides[1] == 1 && g.rows == g.high && g.columns == g.wide;
}

// left [M][K] with right [N][K] to result [M][N], for few rows of the left: their transpose is packed instead of the right, and so is the product
// found, its tiles turned as they are written.
inline void ProductOfRows(ffi::ThreadPool& pool, Index few, Index many, Index depth, const float* left, const float* right, float* result) {
  constexpr Index kRows = 48, kLength = 192;  // of the right, whose sums stay in the first cache; of a panel's part
  const Panels panels(few);
  const Kernel transposed = {left, 1, depth, few, true};
  const Index panel_size = depth * panels.width;
  const Numbers packed(panels.count * panel_size);
  float* const columns = packed;
  PackAll(pool, panels, transposed, columns);
  const Index blocks = (many + kRows - 1) / kRows, shares = Shares(pool, blocks);
  InParallel(pool, shares, [=](Index share) {
    const Numbers sums(kRows * panels.width);
    const float* lefts[kRows];
    const Index none = 0;
    for (Index first = blocks * share / shares * kRows; first < std::min(many, blocks * (share + 1) / shares * kRows); first += kRows) {
      const Index rows = std::min(kRows, many - first);
      for (Index row = 0; row < rows; ++row) lefts[row] = right + (first + row) * depth;
      for (Index panel = 0; panel < panels.count; ++panel) {
        for (Index k = 0; k < depth; k += kLength)
          panels.EachTile(rows, [&](Index row, Index count) {
            panels.OfPointers(count)(&lefts[row], &none, 1, k, std::min(kLength, depth - k), columns + panel * panel_size + k * panels.width,
                                     {sums + row * panels.width, k == 0});
          });
        for (Index column = 0; column < panels.Have(panel); ++column)
          for (Index row = 0; row < rows; ++row)
            result[(panels.First(panel) + column) * many + first + row] = sums[row * panels.width + column];
      }
    }
  });
}

// images [N][H][W][C] with kernel to result [N][H'][W'][D]; bias [D] or null.
//
// Of many pixels the kernel is packed once, before; of few, each panel's part when its turn comes.
inline void DirectConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel, const float* bias,
                              float* result) {
  constexpr Index kPixels = 96;   // of a block: with a panel's sums in the first cache, with their channels in the second
  constexpr Index kFew = 256;     // that are one block
  constexpr Index kLength = 192;  // of a panel's part that stays in the first cache
  const bool few = g.Pixels() <= kFew;
  if (few && kernel.turned && !bias && IsProduct(g) && g.outputs >= g.Pixels())
    return ProductOfRows(pool, g.Pixels(), g.outputs, g.channels, images, kernel.from, result);
  const Panels panels(g.outputs);
  const Runs runs(g);
  const Index depth = kernel.Rows();
  const Numbers packed(few ? 0 : panels.count * depth * panels.width);
  float* const weights = packed;
  if (!few) PackAll(pool, panels, kernel, weights);

  const Index together = std::max<Index>(1, kLength / runs.length), piece = std::min(runs.length, kLength);  // of a tile's one pass: runs, or a run's part
  const Index whole_rows = std::max<Index>(1, kPixels / g.columns) * g.columns;  // what is padded is so row by row
  const Index pixels = few ? g.Pixels() : Rows::Reaches(g) ? whole_rows : kPixels, blocks = (g.Pixels() + pixels - 1) / pixels;
  const Index parts = std::min(panels.count, std::max<Index>(1, 8 * Threads(pool) / blocks));  // few pixels: panels are shared out too
  const Index units = blocks * parts, shares = Shares(pool, units, pixels * depth);
  InParallel(pool, shares, [=](Index share) {
    Rows rows(g, images, pixels / g.columns + 2);
    const std::vector<Index> offsets = runs.Offsets(g, rows.Below());
    const Numbers sums(depth > kLength ? pixels * panels.width : 0), part_packed(few ? kLength * panels.width : 0);
    std::vector<const float*> lefts(pixels);
    Index found = -1;
    for (Index unit = units * share / shares; unit < units * (share + 1) / shares; ++unit) {
      const Index block = unit / parts, part = unit % parts, first = block * pixels, last = std::min(g.Pixels(), first + pixels);
      if (found != block) {
        rows.Hold(first / g.columns, (last - 1) / g.columns + 1);
        for (Index row = first / g.columns, pixel = first; pixel < last; ++row)
          for (const float* const left = rows.Under(row); pixel < std::min(last, (row + 1) * g.columns); ++pixel)
            lefts[pixel - first] = left + (pixel - row * g.columns) * g.strides[1] * g.channels;
      }
      found = block;
      for (Index panel = panels.count * part / parts; panel < panels.count * (part + 1) / parts; ++panel)
        for (Index run = 0; run < runs.count; run += together)
          for (Index k = 0; k < runs.length; k += piece) {
            const Index some = std::min(together, runs.count - run), deep = std::min(piece, runs.length - k);
            const float* right = weights + (panel * depth + run * runs.length + k) * panels.width;
            if (few) {
              kernel.Pack(panels, panel, run * runs.length + k, some * deep, part_packed);
              right = part_packed;
            }
            const bool fresh = run + k == 0, finished = run + some == runs.count && k + deep == runs.length;
            float* const pixel = finished ? result + first * g.outputs + panels.First(panel) : nullptr;
            const float* const shift = bias ? bias + panels.First(panel) : nullptr;
            panels.EachTile(last - first, [&](Index row, Index count) {
              panels.OfPointers(count)(&lefts[row], &offsets[run], some, k, deep, right,
                                       {sums + row * panels.width, fresh, finished ? pixel + row * g.outputs : nullptr, g.outputs, panels.Have(panel), shift});
            });
          }
    }
  });
}

// A tile of the gradient by the kernel: of a panel's outputs, so many of a run's numbers from one on.
struct GradientTile {
  Index panel, run, first, rows;

  // Its place in the gradient [h][w][C][D].
  float* In(float* gradient, const Panels& panels, const Runs& runs) const {
    return gradient + (run * runs.length + first) * panels.columns + panels.First(panel);
  }
};

inline std::vector<GradientTile> GradientTiles(const Panels& panels, const Runs& runs) {
  std::vector<GradientTile> tiles;
  for (Index panel = 0; panel < panels.count; ++panel)
    panels.EachTile(runs.length, [&](Index first, Index rows) {
      for (Index run = 0; run < runs.count; ++run) tiles.push_back({panel, run, first, rows});
    });
  return tiles;
}

// images [N][H][W][C] with cotangent [N][H'][W'][D] to result [h][w][C][D].
//
// It goes over the pixels block by block, while all of the result's tiles use them. Of a small result each thread has sums of its own, and a part of the
// pixels; else the result's tiles are shared out, and no sum is of two threads.
inline void DirectKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images, const float* cotangent, float* result) {
  constexpr Index kPixels = 112, kSmall = 1 << 18, kLarge = 1 << 18;  // sums of all threads; of one, that leave the second cache
  const Panels panels(g.outputs);
  const Runs runs(g);
  const std::vector<GradientTile> tiles = GradientTiles(panels, runs);
  const Index count = static_cast<Index>(tiles.size()), size = kMostRows * panels.width, lines = g.images * g.rows;

  const Index most = count * size / Threads(pool) > kLarge ? 4 * kPixels : kPixels;  // fewer passes over large sums
  const Index strips = (g.columns + most - 1) / most, columns = (g.columns + strips - 1) / strips;
  const Index together = strips > 1 ? 1 : std::max<Index>(1, most / columns);  // rows of one image or of several
  const Index blocks = (lines + together - 1) / together;

  const bool own = count * size * Threads(pool) <= kSmall && blocks >= 2 * Threads(pool);
  const Index shares = own ? Threads(pool) : std::min(count, Threads(pool));
  const Numbers owned(own ? shares * count * size : 0);
  float* const all_sums = owned;
  InParallel(pool, shares, [=, &tiles](Index share) {
    const Index begin = own ? 0 : count * share / shares, end = own ? count : count * (share + 1) / shares;
    const Index first = own ? blocks * share / shares * together : 0;
    const Index last = own ? std::min(lines, blocks * (share + 1) / shares * together) : lines;
    const bool once = !own && last - first <= together && strips == 1;  // one block: a tile's sums are not kept
    const Numbers shared(own || once ? 0 : (end - begin) * size), packed(together * columns * panels.width);
    float* const sums = own ? all_sums + share * count * size : static_cast<float*>(shared);
    Rows rows(g, images, together);
    const std::vector<Index> offsets = runs.Offsets(g, rows.Below());
    std::vector<const float*> lefts(together), rights(together);
    for (Index line = first; line < last; line += together) {
      const Index high = std::min(together, last - line);
      rows.Hold(line, line + high);
      for (Index column = 0; column < g.columns; column += columns) {
        const Index wide = std::min(columns, g.columns - column);
        const float* const pixels = cotangent + (line * g.columns + column) * g.outputs;
        const bool beside = (lines - line) * g.columns - column >= ((high - 1) * g.columns + wide) + panels.width / g.outputs + 1;  // none is read behind the last
        const bool as_they_are = panels.count == 1 && (panels.width == g.outputs || beside);
        const bool finished = !own && line + high == last && column + wide == g.columns;
        const Index apart = as_they_are ? g.outputs : panels.width;
        Index panel = -1, run = -1;
        for (Index at = begin; at < end; ++at) {
          const GradientTile& tile = tiles[at];
          for (Index r = 0; r < high && tile.panel != panel; ++r) {
            rights[r] = as_they_are ? pixels + r * g.columns * g.outputs : packed + r * wide * panels.width;
            if (!as_they_are) PackPanel(panels, tile.panel, pixels + r * g.columns * g.outputs, wide, packed + r * wide * panels.width);
          }
          for (Index r = 0; r < high && (tile.run != run || tile.panel != panel); ++r)
            lefts[r] = rows.Under(line + r) + column * g.strides[1] * g.channels + offsets[tile.run];
          panel = tile.panel;
          run = tile.run;
          panels.OfColumns(tile.rows)(lefts.data(), rights.data(), high, wide, tile.first, g.strides[1] * g.channels, apart,
                                      {sums + (once ? 0 : at - begin) * size, line == first && column == 0,
                                       finished ? tile.In(result, panels, runs) : nullptr, g.outputs, panels.Have(panel), nullptr});
        }
      }
    }
  });
  for (Index at = 0; at < count && own; ++at)
    for (Index row = 0; row < tiles[at].rows; ++row)
      for (Index column = 0; column < panels.Have(tiles[at].panel); ++column) {
        float sum = 0;
        for (Index share = 0; share < shares; ++share) sum += all_sums[(share * count + at) * size + row * panels.width + column];
        tiles[at].In(result, panels, runs)[row * g.outputs + column] = sum;
      }
}

}  // namespace jaxcnn
