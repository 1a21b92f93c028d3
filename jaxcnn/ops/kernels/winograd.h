// Convolutions of taps one pixel apart, with fewer multiplications than their definition has: Winograd's minimal filtering.
//
// Lavin & Gray 2016, "Fast Algorithms for Convolutional Neural Networks", section 4: for a tile of the result, with the pixels d of the
// images under it and the taps w,
//   result = A' [(G w G') * (B' d B)] A,   summed over the channels before A' and A are applied,
// so that each element of the brackets is a product of matrices, over the channels. Turned round, for the gradient by the kernel,
//   taps' gradient = G' [(B' d B) * (A c A')] G,   c being the tile's cotangent, summed over the tiles before G' and G are applied.
// A tile's transforms stay in the caches: block by block they are made, multiplied and used up.
#pragma once

#include <vector>

#include "geometry.h"
#include "transform.h"

namespace jaxcnn {

// Tiles of the result, each TILE pixels high and wide.
struct Tiling {
  Index tile, high, wide, count;  // pixels of a tile's side; tiles of an image's column, of its row, of all images

  Tiling(const Geometry& g, Index tile)
      : tile(tile), high(Ceil(g.rows, tile)), wide(Ceil(g.columns, tile)), count(g.images * high * wide) {}

  // The first pixel of a tile's in the result.
  Geometry::Place PlaceOf(Index at) const { return {at / (high * wide), at / wide % high * tile, at % wide * tile}; }
};

// B' d B of each tile from first to last, of so many channels from one on: to [element][tile][channel]; elements lie `apart`.
template <class Scheme>
void TransformImages(const Geometry& g, const Tiling& tiling, const float* images, Index first, Index last, Index channel, Index channels,
                     const float* zeros, float* to, Index apart) {
  for (Index tile = first; tile < last; ++tile, to += channels) {
    Geometry::Place place = tiling.PlaceOf(tile);
    place.row -= g.before[0];
    place.column -= g.before[1];
    const float* pixels[Scheme::kSide * Scheme::kSide];
    g.UnderAll(images + channel, place, Scheme::kSide, Scheme::kSide, zeros, pixels);
    for (Index c = 0; c < channels; c += kLanes)
      Transform<Scheme::kOfImages>([&](int i, int j) { return LoadSome(pixels[i * Scheme::kSide + j] + c, channels - c); },
                                   [&](int i, int j, Vector element) {
                                     StoreSome(to + (i * Scheme::kSide + j) * apart + c, element, channels - c);
                                   });
  }
}

// G w G' of a panel of the kernel: to [element][C][width]; elements lie `apart`.
template <class Scheme>
void TransformKernel(const Panels& panels, Index panel, const Kernel& kernel, float* to, Index apart) {
  const Index size = kernel.channels * panels.width;
  const Numbers packed(kernel.taps * size);
  kernel.Pack(panels, panel, 0, kernel.Rows(), packed);
  for (Index at = 0; at < size; at += kLanes)
    Transform<Scheme::kOfTaps>([&](int i, int j) { return Load(packed + (i * Scheme::kTaps + j) * size + at); },
                               [&](int i, int j, Vector element) { Store(to + (i * Scheme::kSide + j) * apart + at, element); });
}

// A' m A of each tile from first to last, m being [element][tile][width]: to the result's pixels, finished.
template <class Scheme>
void TransformSums(const Geometry& g, const Tiling& tiling, const Panels& panels, Index panel, const float* sums, Index apart, Index first,
                   Index last, const float* bias, float* result) {
  for (Index tile = first; tile < last; ++tile, sums += panels.width) {
    const Geometry::Place place = tiling.PlaceOf(tile);
    float* const pixels = result + ((place.image * g.rows + place.row) * g.columns + place.column) * g.outputs;
    for (Index lane = 0; lane < panels.width; lane += kLanes) {
      const Index have = panels.Have(panel) - lane, output = panels.First(panel) + lane;
      if (have <= 0) break;
      const Vector shift = bias ? LoadSome(bias + output, have) : Vector{};
      Transform<Scheme::kOfSums>([&](int i, int j) { return Load(sums + (i * Scheme::kSide + j) * apart + lane); },
                                 [&](int i, int j, Vector pixel) {
                                   if (place.row + i >= g.rows || place.column + j >= g.columns) return;
                                   if (bias) pixel = Rectified(pixel + shift);
                                   StoreSome(pixels + (i * g.columns + j) * g.outputs + output, pixel, have);
                                 });
    }
  }
}

// A c A' of each tile from first to last, of a panel of the cotangent [N][H'][W'][D]: to [element][tile][width].
template <class Scheme>
void TransformCotangent(const Geometry& g, const Tiling& tiling, const Panels& panels, Index panel, const float* cotangent, Index first,
                        Index last, float* to, Index apart) {
  for (Index tile = first; tile < last; ++tile, to += panels.width) {
    const Geometry::Place place = tiling.PlaceOf(tile);
    const float* const pixels =
        cotangent + ((place.image * g.rows + place.row) * g.columns + place.column) * g.outputs + panels.First(panel);
    for (Index lane = 0; lane < panels.width; lane += kLanes)
      Transform<Scheme::kOfCotangent>(
          [&](int i, int j) {
            const bool inside = place.row + i < g.rows && place.column + j < g.columns;
            return inside ? LoadSome(pixels + (i * g.columns + j) * g.outputs + lane, panels.Have(panel) - lane) : Vector{};
          },
          [&](int i, int j, Vector element) { Store(to + (i * Scheme::kSide + j) * apart + lane, element); });
  }
}

// G' m G of the sums [element][channel][width]: to so many channels, from one on, of the kernel's gradient [h][w][C][D].
template <class Scheme>
void TransformGradient(const Panels& panels, Index panel, const float* sums, Index apart, Index channel, Index channels, Index all,
                       float* result) {
  for (Index c = 0; c < channels; ++c)
    for (Index lane = 0; lane < panels.width; lane += kLanes)
      Transform<Scheme::kOfGradient>(
          [&](int i, int j) { return Load(sums + (i * Scheme::kSide + j) * apart + c * panels.width + lane); },
          [&](int i, int j, Vector tap) {
            StoreSome(result + ((i * Scheme::kTaps + j) * all + channel + c) * panels.columns + panels.First(panel) + lane, tap,
                      panels.Have(panel) - lane);
          });
}

// As `DirectConvolution`.
template <class Scheme>
void WinogradConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel, const float* bias,
                         float* result) {
  constexpr Index kElements = Scheme::kSide * Scheme::kSide;
  constexpr Index kBlock = (1 << 15) / kElements;  // numbers of an element's channels
  constexpr Index kLarge = 1 << 20;                // numbers of weights that leave the second cache, and pass through it for each block
  constexpr Index kDepth = 256;  // channels summed before they are added to the others: the more at a time, the larger the rounding errors
  const Tiling tiling(g, Scheme::kTile);
  const Panels panels(g.outputs);
  const Index channels = g.channels, panel_size = channels * panels.width, apart = panels.count * panel_size;
  const Numbers transformed(kElements * apart);
  float* const weights = transformed;  // [element][panel][channel][width]
  InParallel(pool, panels.count, [=](Index panel) {
    TransformKernel<Scheme>(panels, panel, kernel, weights + panel * panel_size, apart);
  });

  const Index small = std::min<Index>(192, std::max<Index>(24, kBlock / std::max(channels, g.outputs) / 6 * 6));
  const Index most = kElements * apart > kLarge ? 72 : small;  // tiles
  const Index rounds = Ceil(tiling.count, most * Threads(pool));  // blocks of each thread
  const Index block = rounds < 8 ? std::max<Index>(6, Ceil(tiling.count, rounds * Threads(pool))) : most;
  const Index blocks = Ceil(tiling.count, block), shares = Shares(pool, blocks);
  InParallel(pool, shares, [=](Index share) {
    const Numbers pixels(kElements * block * channels), sums(kElements * block * panels.width), zeros(channels);
    std::fill_n(static_cast<float*>(zeros), channels, 0.0f);
    std::vector<const float*> lefts(kElements * block);
    const Index none = 0;
    for (Index at = 0; at < kElements * block; ++at) lefts[at] = pixels + at * channels;
    const Range mine = Part(blocks, share, shares);
    for (Index at = mine.first; at < mine.last; ++at) {
      const Index first = at * block, last = std::min(tiling.count, first + block);
      TransformImages<Scheme>(g, tiling, images, first, last, 0, channels, zeros, pixels, block * channels);
      for (Index panel = 0; panel < panels.count; ++panel) {
        for (Index element = 0; element < kElements; ++element)
          for (Index k = 0; k < channels; k += kDepth)
            panels.EachTile(last - first, [&](Index row, Index rows) {
              panels.OfPointers(rows)(&lefts[element * block + row], &none, 1, k, std::min(kDepth, channels - k),
                                      {weights + element * apart + panel * panel_size + k * panels.width, panels.width},
                                      {sums + (element * block + row) * panels.width, k == 0});
            });
        TransformSums<Scheme>(g, tiling, panels, panel, sums, block * panels.width, first, last, bias, result);
      }
    }
  });
}

// As `DirectKernelGradient`. The channels are shared out.
template <class Scheme>
void WinogradKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images, const float* cotangent, float* result) {
  constexpr Index kElements = Scheme::kSide * Scheme::kSide;
  constexpr Index kBlock = (1 << 17) / kElements;  // numbers of an element's channels or panel
  const Tiling tiling(g, Scheme::kTile);
  const Panels panels(g.outputs);
  const Index shares = std::min(g.channels, Threads(pool));
  InParallel(pool, shares, [=](Index share) {
    const Range mine = Part(g.channels, share, shares);
    const Index channel = mine.first, channels = mine.Size();
    const Index held = channels * panels.width, total = kElements * panels.count * held;
    const Index block = std::min<Index>(256, std::max<Index>(32, kBlock / std::max(channels, panels.width)));
    const Numbers pixels(kElements * block * channels), tiles(kElements * block * panels.width), sums(total), zeros(g.channels);
    std::fill_n(static_cast<float*>(zeros), g.channels, 0.0f);
    for (Index first = 0; first < tiling.count; first += block) {
      const Index last = std::min(tiling.count, first + block);
      TransformImages<Scheme>(g, tiling, images, first, last, channel, channels, zeros, pixels, block * channels);
      for (Index panel = 0; panel < panels.count; ++panel) {
        TransformCotangent<Scheme>(g, tiling, panels, panel, cotangent, first, last, tiles, block * panels.width);
        for (Index element = 0; element < kElements; ++element) {
          const float* left = pixels + element * block * channels;
          const float* right = tiles + element * block * panels.width;
          panels.EachTile(channels, [&](Index row, Index rows) {
            panels.OfColumns(rows)(&left, &right, 1, last - first, row, channels, panels.width,
                                   {sums + (panel * kElements + element) * held + row * panels.width, first == 0});
          });
        }
      }
    }
    for (Index panel = 0; panel < panels.count; ++panel)
      TransformGradient<Scheme>(panels, panel, sums + panel * kElements * held, held, channel, channels, g.channels, result);
  });
}

}  // namespace jaxcnn
