// Sums over pixels for each channel, and the gradient of a normalization with its activation: the
// passes over memory that batch norm needs in training. Arrays are [pixel][channel].
#pragma once

#include "work.h"

namespace jaxcnn {

// The activation that follows a normalization: its result is clipped to low ... high.
struct Clip {
  float low, high;
};

// The vectors of channels of a normalization: y = clip((x - mean) * factor + shift).
struct Normalization {
  const float* mean;
  const float* factor;
  const float* shift;
  Clip clip;
};

constexpr Index kPixelsTogether = 32;  // their channels stay in the first-level cache

// Adds sums over all pixels to sums [2][channels]. terms(pixel, channel, lanes, a, b) adds a
// pixel's lanes to a and b, and may be called for any lanes of a vector.
//
// A few pixels at a time are summed in registers, which also keeps the rounding errors small.
template <class Terms>
void SumOverPixels(ffi::ThreadPool& pool, Index pixels, Index channels, float* sums, Terms terms) {
  const Index width = CeilDiv(channels, kLanes) * kLanes;
  const Index blocks = CeilDiv(pixels, kPixelsTogether);
  const Index shares =
      std::min(ThreadCount(pool), ShareCount(pool, blocks, kPixelsTogether * channels));
  const Buffer buffer(shares * 2 * width);
  float* const partial = buffer;
  ParallelFor(pool, shares, [=](Index share) {
    float* const mine = partial + share * 2 * width;
    std::fill_n(mine, 2 * width, 0.0f);
    const Range range = PartOf(blocks, share, shares);
    for (Index block = range.first; block < range.last; ++block) {
      const Index first = block * kPixelsTogether;
      const Index last = std::min(pixels, first + kPixelsTogether);
      for (Index c = 0; c < channels; c += kLanes) {
        Vector a{}, b{};
        if (channels - c >= kLanes)
          for (Index pixel = first; pixel < last; ++pixel) terms(pixel, c, kLanes, a, b);
        else
          for (Index pixel = first; pixel < last; ++pixel) terms(pixel, c, channels - c, a, b);
        Store(mine + c, Load(mine + c) + a);
        Store(mine + width + c, Load(mine + width + c) + b);
      }
    }
  });
  for (Index c = 0; c < channels; ++c)
    for (Index i = 0; i < 2; ++i) {
      float sum = 0;
      for (Index share = 0; share < shares; ++share) sum += partial[(share * 2 + i) * width + c];
      sums[i * channels + c] = sum;
    }
}

// The sums of x and of its squares.
inline void ChannelMoments(ffi::ThreadPool& pool, Index pixels, Index channels, const float* x,
                           float* sums) {
  SumOverPixels(pool, pixels, channels, sums,
                [=](Index pixel, Index c, Index lanes, Vector& sum, Vector& squares) {
                  const Vector value = LoadPartial(x + pixel * channels + c, lanes);
                  sum += value;
                  squares += value * value;
                });
}

// The cotangent of the normalization before its activation.
inline Vector UnclippedCotangent(const Normalization& n, Index c, Index lanes, Vector x,
                                 Vector cotangent) {
  const Vector y = (x - LoadPartial(n.mean + c, lanes)) * LoadPartial(n.factor + c, lanes) +
                   LoadPartial(n.shift + c, lanes);
  // A selection, not a product: the cotangent of a clipped value may be infinite.
  return ((y > n.clip.low) & (y < n.clip.high)) ? cotangent : Vector{};
}

// The sums of the cotangent g before the activation, and of g * (x - mean).
inline void NormalizeGradientSums(ffi::ThreadPool& pool, Index pixels, Index channels,
                                  const float* x, const float* cotangent, const Normalization& n,
                                  float* sums) {
  SumOverPixels(pool, pixels, channels, sums,
                [=](Index pixel, Index c, Index lanes, Vector& sum, Vector& products) {
                  const Index at = pixel * channels + c;
                  const Vector value = LoadPartial(x + at, lanes);
                  const Vector g =
                      UnclippedCotangent(n, c, lanes, value, LoadPartial(cotangent + at, lanes));
                  sum += g;
                  products += g * (value - LoadPartial(n.mean + c, lanes));
                });
}

// g * factor + (x - mean) * slope + offset, the gradient with respect to x, for vectors `slope` and
// `offset` of channels.
inline void NormalizeGradient(ffi::ThreadPool& pool, Index pixels, Index channels, const float* x,
                              const float* cotangent, const Normalization& n, const float* slope,
                              const float* offset, float* gradient) {
  const Index shares =
      ShareCount(pool, CeilDiv(pixels, kPixelsTogether), kPixelsTogether * channels);
  ParallelFor(pool, shares, [=](Index share) {
    const Range mine = PartOf(pixels, share, shares);
    for (Index pixel = mine.first; pixel < mine.last; ++pixel) {
      const auto compute = [&](Index c, Index lanes) {
        const Index at = pixel * channels + c;
        const Vector value = LoadPartial(x + at, lanes);
        const Vector g = UnclippedCotangent(n, c, lanes, value, LoadPartial(cotangent + at, lanes));
        const Vector centered = value - LoadPartial(n.mean + c, lanes);
        StorePartial(gradient + at,
                     g * LoadPartial(n.factor + c, lanes) +
                         centered * LoadPartial(slope + c, lanes) + LoadPartial(offset + c, lanes),
                     lanes);
      };
      Index c = 0;
      for (; c + kLanes <= channels; c += kLanes) compute(c, kLanes);
      if (c < channels) compute(c, channels - c);
    }
  });
}

}  // namespace jaxcnn
