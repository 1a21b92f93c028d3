// How the gradient of a convolution with respect to its kernel is divided into tiles and shares.
#pragma once

#include "geometry.h"

namespace jaxcnn {

// A tile of the kernel gradient, which is a matrix [tap and channel][output] in memory.
struct GradientTile {
  Index panel;        // of the outputs
  Index run;          // of taps
  Index first, rows;  // floats of the run
  Range group;        // floats of the run of all tiles in the tile's group

  // The address of the tile in the gradient [h][w][C][D].
  float* In(float* gradient, const Panels& panels, const TapRuns& runs) const {
    return gradient + (run * runs.length + first) * panels.columns + panels.FirstColumn(panel);
  }
};

// All tiles in the order in which they are computed: in groups of `group_size` tiles of a run. A
// group's pixels are used for all panels before the next group's, so that they and the cotangent
// stay in the caches, and the gradient of a run is written in the order of memory.
inline std::vector<GradientTile> ListGradientTiles(const Panels& panels, const TapRuns& runs,
                                                   Index group_size) {
  std::vector<Range> rows;
  panels.ForEachTile(runs.length,
                     [&](Index first, Index count) { rows.push_back({first, first + count}); });
  std::vector<GradientTile> tiles;
  tiles.reserve(rows.size() * runs.count * panels.count);
  const Index count = static_cast<Index>(rows.size());
  for (Index begin = 0; begin < count; begin += group_size) {
    const Index end = std::min(begin + group_size, count);
    const Range group = {rows[begin].first, rows[end - 1].last};
    for (Index run = 0; run < runs.count; ++run)
      for (Index panel = 0; panel < panels.count; ++panel)
        for (Index at = begin; at < end; ++at)
          tiles.push_back({panel, run, rows[at].first, rows[at].Size(), group});
  }
  return tiles;
}

// How the computation of a kernel gradient is divided.
//
// The pixels of the result are processed in blocks, which all tiles use before the next block. If
// the gradient is small, each thread sums all tiles over a part of the pixels, and the sums are
// added in the end, so that the rounding depends on the number of threads. Otherwise the tiles are
// divided between the threads, and every sum belongs to one thread.
struct GradientPlan {
  Geometry g;
  Panels panels;
  TapRuns runs;
  Index group_size;  // tiles
  std::vector<GradientTile> tiles;
  Index lines;                       // rows of the results of all images
  Index block_lines, block_columns;  // whole lines, or a part of one line
  bool divides_pixels;               // instead of tiles, between the shares
  Index shares;

  GradientPlan(const Geometry& g, Index threads)
      : g(g), panels(g.outputs), runs(g), lines(g.batch * g.rows) {
    constexpr Index kBlockPixels = 112;
    constexpr Index kSmall = 1 << 18;  // floats of all threads' sums
    constexpr Index kLarge = 1 << 18;  // floats that do not fit into the second-level cache
    // Large sums need fewer passes. A cotangent that does not fit into the cache needs more tiles.
    const bool has_large_sums = runs.count * runs.length * g.outputs > kLarge * threads;
    const Index max_pixels = has_large_sums ? 4 * kBlockPixels : kBlockPixels;
    group_size = std::min(max_pixels, g.PixelCount()) * g.outputs > kLarge ? 32 : 4;
    tiles = ListGradientTiles(panels, runs, group_size);

    block_columns = EvenSize(g.columns, max_pixels);
    block_lines =
        block_columns < g.columns ? 1 : std::clamp<Index>(max_pixels / block_columns, 1, lines);

    const Index pixel_shares = std::min(threads, BlocksOfLines() / 2);
    const Index tile_shares = std::min(TileCount(), threads);
    divides_pixels = pixel_shares >= tile_shares && SumsSize() * pixel_shares <= kSmall;
    shares = divides_pixels ? pixel_shares : tile_shares;
  }

  Index TileCount() const { return static_cast<Index>(tiles.size()); }
  Index SumsSize() const { return TileCount() * panels.TileSize(); }  // floats
  Index BlocksOfLines() const { return CeilDiv(lines, block_lines); }

  // The tiles and the lines of a share.
  Range TilesOf(Index share) const {
    return divides_pixels ? Range{0, TileCount()} : PartOf(TileCount(), share, shares);
  }
  Range LinesOf(Index share) const {
    if (!divides_pixels) return {0, lines};
    const Range blocks = PartOf(BlocksOfLines(), share, shares);
    return {blocks.first * block_lines, std::min(lines, blocks.last * block_lines)};
  }
};

}  // namespace jaxcnn
