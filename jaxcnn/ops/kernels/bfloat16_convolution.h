// The direct convolution of bfloat16 numbers, and matrix products. Sums are in float32; the result
// is rounded once.
//
// The pixels of the padded images are the rows of a left factor: the taps of a window's row are
// adjacent elements, and the windows of neighboring results begin `stride` pixels apart. Where a
// row of the result ends, sums continue into the padding; they are not stored.
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "bfloat16_tiles.h"
#include "direct.h"

#ifdef JAXCNN_HAS_BFLOAT16

namespace jaxcnn {

inline Index RoundUp(Index number, Index unit) { return CeilDiv(number, unit) * unit; }

class Bfloat16Buffer {
 public:
  explicit Bfloat16Buffer(Index count) : floats_(CeilDiv(count, 2)) {}
  operator Bfloat16*() const { return reinterpret_cast<Bfloat16*>(static_cast<float*>(floats_)); }

 private:
  Buffer floats_;
};

// A kernel [h][w][C][D] or, if flipped, [h][w][D][C], rotated by 180 degrees.
struct Bfloat16Kernel {
  const Bfloat16* data;
  bool is_flipped;
};

// How a window's taps are divided into pieces of at most kMaxDepth elements. A run of adjacent
// elements is one row of taps or, if the taps are dilated, one tap. Its last piece begins earlier
// if it would not be full; elements that were in the piece before have zero weights then.
struct Pieces {
  Index channels;  // of a pixel in the padded copy: even
  Index run_taps;  // taps of a run
  Index runs;      // of a window
  Index per_run;   // pieces
  Index depth;     // of a piece

  explicit Pieces(const Geometry& g)
      : channels(RoundUp(g.channels, 2)),
        run_taps(g.dilation[1] == 1 ? g.taps[1] : 1),
        runs(g.TapCount() / run_taps),
        per_run(CeilDiv(run_taps * channels, kMaxDepth)),
        depth(std::min(kMaxDepth, run_taps * channels)) {}

  Index Count() const { return runs * per_run; }
  // Where a piece begins in its run.
  Index Start(Index piece) const {
    return std::min(piece % per_run * kMaxDepth, run_taps * channels - depth);
  }
  // Elements at the beginning of a piece that the piece before has.
  Index Repeated(Index piece) const { return piece % per_run * kMaxDepth - Start(piece); }
  Index FirstTap(Index piece) const { return piece / per_run * run_taps; }
};

JAXCNN_BEGIN_BFLOAT16

// Packs up to 32 columns of a kernel from `column` on: to[piece][tile][depth / 2][16] pairs.
inline void PackKernelPanel(const Geometry& g, const Pieces& pieces, const Bfloat16Kernel& kernel,
                            Index column, Bfloat16* to) {
  const Index columns = std::min(kBlockSide, g.outputs - column);
  PackPanel(
      pieces.Count(), pieces.depth, columns,
      [&](Index piece, Index k, Index first, __mmask16 lanes) {
        const Index element = pieces.Start(piece) + k, channel = element % pieces.channels;
        const Index tap = pieces.FirstTap(piece) + element / pieces.channels;
        if (k < pieces.Repeated(piece)) return __m512i{};
        const bool is_last = channel + 1 == g.channels;  // of an odd number: there is no pair
        if (!kernel.is_flipped) {
          const Bfloat16* const row =
              kernel.data + (tap * g.channels + channel) * g.outputs + column + first;
          return PairRows(row, is_last ? nullptr : row + g.outputs, lanes);
        }
        // A pair lies in one row of the flipped kernel.
        const Bfloat16* const row =
            kernel.data + ((g.TapCount() - 1 - tap) * g.outputs + column + first) * g.channels +
            channel;
        const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        const __m512i rows =
            _mm512_mullo_epi32(lane, _mm512_set1_epi32(static_cast<int>(g.channels)));
        const __m512i zero = _mm512_setzero_si512();
        if (!is_last) return _mm512_mask_i32gather_epi32(zero, lanes, rows, row, 2);
        if (g.channels == 1) return PairRows(row, nullptr, lanes);
        return _mm512_srli_epi32(_mm512_mask_i32gather_epi32(zero, lanes, rows, row - 1, 2), 16);
      },
      to);
}

// The padded rows of an image under some rows of the result, [remainder][row][column][channel]:
// rows are sorted by their remainder by the vertical stride, so that the windows of all results are
// equally far apart.
class PaddedRows {
 public:
  PaddedRows(const Geometry& g, const Pieces& pieces, Index max_rows)
      : g_(g), channels_(pieces.channels) {
    columns_ =
        RoundUp((g.columns - 1) * g.strides[1] + (g.taps[1] - 1) * g.dilation[1] + 1, g.strides[1]);
    row_size_ = columns_ * channels_;
    slots_ = max_rows + (g.taps[0] - 1) * g.dilation[0] / g.strides[0];
    offsets_.resize(pieces.Count());
    for (Index piece = 0; piece < pieces.Count(); ++piece) {
      const Index tap = pieces.FirstTap(piece), row = tap / g.taps[1] * g.dilation[0];
      const Index column = tap % g.taps[1] * g.dilation[1];
      offsets_[piece] = (row % g.strides[0] * slots_ + row / g.strides[0]) * row_size_ +
                        column * channels_ + pieces.Start(piece);
    }
    remainders_ = std::min(g.strides[0], (g.taps[0] - 1) * g.dilation[0] + 1);
    left_ = {nullptr, g.strides[1] * channels_, offsets_.data(), pieces.Count(), pieces.depth};
    // The last block of sums reads further rows, which it does not use.
    copy_.emplace(remainders_ * slots_ * row_size_ + kBlockSide * left_.stride);
  }

  // Sums from one row of the result to the next, and for `rows` of them.
  Index Pitch() const { return columns_ / g_.strides[1]; }
  Index SumCount(Index rows) const { return (rows - 1) * Pitch() + g_.columns; }

  // The left factor for the rows first <= row < last of an image's result.
  LeftRows Prepare(const Bfloat16* images, Index image, Index first, Index last) {
    const Index reach = (g_.taps[0] - 1) * g_.dilation[0];
    const Index rows = (last - first - 1) * g_.strides[0] + reach + 1;
    const Index top = first * g_.strides[0] - g_.padding[0];
    for (Index row = 0; row < rows; ++row) {
      if (row % g_.strides[0] >= remainders_) continue;
      Bfloat16* const to =
          *copy_ + (row % g_.strides[0] * slots_ + row / g_.strides[0]) * row_size_;
      CopyRow(images, image, top + row, to);
    }
    LeftRows left = left_;
    left.data = *copy_;
    return left;
  }

 private:
  void CopyRow(const Bfloat16* images, Index image, Index y, Bfloat16* to) const {
    const Index left = std::min(columns_, g_.padding[1]);
    const Index inside = std::clamp<Index>(g_.width, 0, columns_ - left);
    if (y < 0 || y >= g_.height) return Zero(to, row_size_);
    const Bfloat16* from = images + (image * g_.height + y) * g_.width * g_.channels;
    Zero(to, left * channels_);
    to += left * channels_;
    if (channels_ == g_.channels) {
      std::memcpy(to, from, inside * channels_ * sizeof(Bfloat16));
      to += inside * channels_;
    } else {
      for (Index x = 0; x < inside; ++x, from += g_.channels, to += channels_) {
        std::memcpy(to, from, g_.channels * sizeof(Bfloat16));
        to[g_.channels] = 0;
      }
    }
    Zero(to, (columns_ - left - inside) * channels_);
  }

  static void Zero(Bfloat16* to, Index count) { std::memset(to, 0, count * sizeof(Bfloat16)); }

  Geometry g_;
  Index channels_, columns_, row_size_, slots_, remainders_;
  std::vector<Index> offsets_;
  LeftRows left_;
  std::optional<Bfloat16Buffer> copy_;
};

// Multiplies `count` rows with the panels first <= panel < last. get(panel) is the packed panel;
// store(panel, row, rows, sums) takes a block of sums. Unless `has_more_rows`, there are no rows in
// memory behind the last one, so that the last block begins earlier.
template <class Unit, class Get, class Store>
void MultiplyPanels(const Unit& unit, const LeftRows& left, Index count, bool has_more_rows,
                    Index outputs, Range panels, float* sums, Get get, Store store) {
  for (Index panel = panels.first; panel < panels.last; ++panel) {
    const Bfloat16* const right = get(panel);
    const Index columns = std::min(kBlockSide, outputs - panel * kBlockSide);
    for (Index row = 0; row < count; row += kBlockSide) {
      const Index rows = std::min(kBlockSide, count - row);
      const Index computed = rows > kTileSide ? kBlockSide : kTileSide;
      const Index first = has_more_rows ? row : std::min(row, count - computed);
      MultiplyBlock(unit, rows, columns, left.From(first), right, true, sums);
      store(panel, first, std::min(computed, count - first), sums);
    }
  }
}

// images [N][H][W][C] and a kernel to result [N][H'][W'][D].
template <class Unit>
void Bfloat16Convolution(ffi::ThreadPool& pool, const Geometry& g, const Bfloat16* images,
                         const Bfloat16Kernel& kernel, const Epilogue& epilogue, Bfloat16* result) {
  constexpr Index kRowsAtATime = 512;  // pixels, whose windows stay in the second-level cache
  const Pieces pieces(g);
  const Index panel_count = CeilDiv(g.outputs, kBlockSide);
  const Index panel_size = pieces.Count() * pieces.depth * kBlockSide;
  const bool is_product = IsMatrixProduct(g);
  const bool is_copied =
      !is_product || pieces.channels != g.channels || g.PixelCount() < kBlockSide;
  // The work is divided into blocks of rows of the result; those of a product have no images.
  const Index rows = is_product ? g.PixelCount() : g.rows, images_count = is_product ? 1 : g.batch;
  const Index columns = is_product ? 1 : g.columns;
  const Index block = EvenSize(rows, std::max<Index>(1, kRowsAtATime / columns));
  const Index blocks = CeilDiv(rows, block), units = images_count * blocks;
  // Few blocks are divided by outputs too.
  const Index parts = std::min(panel_count, CeilDiv(2 * ThreadCount(pool), units));
  const bool packs_own = units == 1;

  std::optional<Bfloat16Buffer> packed;
  if (!packs_own) {
    packed.emplace(panel_count * panel_size);
    Bfloat16* const to = *packed;
    const Index shares = ShareCount(pool, panel_count, panel_size);
    ParallelFor(pool, shares, [&, to, shares](Index share) {
      const Range mine = PartOf(panel_count, share, shares);
      for (Index panel = mine.first; panel < mine.last; ++panel)
        PackKernelPanel(g, pieces, kernel, panel * kBlockSide, to + panel * panel_size);
    });
  }

  const Index shares = ShareCount(pool, units * parts, block * columns * panel_size / parts);
  ParallelFor(pool, shares, [&, shares](Index share) {
    const Unit unit(pieces.depth);
    const Buffer sums(kBlockSize);
    std::optional<Bfloat16Buffer> own_panel;
    if (packs_own) own_panel.emplace(panel_size);
    const auto get = [&](Index panel) -> const Bfloat16* {
      if (!packs_own) return *packed + panel * panel_size;
      PackKernelPanel(g, pieces, kernel, panel * kBlockSide, *own_panel);
      return *own_panel;
    };
    Geometry row_geometry = g;  // of a product: each pixel is a row
    if (is_product) {
      row_geometry.batch = 1;
      row_geometry.height = row_geometry.rows = rows;
      row_geometry.width = row_geometry.columns = 1;
    }
    std::optional<PaddedRows> padded;
    if (is_copied) padded.emplace(row_geometry, pieces, block);
    std::vector<Index> offsets(pieces.Count());  // of a product without a copy
    for (Index piece = 0; piece < pieces.Count(); ++piece) offsets[piece] = pieces.Start(piece);

    const Range mine = PartOf(units * parts, share, shares);
    Index prepared = -1;
    LeftRows left{};
    for (Index at = mine.first; at < mine.last; ++at) {
      const Index image = at / parts / blocks, first = at / parts % blocks * block;
      const Index last = std::min(rows, first + block);
      const Range panels = PartOf(panel_count, at % parts, parts);
      if (!is_copied)
        left = {images + first * g.channels, g.channels, offsets.data(), pieces.Count(),
                pieces.depth};
      else if (prepared != at / parts)
        left = padded->Prepare(images, image, first, last);
      prepared = at / parts;
      const Index pitch = is_copied ? padded->Pitch() : 1;
      const Index count = (last - first - 1) * pitch + columns;
      Bfloat16* const to = result + (image * rows + first) * columns * g.outputs;
      MultiplyPanels(unit, left, count, is_copied, g.outputs, panels, sums, get,
                     [&](Index panel, Index start, Index size, float* from) {
                       const Index output = panel * kBlockSide;
                       const Index outputs = std::min(kBlockSide, g.outputs - output);
                       if (epilogue) Finish(epilogue.From(output), size, outputs, from, kBlockSide);
                       Index row = start / pitch, column = start % pitch;
                       for (Index i = 0; i < size; ++i, from += kBlockSide) {
                         if (column < columns)
                           StoreRounded(from, outputs,
                                        to + (row * columns + column) * g.outputs + output);
                         if (++column == pitch) column = 0, ++row;
                       }
                     });
    }
  });
}

JAXCNN_END_BFLOAT16

}  // namespace jaxcnn

#endif  // JAXCNN_HAS_BFLOAT16
