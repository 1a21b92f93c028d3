// The convolution as defined, for any window; matrix products are a special case of it.
#pragma once

#include "geometry.h"

namespace jaxcnn {

constexpr Index kPackedRows = 192;  // rows of a panel that stay in the first-level cache

// Packs all panels of a kernel: to[panel][row][panels.width].
inline void PackKernel(ffi::ThreadPool& pool, const Panels& panels, const Kernel& kernel,
                       float* to) {
  const Index size = kernel.Rows() * panels.width;
  const Index shares = ShareCount(pool, panels.count, size);
  ParallelFor(pool, shares, [=](Index share) {
    const Range mine = PartOf(panels.count, share, shares);
    for (Index panel = mine.first; panel < mine.last; ++panel)
      kernel.Pack(panels, panel, 0, kernel.Rows(), to + panel * size);
  });
}

// Whether each pixel of the result depends only on the image pixel at the same position.
inline bool IsMatrixProduct(const Geometry& g) {
  return g.TapCount() == 1 && g.IsDense() && g.strides[0] == 1 && g.strides[1] == 1 &&
         g.rows == g.height && g.columns == g.width;
}

// The product of left [M][K] and right [N][K], transposed, to result [M][N]; for a small M. The
// left factor is packed instead of the larger right one: the sums are those of the transposed
// product, right * left', and are transposed when they are written to the result.
inline void ProductWithTransposed(ffi::ThreadPool& pool, Index m, Index n, Index depth,
                                  const float* left, const float* right, float* result) {
  constexpr Index kRows = 48;     // of the right factor; their sums fit into the first-level cache
  constexpr Index kPiece = 1024;  // floats of a row at a time
  const Panels panels(m);
  const Kernel transposed = {left, 1, depth, m, true};
  const Index panel_size = depth * panels.width, piece = EvenSize(depth, kPiece);
  const Buffer packed(panels.count * panel_size);
  PackKernel(pool, panels, transposed, packed);
  const Index blocks = CeilDiv(n, kRows), shares = ShareCount(pool, blocks);
  ParallelFor(pool, shares, [&, m, n, depth, panel_size, piece, blocks, shares](Index share) {
    const Buffer sums(panels.count * kRows * panels.width);
    const float* right_rows[kRows];
    const Index no_offset = 0;
    const Range mine = PartOf(blocks, share, shares);
    for (Index first = mine.first * kRows; first < std::min(n, mine.last * kRows); first += kRows) {
      const Index rows = std::min(kRows, n - first);
      for (Index row = 0; row < rows; ++row) right_rows[row] = right + (first + row) * depth;
      for (Index k = 0; k < depth; k += piece)
        for (Index panel = 0; panel < panels.count; ++panel)
          panels.ForEachTile(rows, [&](Index row, Index count) {
            const float* const panel_rows = packed + panel * panel_size + k * panels.width;
            float* const tile_sums = sums + (panel * kRows + row) * panels.width;
            panels.RowsTile(panel, count)(&right_rows[row], &no_offset, 1, k,
                                          std::min(piece, depth - k), {panel_rows, panels.width},
                                          {tile_sums, panels.width, k == 0});
          });
      for (Index column = 0; column < m; ++column) {
        const float* const sum = sums + column / panels.width * kRows * panels.width;
        for (Index row = 0; row < rows; ++row)
          result[column * n + first + row] = sum[row * panels.width + column % panels.width];
      }
    }
  });
}

// The windows of a block of result pixels, and their convolution with panels of a kernel.
class WindowBlock {
 public:
  // For at most `max_pixels` pixels at a time.
  WindowBlock(const Geometry& g, const float* images, Index max_pixels)
      : g_(g),
        runs_(g),
        rows_(g, images, max_pixels / g.columns + 2),
        offsets_(runs_.Offsets(g, rows_.RowStride())),
        window_starts_(max_pixels) {}

  // Prepares the result pixels first <= pixel < last for Convolve. If the images' rows are copied,
  // these must be whole rows.
  void Prepare(Index first, Index last) {
    first_ = first;
    count_ = last - first;
    rows_.Prepare(first / g_.columns, (last - 1) / g_.columns + 1);
    for (Index row = first / g_.columns, pixel = first; pixel < last; ++row) {
      const float* const start = rows_.RowStart(row);
      for (; pixel < std::min(last, (row + 1) * g_.columns); ++pixel)
        window_starts_[pixel - first] =
            start + (pixel - row * g_.columns) * g_.strides[1] * g_.channels;
    }
  }

  // Computes the outputs of a range of panels for the prepared pixels.
  //
  // weights(panel, first, count) returns a PanelPiece, the kernel's rows of a panel from `first`
  // on, at most `max_rows` of them. Each piece of rows is used by all panels before the next one,
  // which is the order of the weights in memory. The sums are [panel][pixel][panels.width].
  template <class Weights>
  void Convolve(const Panels& panels, Range range, Index max_rows, Weights weights, float* sums,
                const Epilogue& epilogue, float* result) const {
    // Each pass of a tile is over several short runs, or over a piece of a long one.
    const Index runs_together = std::max<Index>(1, max_rows / runs_.length);
    const Index max_length = EvenSize(runs_.length, max_rows);
    for (Index run = 0; run < runs_.count; run += runs_together)
      for (Index k = 0; k < runs_.length; k += max_length)
        for (Index panel = range.first; panel < range.last; ++panel) {
          const Index runs = std::min(runs_together, runs_.count - run);
          const Index length = std::min(max_length, runs_.length - k);
          const Index rows = runs * length;
          const PanelPiece piece = weights(panel, run * runs_.length + k, rows);
          const bool is_first = run + k == 0;
          const bool is_last = run + runs == runs_.count && k + length == runs_.length;
          const Index column = panels.FirstColumn(panel);
          float* const panel_sums = sums + (panel - range.first) * count_ * panels.width;
          float* const panel_result =
              is_last ? result + first_ * g_.result_stride + column : nullptr;
          const Epilogue panel_epilogue = epilogue.From(column);
          panels.ForEachTile(count_, [&](Index pixel, Index count) {
            const PanelRows right = piece.ForTile(panels, rows, {pixel, pixel + count}, count_);
            const Sink sink = {panel_sums + pixel * panels.width,
                               panels.width,
                               is_first,
                               is_last ? panel_result + pixel * g_.result_stride : nullptr,
                               g_.result_stride,
                               panels.ColumnCount(panel),
                               panel_epilogue};
            panels.RowsTile(panel, count, right.next)(&window_starts_[pixel], &offsets_[run], runs,
                                                      k, length, right, sink);
          });
        }
  }

 private:
  Geometry g_;
  TapRuns runs_;
  ImageRows rows_;
  std::vector<Index> offsets_;
  std::vector<const float*> window_starts_;
  Index first_ = 0, count_ = 0;
};

// A convolution with few result pixels, which are one block. The panels are divided between the
// threads. Each thread reads its weights in the order in which they lie in memory, and packs them
// piece by piece just before they are used. For very few pixels packing is not worth its time.
inline void ConvolveFewPixels(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                              const Kernel& kernel, const Epilogue& epilogue, float* result) {
  constexpr Index kResident = 1 << 17;  // floats of sums that stay in the second-level cache
  constexpr Index kReadCost = 8;        // pixels that take as long as reading the weights
  constexpr Index kMaxUnpacked = 96;    // pixels
  constexpr Index kMaxUnaligned = 64;   // pixels, if many vectors are on two cache lines
  constexpr Index kFewUses = 24;        // pixels, for which weights are hardly used again
  constexpr Index kUnpackedRows = 64;   // rows of a panel that a cache can hold unpacked
  constexpr Index kRowsOfFewUses = 16;  // then: a few pages of memory at a time
  const Panels panels(g.outputs);
  const Index pixels = g.PixelCount();
  WindowBlock windows(g, images, pixels);
  windows.Prepare(0, pixels);
  const bool is_aligned = g.outputs % kLanes == 0;
  const bool packs = kernel.is_flipped || pixels > (is_aligned ? kMaxUnpacked : kMaxUnaligned);
  const Index panels_together = std::max<Index>(1, kResident / (pixels * panels.width));
  const Index panel_cost = std::max(pixels, kReadCost) * kernel.Rows();
  const Index shares = std::min(ThreadCount(pool), ShareCount(pool, panels.count, panel_cost));
  ParallelFor(pool, shares, [&, packs, panels_together, shares](Index share) {
    const Range mine = PartOf(panels.count, share, shares);
    const Buffer sums(pixels * panels.width * std::min(panels_together, mine.Size()));
    const Buffer packed(kPackedRows * panels.width);
    const auto weights = [&](Index panel, Index first, Index rows) -> PanelPiece {
      if (kernel.packed) {
        const float* const data = kernel.packed + (panel * kernel.Rows() + first) * panels.width;
        return {{data, panels.width}, data + kernel.Rows() * panels.width, panels.width};
      }
      const float* const unpacked = kernel.data + first * g.outputs + panels.FirstColumn(panel);
      const float* const next = kernel.is_flipped ? nullptr : unpacked + panels.width;
      if (!packs && panels.ColumnCount(panel) == panels.width)
        return {{unpacked, g.outputs}, next, g.outputs};
      kernel.Pack(panels, panel, first, rows, packed);
      return {{packed, panels.width}, next, g.outputs};
    };
    for (Index panel = mine.first; panel < mine.last; panel += panels_together) {
      const Range range = {panel, std::min(mine.last, panel + panels_together)};
      const Index unpacked_rows = pixels <= kFewUses ? kRowsOfFewUses : kUnpackedRows;
      const Index max_rows = packs || kernel.packed ? kPackedRows : unpacked_rows;
      windows.Convolve(panels, range, max_rows, weights, sums, epilogue, result);
    }
  });
}

// A convolution with many result pixels. Blocks of pixels are divided between the threads and, if
// there are few blocks, the panels too. The kernel is packed once, before.
inline void ConvolveManyPixels(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                               const Kernel& kernel, const Epilogue& epilogue, float* result) {
  // Pixels of a block, or whole rows of at least one. Their sums of a panel stay in the first-level
  // cache, and their channels in the second-level one.
  constexpr Index kBlockPixels = 96;
  const Panels panels(g.outputs);
  const Index panel_size = kernel.Rows() * panels.width;
  const Buffer buffer(kernel.packed ? 0 : panels.count * panel_size);
  if (!kernel.packed) PackKernel(pool, panels, kernel, buffer);
  const float* const packed = kernel.packed ? kernel.packed : buffer;
  const Index pixels = ImageRows::NeedsCopy(g)
                           ? std::max<Index>(1, kBlockPixels / g.columns) * g.columns
                           : kBlockPixels;
  const Index blocks = CeilDiv(g.PixelCount(), pixels);
  Index parts = CeilDiv(4 * ThreadCount(pool), blocks);
  if (parts * blocks % ThreadCount(pool) != 0) parts *= 2;  // or the last unit is waited for
  parts = std::min(panels.count, parts);
  const Index units = blocks * parts;
  const Index shares = ShareCount(pool, units, pixels * kernel.Rows());
  const bool fetches = panels.count * panel_size >= kLargeKernel;
  ParallelFor(pool, shares, [&, pixels, parts, units, shares, panel_size, fetches](Index share) {
    const Buffer sums(pixels * panels.width);
    WindowBlock windows(g, images, pixels);
    Index prepared = -1;
    const Range mine = PartOf(units, share, shares);
    for (Index unit = mine.first; unit < mine.last; ++unit) {
      const Index block = unit / parts;
      const Range range = PartOf(panels.count, unit % parts, parts);
      if (block != prepared)
        windows.Prepare(block * pixels, std::min(g.PixelCount(), (block + 1) * pixels));
      prepared = block;
      const auto weights = [&](Index panel, Index first, Index rows) -> PanelPiece {
        const float* const data = packed + panel * panel_size + first * panels.width;
        const float* const next = fetches ? data + rows * panels.width : nullptr;
        return {{data, panels.width}, next, panels.width};
      };
      for (Index panel = range.first; panel < range.last; ++panel)
        windows.Convolve(panels, {panel, panel + 1}, kPackedRows, weights, sums, epilogue, result);
    }
  });
}

// The number of adjacent columns of the result that are best computed together, as the outputs of
// one column: their kernel is wider, but fewer lanes of its vectors are idle.
inline Index ColumnsTogether(const Geometry& g) {
  constexpr double kWorthIt = 0.85;  // of the vectors of products
  const auto vectors_by_column = [&](Index columns) {
    const Index taps = g.taps[1] + (columns - 1) * g.strides[1];
    return static_cast<double>(CeilDiv(columns * g.outputs, kLanes) * taps) / columns;
  };
  if (g.result_stride != g.outputs || g.dilation[1] != 1) return 1;
  Index best = 1;
  for (const Index columns : {2, 4, 8}) {
    const double worth_it = best == 1 ? kWorthIt : 1;
    if (g.columns % columns == 0 && vectors_by_column(columns) < worth_it * vectors_by_column(best))
      best = columns;
  }
  return best;
}

// The geometry in which `together` adjacent columns of the result are one.
inline Geometry WideGeometry(const Geometry& g, Index together) {
  Geometry wide = g;
  wide.columns = g.columns / together;
  wide.outputs = wide.result_stride = g.outputs * together;
  wide.strides[1] = g.strides[1] * together;
  wide.taps[1] = g.taps[1] + (together - 1) * g.strides[1];
  return wide;
}

// The kernel of the wide geometry, [h][w'][C][outputs]: it has the kernel of each column at its
// place among the taps, and zeros elsewhere.
inline void WidenKernel(const Geometry& g, const Geometry& wide, Index together,
                        const Kernel& kernel, float* to) {
  std::memset(to, 0, wide.TapCount() * g.channels * wide.outputs * sizeof(float));
  for (Index tap = 0; tap < g.TapCount(); ++tap)
    for (Index column = 0; column < together; ++column) {
      const Index across = tap % g.taps[1] + column * g.strides[1];
      const Index wide_tap = tap / g.taps[1] * wide.taps[1] + across;
      for (Index channel = 0; channel < g.channels; ++channel)
        for (Index output = 0; output < g.outputs; ++output)
          to[(wide_tap * g.channels + channel) * wide.outputs + column * g.outputs + output] =
              kernel.At(tap, channel, output);
    }
}

// A convolution with many result pixels, of which `together` adjacent columns are one.
inline void ConvolveColumnsTogether(ffi::ThreadPool& pool, const Geometry& g, Index together,
                                    const float* images, const Kernel& kernel,
                                    const Epilogue& epilogue, float* result) {
  const Geometry wide = WideGeometry(g, together);
  const Buffer data(kernel.packed ? 0 : wide.TapCount() * g.channels * wide.outputs);
  if (!kernel.packed) WidenKernel(g, wide, together, kernel, data);
  std::vector<float> factors, bias;
  Epilogue wide_epilogue = epilogue;
  if (epilogue) {
    for (Index column = 0; column < together; ++column) {
      factors.insert(factors.end(), epilogue.factors, epilogue.factors + g.outputs);
      bias.insert(bias.end(), epilogue.bias, epilogue.bias + g.outputs);
    }
    wide_epilogue.factors = factors.data();
    wide_epilogue.bias = bias.data();
  }
  const Kernel wide_kernel = {data,         wide.TapCount(), g.channels,
                              wide.outputs, false,           kernel.packed};
  ConvolveManyPixels(pool, wide, images, wide_kernel, wide_epilogue, result);
}

constexpr Index kFewPixels = 256;

// The adjacent columns of the result that DirectConvolution computes together. If `reads_beside`,
// pixels beside a window may be multiplied by zero, which makes NaN of infinity.
inline Index ColumnsOfDirect(const Geometry& g, bool reads_beside) {
  const Index together = reads_beside ? ColumnsTogether(g) : 1;
  return g.PixelCount() > kFewPixels * together ? together : 1;
}

// Convolves images [N][H][W][C] with a kernel to result [N][H'][W'][D].
inline void DirectConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                              const Kernel& kernel, bool reads_beside, const Epilogue& epilogue,
                              float* result) {
  const Index pixels = g.PixelCount();
  const Index together = ColumnsOfDirect(g, reads_beside);
  if (together > 1)
    ConvolveColumnsTogether(pool, g, together, images, kernel, epilogue, result);
  else if (pixels > kFewPixels)
    ConvolveManyPixels(pool, g, images, kernel, epilogue, result);
  else if (kernel.is_flipped && !epilogue && IsMatrixProduct(g) && g.outputs >= pixels)
    ProductWithTransposed(pool, pixels, g.outputs, g.channels, images, kernel.data, result);
  else
    ConvolveFewPixels(pool, g, images, kernel, epilogue, result);
}

}  // namespace jaxcnn
