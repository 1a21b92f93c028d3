// Convolutions and their gradients as defined: plain loops in double.
#pragma once

#include "arrays.h"

namespace jaxcnn {

// Calls f(result pixel, image pixel, tap) for each tap of each window that is inside the image.
// Pixels are counted through all images.
template <class F>
void ForEachTap(const Geometry& g, F f) {
  for (Index n = 0; n < g.batch; ++n)
    for (Index i = 0; i < g.rows; ++i)
      for (Index j = 0; j < g.columns; ++j)
        for (Index a = 0; a < g.taps[0]; ++a)
          for (Index b = 0; b < g.taps[1]; ++b) {
            const Index y = i * g.strides[0] - g.padding[0] + a * g.dilation[0];
            const Index x = j * g.strides[1] - g.padding[1] + b * g.dilation[1];
            if (y >= 0 && y < g.height && x >= 0 && x < g.width)
              f((n * g.rows + i) * g.columns + j, (n * g.height + y) * g.width + x,
                a * g.taps[1] + b);
          }
}

// The convolution of all groups with a kernel [h][w][C / groups][D] or, if flipped, with
// [h][w][D / groups][C], rotated by 180 degrees.
inline Reference Convolve(const Geometry& g, Index groups, const float* images, const float* kernel,
                          bool is_flipped) {
  Reference result(g.PixelCount() * g.outputs);
  const Index channels = g.channels / groups, outputs = g.outputs / groups;
  ForEachTap(g, [&](Index pixel, Index image_pixel, Index tap) {
    for (Index d = 0; d < g.outputs; ++d)
      for (Index c = 0; c < channels; ++c) {
        const Index channel = d / outputs * channels + c;
        const Index weight =
            is_flipped ? ((g.TapCount() - 1 - tap) * outputs + d % outputs) * g.channels + channel
                       : (tap * channels + c) * g.outputs + d;
        result.Add(pixel * g.outputs + d,
                   double(images[image_pixel * g.channels + channel]) * kernel[weight]);
      }
  });
  return result;
}

// The gradient [h][w][C / groups][D] with respect to the kernel.
inline Reference KernelGradient(const Geometry& g, Index groups, const float* images,
                                const float* cotangent) {
  const Index channels = g.channels / groups, outputs = g.outputs / groups;
  Reference gradient(g.TapCount() * channels * g.outputs);
  ForEachTap(g, [&](Index pixel, Index image_pixel, Index tap) {
    for (Index c = 0; c < channels; ++c)
      for (Index d = 0; d < g.outputs; ++d)
        gradient.Add((tap * channels + c) * g.outputs + d,
                     double(images[image_pixel * g.channels + d / outputs * channels + c]) *
                         cotangent[pixel * g.outputs + d]);
  });
  return gradient;
}

// The gradient [N][H][W][C] of a depthwise convolution with respect to its images.
inline Reference DepthwiseImageGradient(const Geometry& g, const float* cotangent,
                                        const float* kernel) {
  const Index channels = g.channels;
  Reference gradient(g.batch * g.height * g.width * channels);
  ForEachTap(g, [&](Index pixel, Index image_pixel, Index tap) {
    for (Index c = 0; c < channels; ++c)
      gradient.Add(image_pixel * channels + c,
                   double(cotangent[pixel * channels + c]) * kernel[tap * channels + c]);
  });
  return gradient;
}

// Multiplies by factors, adds a bias and, if there is one, a summand, and clips at zero.
inline Reference Activate(Reference sums, const Array& factors, const Array& bias,
                          const float* summand = nullptr) {
  for (Index i = 0; i < static_cast<Index>(sums.values.size()); ++i) {
    sums.values[i] *= factors[i % bias.Size()];
    sums.Add(i, bias[i % bias.Size()]);
    if (summand) sums.Add(i, summand[i]);
    sums.values[i] = std::max(0.0, sums.values[i]);
  }
  return sums;
}

}  // namespace jaxcnn
