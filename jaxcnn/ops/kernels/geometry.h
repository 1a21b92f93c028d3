// What a convolution's kernels ask of its shapes. Pairs are of the rows and the columns.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "tile.h"
#include "work.h"

namespace jaxcnn {

struct Geometry {
  Index images, high, wide, channels;  // of the images
  Index rows, columns, outputs;        // of the result
  Index taps[2], strides[2], before[2], dilation[2];

  Index Pixels() const { return images * rows * columns; }
  Index Taps() const { return taps[0] * taps[1]; }

  // A pixel, which may be in the padding.
  struct Place {
    Index image, row, column;
  };

  // The channels of the images' pixels so many taps down and across from a place, `padding` outside of the image: [down][across].
  void UnderAll(const float* from, const Place& place, Index down, Index across, const float* padding, const float** to) const {
    for (Index i = 0; i < down; ++i) {
      const Index row = place.row + i * dilation[0];
      const bool inside = row >= 0 && row < high;
      const float* const pixels = from + (place.image * high + row) * wide * channels;
      for (Index j = 0, column = place.column; j < across; ++j, column += dilation[1])
        *to++ = inside && column >= 0 && column < wide ? pixels + column * channels : padding;
    }
  }
};

// The images' rows under some of the result's: as they are, or where windows reach into the padding, a copy with it, which stays in a cache.
class Rows {
 public:
  // For so many of the result's rows at a time.
  Rows(const Geometry& g, const float* images, Index most) : g_(g), images_(images), as_they_are_(!Reaches(g)) {
    reach_ = {(g.taps[0] - 1) * g.dilation[0] + 1, (g.columns - 1) * g.strides[1] + (g.taps[1] - 1) * g.dilation[1] + 1};
    if (as_they_are_) return;
    room_ = std::make_unique<Numbers>(most * std::max(reach_.high, g.strides[0]) * reach_.wide * g.channels);
    starts_.resize(most);
  }

  // Whether windows reach into the padding.
  static bool Reaches(const Geometry& g) {
    const Index bottom = (g.rows - 1) * g.strides[0] + (g.taps[0] - 1) * g.dilation[0];
    const Index right = (g.columns - 1) * g.strides[1] + (g.taps[1] - 1) * g.dilation[1];
    return g.before[0] || g.before[1] || bottom >= g.high || right >= g.wide;
  }

  // Before `Under` is asked of the rows from first to last, counted through all images.
  void Hold(Index first, Index last) {
    first_ = first;
    float* to = as_they_are_ ? nullptr : static_cast<float*>(*room_);
    for (Index row = first, end; row < last && to; row = end) {
      const Index image = row / g_.rows, top = row % g_.rows * g_.strides[0] - g_.before[0];
      end = std::min(last, (image + 1) * g_.rows);
      for (Index at = row; at < end; ++at) starts_[at - first] = to + (at - row) * g_.strides[0] * Below();
      for (Index y = top; y < top + (end - row - 1) * g_.strides[0] + reach_.high; ++y, to += Below()) Pad(image, y, to);
    }
  }

  // What the first tap of the row's first pixel is multiplied with.
  const float* Under(Index row) const {
    return as_they_are_ ? images_ + (row / g_.rows * g_.high + row % g_.rows * g_.strides[0]) * Below() : starts_[row - first_];
  }

  // Numbers from a pixel to the one below it.
  Index Below() const { return (as_they_are_ ? g_.wide : reach_.wide) * g_.channels; }

 private:
  void Pad(Index image, Index y, float* to) const {
    const Index left = std::min(reach_.wide, g_.before[1]), inside = std::max<Index>(0, std::min(reach_.wide - left, g_.wide));
    if (y < 0 || y >= g_.high) {
      std::memset(to, 0, Below() * sizeof(float));
      return;
    }
    std::memset(to, 0, left * g_.channels * sizeof(float));
    std::memcpy(to + left * g_.channels, images_ + (image * g_.high + y) * g_.wide * g_.channels, inside * g_.channels * sizeof(float));
    std::memset(to + (left + inside) * g_.channels, 0, (reach_.wide - left - inside) * g_.channels * sizeof(float));
  }

  Geometry g_;
  const float* images_;
  bool as_they_are_;
  struct {
    Index high, wide;  // of a window; of all of a row's
  } reach_;
  std::unique_ptr<Numbers> room_;
  std::vector<const float*> starts_;
  Index first_ = 0;
};

// Taps that lie side by side in memory: a row of them, or where they are apart, each for itself.
struct Runs {
  Index across, count, length;  // of a row of taps; of all; numbers of each

  explicit Runs(const Geometry& g)
      : across(g.dilation[1] == 1 ? 1 : g.taps[1]), count(g.taps[0] * across), length(g.Taps() * g.channels / count) {}

  // From a window's first tap to each run.
  std::vector<Index> Offsets(const Geometry& g, Index below) const {
    std::vector<Index> offsets;
    for (Index run = 0; run < count; ++run)
      offsets.push_back(run / across * g.dilation[0] * below + run % across * g.dilation[1] * g.channels);
    return offsets;
  }
};

// A convolution's kernel [h][w][C][D], read as a matrix [tap and channel][output]; or, turned, one [h][w][D][C] by 180 degrees.
struct Kernel {
  const float* from;
  Index taps, channels, outputs;
  bool turned;

  Index Rows() const { return taps * channels; }

  // So many rows of a panel from one on: [row][width], zeros behind the last output.
  void Pack(const Panels& panels, Index panel, Index first, Index rows, float* to) const {
    const Index output = panels.First(panel), have = panels.Have(panel);
    if (!turned) {
      const float* source = from + first * outputs + output;
      const Index width = panels.width, below = outputs;
      if (have == kMostVectors * kLanes) {  // with nothing to decide in a row, twice as fast
        for (Index row = 0; row < rows; ++row, to += kMostVectors * kLanes, source += below)
          for (Index v = 0; v < kMostVectors; ++v) Store(to + v * kLanes, Load(source + v * kLanes));
        return;
      }
      for (Index row = 0; row < rows; ++row, to += width, source += below)
        for (Index lane = 0; lane < width; lane += kLanes) Store(to + lane, LoadSome(source + lane, have - lane));
      return;
    }
    constexpr Index kSquare = 16;  // what is written stays in the first cache
    std::memset(to, 0, have < panels.width ? rows * panels.width * sizeof(float) : 0);
    for (Index row = first, last; row < first + rows; to += (last - row) * panels.width, row = last) {
      const Index tap = row / channels, channel = row % channels;
      last = std::min({first + rows, row + kSquare, (tap + 1) * channels});
      const float* turned_tap = from + ((taps - 1 - tap) * outputs + output) * channels + channel;
      for (Index d = 0; d < have; ++d)
        for (Index c = 0; c < last - row; ++c) to[c * panels.width + d] = turned_tap[d * channels + c];
    }
  }
};

// Rows of a matrix [rows][columns] as one panel.
inline void PackPanel(const Panels& panels, Index panel, const float* matrix, Index rows, float* to) {
  Kernel{matrix, 1, rows, panels.columns, false}.Pack(panels, panel, 0, rows, to);
}

}  // namespace jaxcnn
