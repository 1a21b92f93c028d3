// The convolution and its gradient by the kernel as they are defined, for any window.
#pragma once

#include "geometry.h"

namespace jaxcnn {

constexpr Index kPart = 192;  // rows of a panel that stay in the first cache

// All panels of a kernel: [panel][row][width].
inline void PackAll(ffi::ThreadPool& pool, const Panels& panels, const Kernel& kernel, float* to) {
  const Index size = kernel.Rows() * panels.width, shares = Shares(pool, panels.count, size);
  InParallel(pool, shares, [=](Index share) {
    const Range mine = Part(panels.count, share, shares);
    for (Index panel = mine.first; panel < mine.last; ++panel) kernel.Pack(panels, panel, 0, kernel.Rows(), to + panel * size);
  });
}

// Whether a pixel of the result is of one of the images alone, in its place: a product of matrices.
inline bool IsProduct(const Geometry& g) {
  return g.Taps() == 1 && g.strides[0] == 1 && g.strides[1] == 1 && g.rows == g.high && g.columns == g.wide;
}

// left [M][K] with right [N][K] to result [M][N], for few rows of the left: their transpose is packed instead of the right, and the product's
// transpose is found, turned as it is written.
inline void ProductOfRows(ffi::ThreadPool& pool, Index few, Index many, Index depth, const float* left, const float* right, float* result) {
  constexpr Index kRows = 48, kLong = 1024;  // of the right, whose sums stay in the first cache; numbers of a row, read one after the other
  const Panels panels(few);
  const Kernel transposed = {left, 1, depth, few, true};
  const Index panel_size = depth * panels.width;
  const Numbers columns(panels.count * panel_size);
  PackAll(pool, panels, transposed, columns);
  const Index blocks = Ceil(many, kRows), shares = Shares(pool, blocks);
  InParallel(pool, shares, [&, few, many, depth, panel_size, blocks, shares](Index share) {
    const Numbers sums(panels.count * kRows * panels.width);
    const float* lefts[kRows];
    const Index none = 0;
    const Range mine = Part(blocks, share, shares);
    for (Index first = mine.first * kRows; first < std::min(many, mine.last * kRows); first += kRows) {
      const Index rows = std::min(kRows, many - first);
      for (Index row = 0; row < rows; ++row) lefts[row] = right + (first + row) * depth;
      for (Index k = 0; k < depth; k += kLong)
        for (Index panel = 0; panel < panels.count; ++panel)
          panels.EachTile(rows, [&](Index row, Index count) {
            panels.OfPointers(count)(&lefts[row], &none, 1, k, std::min(kLong, depth - k),
                                     {columns + panel * panel_size + k * panels.width, panels.width},
                                     {sums + (panel * kRows + row) * panels.width, k == 0});
          });
      for (Index column = 0; column < few; ++column) {
        const float* const sum = sums + column / panels.width * kRows * panels.width + column % panels.width;
        for (Index row = 0; row < rows; ++row) result[column * many + first + row] = sum[row * panels.width];
      }
    }
  });
}

// Some pixels of a convolution's result, and where in memory their windows are.
class Windows {
 public:
  // For so many pixels at a time.
  Windows(const Geometry& g, const float* images, Index most)
      : g_(g), runs_(g), rows_(g, images, most / g.columns + 2), offsets_(runs_.Offsets(g, rows_.Below())), lefts_(most) {}

  // Before `Convolve` finds the pixels from first to last; where windows reach into the padding, whole rows of the result.
  void Hold(Index first, Index last) {
    first_ = first;
    count_ = last - first;
    rows_.Hold(first / g_.columns, (last - 1) / g_.columns + 1);
    for (Index row = first / g_.columns, pixel = first; pixel < last; ++row)
      for (const float* const left = rows_.Under(row); pixel < std::min(last, (row + 1) * g_.columns); ++pixel)
        lefts_[pixel - first] = left + (pixel - row * g_.columns) * g_.strides[1] * g_.channels;
  }

  // Some panels' outputs of these pixels. `weights` gives so many rows of a panel's from one on, at most so many of them.
  //
  // Part by part of the rows, all panels use them, so that weights are read as they lie in memory; the sums are [panel][pixel][width].
  template <class Weights>
  void Convolve(const Panels& panels, Range over, Index most, Weights weights, float* sums, const float* bias, float* result) const {
    const Index together = std::max<Index>(1, most / runs_.length);  // runs of a tile's one pass,
    const Index piece = std::min(runs_.length, most);                // or a run's part
    for (Index run = 0; run < runs_.count; run += together)
      for (Index k = 0; k < runs_.length; k += piece)
        for (Index panel = over.first; panel < over.last; ++panel) {
          const Index some = std::min(together, runs_.count - run), deep = std::min(piece, runs_.length - k);
          const Right right = weights(panel, run * runs_.length + k, some * deep);
          const bool fresh = run + k == 0, finished = run + some == runs_.count && k + deep == runs_.length;
          float* const to = sums + (panel - over.first) * count_ * panels.width;
          float* const pixel = finished ? result + first_ * g_.outputs + panels.First(panel) : nullptr;
          const float* const shift = bias ? bias + panels.First(panel) : nullptr;
          panels.EachTile(count_, [&](Index row, Index rows) {
            panels.OfPointers(rows)(&lefts_[row], &offsets_[run], some, k, deep, right,
                                    {to + row * panels.width, fresh, finished ? pixel + row * g_.outputs : nullptr, g_.outputs,
                                     panels.Have(panel), shift});
          });
        }
  }

 private:
  Geometry g_;
  Runs runs_;
  Rows rows_;
  std::vector<Index> offsets_;
  std::vector<const float*> lefts_;
  Index first_ = 0, count_ = 0;
};

// Of few pixels, which are one block: the panels are shared out, a stretch of them to each thread, which reads the weights as they lie in memory.
// For very few, they are not worth packing.
inline void ConvolutionOfFew(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel, const float* bias,
                             float* result) {
  constexpr Index kSums = 1 << 17, kRead = 8;       // numbers that stay in the second cache; pixels that take as long as reading the weights
  constexpr Index kVeryFew = 96, kPartOfFew = 64;  // pixels; rows of a panel that stay in the second cache, however far apart
  const Panels panels(g.outputs);
  Windows windows(g, images, g.Pixels());
  windows.Hold(0, g.Pixels());
  const bool packs = kernel.turned || g.Pixels() > kVeryFew;
  const Index most = std::max<Index>(1, kSums / (g.Pixels() * panels.width));
  const Index shares = std::min(Threads(pool), Shares(pool, panels.count, std::max(g.Pixels(), kRead) * kernel.Rows()));
  InParallel(pool, shares, [&, packs, most, shares](Index share) {
    const Range mine = Part(panels.count, share, shares);
    const Numbers sums(g.Pixels() * panels.width * std::min(most, mine.Size())), packed(kPart * panels.width);
    const auto weights = [&](Index panel, Index first, Index rows) -> Right {
      if (!packs && panels.Have(panel) == panels.width) return {kernel.from + first * g.outputs + panels.First(panel), g.outputs};
      kernel.Pack(panels, panel, first, rows, packed);
      return {packed, panels.width};
    };
    for (Index panel = mine.first; panel < mine.last; panel += most) {
      const Range some = {panel, std::min(mine.last, panel + most)};
      windows.Convolve(panels, some, packs ? kPart : kPartOfFew, weights, sums, bias, result);
    }
  });
}

// Of many pixels: their blocks are shared out, the panels too where blocks are few, and the kernel is packed once, before.
inline void ConvolutionOfMany(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel, const float* bias,
                              float* result) {
  constexpr Index kPixels = 96;  // of a block, or a row: with a panel's sums in the first cache, with their channels in the second
  const Panels panels(g.outputs);
  const Index size = kernel.Rows() * panels.width;
  const Numbers packed(panels.count * size);
  PackAll(pool, panels, kernel, packed);
  const Index pixels = Rows::Reaches(g) ? std::max<Index>(1, kPixels / g.columns) * g.columns : kPixels, blocks = Ceil(g.Pixels(), pixels);
  const Index parts = std::min(panels.count, Ceil(4 * Threads(pool), blocks)), units = blocks * parts;
  const Index shares = Shares(pool, units, pixels * kernel.Rows());
  InParallel(pool, shares, [&, pixels, parts, units, shares, size](Index share) {
    const Numbers sums(pixels * panels.width);
    Windows windows(g, images, pixels);
    Index held = -1;
    const Range mine = Part(units, share, shares);
    for (Index unit = mine.first; unit < mine.last; ++unit) {
      const Index block = unit / parts;
      const Range some = Part(panels.count, unit % parts, parts);
      if (block != held) windows.Hold(block * pixels, std::min(g.Pixels(), (block + 1) * pixels));
      held = block;
      const auto weights = [&](Index panel, Index first, Index) -> Right {
        return {packed + panel * size + first * panels.width, panels.width};
      };
      for (Index panel = some.first; panel < some.last; ++panel) windows.Convolve(panels, {panel, panel + 1}, kPart, weights, sums, bias, result);
    }
  });
}

// images [N][H][W][C] with kernel to result [N][H'][W'][D]; bias [D] or null.
inline void DirectConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel, const float* bias,
                              float* result) {
  constexpr Index kFew = 256;  // pixels
  if (g.Pixels() > kFew)
    ConvolutionOfMany(pool, g, images, kernel, bias, result);
  else if (kernel.turned && !bias && IsProduct(g) && g.outputs >= g.Pixels())
    ProductOfRows(pool, g.Pixels(), g.outputs, g.channels, images, kernel.from, result);
  else
    ConvolutionOfFew(pool, g, images, kernel, bias, result);
}

// A tile of the gradient by the kernel: of a panel's outputs, so many of a run's numbers from one on, which are some of those that are held.
struct GradientTile {
  Index panel, run, first, rows;
  Range held;

  // Its place in the gradient [h][w][C][D].
  float* In(float* gradient, const Panels& panels, const Runs& runs) const {
    return gradient + (run * runs.length + first) * panels.columns + panels.First(panel);
  }
};

// In the order in which they are found: all panels' of the numbers that are held, so many tiles' of them, so that the gradient is written as it
// lies in memory.
inline std::vector<GradientTile> GradientTiles(const Panels& panels, const Runs& runs, Index together) {
  std::vector<Range> rows;
  panels.EachTile(runs.length, [&](Index first, Index count) { rows.push_back({first, first + count}); });
  std::vector<GradientTile> tiles;
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

  // A tile's first number under each row's first pixel; those of the other pixels lie `Step` apart.
  const float* const* Of(const GradientTile& tile) {
    if (tile.run != run_ || tile.held.first != held_.first) Find(tile);
    return pixels_.data();
  }
  Index Step() const { return copies_ ? held_.Size() : step_; }
  Index First(const GradientTile& tile) const { return copies_ ? tile.first - held_.first : tile.first; }

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

// Panels of some of the cotangent [N][H'][W'][D]: as they are in memory where nothing else lies between their rows, or packed when they are needed.
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
  const Index size = kMostRows * panels.width, count = static_cast<Index>(tiles.size());
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
  constexpr Index kPixels = 112, kLarge = 1 << 18;  // numbers that leave the second cache
  const Panels panels(g.outputs);
  const Runs runs(g);
  const Index most = runs.count * runs.length * g.outputs > kLarge * Threads(pool) ? 4 * kPixels : kPixels;  // fewer passes over large sums
  const bool leaves = std::min(most, g.Pixels()) * g.outputs > kLarge;                                       // a block of the cotangent
  const Index held = leaves ? 32 : 4;  // tiles
  const std::vector<GradientTile> tiles = GradientTiles(panels, runs, held);
  const Index count = static_cast<Index>(tiles.size()), size = kMostRows * panels.width, lines = g.images * g.rows;

  const Index strips = Ceil(g.columns, most), columns = Ceil(g.columns, strips);
  const Index together = strips > 1 ? 1 : std::max<Index>(1, most / columns);  // rows of one image or of several
  const Index blocks = Ceil(lines, together);

  const Index owners = std::min(Threads(pool), blocks / 2), sharers = std::min(count, Threads(pool));
  const bool own = owners >= sharers && count * size * owners <= kLarge;
  const Index shares = own ? owners : sharers;
  const Numbers owned(own ? shares * count * size : 0);
  float* const all_sums = owned;
  InParallel(pool, shares, [=, &tiles](Index share) {
    const Range mine = own ? Range{0, count} : Part(count, share, shares), over = own ? Part(blocks, share, shares) : Range{0, blocks};
    const Index first = over.first * together, last = std::min(lines, over.last * together);
    const bool once = !own && last - first <= together && strips == 1;  // one block: a tile's sums are not kept
    const Numbers shared(own || once ? 0 : mine.Size() * size);
    float* const sums = own ? all_sums + share * count * size : static_cast<float*>(shared);
    RunNumbers numbers(g, panels, runs, images, together, columns, held * kMostRows);
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
          const float* const* const lefts = numbers.Of(tile);
          const float* const* const rights = cotangents.Of(tile.panel);
          panels.OfColumns(tile.rows)(lefts, rights, high, wide, numbers.First(tile), numbers.Step(), cotangents.Apart(),
                                      {sums + (once ? 0 : at - mine.first) * size, fresh, finished ? tile.In(result, panels, runs) : nullptr,
                                       g.outputs, panels.Have(tile.panel), nullptr});
        }
      }
    }
  });
  if (own) AddUp(panels, runs, tiles, shares, all_sums, result);
}

}  // namespace jaxcnn
