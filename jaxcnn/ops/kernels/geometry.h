// What a convolution's kernels ask of its shapes. Pairs are of the rows and the columns.
#pragma once

#include <cstring>

#include "tile.h"

namespace jaxcnn {

struct Geometry {
  Index images, high, wide, channels;  // of the images
  Index rows, columns, outputs;        // of the result
  Index taps[2], strides[2], before[2], dilation[2];

  Index Pixels() const { return images * rows * columns; }
  Index Taps() const { return taps[0] * taps[1]; }

  // Where in the images the first tap of a pixel of the result lies; rows and columns may be in the padding.
  struct Place {
    Index image, row, column;
  };
  Place PlaceOf(Index pixel) const {
    return {pixel / (rows * columns), pixel / columns % rows * strides[0] - before[0], pixel % columns * strides[1] - before[1]};
  }
  Place Next(Place place) const {
    if ((place.column += strides[1]) < columns * strides[1] - before[1]) return place;
    place.column = -before[1];
    if ((place.row += strides[0]) < rows * strides[0] - before[0]) return place;
    return {place.image + 1, -before[0], place.column};
  }

  // The channels of the image's pixel there, where that is not in the padding.
  const float* At(const float* from, const Place& place) const {
    return from + ((place.image * high + place.row) * wide + place.column) * channels;
  }

  // Those of the pixels so many taps down and across from there, `padding` outside of the image: [down][across].
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

// So few channels that a tap is not worth a loop of its own: a row of taps is one, which needs its pixels side by side, padding too.
constexpr Index kFewChannels = 32;

inline bool RowsOfTaps(const Geometry& g) { return g.channels < kFewChannels && g.dilation[1] == 1; }

// The shapes of images with their padding, as far as the taps reach.
inline Geometry Padded(Geometry g) {
  g.high = (g.rows - 1) * g.strides[0] + (g.taps[0] - 1) * g.dilation[0] + 1;
  g.wide = (g.columns - 1) * g.strides[1] + (g.taps[1] - 1) * g.dilation[1] + 1;
  g.before[0] = g.before[1] = 0;
  return g;
}

// One image with its padding.
inline void Pad(const Geometry& g, const float* image, float* to) {
  const Geometry padded = Padded(g);
  const Index left = std::min(padded.wide, g.before[1]), inside = std::max<Index>(0, std::min(padded.wide - left, g.wide));
  std::memset(to, 0, padded.high * padded.wide * g.channels * sizeof(float));
  for (Index row = std::min(padded.high, g.before[0]); row < std::min(padded.high, g.high + g.before[0]); ++row)
    std::memcpy(to + (row * padded.wide + left) * g.channels, image + (row - g.before[0]) * g.wide * g.channels,
                inside * g.channels * sizeof(float));
}

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
      for (Index row = first; row < first + rows; ++row, to += panels.width)
        for (Index lane = 0; lane < panels.width; lane += kLanes)
          Store(to + lane, LoadSome(from + row * outputs + output + lane, have - lane));
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
