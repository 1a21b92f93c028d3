// Depthwise convolutions: each channel has a window of its own and one output.
//
// There is nothing to multiply twice with, so no operand is packed. Vectors are of channels; a tile
// of result pixels shares each load of a weight.
#pragma once

#include <vector>

#include "geometry.h"

namespace jaxcnn {

// Which positions of the input are under the taps of a position of the output, along one axis.
//
// For a convolution, tap k of output o is input o * stride + k * dilation - padding. For its
// gradient with respect to the images, outputs are image positions and inputs positions of the
// cotangent: tap k of image position o was used by the cotangent at
// (o + padding - k * dilation) / stride, if that is whole.
struct DepthwiseAxis {
  Index outputs, inputs, taps;
  Index factor, divisor;          // of an output
  Index first_shift, next_shift;  // of tap 0, and from a tap to the next

  DepthwiseAxis(Index outputs, Index inputs, Index taps, Index stride, Index dilation,
                Index padding, bool is_transposed)
      : outputs(outputs),
        inputs(inputs),
        taps(taps),
        factor(is_transposed ? 1 : stride),
        divisor(is_transposed ? stride : 1),
        first_shift(is_transposed ? padding : -padding),
        next_shift(is_transposed ? -dilation : dilation) {}

  // The input under a tap of an output; -1 if there is none.
  Index InputUnder(Index output, Index tap) const {
    const Index scaled = output * factor + first_shift + tap * next_shift;
    if (scaled < 0 || scaled % divisor != 0) return -1;
    return scaled / divisor < inputs ? scaled / divisor : -1;
  }
};

// A tap that reads an input.
struct TapInput {
  Index tap, input;
};

inline std::vector<TapInput> InputsUnder(const DepthwiseAxis& axis, Index output) {
  std::vector<TapInput> inputs;
  for (Index tap = 0; tap < axis.taps; ++tap)
    if (const Index input = axis.InputUnder(output, tap); input >= 0)
      inputs.push_back({tap, input});
  return inputs;
}

// Outputs first, first + divisor, ... which have the same taps, and inputs `factor` further each.
struct OutputRun {
  Index first, count;
  std::vector<TapInput> inputs;  // of the first output
};

inline std::vector<OutputRun> OutputRuns(const DepthwiseAxis& axis) {
  std::vector<OutputRun> runs;
  for (Index remainder = 0; remainder < std::min(axis.divisor, axis.outputs); ++remainder)
    for (Index output = remainder; output < axis.outputs; output += axis.divisor) {
      std::vector<TapInput> inputs = InputsUnder(axis, output);
      const auto continues = [&](const OutputRun& run) {
        return std::equal(inputs.begin(), inputs.end(), run.inputs.begin(), run.inputs.end(),
                          [&](const TapInput& mine, const TapInput& first) {
                            return mine.tap == first.tap &&
                                   mine.input == first.input + run.count * axis.factor;
                          });
      };
      if (output != remainder && continues(runs.back()))
        ++runs.back().count;
      else
        runs.push_back({output, 1, std::move(inputs)});
    }
  return runs;
}

// A tap of a tile: the input under the first pixel, and the tap's weights, both at channel 0.
struct DepthwiseTap {
  const float* input;
  const float* weights;
};

// The distances between the pixels of a tile in the input and in the result, in floats.
struct PixelSteps {
  Index input, result;
};

template <int PIXELS, int VECTORS>
inline __attribute__((always_inline)) void DepthwiseChannels(const std::vector<DepthwiseTap>& taps,
                                                             Index channel, Index lanes,
                                                             PixelSteps steps, float* result) {
  Vector sums[PIXELS][VECTORS] = {};
  for (const DepthwiseTap& tap : taps) {
    const float* const input = tap.input + channel;
    const float* const weights = tap.weights + channel;
    JAXCNN_UNROLL
    for (int v = 0; v < VECTORS; ++v) {
      const Vector weight = LoadPartial(weights + v * kLanes, lanes);
      JAXCNN_UNROLL
      for (int pixel = 0; pixel < PIXELS; ++pixel)
        sums[pixel][v] += LoadPartial(input + pixel * steps.input + v * kLanes, lanes) * weight;
    }
  }
  JAXCNN_UNROLL
  for (int pixel = 0; pixel < PIXELS; ++pixel) JAXCNN_UNROLL
    for (int v = 0; v < VECTORS; ++v)
      StorePartial(result + pixel * steps.result + channel + v * kLanes, sums[pixel][v], lanes);
}

// Convolves one tile of pixels, all channels.
template <int PIXELS>
void DepthwiseTile(const std::vector<DepthwiseTap>& taps, Index channels, PixelSteps steps,
                   float* result) {
  constexpr int kVectors = PIXELS == 1 ? 4 : PIXELS <= 3 ? 2 : 1;  // enough sums to hide latency
  Index c = 0;
  for (; c + kVectors * kLanes <= channels; c += kVectors * kLanes)
    DepthwiseChannels<PIXELS, kVectors>(taps, c, kLanes, steps, result);
  for (; c + kLanes <= channels; c += kLanes)
    DepthwiseChannels<PIXELS, 1>(taps, c, kLanes, steps, result);
  if (c < channels) DepthwiseChannels<PIXELS, 1>(taps, c, channels - c, steps, result);
}

constexpr int kMaxPixels = 8;  // of a tile

template <int... PIXEL>
constexpr auto DepthwiseTiles(std::integer_sequence<int, PIXEL...>) {
  return std::array<decltype(&DepthwiseTile<1>), kMaxPixels>{DepthwiseTile<PIXEL + 1>...};
}

// [pixels - 1]
constexpr auto kDepthwiseTiles = DepthwiseTiles(std::make_integer_sequence<int, kMaxPixels>{});

// Convolves images [N][H][W][C] with a kernel [h][w][1][C] to result [N][H'][W'][C]. If transposed,
// it computes the gradient with respect to the images: `images` is then the cotangent
// [N][H'][W'][C], and the result is [N][H][W][C].
inline void DepthwiseConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images,
                                 const float* kernel, bool is_transposed, const Epilogue& epilogue,
                                 float* result) {
  const Index channels = g.channels;
  const auto axis = [&](int i, Index outputs, Index inputs) {
    return DepthwiseAxis(outputs, inputs, g.taps[i], g.strides[i], g.dilation[i], g.padding[i],
                         is_transposed);
  };
  const DepthwiseAxis down = axis(0, g.rows, g.height), across = axis(1, g.columns, g.width);
  const std::vector<OutputRun> runs = OutputRuns(across);
  const PixelSteps steps = {across.factor * channels, across.divisor * channels};
  const Index lines = g.batch * g.rows;
  const Index shares = ShareCount(pool, lines, g.columns * channels * g.TapCount());
  ParallelFor(pool, shares, [&, shares, lines, channels, steps](Index share) {
    std::vector<DepthwiseTap> taps;
    const Range mine = PartOf(lines, share, shares);
    for (Index line = mine.first; line < mine.last; ++line) {
      const std::vector<TapInput> rows = InputsUnder(down, line % g.rows);
      const float* const image = images + line / g.rows * g.height * g.width * channels;
      for (const OutputRun& run : runs) {
        taps.clear();
        for (const TapInput& row : rows)
          for (const TapInput& column : run.inputs)
            taps.push_back({image + (row.input * g.width + column.input) * channels,
                            kernel + (row.tap * g.taps[1] + column.tap) * channels});
        float* to = result + (line * g.columns + run.first) * channels;
        for (Index pixel = 0, count; pixel < run.count; pixel += count) {
          count = std::min<Index>(kMaxPixels, run.count - pixel);
          kDepthwiseTiles[count - 1](taps, channels, steps, to);
          if (epilogue) Finish(epilogue, count, channels, to, steps.result);
          for (DepthwiseTap& tap : taps) tap.input += count * steps.input;
          to += count * steps.result;
        }
      }
    }
  });
}

}  // namespace jaxcnn
