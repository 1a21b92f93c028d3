// What is done with the sums of a convolution before they are stored: a factor and a bias for each
// output, another array that is added, and an activation.
#pragma once

#include "vectors.h"

namespace jaxcnn {

// As in jaxcnn/ops/native/activation.py. GELU is the form with tanh.
enum class Activation : Index {
  kClip = 0,
  kLeakyRelu,
  kSigmoid,
  kSilu,
  kGelu,
  kHardSwish,
  kExactGelu
};

// Bounds of the argument of Exp, within which its value is neither denormal nor infinite.
constexpr float kMinExponent = -87.0f, kMaxExponent = 88.0f;

// The series of e to the power of r, |r| <= log(2) / 2.
inline Vector ExpSeries(Vector r) {
  Vector series = Vector{} + 1.0f / 5040;
  for (const float factor : {1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f})
    series = series * r + factor;
  return series;
}

// e to the power of x, limited to the bounds, with an error of at most 2 units in the last place;
// NaN of NaN. With n rounded to an integer, x = n log(2) + r, where log(2) is a sum of two floats.
inline Vector Exp(Vector x) {
  constexpr float kInverse = 1.44269504f, kLogHigh = 0.693359375f, kLogLow = -2.12194440e-4f;
#if defined(__AVX512F__)
  // The second operand if one is NaN.
  const Vector limited =
      _mm512_max_ps(Vector{} + kMinExponent, _mm512_min_ps(Vector{} + kMaxExponent, x));
  const Vector n = _mm512_roundscale_ps(limited * kInverse, 0);
  return _mm512_scalef_ps(ExpSeries(limited - n * kLogHigh - n * kLogLow), n);
#else
  const Vector limited = x < kMinExponent   ? Vector{} + kMinExponent
                         : x > kMaxExponent ? Vector{} + kMaxExponent
                                            : x;
  const Vector shifted = limited * kInverse + 12582912.0f;  // 1.5 * 2^23 leaves no fraction
  const Vector n = shifted - 12582912.0f;
  const IntVector exponent = (__builtin_convertvector(n, IntVector) + 127) << 23;
  const Vector power = (Vector)exponent;  // the same bits
  return ExpSeries(limited - n * kLogHigh - n * kLogLow) * power + (x != x ? x : Vector{});
#endif
}

// 1 / x of a finite x, with an error of at most 2 units in the last place; a denormal result may be
// zero.
inline Vector Inverse(Vector x) {
#if defined(__AVX512F__)
  const Vector estimate = _mm512_rcp14_ps(x);  // an error of 2^-14, squared by Newton's method
  return estimate + estimate * (1.0f - x * estimate);
#else
  return 1.0f / x;
#endif
}

inline Vector Sigmoid(Vector x) { return Inverse(1.0f + Exp(-x)); }

// The normal distribution function of x, by the complementary error function: erfcc of Press et
// al., Numerical Recipes, 2nd edition, section 6.2, whose relative error is at most 1.2e-7, also
// far to the left.
inline Vector NormalDistribution(Vector x) {
  constexpr float kSqrtHalf = 0.707106781f;
  constexpr float kDenormal = 9.3f;  // the function is below all normal numbers from here on
  const Vector z = kSqrtHalf * (x < 0.0f ? -x : x);
  const Vector limited = z > kDenormal ? Vector{} + kDenormal : z;
  const Vector t = Inverse(1.0f + 0.5f * limited);
  Vector series = Vector{} + 0.17087277f;
  for (const float coefficient :
       {-0.82215223f, 1.48851587f, -1.13520398f, 0.27886807f, -0.18628806f, 0.09678418f,
        0.37409196f, 1.00002368f, -1.26551223f})
    series = series * t + coefficient;
  const Vector tail = 0.5f * t * Exp(series - limited * limited);
  const Vector left = z > kDenormal ? Vector{} : tail;
  return x < 0.0f ? left : 1.0f - left;
}

struct Epilogue {
  const float* factors = nullptr;  // by output
  const float* bias = nullptr;     // by output; null for no epilogue at all
  Activation activation = Activation::kClip;
  float low = 0, high = 0;         // the range of a clip; the slope of a leaky ReLU is `low`
  const float* summand = nullptr;  // an array like the result; null if there is none
  const float* result = nullptr;   // the first element of the result, if there is a summand

  explicit operator bool() const { return bias != nullptr; }

  // The same for outputs that begin at `output`.
  Epilogue From(Index output) const {
    if (!bias) return {};
    Epilogue epilogue = *this;
    epilogue.factors += output;
    epilogue.bias += output;
    return epilogue;
  }

  // NaN stays NaN.
  template <Activation KIND>
  Vector Activate(Vector x) const {
    switch (KIND) {
      case Activation::kClip:
        return x < low ? Vector{} + low : x > high ? Vector{} + high : x;
      case Activation::kLeakyRelu:
        return x < 0.0f ? x * low : x;
      case Activation::kSigmoid:
        return Sigmoid(x);
      case Activation::kSilu:
        return x * Sigmoid(x);
      case Activation::kGelu:
        return x * Sigmoid(1.59576912f * x * (1.0f + 0.044715f * x * x));
      case Activation::kHardSwish: {
        const Vector shifted = x + 3.0f;
        const Vector clipped = shifted < 0.0f   ? Vector{}
                               : shifted > 6.0f ? Vector{} + 6.0f
                                                : shifted;
        return x * clipped * (1.0f / 6);
      }
      case Activation::kExactGelu:
        return x * NormalDistribution(x);
    }
    return x;
  }
};

template <Activation KIND>
void FinishAs(const Epilogue& epilogue, Index rows, Index columns, float* sums, Index stride) {
  const float* const summand =
      epilogue.summand ? epilogue.summand + (sums - epilogue.result) : nullptr;
  for (Index column = 0; column < columns; column += kLanes) {
    const Index count = columns - column;
    const Vector factors = LoadPartial(epilogue.factors + column, count);
    const Vector bias = LoadPartial(epilogue.bias + column, count);
    for (Index row = 0; row < rows; ++row) {
      const Index offset = row * stride + column;
      Vector sum = LoadPartial(sums + offset, count) * factors + bias;
      if (summand) sum += LoadPartial(summand + offset, count);
      StorePartial(sums + offset, epilogue.Activate<KIND>(sum), count);
    }
  }
}

// Applies an epilogue to rows of sums that have just been stored, `stride` floats apart. It is not
// part of the innermost loops, because their code would become too large.
__attribute__((noinline)) inline void Finish(const Epilogue& epilogue, Index rows, Index columns,
                                             float* sums, Index stride) {
  const auto finish = [&](auto function) { function(epilogue, rows, columns, sums, stride); };
  switch (epilogue.activation) {
    case Activation::kClip:
      return finish(FinishAs<Activation::kClip>);
    case Activation::kLeakyRelu:
      return finish(FinishAs<Activation::kLeakyRelu>);
    case Activation::kSigmoid:
      return finish(FinishAs<Activation::kSigmoid>);
    case Activation::kSilu:
      return finish(FinishAs<Activation::kSilu>);
    case Activation::kGelu:
      return finish(FinishAs<Activation::kGelu>);
    case Activation::kHardSwish:
      return finish(FinishAs<Activation::kHardSwish>);
    case Activation::kExactGelu:
      return finish(FinishAs<Activation::kExactGelu>);
  }
}

}  // namespace jaxcnn
