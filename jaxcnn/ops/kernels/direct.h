// The convolution and its gradient by the kernel as they are defined, for any window.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "geometry.h"
#include "work.h"

namespace jaxcnn {

// A pixel's sums of a panel to the result: as they are, or with a bias added and negatives cut off.
inline void Finish(const Panels& panels, Index panel, const float* sums, const float* bias, float* to) {
  for (Index lane = 0; lane < panels.width; lane += kLanes) {
    const Index have = panels.Have(panel) - lane, output = panels.First(panel) + lane;
    Vector sum = Load(sums + lane);
    if (bias) sum = Rectified(sum + LoadSome(bias + output, have));
    StoreSome(to + output, sum, have);
  }
}

// The images that the kernels below read: as they are, or where rows of taps reach into the padding, a copy with it.
class Input {
 public:
  Input(ffi::ThreadPool& pool, const Geometry& given, const float* from) : g(given), images(from) {
    const Geometry whole = Padded(given);
    const bool inside = !given.before[0] && !given.before[1] && whole.high <= given.high && whole.wide <= given.wide;
    if (!RowsOfTaps(given) || inside) return;
    const Index size = whole.high * whole.wide * given.channels;
    padded_ = std::make_unique<Numbers>(given.images * size);
    float* const to = *padded_;
    const Index shares = std::min(given.images, Threads(pool));
    InParallel(pool, shares, [=](Index share) {
      for (Index image = given.images * share / shares; image < given.images * (share + 1) / shares; ++image)
        Pad(given, from + image * given.high * given.wide * given.channels, to + image * size);
    });
    g = whole;
    images = to;
  }

  Geometry g;
  const float* images;

 private:
  std::unique_ptr<Numbers> padded_;
};

// images [N][H][W][C] with kernel to result [N][H'][W'][D]; bias [D] or null.
//
// Of many pixels the kernel is packed once, before; of few, each panel's part when its turn comes.
inline void DirectConvolution(ffi::ThreadPool& pool, const Geometry& given, const float* all, const Kernel& kernel, const float* bias,
                              float* result) {
  constexpr Index kPixels = 96;   // of a block: with a panel's sums in the first cache, with their channels in the second
  constexpr Index kFew = 256;     // that are one block
  constexpr Index kLength = 192;  // of a panel's part that stays in the first cache
  const Input input(pool, given, all);
  const Geometry g = input.g;
  const float* const images = input.images;
  const Panels panels(g.outputs);
  const Index depth = kernel.Rows();
  const bool few = g.Pixels() <= kFew, rows_of_taps = RowsOfTaps(given);
  const Numbers packed(few ? 0 : panels.count * depth * panels.width);
  float* const weights = packed;
  if (!few)
    InParallel(pool, panels.count, [=](Index panel) { kernel.Pack(panels, panel, 0, depth, weights + panel * depth * panels.width); });

  const Index across = rows_of_taps ? 1 : g.taps[1];  // runs of a row of taps
  const Index runs = g.taps[0] * across, length = depth / runs;
  const Index together = std::max<Index>(1, kLength / length), piece = std::min(length, kLength);  // of a tile's one pass: runs, or a run's part
  const Index pixels = few ? g.Pixels() : kPixels, blocks = (g.Pixels() + pixels - 1) / pixels;
  const Index parts = std::min(panels.count, std::max<Index>(1, 4 * Threads(pool) / blocks));  // few pixels: panels are shared out too
  const Index units = blocks * parts, shares = std::min(units, 4 * Threads(pool));
  InParallel(pool, shares, [=](Index share) {
    const Numbers sums(pixels * panels.width), part_packed(few ? kLength * panels.width : 0), zeros(length);
    std::fill_n(static_cast<float*>(zeros), length, 0.0f);
    const Index kept = rows_of_taps ? 1 : runs;  // pointers of a pixel: of the first row of taps, below which the others lie, or of every tap
    std::vector<const float*> lefts(pixels * kept);
    std::vector<Index> offsets(runs, 0);
    for (Index run = 0; rows_of_taps && run < runs; ++run) offsets[run] = run * g.dilation[0] * g.wide * g.channels;
    Index found = -1;
    for (Index unit = units * share / shares; unit < units * (share + 1) / shares; ++unit) {
      const Index block = unit / parts, part = unit % parts;
      const Index first = block * pixels, last = std::min(g.Pixels(), first + pixels);
      if (found != block) {
        Geometry::Place place = g.PlaceOf(first);
        for (Index pixel = first; pixel < last; ++pixel, place = g.Next(place)) {
          const float** const left = &lefts[(pixel - first) * kept];
          if (rows_of_taps)
            *left = g.At(images, place);
          else
            g.UnderAll(images, place, g.taps[0], across, zeros, left);
        }
      }
      found = block;
      for (Index panel = panels.count * part / parts; panel < panels.count * (part + 1) / parts; ++panel) {
        for (Index run = 0; run < runs; run += together)
          for (Index k = 0; k < length; k += piece) {
            const Index some = std::min(together, runs - run), deep = std::min(piece, length - k);
            const float* right = weights + (panel * depth + run * length + k) * panels.width;
            if (few) {
              kernel.Pack(panels, panel, run * length + k, some * deep, part_packed);
              right = part_packed;
            }
            panels.EachTile(last - first, [&](Index row, Index rows) {
              const Lefts left = {&lefts[row * kept + (rows_of_taps ? 0 : run)], kept, !rows_of_taps, &offsets[run], k};
              panels.OfPointers(rows)(left, some, deep, right, sums + row * panels.width, run + k == 0);
            });
          }
        for (Index pixel = first; pixel < last; ++pixel)
          Finish(panels, panel, sums + (pixel - first) * panels.width, bias, result + pixel * g.outputs);
      }
    }
  });
}

// images [N][H][W][C] with cotangent [N][H'][W'][D] to result [h][w][C][D].
//
// The result's tiles are shared out, so no sum is of two threads; each goes over the pixels block by block, while all of its tiles use them.
inline void DirectKernelGradient(ffi::ThreadPool& pool, const Geometry& given, const float* all, const float* cotangent, float* result) {
  constexpr Index kPixels = 112;
  const Input input(pool, given, all);
  const Geometry g = input.g;
  const float* const images = input.images;
  const Index across = RowsOfTaps(given) ? 1 : g.taps[1];
  const Index runs = g.taps[0] * across, length = g.Taps() * g.channels / runs;
  const Panels panels(g.outputs);
  struct Tile {
    Index panel, run, first, rows;
  };
  std::vector<Tile> tiles;
  for (Index panel = 0; panel < panels.count; ++panel)
    panels.EachTile(length, [&](Index first, Index rows) {
      for (Index run = 0; run < runs; ++run) tiles.push_back({panel, run, first, rows});
    });
  const Index count = static_cast<Index>(tiles.size()), shares = std::min(count, Threads(pool));

  const bool large = count * kMostRows * panels.width / shares > 1 << 18;  // sums that leave the second cache: fewer passes over them
  const Index most = large ? 4 * kPixels : kPixels;
  const Index strips = (g.columns + most - 1) / most, columns = (g.columns + strips - 1) / strips;
  const Index together = strips > 1 ? 1 : std::max<Index>(1, most / columns);  // rows of one image or of several

  InParallel(pool, shares, [=, &tiles](Index share) {
    const Index begin = count * share / shares, end = count * (share + 1) / shares;
    const bool once = g.images * g.rows <= together && strips == 1;  // one block: a tile's sums are not kept
    const Numbers sums((once ? 1 : end - begin) * kMostRows * panels.width), packed(together * columns * panels.width);
    std::vector<const float*> lefts, rights;
    const auto finish = [&](const Tile& tile, const float* from) {
      for (Index row = 0; row < tile.rows; ++row)
        std::memcpy(result + (tile.run * length + tile.first + row) * g.outputs + panels.First(tile.panel), from + row * panels.width,
                    panels.Have(tile.panel) * sizeof(float));
    };
    bool fresh = true;
    for (Index row = 0; row < g.images * g.rows; row += together)
      for (Index column = 0; column < g.columns; column += columns) {
        const Index rows = std::min(together, g.images * g.rows - row), wide = std::min(columns, g.columns - column);
        Index panel = -1, run = -1, skipped = 0, used = 0;
        for (Index at = begin; at < end; ++at) {
          const Tile& tile = tiles[at];
          if (tile.panel != panel)
            for (Index r = 0; r < rows; ++r)
              PackPanel(panels, tile.panel, cotangent + ((row + r) * g.columns + column) * g.outputs, wide, packed + r * wide * panels.width);
          if (tile.run != run || tile.panel != panel) {
            const Index i = tile.run / across, j = tile.run % across;
            const Index left = column * g.strides[1] - g.before[1] + j * g.dilation[1];  // the image's column under the first
            skipped = left < 0 ? (-left + g.strides[1] - 1) / g.strides[1] : 0;
            used = std::min(wide, left < g.wide ? (g.wide - 1 - left) / g.strides[1] + 1 : 0) - skipped;
            lefts.clear();
            rights.clear();
            for (Index r = 0; r < rows; ++r) {
              const Index y = (row + r) % g.rows * g.strides[0] - g.before[0] + i * g.dilation[0];
              if (y < 0 || y >= g.high || used <= 0) continue;
              lefts.push_back(images + (((row + r) / g.rows * g.high + y) * g.wide + left + skipped * g.strides[1]) * g.channels);
              rights.push_back(packed + (r * wide + skipped) * panels.width);
            }
          }
          panel = tile.panel;
          run = tile.run;
          float* const to = sums + (once ? 0 : at - begin) * kMostRows * panels.width;
          panels.OfColumns(tile.rows)(lefts.data(), rights.data(), static_cast<Index>(lefts.size()), used, tile.first,
                                      g.strides[1] * g.channels, to, fresh);
          if (once) finish(tile, to);
        }
        fresh = false;
      }
    for (Index at = begin; at < end && !once; ++at) finish(tiles[at], sums + (at - begin) * kMostRows * panels.width);
  });
}

}  // namespace jaxcnn
