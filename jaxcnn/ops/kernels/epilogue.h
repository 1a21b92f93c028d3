// What is done with the sums of a convolution before they are stored: a factor and a bias for each
// output, and an activation.
#pragma once

#include "vectors.h"

namespace jaxcnn {

// As in jaxcnn/ops/native/calls.py. GELU is the form with tanh.
enum class Activation : Index { kClip = 0, kLeakyRelu, kSigmoid, kSilu, kGelu, kHardSwish };

// e to the power of x, with an error of at most 2 units in the last place.
inline Vector Exp(Vector x) {
  const auto splat = [](float value) { return Vector{} + value; };
  const Vector limited = x < -87.0f ? splat(-87.0f) : x > 88.0f ? splat(88.0f) : x;
  // x = n log(2) + r with |r| <= log(2) / 2; adding and subtracting 1.5 * 2^23 rounds to an integer.
  const Vector shifted = limited * 1.44269504f + 12582912.0f;
  const Vector n = shifted - 12582912.0f;
  const Vector r = limited - n * 0.693359375f + n * 2.12194440e-4f;
  Vector series = splat(1.0f / 5040);
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    series = series * r + factor;
  const IntVector exponent = (__builtin_convertvector(n, IntVector) + 127) << 23;
  return series * reinterpret_cast<const Vector&>(exponent) + (x != x ? x : Vector{});
}

inline Vector Sigmoid(Vector x) { return 1.0f / (1.0f + Exp(-x)); }

struct Epilogue {
  const float* factors = nullptr;  // by output
  const float* bias = nullptr;     // by output; null for no epilogue at all
  Activation activation = Activation::kClip;
  float low = 0, high = 0;  // the range of a clip; the slope of a leaky ReLU is `low`

  explicit operator bool() const { return bias != nullptr; }

  // The same for outputs that begin at `output`.
  Epilogue From(Index output) const {
    return bias ? Epilogue{factors + output, bias + output, activation, low, high} : Epilogue{};
  }

  // NaN stays NaN.
  Vector Activate(Vector x) const {
    switch (activation) {
      case Activation::kClip: return x < low ? Vector{} + low : x > high ? Vector{} + high : x;
      case Activation::kLeakyRelu: return x < 0.0f ? x * low : x;
      case Activation::kSigmoid: return Sigmoid(x);
      case Activation::kSilu: return x * Sigmoid(x);
      case Activation::kGelu:
        return x * Sigmoid(1.59576912f * x * (1.0f + 0.044715f * x * x));
      case Activation::kHardSwish: {
        const Vector shifted = x + 3.0f;
        const Vector clipped =
            shifted < 0.0f ? Vector{} : shifted > 6.0f ? Vector{} + 6.0f : shifted;
        return x * clipped * (1.0f / 6);
      }
    }
    return x;
  }
};

// Applies an epilogue to rows of sums that have just been stored, `stride` floats apart. It is not
// part of the innermost loops, because their code would become too large.
__attribute__((noinline)) inline void Finish(const Epilogue& epilogue, Index rows, Index columns,
                                             float* sums, Index stride) {
  for (Index column = 0; column < columns; column += kLanes) {
    const Index count = columns - column;
    const Vector factors = LoadPartial(epilogue.factors + column, count);
    const Vector bias = LoadPartial(epilogue.bias + column, count);
    for (Index row = 0; row < rows; ++row) {
      float* const at = sums + row * stride + column;
      StorePartial(at, epilogue.Activate(LoadPartial(at, count) * factors + bias), count);
    }
  }
}

}  // namespace jaxcnn
