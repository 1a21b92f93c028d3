// The gradient of a depthwise convolution with respect to its kernel.
#pragma once

#include "depthwise.h"

namespace jaxcnn {

// The positions of a series of result pixels of one row, and of the image pixel under their first
// window's first tap, in floats. The latter may lie in the padding; only taps inside the image are
// used.
struct DepthwiseSegment {
  Index image, cotangent;
};

constexpr int kMaxGradientTaps = 9;  // sums that stay in registers, even in 16 of them

// sums[tap][channel] += images[segment + offsets[tap] + pixel * step] * cotangent[segment + pixel],
// over all pixels of the segments.
template <int TAPS>
void DepthwiseGradientTile(const float* images, const float* cotangent,
                           const std::vector<DepthwiseSegment>& segments, const Index* offsets,
                           Index pixels, Index step, Index channels, float* const* sums) {
  for (Index c = 0; c < channels; c += kLanes) {
    const Index lanes = channels - c;
    Vector tile[TAPS] = {};
    const auto add = [&](auto load) __attribute__((always_inline)) {
      for (const DepthwiseSegment& segment : segments) {
        Index image = segment.image + c;
        const float* at = cotangent + segment.cotangent + c;
        for (Index pixel = 0; pixel < pixels; ++pixel, image += step, at += channels) {
          const Vector factor = load(at);
          JAXCNN_UNROLL
          for (int tap = 0; tap < TAPS; ++tap)
            tile[tap] += load(images + (image + offsets[tap])) * factor;
        }
      }
    };
    if (lanes >= kLanes)
      add([](const float* from) { return Load(from); });
    else
      add([lanes](const float* from) { return LoadPartial(from, lanes); });
    JAXCNN_UNROLL
    for (int tap = 0; tap < TAPS; ++tap)
      Store(sums[tap] + c, Load(sums[tap] + c) + tile[tap]);
  }
}

template <int... TAP>
constexpr auto DepthwiseGradientTiles(std::integer_sequence<int, TAP...>) {
  return std::array<decltype(&DepthwiseGradientTile<1>), kMaxGradientTaps>{
      DepthwiseGradientTile<TAP + 1>...};
}

// [taps - 1]
constexpr auto kDepthwiseGradientTiles =
    DepthwiseGradientTiles(std::make_integer_sequence<int, kMaxGradientTaps>{});

// Whether two rows of the result have the same rows of taps inside the image.
inline bool HaveSameTaps(const DepthwiseAxis& down, Index row, Index other) {
  const std::vector<TapInput> mine = InputsUnder(down, row), others = InputsUnder(down, other);
  return std::equal(mine.begin(), mine.end(), others.begin(), others.end(),
                    [](const TapInput& a, const TapInput& b) { return a.tap == b.tap; });
}

// Adds the gradients of a run of pixels in each of the lines first <= line < last, which have the
// same rows of taps inside the image, to sums [tap][width].
inline void AddDepthwiseRun(const Geometry& g, const std::vector<TapInput>& rows,
                            const OutputRun& run, Range lines, const float* images,
                            const float* cotangent, float* sums, Index width) {
  const Index channels = g.channels;
  std::vector<DepthwiseSegment> segments;
  for (Index line = lines.first; line < lines.last; ++line) {
    const Index top = line / g.rows * g.height + line % g.rows * g.strides[0] - g.padding[0];
    const Index left = run.first * g.strides[1] - g.padding[1];
    segments.push_back(
        {(top * g.width + left) * channels, (line * g.columns + run.first) * channels});
  }
  Index offsets[kMaxGradientTaps];
  float* taps[kMaxGradientTaps];
  int count = 0;
  const auto add_tile = [&] {
    if (count)
      kDepthwiseGradientTiles[count - 1](images, cotangent, segments, offsets, run.count,
                                         g.strides[1] * channels, channels, taps);
    count = 0;
  };
  for (const TapInput& row : rows)
    for (const TapInput& column : run.inputs) {
      offsets[count] = (row.tap * g.dilation[0] * g.width + column.tap * g.dilation[1]) * channels;
      taps[count] = sums + (row.tap * g.taps[1] + column.tap) * width;
      if (++count == kMaxGradientTaps) add_tile();
    }
  add_tile();
}

// Adds the gradients of the lines of `range`, counted through all images, to sums [tap][width].
inline void AddDepthwiseGradient(const Geometry& g, const std::vector<OutputRun>& runs, Range range,
                                 const float* images, const float* cotangent, float* sums,
                                 Index width) {
  constexpr Index kCached = 1 << 16;  // floats of the images and of the cotangent
  const DepthwiseAxis down(g.rows, g.height, g.taps[0], g.strides[0], g.dilation[0], g.padding[0],
                           false);
  const Index most = std::max<Index>(1, kCached / ((g.columns + g.width) * g.channels));
  for (Index line = range.first, end; line < range.last; line = end) {
    const Index limit = std::min(range.last, line + most);
    for (end = line + 1; end < limit && HaveSameTaps(down, line % g.rows, end % g.rows);) ++end;
    for (const OutputRun& run : runs)
      AddDepthwiseRun(g, InputsUnder(down, line % g.rows), run, {line, end}, images, cotangent,
                      sums, width);
  }
}

// Computes the gradient [h][w][1][C] with respect to the kernel. The rounding depends on the number
// of threads, each of which sums its part of the lines.
inline void DepthwiseKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                                    const float* cotangent, float* gradient) {
  const Index width = CeilDiv(g.channels, kLanes) * kLanes, size = g.TapCount() * width;
  const DepthwiseAxis across(g.columns, g.width, g.taps[1], g.strides[1], g.dilation[1],
                             g.padding[1], false);
  const std::vector<OutputRun> runs = OutputRuns(across);
  const Index lines = g.batch * g.rows;
  const Index shares = std::min(ThreadCount(pool), lines);
  const Buffer buffer(shares * size);
  float* const sums = buffer;
  ParallelFor(pool, shares, [=, &g, &runs](Index share) {
    std::fill_n(sums + share * size, size, 0.0f);
    AddDepthwiseGradient(g, runs, PartOf(lines, share, shares), images, cotangent,
                         sums + share * size, width);
  });
  for (Index tap = 0; tap < g.TapCount(); ++tap)
    for (Index c = 0; c < g.channels; ++c) {
      float sum = 0;
      for (Index share = 0; share < shares; ++share) sum += sums[share * size + tap * width + c];
      gradient[tap * g.channels + c] = sum;
    }
}

}  // namespace jaxcnn
