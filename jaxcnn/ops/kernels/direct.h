// The convolution as it is defined, for any window, and products of matrices, which are its like.
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
  constexpr Index kRows = 48, kLong = 1024;  // of the right, whose sums with a panel stay in the first cache; numbers of a row at a time
  const Panels panels(few);
  const Kernel transposed = {left, 1, depth, few, true};
  const Index panel_size = depth * panels.width, piece = Even(depth, kLong);
  const Numbers columns(panels.count * panel_size);
  PackAll(pool, panels, transposed, columns);
  const Index blocks = Ceil(many, kRows), shares = Shares(pool, blocks);
  InParallel(pool, shares, [&, few, many, depth, panel_size, piece, blocks, shares](Index share) {
    const Numbers sums(panels.count * kRows * panels.width);
    const float* lefts[kRows];
    const Index none = 0;
    const Range mine = Part(blocks, share, shares);
    for (Index first = mine.first * kRows; first < std::min(many, mine.last * kRows); first += kRows) {
      const Index rows = std::min(kRows, many - first);
      for (Index row = 0; row < rows; ++row) lefts[row] = right + (first + row) * depth;
      for (Index k = 0; k < depth; k += piece)
        for (Index panel = 0; panel < panels.count; ++panel)
          panels.EachTile(rows, [&](Index row, Index count) {
            panels.OfPointers(count)(&lefts[row], &none, 1, k, std::min(piece, depth - k),
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
  // It goes over all panels for each part of the rows, in which order the weights lie in memory; the sums are [panel][pixel][width].
  template <class Weights>
  void Convolve(const Panels& panels, Range over, Index most, Weights weights, float* sums, const float* bias, float* result) const {
    const Index together = std::max<Index>(1, most / runs_.length);  // runs of a tile's one pass,
    const Index piece = Even(runs_.length, most);                    // or a run's part
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

// Of few pixels, which are one block: the panels are shared out, a stretch of them to each thread, which reads the weights in the order in which
// they lie in memory, and packs them part by part when their turn comes; for very few pixels they are not worth it.
inline void ConvolutionOfFew(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel, const float* bias,
                             float* result) {
  constexpr Index kResident = 1 << 17, kRead = 8;  // sums that stay in the second cache; pixels that take as long as reading the weights
  constexpr Index kVeryFew = 96, kPartOfFew = 64;  // pixels; rows of a panel, for which a cache finds places though they lie far apart
  const Panels panels(g.outputs);
  Windows windows(g, images, g.Pixels());
  windows.Hold(0, g.Pixels());
  const bool packs = kernel.turned || g.Pixels() > kVeryFew;
  const Index most = std::max<Index>(1, kResident / (g.Pixels() * panels.width));
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

}  // namespace jaxcnn
