// Convolutions of adjacent taps with fewer multiplications: Winograd's minimal filtering.
//
// Lavin & Gray 2016, "Fast Algorithms for Convolutional Neural Networks", section 4. A tile of the
// result is computed from the image pixels d under it and the taps w as
//   result = A' [(G w G') * (B' d B)] A,
// where * multiplies element by element. The brackets are summed over the channels before A' and A
// are applied, so each of their elements is a matrix product over the channels. Transposed, this
// gives the gradient with respect to the kernel: with the cotangent c of a tile,
//   gradient = G' [(B' d B) * (A c A')] G,
// where the brackets are summed over the tiles before G' and G are applied. The transformed tiles
// stay in the caches: they are made, multiplied and used up block by block.
#pragma once

#include <vector>

#include "geometry.h"
#include "winograd_tiles.h"

namespace jaxcnn {

// The number of tiles that are transformed, multiplied and used up together.
template <class Scheme>
Index BlockSize(const Geometry& g, const Tiling& tiling, const Panels& panels, Index threads) {
  constexpr Index kElements = Scheme::kSide * Scheme::kSide;
  constexpr Index kMaxSize = (1 << 15) / kElements;  // floats of an element's channels
  constexpr Index kLargeWeights = 1 << 20;  // floats that are read again, not from the second-level
                                            // cache, for each block
  const Index weights = kElements * panels.count * panels.width * g.channels;
  const Index fitting = kMaxSize / std::max(g.channels, g.outputs) / 6 * 6;
  const Index limit =
      weights > kLargeWeights ? 72 : std::min<Index>(192, std::max<Index>(24, fitting));
  const Index rounds = CeilDiv(tiling.count, limit * threads);  // blocks of each thread
  if (rounds >= 8) return limit;
  return std::max<Index>(6, CeilDiv(tiling.count, rounds * threads));
}

// Convolves a range of blocks of `block_size` tiles with the transformed kernel `weights`,
// [element][panel][channel][panels.width].
template <class Scheme>
void ConvolveBlocks(const Geometry& g, const Tiling& tiling, const Panels& panels, Range blocks,
                    Index block_size, const float* images, const float* weights,
                    const Epilogue& epilogue, float* result) {
  constexpr Index kElements = Scheme::kSide * Scheme::kSide;
  constexpr Index kDepth = 256;  // channels of a sum; longer sums have larger rounding errors
  const Index channels = g.channels, panel_size = channels * panels.width;
  const bool fetches = kElements * panels.count * panel_size >= kLargeKernel;
  const Buffer pixels(kElements * block_size * channels), zeros(channels);
  const Buffer sums(kElements * block_size * panels.width);
  std::fill_n(static_cast<float*>(zeros), channels, 0.0f);
  std::vector<const float*> lefts(kElements * block_size);
  for (Index at = 0; at < kElements * block_size; ++at) lefts[at] = pixels + at * channels;
  const Index no_offset = 0;
  for (Index block = blocks.first; block < blocks.last; ++block) {
    const Index first = block * block_size;
    const Range tiles = {first, std::min(tiling.count, first + block_size)};
    TransformImages<Scheme>(g, tiling, images, tiles, 0, channels, zeros, pixels,
                            block_size * channels);
    for (Index panel = 0; panel < panels.count; ++panel) {
      for (Index element = 0; element < kElements; ++element)
        for (Index k = 0; k < channels; k += kDepth) {
          const float* const panel_rows = weights + (element * panels.count + panel) * panel_size;
          const Index depth = std::min(kDepth, channels - k);
          const float* const next = k + depth < channels ? panel_rows + (k + depth) * panels.width
                                                         : panel_rows + panels.count * panel_size;
          const PanelPiece piece = {{panel_rows + k * panels.width, panels.width},
                                    fetches ? next : nullptr,
                                    panels.width};
          panels.ForEachTile(tiles.Size(), [&](Index row, Index rows) {
            const Index first_row = element * block_size + row;
            const PanelRows right = piece.ForTile(panels, depth, {row, row + rows}, tiles.Size());
            panels.RowsTile(panel, rows, right.next)(
                &lefts[first_row], &no_offset, 1, k, depth, right,
                {sums + first_row * panels.width, panels.width, k == 0});
          });
        }
      TransformSums<Scheme>(g, tiling, panels, panel, sums, block_size * panels.width, tiles,
                            epilogue, result);
    }
  }
}

// Floats of the transformed kernel.
template <class Scheme>
Index TransformedSize(const Geometry& g) {
  const Panels panels(g.outputs);
  return Scheme::kSide * Scheme::kSide * panels.count * g.channels * panels.width;
}

// Transforms a kernel to [element][panel][channel][panels.width].
template <class Scheme>
void TransformKernels(ffi::ThreadPool& pool, const Geometry& g, const Kernel& kernel,
                      float* weights) {
  const Panels panels(g.outputs);
  const Index panel_size = g.channels * panels.width, element_size = panels.count * panel_size;
  ParallelFor(pool, panels.count, [=](Index panel) {
    TransformKernel<Scheme>(panels, panel, kernel, weights + panel * panel_size, element_size);
  });
}

// The same as DirectConvolution.
template <class Scheme>
void WinogradConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                         const Kernel& kernel, const Epilogue& epilogue, float* result) {
  const Tiling tiling(g, Scheme::kTile);
  const Panels panels(g.outputs);
  const Buffer buffer(kernel.packed ? 0 : TransformedSize<Scheme>(g));
  if (!kernel.packed) TransformKernels<Scheme>(pool, g, kernel, buffer);
  const float* const weights = kernel.packed ? kernel.packed : buffer;
  const Index block_size = BlockSize<Scheme>(g, tiling, panels, ThreadCount(pool));
  const Index blocks = CeilDiv(tiling.count, block_size), shares = ShareCount(pool, blocks);
  ParallelFor(pool, shares, [=](Index share) {
    ConvolveBlocks<Scheme>(g, tiling, panels, PartOf(blocks, share, shares), block_size, images,
                           weights, epilogue, result);
  });
}

// Computes the gradient of a range of channels.
template <class Scheme>
void ComputeGradientOfChannels(const Geometry& g, Range range, const float* images,
                               const float* cotangent, float* gradient) {
  constexpr Index kElements = Scheme::kSide * Scheme::kSide;
  constexpr Index kMaxSize = (1 << 17) / kElements;  // floats of an element's channels or panel
  const Tiling tiling(g, Scheme::kTile);
  const Panels panels(g.outputs);
  const Index channels = range.Size(), sums_size = channels * panels.width;  // of an element
  const Index fitting = kMaxSize / std::max(channels, panels.width);
  const Index block_size = std::clamp<Index>(fitting, 32, 64);  // more would round worse
  const Buffer pixels(kElements * block_size * channels), zeros(g.channels);
  const Buffer cotangents(kElements * block_size * panels.width);
  const Buffer sums(kElements * panels.count * sums_size);  // [panel][element][channel][width]
  std::fill_n(static_cast<float*>(zeros), g.channels, 0.0f);
  for (Index first = 0; first < tiling.count; first += block_size) {
    const Range tiles = {first, std::min(tiling.count, first + block_size)};
    TransformImages<Scheme>(g, tiling, images, tiles, range.first, channels, zeros, pixels,
                            block_size * channels);
    for (Index panel = 0; panel < panels.count; ++panel) {
      TransformCotangent<Scheme>(g, tiling, panels, panel, cotangent, tiles, cotangents,
                                 block_size * panels.width);
      for (Index element = 0; element < kElements; ++element) {
        const float* left = pixels + element * block_size * channels;
        const float* right = cotangents + element * block_size * panels.width;
        float* const element_sums = sums + (panel * kElements + element) * sums_size;
        panels.ForEachTile(channels, [&](Index row, Index rows) {
          panels.ColumnsTile(panel, rows)(
              &left, &right, 1, tiles.Size(), row, channels, panels.width,
              {element_sums + row * panels.width, panels.width, first == 0});
        });
      }
    }
  }
  for (Index panel = 0; panel < panels.count; ++panel)
    TransformGradient<Scheme>(g, panels, panel, sums + panel * kElements * sums_size, sums_size,
                              range, gradient);
}

// The same as DirectKernelGradient. The channels are divided between the threads.
template <class Scheme>
void WinogradKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                            const float* cotangent, float* gradient) {
  const Index shares = std::min(g.channels, ThreadCount(pool));
  ParallelFor(pool, shares, [=](Index share) {
    const Range channels = PartOf(g.channels, share, shares);
    ComputeGradientOfChannels<Scheme>(g, channels, images, cotangent, gradient);
  });
}

}  // namespace jaxcnn
