// The transforms of tiles in Winograd's minimal filtering; winograd.h has the formulas.
#pragma once

#include "geometry.h"
#include "transform.h"

namespace jaxcnn {

// The division of the result into tiles of `side` x `side` pixels.
struct Tiling {
  Index side;          // pixels
  Index down, across;  // tiles of an image
  Index count;         // tiles of all images

  Tiling(const Geometry& g, Index side)
      : side(side),
        down(CeilDiv(g.rows, side)),
        across(CeilDiv(g.columns, side)),
        count(g.batch * down * across) {}

  // The position of a tile's first pixel in the result.
  Geometry::Position PositionOf(Index tile) const {
    return {tile / (down * across), tile / across % down * side, tile % across * side};
  }
};

// The position of a pixel of the result [N][H'][W'][D] in memory, in floats.
inline Index OffsetInResult(const Geometry& g, const Geometry::Position& position) {
  return ((position.image * g.rows + position.row) * g.columns + position.column) * g.result_stride;
}

// B' d B of the tiles `first` to `last`, for `channels` channels from `channel` on, to
// [element][tile][channel], where elements are `stride` apart.
template <class Scheme>
void TransformImages(const Geometry& g, const Tiling& tiling, const float* images, Range tiles,
                     Index channel, Index channels, const float* zeros, float* to, Index stride) {
  constexpr int kSide = Scheme::kSide;
  for (Index tile = tiles.first; tile < tiles.last; ++tile, to += channels) {
    Geometry::Position position = tiling.PositionOf(tile);
    position.row -= g.padding[0];
    position.column -= g.padding[1];
    const float* pixels[kSide * kSide];
    g.GatherPixels(images + channel, position, kSide, kSide, zeros, pixels);
    for (Index c = 0; c < channels; c += kLanes)
      Transform<Scheme::kImageMatrix>(
          [&](int i, int j) { return LoadPartial(pixels[i * kSide + j] + c, channels - c); },
          [&](int i, int j, Vector element) {
            StorePartial(to + (i * kSide + j) * stride + c, element, channels - c);
          });
  }
}

// G w G' of a panel of the kernel, to [element][channel][panels.width], where elements are `stride`
// apart.
template <class Scheme>
void TransformKernel(const Panels& panels, Index panel, const Kernel& kernel, float* to,
                     Index stride) {
  const Index size = kernel.channels * panels.width;
  const Buffer packed(kernel.taps * size);
  kernel.Pack(panels, panel, 0, kernel.Rows(), packed);
  for (Index at = 0; at < size; at += kLanes)
    Transform<Scheme::kTapMatrix>(
        [&](int i, int j) { return Load(packed + (i * Scheme::kTaps + j) * size + at); },
        [&](int i, int j, Vector element) {
          Store(to + (i * Scheme::kSide + j) * stride + at, element);
        });
}

// A' m A of tiles, where the sums m are [element][tile][panels.width], to the result's pixels.
template <class Scheme>
void TransformSums(const Geometry& g, const Tiling& tiling, const Panels& panels, Index panel,
                   const float* sums, Index stride, Range tiles, const Epilogue& epilogue,
                   float* result) {
  for (Index tile = tiles.first; tile < tiles.last; ++tile, sums += panels.width) {
    const Geometry::Position position = tiling.PositionOf(tile);
    float* const pixels = result + OffsetInResult(g, position);
    for (Index lane = 0; lane < panels.ColumnCount(panel); lane += kLanes) {
      const Index output = panels.FirstColumn(panel) + lane;
      const Index count = panels.ColumnCount(panel) - lane;
      Transform<Scheme::kSumMatrix>(
          [&](int i, int j) { return Load(sums + (i * Scheme::kSide + j) * stride + lane); },
          [&](int i, int j, Vector pixel) {
            if (position.row + i >= g.rows || position.column + j >= g.columns) return;
            StorePartial(pixels + (i * g.columns + j) * g.result_stride + output, pixel, count);
          });
    }
    if (!epilogue) continue;
    const Index first = panels.FirstColumn(panel), rows = g.rows - position.row;
    for (Index i = 0; i < std::min<Index>(Scheme::kTile, rows); ++i)
      Finish(epilogue.From(first), std::min<Index>(Scheme::kTile, g.columns - position.column),
             panels.ColumnCount(panel), pixels + i * g.columns * g.result_stride + first,
             g.result_stride);
  }
}

// A c A' of tiles of a panel of the cotangent [N][H'][W'][D], to [element][tile][panels.width],
// where elements are `stride` apart.
template <class Scheme>
void TransformCotangent(const Geometry& g, const Tiling& tiling, const Panels& panels, Index panel,
                        const float* cotangent, Range tiles, float* to, Index stride) {
  for (Index tile = tiles.first; tile < tiles.last; ++tile, to += panels.width) {
    const Geometry::Position position = tiling.PositionOf(tile);
    const float* const pixels = cotangent + OffsetInResult(g, position) + panels.FirstColumn(panel);
    for (Index lane = 0; lane < panels.ColumnCount(panel); lane += kLanes)
      Transform<Scheme::kCotangentMatrix>(
          [&](int i, int j) {
            const bool is_inside = position.row + i < g.rows && position.column + j < g.columns;
            return is_inside ? LoadPartial(pixels + (i * g.columns + j) * g.result_stride + lane,
                                           panels.ColumnCount(panel) - lane)
                             : Vector{};
          },
          [&](int i, int j, Vector element) {
            Store(to + (i * Scheme::kSide + j) * stride + lane, element);
          });
  }
}

// G' m G of the sums m [element][channel][panels.width], to a range of the channels of the gradient
// [h][w][C][D].
template <class Scheme>
void TransformGradient(const Geometry& g, const Panels& panels, Index panel, const float* sums,
                       Index stride, Range channels, float* gradient) {
  for (Index c = 0; c < channels.Size(); ++c)
    for (Index lane = 0; lane < panels.ColumnCount(panel); lane += kLanes)
      Transform<Scheme::kGradientMatrix>(
          [&](int i, int j) {
            return Load(sums + (i * Scheme::kSide + j) * stride + c * panels.width + lane);
          },
          [&](int i, int j, Vector tap) {
            const Index row = (i * Scheme::kTaps + j) * g.channels + channels.first + c;
            float* const to = gradient + row * panels.columns + panels.FirstColumn(panel) + lane;
            StorePartial(to, tap, panels.ColumnCount(panel) - lane);
          });
}

}  // namespace jaxcnn
