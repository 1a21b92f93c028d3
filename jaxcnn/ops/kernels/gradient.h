// The gradient of a convolution by its kernel as it is defined, for any window.
#pragma once

#include "geometry.h"

namespace jaxcnn {

// A tile of the gradient by the kernel: of a panel's outputs, so many of a run's numbers from one on, which are some of those that are held.
struct GradientTile {
  Index panel, run, first, rows;
  Range held;

  // Its place in the gradient [h][w][C][D].
  float* In(float* gradient, const Panels& panels, const Runs& runs) const {
    return gradient + (run * runs.length + first) * panels.columns + panels.First(panel);
  }
};

// In the order in which they are found: all panels' of the numbers that are held, which are so many tiles', so that these and the cotangent stay in
// the caches, and a run's gradient is written as it lies in memory.
inline std::vector<GradientTile> GradientTiles(const Panels& panels, const Runs& runs, Index together) {
  std::vector<Range> rows;
  panels.EachTile(runs.length, [&](Index first, Index count) { rows.push_back({first, first + count}); });
  std::vector<GradientTile> tiles;
  tiles.reserve(rows.size() * runs.count * panels.count);
  for (Index group = 0, count = static_cast<Index>(rows.size()); group < count; group += together) {
    const Index end = std::min(group + together, count);
    const Range held = {rows[group].first, rows[end - 1].last};
    for (Index run = 0; run < runs.count; ++run)
      for (Index panel = 0; panel < panels.count; ++panel)
        for (Index at = group; at < end; ++at) tiles.push_back({panel, run, rows[at].first, rows[at].Size(), held});
  }
  return tiles;
}

// Some numbers of a run under some of the result's pixels: as they are in memory, or where many panels use many pixels, a copy of them side by
// side: what lies a power of two apart finds few places in a cache.
class RunNumbers {
 public:
  // For so many rows and columns at a time, and so many numbers.
  RunNumbers(const Geometry& g, const Panels& panels, const Runs& runs, const float* images, Index rows, Index columns, Index most)
      : step_(g.strides[1] * g.channels), rows_(g, images, rows), offsets_(runs.Offsets(g, rows_.Below())), pixels_(rows),
        copies_(panels.count >= 4 && rows * columns >= 64), copy_(copies_ ? rows * columns * most : 0) {}

  // Before `Of` is asked of so many rows, counted through all images, and columns, from one on.
  void Hold(Index line, Index rows, Index column, Index columns) {
    if (line != line_ || rows != high_) rows_.Hold(line, line + rows);
    line_ = line;
    high_ = rows;
    column_ = column;
    columns_ = columns;
    run_ = -1;
  }

  // Under each row's first pixel, from where the tile's numbers are so many on; those of the next pixel lie `step` apart.
  struct Found {
    const float* const* pixels;
    Index first, step;
  };
  Found Of(const GradientTile& tile) {
    if (tile.run != run_ || tile.held.first != held_.first) Find(tile);
    return {pixels_.data(), copies_ ? tile.first - held_.first : tile.first, copies_ ? held_.Size() : step_};
  }

 private:
  void Find(const GradientTile& tile) {
    run_ = tile.run;
    held_ = tile.held;
    float* to = copy_;
    for (Index row = 0; row < high_; ++row) {
      const float* from = rows_.Under(line_ + row) + column_ * step_ + offsets_[run_];
      pixels_[row] = copies_ ? to : from;
      if (!copies_) continue;
      for (Index column = 0; column < columns_; ++column, from += step_, to += held_.Size())
        for (Index n = 0; n < held_.Size(); n += kLanes)
          StoreSome(to + n, LoadSome(from + held_.first + n, held_.Size() - n), held_.Size() - n);
    }
  }

  Index step_;
  Rows rows_;
  std::vector<Index> offsets_;
  std::vector<const float*> pixels_;
  bool copies_;
  Numbers copy_;
  Index line_ = -1, high_ = 0, column_ = 0, columns_ = 0, run_ = -1;
  Range held_ = {0, 0};
};

// Panels of some of the cotangent [N][H'][W'][D]: packed when they are needed, or where there is but one, as it lies in memory.
class CotangentRows {
 public:
  // For so many rows and columns at a time.
  CotangentRows(const Geometry& g, const Panels& panels, const float* cotangent, Index rows, Index columns)
      : g_(g), panels_(panels), cotangent_(cotangent), packed_(rows * columns * panels.width * panels.count), pixels_(rows * panels.count),
        have_(panels.count) {}

  // Before `Of` is asked of so many rows, counted through all images, and columns, from one on.
  void Hold(Index line, Index rows, Index column, Index columns) {
    first_ = cotangent_ + (line * g_.columns + column) * g_.outputs;
    rows_ = rows;
    columns_ = columns;
    const Index used = (rows - 1) * g_.columns + columns;  // pixels
    const Index left = g_.Pixels() - line * g_.columns - column - used;
    const bool inside = left > panels_.width / g_.outputs;  // no panel's last row is read behind the cotangent's end
    as_they_are_ = panels_.count == 1 && (panels_.width == g_.outputs || inside);
    std::fill(have_.begin(), have_.end(), false);
  }

  // The first pixel of each row of a panel; the pixels lie `Apart`.
  const float* const* Of(Index panel) {
    const float** const pixels = pixels_.data() + panel * rows_;
    if (have_[panel]) return pixels;
    for (Index row = 0; row < rows_; ++row) {
      float* const copy = packed_ + (panel * rows_ + row) * columns_ * panels_.width;
      pixels[row] = first_ + row * g_.columns * g_.outputs;
      if (as_they_are_) continue;
      PackPanel(panels_, panel, pixels[row], columns_, copy);
      pixels[row] = copy;
    }
    have_[panel] = true;
    return pixels;
  }

  Index Apart() const { return as_they_are_ ? g_.outputs : panels_.width; }

 private:
  Geometry g_;
  Panels panels_;
  const float* cotangent_;
  Numbers packed_;
  std::vector<const float*> pixels_;  // [panel][row]
  std::vector<bool> have_;
  const float* first_ = nullptr;
  Index rows_ = 0, columns_ = 0;
  bool as_they_are_ = false;
};

// The tiles of all threads' sums [share][tile][row][width], together, to the gradient.
inline void AddUp(const Panels& panels, const Runs& runs, const std::vector<GradientTile>& tiles, Index shares, float* all, float* gradient) {
  const Index size = panels.TileSize(), count = static_cast<Index>(tiles.size());
  for (Index at = 0; at < count; ++at)
    for (Index row = 0; row < tiles[at].rows; ++row) {
      float* const sums = all + at * size + row * panels.width;
      for (Index share = 1; share < shares; ++share)
        for (Index column = 0; column < panels.width; ++column) sums[column] += sums[share * count * size + column];
      std::memcpy(tiles[at].In(gradient, panels, runs) + row * panels.columns, sums, panels.Have(tiles[at].panel) * sizeof(float));
    }
}

// images [N][H][W][C] with cotangent [N][H'][W'][D] to result [h][w][C][D].
//
// It goes over the pixels block by block, while all of the result's tiles use them. Of a small result each thread has sums of its own, and a part
// of the pixels, so its rounding depends on the number of threads; else the result's tiles are shared out, and no sum is of two threads.
inline void DirectKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images, const float* cotangent, float* result) {
  constexpr Index kPixels = 112, kSmall = 1 << 18;  // of a block; numbers of all threads' sums
  constexpr Index kLarge = 1 << 18;                 // numbers that leave the second cache
  const Panels panels(g.outputs);
  const Runs runs(g);
  const Index most = runs.count * runs.length * g.outputs > kLarge * Threads(pool) ? 4 * kPixels : kPixels;  // fewer passes over large sums
  const Index held = std::min(most, g.Pixels()) * g.outputs > kLarge ? 32 : 4;  // tiles: more, where the cotangent comes from further away
  const std::vector<GradientTile> tiles = GradientTiles(panels, runs, held);
  const Index count = static_cast<Index>(tiles.size()), size = panels.TileSize(), lines = g.images * g.rows;

  const Index columns = Even(g.columns, most), strips = Ceil(g.columns, columns);
  const Index together = strips > 1 ? 1 : std::clamp<Index>(most / columns, 1, lines);  // rows of one image or of several
  const Index blocks = Ceil(lines, together);

  const Index owners = std::min(Threads(pool), blocks / 2), sharers = std::min(count, Threads(pool));
  const bool own = owners >= sharers && count * size * owners <= kSmall;
  const Index shares = own ? owners : sharers;
  const Numbers owned(own ? shares * count * size : 0);
  float* const all_sums = owned;
  InParallel(pool, shares, [=, &tiles](Index share) {
    const Range mine = own ? Range{0, count} : Part(count, share, shares), over = own ? Part(blocks, share, shares) : Range{0, blocks};
    const Index first = over.first * together, last = std::min(lines, over.last * together);
    const bool once = !own && last - first <= together && strips == 1;  // one block: a tile's sums are not kept
    const Numbers shared(own || once ? 0 : mine.Size() * size);
    float* const sums = own ? all_sums + share * count * size : static_cast<float*>(shared);
    RunNumbers numbers(g, panels, runs, images, together, columns, held * panels.TileRows());
    CotangentRows cotangents(g, panels, cotangent, together, columns);
    for (Index line = first; line < last; line += together) {
      const Index high = std::min(together, last - line);
      for (Index column = 0; column < g.columns; column += columns) {
        const Index wide = std::min(columns, g.columns - column);
        const bool fresh = line == first && column == 0, finished = !own && line + high == last && column + wide == g.columns;
        numbers.Hold(line, high, column, wide);
        cotangents.Hold(line, high, column, wide);
        for (Index at = mine.first; at < mine.last; ++at) {
          const GradientTile& tile = tiles[at];
          const RunNumbers::Found left = numbers.Of(tile);
          const float* const* const right = cotangents.Of(tile.panel);
          panels.OfColumns(tile.rows)(left.pixels, right, high, wide, left.first, left.step, cotangents.Apart(),
                                      {sums + (once ? 0 : at - mine.first) * size, fresh, finished ? tile.In(result, panels, runs) : nullptr,
                                       g.outputs, panels.Have(tile.panel), nullptr});
        }
      }
    }
  });
  if (own) AddUp(panels, runs, tiles, shares, all_sums, result);
}

}  // namespace jaxcnn
