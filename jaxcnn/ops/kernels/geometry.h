// The shapes of a convolution, and how its operands are read. Pairs are of rows and columns.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "tile.h"
#include "work.h"

namespace jaxcnn {

// The shapes of a convolution of images [N][H][W][C] with a kernel [h][w][C][D] to a result
// [N][H'][W'][D]. The channels C and the outputs D may be those of some groups only; the distances
// between pixels are then those of all groups.
struct Geometry {
  Index batch, height, width, channels;  // of the images
  Index rows, columns, outputs;          // of the result
  Index image_stride, result_stride;     // from one pixel to the next, in floats
  Index taps[2], strides[2];
  Index padding[2];  // pixels before the first row and the first column
  Index dilation[2];

  Index PixelCount() const { return batch * rows * columns; }  // of the result
  Index TapCount() const { return taps[0] * taps[1]; }
  bool IsDense() const { return image_stride == channels && result_stride == outputs; }

  // The position of a pixel, which may be in the padding.
  struct Position {
    Index image, row, column;
  };

  // Pointers to the channels of the pixels under `down` x `across` taps, of which the first is at
  // `position`: to[down][across]. Pixels outside of the image point to `zeros`.
  void GatherPixels(const float* images, const Position& position, Index down, Index across,
                    const float* zeros, const float** to) const {
    for (Index i = 0; i < down; ++i) {
      const Index row = position.row + i * dilation[0];
      const bool is_inside = row >= 0 && row < height;
      const float* const pixels = images + (position.image * height + row) * width * image_stride;
      for (Index j = 0, column = position.column; j < across; ++j, column += dilation[1])
        *to++ = is_inside && column >= 0 && column < width ? pixels + column * image_stride : zeros;
    }
  }
};

// The rows of the images under some rows of the result. If windows reach into the padding, or if
// the images have further channels, they are padded copies of the channels, which stay in a cache;
// otherwise they are the images themselves.
class ImageRows {
 public:
  // For at most `max_rows` rows of the result at a time.
  ImageRows(const Geometry& g, const float* images, Index max_rows)
      : g_(g), images_(images), is_copy_(NeedsCopy(g)) {
    window_height_ = (g.taps[0] - 1) * g.dilation[0] + 1;
    covered_width_ = (g.columns - 1) * g.strides[1] + (g.taps[1] - 1) * g.dilation[1] + 1;
    if (!is_copy_) return;
    const Index rows_apart = std::max(window_height_, g.strides[0]);
    copy_ = std::make_unique<Buffer>(max_rows * rows_apart * covered_width_ * g.channels);
    starts_.resize(max_rows);
  }

  // Whether the rows are copied.
  static bool NeedsCopy(const Geometry& g) {
    return ReachesPadding(g) || g.image_stride != g.channels;
  }

  // Whether any window reaches into the padding.
  static bool ReachesPadding(const Geometry& g) {
    const Index bottom = (g.rows - 1) * g.strides[0] + (g.taps[0] - 1) * g.dilation[0];
    const Index right = (g.columns - 1) * g.strides[1] + (g.taps[1] - 1) * g.dilation[1];
    return g.padding[0] || g.padding[1] || bottom >= g.height || right >= g.width;
  }

  // Prepares the rows first <= row < last of the result, counted through all images, for RowStart.
  void Prepare(Index first, Index last) {
    first_ = first;
    float* to = is_copy_ ? static_cast<float*>(*copy_) : nullptr;
    for (Index row = first, end; row < last && to; row = end) {
      const Index image = row / g_.rows, top = row % g_.rows * g_.strides[0] - g_.padding[0];
      end = std::min(last, (image + 1) * g_.rows);
      for (Index at = row; at < end; ++at)
        starts_[at - first] = to + (at - row) * g_.strides[0] * RowStride();
      const Index bottom = top + (end - row - 1) * g_.strides[0] + window_height_;
      for (Index y = top; y < bottom; ++y, to += RowStride()) CopyPadded(image, y, to);
    }
  }

  // The image pixel under the first tap of the first window of a row of the result.
  const float* RowStart(Index row) const {
    if (is_copy_) return starts_[row - first_];
    return images_ + (row / g_.rows * g_.height + row % g_.rows * g_.strides[0]) * RowStride();
  }

  // The distance from a pixel to the one below it, in floats.
  Index RowStride() const { return (is_copy_ ? covered_width_ : g_.width) * g_.channels; }

 private:
  void CopyPadded(Index image, Index y, float* to) const {
    const Index left = std::min(covered_width_, g_.padding[1]);
    const Index inside = std::max<Index>(0, std::min(covered_width_ - left, g_.width));
    if (y < 0 || y >= g_.height) {
      std::memset(to, 0, RowStride() * sizeof(float));
      return;
    }
    const float* const from = images_ + (image * g_.height + y) * g_.width * g_.image_stride;
    const Index right = covered_width_ - left - inside;
    std::memset(to, 0, left * g_.channels * sizeof(float));
    CopyPixels(from, inside, to + left * g_.channels);
    std::memset(to + (left + inside) * g_.channels, 0, right * g_.channels * sizeof(float));
  }

  void CopyPixels(const float* from, Index count, float* to) const {
    if (g_.image_stride == g_.channels) {
      std::memcpy(to, from, count * g_.channels * sizeof(float));
      return;
    }
    for (Index pixel = 0; pixel < count; ++pixel, from += g_.image_stride, to += g_.channels)
      for (Index c = 0; c < g_.channels; c += kLanes)
        StorePartial(to + c, LoadPartial(from + c, g_.channels - c), g_.channels - c);
  }

  Geometry g_;
  const float* images_;
  bool is_copy_;
  Index window_height_;  // in pixels, with the gaps between taps
  Index covered_width_;  // pixels from the first column that a window uses to the last
  std::unique_ptr<Buffer> copy_;
  std::vector<const float*> starts_;  // of each row of the result
  Index first_ = 0;
};

// A run is a series of taps whose pixels are contiguous in memory: a row of taps or, if the kernel
// is dilated along the row, a single tap.
struct TapRuns {
  Index across;  // runs of a row of taps
  Index count;   // of all runs
  Index length;  // of a run, in floats: taps times channels

  explicit TapRuns(const Geometry& g)
      : across(g.dilation[1] == 1 ? 1 : g.taps[1]),
        count(g.taps[0] * across),
        length(g.TapCount() * g.channels / count) {}

  // The distances from a window's first tap to each run, in floats.
  std::vector<Index> Offsets(const Geometry& g, Index row_stride) const {
    std::vector<Index> offsets;
    for (Index run = 0; run < count; ++run) {
      const Index row = run / across, column = run % across;
      offsets.push_back(row * g.dilation[0] * row_stride + column * g.dilation[1] * g.channels);
    }
    return offsets;
  }
};

// Copies one panel of a matrix [rows][panels.columns], whose rows are `stride` apart, to
// [row][panels.width].
inline void PackPanel(const Panels& panels, Index panel, const float* matrix, Index stride,
                      Index rows, float* to) {
  const Index count = panels.ColumnCount(panel), width = panels.width;
  const float* from = matrix + panels.FirstColumn(panel);
  if (count == kMaxVectors * kLanes) {  // twice as fast without any decision in a row
    for (Index row = 0; row < rows; ++row, to += kMaxVectors * kLanes, from += stride)
      for (Index v = 0; v < kMaxVectors; ++v) Store(to + v * kLanes, Load(from + v * kLanes));
    return;
  }
  for (Index row = 0; row < rows; ++row, to += width, from += stride)
    for (Index lane = 0; lane < width; lane += kLanes)
      Store(to + lane, LoadPartial(from + lane, count - lane));
}

// The kernel of a convolution [h][w][C][D], read as a matrix [tap and channel][output]. If flipped,
// it is stored as [h][w][D][C] and rotated by 180 degrees. It may have been packed before, as
// packed_kernel.h does for a convolution; `data` is then not used.
struct Kernel {
  const float* data;
  Index taps, channels, outputs;
  bool is_flipped;
  const float* packed = nullptr;

  Index Rows() const { return taps * channels; }

  float At(Index tap, Index channel, Index output) const {
    if (is_flipped) return data[((taps - 1 - tap) * outputs + output) * channels + channel];
    return data[(tap * channels + channel) * outputs + output];
  }

  // Copies `rows` rows of a panel, from row `first` on, to [row][panels.width]. Columns behind the
  // last output are zero.
  void Pack(const Panels& panels, Index panel, Index first, Index rows, float* to) const {
    if (is_flipped)
      PackFlipped(panels, panel, first, rows, to);
    else
      PackPanel(panels, panel, data + first * outputs, outputs, rows, to);
  }

 private:
  void PackFlipped(const Panels& panels, Index panel, Index first, Index rows, float* to) const {
    constexpr Index kRowsTogether = 16;  // their copy stays in the first-level cache
    const Index output = panels.FirstColumn(panel), count = panels.ColumnCount(panel);
    std::memset(to, 0, count < panels.width ? rows * panels.width * sizeof(float) : 0);
    const Index end = first + rows;
    for (Index row = first, last; row < end; to += (last - row) * panels.width, row = last) {
      const Index tap = row / channels, channel = row % channels;
      last = std::min({end, row + kRowsTogether, (tap + 1) * channels});
      const float* from = data + ((taps - 1 - tap) * outputs + output) * channels + channel;
      for (Index d = 0; d < count; ++d)
        for (Index c = 0; c < last - row; ++c) to[c * panels.width + d] = from[d * channels + c];
    }
  }
};

}  // namespace jaxcnn
