// The gradient of a convolution with respect to its kernel as defined, for any window.
#pragma once

#include "geometry.h"
#include "gradient_plan.h"

namespace jaxcnn {

// The image pixels of a run of taps, under a block of result pixels: in the images' memory or, if
// many panels use many pixels, in a contiguous copy of a group. Pixels whose distance is a power
// of two would share few places of a cache.
class RunPixels {
 public:
  // For blocks and groups of the plan.
  RunPixels(const GradientPlan& plan, const float* images)
      : step_(plan.g.strides[1] * plan.g.channels),
        rows_(plan.g, images, plan.block_lines),
        offsets_(plan.runs.Offsets(plan.g, rows_.RowStride())),
        pixels_(plan.block_lines),
        is_copy_(plan.panels.count >= 4 && plan.block_lines * plan.block_columns >= 64),
        copy_(is_copy_
                  ? plan.block_lines * plan.block_columns * plan.group_size * plan.panels.TileRows()
                  : 0) {}

  // Prepares a block: `lines` lines from `line` on, counted through all images, and `columns`
  // columns from `column` on.
  void Prepare(Index line, Index lines, Index column, Index columns) {
    if (line != line_ || lines != lines_) rows_.Prepare(line, line + lines);
    line_ = line;
    lines_ = lines;
    column_ = column;
    columns_ = columns;
    run_ = -1;
  }

  // pixels[line][first + column * step]: a tile's first float under each pixel of the block.
  struct View {
    const float* const* pixels;
    Index first, step;
  };
  View Of(const GradientTile& tile) {
    if (tile.run != run_ || tile.group.first != group_.first) SelectGroup(tile);
    return {pixels_.data(), is_copy_ ? tile.first - group_.first : tile.first,
            is_copy_ ? group_.Size() : step_};
  }

 private:
  void SelectGroup(const GradientTile& tile) {
    run_ = tile.run;
    group_ = tile.group;
    float* to = copy_;
    for (Index line = 0; line < lines_; ++line) {
      const float* from = rows_.RowStart(line_ + line) + column_ * step_ + offsets_[run_];
      pixels_[line] = is_copy_ ? to : from;
      if (!is_copy_) continue;
      const Index size = group_.Size();
      for (Index column = 0; column < columns_; ++column, from += step_, to += size)
        for (Index n = 0; n < size; n += kLanes)
          StorePartial(to + n, LoadPartial(from + group_.first + n, size - n), size - n);
    }
  }

  Index step_;  // from the pixel of one window to that of the next
  ImageRows rows_;
  std::vector<Index> offsets_;
  std::vector<const float*> pixels_;
  bool is_copy_;
  Buffer copy_;
  Index line_ = -1, lines_ = 0, column_ = 0, columns_ = 0, run_ = -1;
  Range group_ = {0, 0};
};

// Panels of the cotangent [N][H'][W'][D] of a block: packed when they are needed or, if there is
// only one panel, in the cotangent's memory.
class CotangentPanels {
 public:
  // For blocks of the plan.
  CotangentPanels(const GradientPlan& plan, const float* cotangent)
      : g_(plan.g),
        panels_(plan.panels),
        cotangent_(cotangent),
        packed_(plan.block_lines * plan.block_columns * panels_.width * panels_.count),
        pixels_(plan.block_lines * panels_.count),
        is_ready_(panels_.count) {}

  // Prepares a block: `lines` lines from `line` on, counted through all images, and `columns`
  // columns from `column` on.
  void Prepare(Index line, Index lines, Index column, Index columns) {
    first_ = cotangent_ + (line * g_.columns + column) * g_.result_stride;
    lines_ = lines;
    columns_ = columns;
    const Index used = (lines - 1) * g_.columns + columns;  // pixels
    const Index left = g_.PixelCount() - line * g_.columns - column - used;
    // Reading whole panel rows must not pass the cotangent's end.
    const bool is_inside = panels_.width == g_.outputs || left > panels_.width / g_.outputs;
    is_packed_ = panels_.count > 1 || !is_inside || !g_.IsDense();
    std::fill(is_ready_.begin(), is_ready_.end(), false);
  }

  // The first pixel of each line of a panel. The distance between pixels is Stride().
  const float* const* Of(Index panel) {
    const float** const pixels = pixels_.data() + panel * lines_;
    if (is_ready_[panel]) return pixels;
    for (Index line = 0; line < lines_; ++line) {
      float* const copy = packed_ + (panel * lines_ + line) * columns_ * panels_.width;
      pixels[line] = first_ + line * g_.columns * g_.result_stride;
      if (!is_packed_) continue;
      PackPanel(panels_, panel, pixels[line], g_.result_stride, columns_, copy);
      pixels[line] = copy;
    }
    is_ready_[panel] = true;
    return pixels;
  }

  Index Stride() const { return is_packed_ ? panels_.width : g_.outputs; }

 private:
  Geometry g_;
  Panels panels_;
  const float* cotangent_;
  Buffer packed_;
  std::vector<const float*> pixels_;  // [panel][line]
  std::vector<bool> is_ready_;        // [panel]
  const float* first_ = nullptr;
  Index lines_ = 0, columns_ = 0;
  bool is_packed_ = true;
};

// Computes one share of a kernel gradient. If the pixels are divided, the result is the share's
// sums [tile][row][panels.width]; otherwise `sums` is not used, and the result is a part of the
// gradient.
inline void ComputeGradientShare(const GradientPlan& plan, Index share, const float* images,
                                 const float* cotangent, float* sums, float* gradient) {
  const Index columns = plan.g.columns, size = plan.panels.TileSize();
  const Range mine = plan.TilesOf(share), lines = plan.LinesOf(share);
  // If there is only one block, each tile is finished at once, and all use the same sums.
  const bool is_one_block =
      !plan.divides_pixels && lines.Size() <= plan.block_lines && plan.block_columns == columns;
  const Buffer buffer(plan.divides_pixels || is_one_block ? 0 : mine.Size() * size);
  if (!plan.divides_pixels) sums = buffer;
  RunPixels run_pixels(plan, images);
  CotangentPanels cotangents(plan, cotangent);
  for (Index line = lines.first; line < lines.last; line += plan.block_lines) {
    const Index height = std::min(plan.block_lines, lines.last - line);
    for (Index column = 0; column < columns; column += plan.block_columns) {
      const Index width = std::min(plan.block_columns, columns - column);
      const bool is_first = line == lines.first && column == 0;
      const bool is_last = line + height == lines.last && column + width == columns;
      run_pixels.Prepare(line, height, column, width);
      cotangents.Prepare(line, height, column, width);
      for (Index at = mine.first; at < mine.last; ++at) {
        const GradientTile& tile = plan.tiles[at];
        const RunPixels::View left = run_pixels.Of(tile);
        const float* const* const right = cotangents.Of(tile.panel);
        Sink sink = {sums + (is_one_block ? 0 : at - mine.first) * size, plan.panels.width,
                     is_first};
        if (is_last && !plan.divides_pixels) {
          sink.result = tile.In(gradient, plan.panels, plan.runs);
          sink.stride = plan.g.outputs;
          sink.columns = plan.panels.ColumnCount(tile.panel);
        }
        plan.panels.ColumnsTile(tile.panel, tile.rows)(
            left.pixels, right, height, width, left.first, left.step, cotangents.Stride(), sink);
      }
    }
  }
}

// Adds the sums of all shares, [share][tile][row][panels.width], to the gradient.
inline void AddShares(const GradientPlan& plan, float* all_sums, float* gradient) {
  const Panels& panels = plan.panels;
  for (Index at = 0; at < plan.TileCount(); ++at) {
    const GradientTile& tile = plan.tiles[at];
    for (Index row = 0; row < tile.rows; ++row) {
      float* const sums = all_sums + at * panels.TileSize() + row * panels.width;
      for (Index share = 1; share < plan.shares; ++share)
        for (Index column = 0; column < panels.ColumnCount(tile.panel); ++column)
          sums[column] += sums[share * plan.SumsSize() + column];
      float* const to = tile.In(gradient, panels, plan.runs) + row * panels.columns;
      std::memcpy(to, sums, panels.ColumnCount(tile.panel) * sizeof(float));
    }
  }
}

// Computes the gradient [h][w][C][D] from images [N][H][W][C] and a cotangent [N][H'][W'][D].
inline void DirectKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                                 const float* cotangent, float* gradient) {
  const GradientPlan plan(g, ThreadCount(pool));
  const Index share_size = plan.divides_pixels ? plan.SumsSize() : 0;
  const Buffer buffer(plan.shares * share_size);
  float* const all_sums = buffer;
  ParallelFor(pool, plan.shares, [=, &plan](Index share) {
    float* const sums = all_sums + share * share_size;
    ComputeGradientShare(plan, share, images, cotangent, sums, gradient);
  });
  if (plan.divides_pixels) AddShares(plan, all_sums, gradient);
}

}  // namespace jaxcnn
