// Calls every kernel with random shapes and compares the results with plain loops in double.
//
//   check_kernels [SHAPES] [SEED]
//
// It is meant to be compiled with sanitizers (.ci/sanitize), or for a processor that is emulated.
// The exit code is 1 if a result is wrong.

#include "bfloat16_convolution.h"
#include "bfloat16_gradient.h"
#include "depthwise.h"
#include "depthwise_gradient.h"
#include "direct.h"
#include "gradient.h"
#include "grouped.h"
#include "normalize.h"
#include "packed_kernel.h"
#include "reference.h"

namespace jaxcnn {
namespace {

// Allowed errors, relative to the sum of absolute products.
constexpr double kDirectError = 1e-6, kWinogradError = 1e-5, kBfloat16Error = 1.0 / 256;
constexpr Index kMaxThreads = 4;

// Draws shapes and checks the kernels with them.
class Checker {
 public:
  explicit Checker(std::uint64_t seed) : random_(seed) {
    for (Index threads = 1; threads <= kMaxThreads; ++threads)
      pools_.push_back(std::make_unique<ffi::ThreadPool>(threads));
  }

  void Check(Index shape) {
    threads_ = random_.Integer(1, kMaxThreads);
    switch (shape % 14) {
      case 0:
        return CheckDirect("direct", Window(), 1);
      case 1:
        return CheckDirect("direct, grouped", Window(), random_.SmallInteger(2, 12));
      case 2:
        return CheckDirect("product", Product(), 1);
      case 3:
        return CheckWinograd<Winograd<2, 3>>("Winograd 2x2, 3x3", 1);
      case 4:
        return CheckWinograd<Winograd<4, 3>>("Winograd 4x4, 3x3", 1);
      case 5:
        return CheckWinograd<Winograd<2, 5>>("Winograd 2x2, 5x5", 1);
      case 6:
        return CheckGroupedWinograd(random_.Integer(2, 4));
      case 7:
        return CheckDepthwise();
      case 8:
        return CheckGradient();
      case 9:
        return CheckBfloat16("bfloat16", WithSizes(Window(), 40, 150));
      case 10:
        return CheckBfloat16("bfloat16, product", Product());
      case 11:
        return CheckDirect("direct, few outputs", WithSizes(Window(), 40, 12), 1, true);
      case 12:
        return CheckPacked();
      default:
        return CheckBatchNorm();
    }
  }

  // Whether an exception of one share reaches the caller after all other shares have ended.
  bool RethrowsExceptions() {
    constexpr Index kShares = 100;
    bool rethrows = true;
    for (const auto& pool : pools_) {
      std::atomic<Index> ended{0};
      const auto work = [&](Index share) {
        if (share == kShares / 2) throw std::bad_alloc();
        ++ended;
      };
      try {
        ParallelFor(*pool, kShares, work);
        rethrows = false;
      } catch (const std::bad_alloc&) {
        rethrows &= ended == kShares - 1;
      }
    }
    return rethrows;
  }

  int Report() const { return checks_.Report(); }

 private:
  ffi::ThreadPool& Pool() { return *pools_[threads_ - 1]; }

  // The geometry of a result for taps, strides, padding and dilation that are set; the channels and
  // the number of examples are limited such that the plain loops take at most a blink.
  Geometry WithSizes(Geometry g, Index max_side, Index max_channels, Index groups = 1) {
    Index size[2];
    for (int axis = 0; axis < 2; ++axis) {
      const Index window = (g.taps[axis] - 1) * g.dilation[axis] + 1;
      const Index after = random_.SmallInteger(0, window);
      const Index least = std::max<Index>(1, window - g.padding[axis] - after);
      const Index side = random_.SmallInteger(least, std::max(least, max_side));
      (axis == 0 ? g.height : g.width) = side;
      size[axis] = (side + g.padding[axis] + after - window) / g.strides[axis] + 1;
    }
    g.rows = size[0];
    g.columns = size[1];
    g.channels = g.image_stride = groups * random_.SmallInteger(1, max_channels);
    g.outputs = g.result_stride = groups * random_.SmallInteger(1, max_channels);
    constexpr Index kMaxWork = 1 << 20;  // multiplications of the plain loops
    const auto work = [&] {
      return g.rows * g.columns * g.TapCount() * g.channels * g.outputs / groups;
    };
    while (work() > kMaxWork && g.outputs > groups) {
      g.channels = g.image_stride = groups * CeilDiv(g.channels / groups, 2);
      g.outputs = g.result_stride = groups * CeilDiv(g.outputs / groups, 2);
    }
    g.batch = random_.Integer(1, std::clamp<Index>(kMaxWork / work(), 1, 6));
    return g;
  }

  Geometry Window(Index max_taps = 7) {
    Geometry g{};
    const bool is_dilated = random_.Chance(4), is_padded = !random_.Chance(3);
    for (int axis = 0; axis < 2; ++axis) {
      g.taps[axis] = random_.SmallInteger(1, max_taps);
      g.strides[axis] = random_.SmallInteger(1, 3);
      g.dilation[axis] = is_dilated ? random_.Integer(1, 3) : 1;
      g.padding[axis] = is_padded ? random_.SmallInteger(0, g.taps[axis] * g.dilation[axis]) : 0;
    }
    return g;
  }

  Geometry AdjacentTaps(Index taps) {
    Geometry g{};
    for (int axis = 0; axis < 2; ++axis) {
      g.taps[axis] = taps;
      g.strides[axis] = g.dilation[axis] = 1;
      g.padding[axis] = random_.Integer(0, taps);
    }
    return g;
  }

  // A product of matrices [M][K] and [K][N] is a convolution of one row of M pixels.
  Geometry Product() {
    Geometry g{};
    g.batch = g.height = g.rows = 1;
    for (int axis = 0; axis < 2; ++axis) g.taps[axis] = g.strides[axis] = g.dilation[axis] = 1;
    g.width = g.columns = random_.SmallInteger(1, 400);
    g.channels = g.image_stride = random_.SmallInteger(1, 1500);
    g.outputs = g.result_stride = random_.SmallInteger(1, 4000000 / (g.width * g.channels) + 1);
    return g;
  }

  void CheckDirect(const std::string& name, Geometry g, Index groups, bool reads_beside = false) {
    if (!g.batch) g = WithSizes(g, 40, 300 / groups, groups);
    CheckConvolution(
        name, g, groups, kDirectError,
        [&](const Geometry& part, const float* images, const Kernel& kernel,
            const Epilogue& epilogue, float* result) {
          DirectConvolution(Pool(), part, images, kernel, reads_beside, epilogue, result);
        },
        [&](const Geometry& part, const float* images, const float* cotangent, float* gradient) {
          DirectKernelGradient(Pool(), part, images, cotangent, gradient);
        });
  }

  template <class Scheme>
  void CheckWinograd(const std::string& name, Index groups) {
    const Geometry g = WithSizes(AdjacentTaps(Scheme::kTaps), 30, 400 / groups, groups);
    CheckConvolution(
        name, g, groups, kWinogradError,
        [&](const Geometry& part, const float* images, const Kernel& kernel,
            const Epilogue& epilogue, float* result) {
          WinogradConvolution<Scheme>(Pool(), part, images, kernel, epilogue, result);
        },
        [&](const Geometry& part, const float* images, const float* cotangent, float* gradient) {
          WinogradKernelGradient<Scheme>(Pool(), part, images, cotangent, gradient);
        });
  }

  // Kernels that are packed before.
  void CheckPacked() {
    const bool is_winograd = random_.Chance(2);
    const Geometry g = is_winograd ? WithSizes(AdjacentTaps(3), 30, 200)
                                   : WithSizes(Window(), 40, random_.Chance(2) ? 12 : 150);
    const Index side = is_winograd ? 2 * random_.Integer(1, 2) : random_.Integer(0, 1);
    const Array images(g.batch * g.height * g.width * g.channels, random_);
    const Array kernel(g.TapCount() * g.channels * g.outputs, random_);
    Array packed(PackedSize(g, side)), result(g.PixelCount() * g.outputs);
    PackForConvolution(Pool(), g, side, {kernel, g.TapCount(), g.channels, g.outputs, false},
                       packed);
    const Kernel weights = {nullptr, g.TapCount(), g.channels, g.outputs, false, packed};
    WithScheme(
        g, side,
        [&](auto scheme) {
          WinogradConvolution<decltype(scheme)>(Pool(), g, images, weights, {}, result);
        },
        [&] { DirectConvolution(Pool(), g, images, weights, side == 1, {}, result); });
    checks_.Compare(is_winograd ? "packed, Winograd" : "packed", Describe(g, 1, threads_), result,
                    Convolve(g, 1, images, kernel, false),
                    is_winograd ? kWinogradError : kDirectError);
  }

  void CheckGroupedWinograd(Index groups) {
    const std::string name = "Winograd, grouped";
    switch (random_.Integer(0, 2)) {
      case 0:
        return CheckWinograd<Winograd<2, 3>>(name, groups);
      case 1:
        return CheckWinograd<Winograd<4, 3>>(name, groups);
      default:
        return CheckWinograd<Winograd<2, 5>>(name, groups);
    }
  }

  // Checks a convolution, with bias and ReLU, with a flipped kernel, and its kernel gradient, where
  // convolve(part, images, kernel, epilogue, result) and differentiate(part, images, cotangent,
  // gradient) compute them for one group.
  template <class Convolution, class Gradient>
  void CheckConvolution(const std::string& name, const Geometry& g, Index groups, double tolerance,
                        Convolution convolve, Gradient differentiate) {
    const std::string shape = Describe(g, groups, threads_);
    const Array images(g.batch * g.height * g.width * g.channels, random_);
    const Array kernel(g.TapCount() * g.channels * g.outputs / groups, random_);
    const Array factors(g.outputs, random_), bias(g.outputs, random_);
    const Array summand(g.PixelCount() * g.outputs, random_);
    const auto run = [&](bool is_flipped, Epilogue epilogue) {
      Array result(g.PixelCount() * g.outputs);
      epilogue.result = result;
      if (groups == 1)
        convolve(g, images, Kernel{kernel, g.TapCount(), g.channels, g.outputs, is_flipped},
                 epilogue, result);
      else
        GroupedConvolution(g, groups, images, kernel, is_flipped, epilogue, result, convolve);
      return result;
    };
    const Reference sums = Convolve(g, groups, images, kernel, false);
    checks_.Compare(name, shape, run(false, {}), sums, tolerance);
    const Epilogue relu = {factors, bias, Activation::kClip, 0, INFINITY};
    checks_.Compare(name + ", ReLU", shape, run(false, relu), Activate(sums, factors, bias),
                    tolerance);
    Epilogue sum_relu = relu;
    sum_relu.summand = summand;
    checks_.Compare(name + ", sum, ReLU", shape, run(false, sum_relu),
                    Activate(sums, factors, bias, summand), tolerance);
    checks_.Compare(name + ", flipped", shape, run(true, {}),
                    Convolve(g, groups, images, kernel, true), tolerance);

    const Array cotangent(g.PixelCount() * g.outputs, random_);
    Array gradient(kernel.Size());
    if (groups == 1)
      differentiate(g, images, cotangent, gradient);
    else
      GroupedKernelGradient(g, groups, images, cotangent, gradient, differentiate);
    checks_.Compare(name + ", kernel gradient", shape, gradient,
                    KernelGradient(g, groups, images, cotangent), tolerance);
  }

  // Kernel gradients of many outputs and of many pixels, which are divided differently.
  void CheckGradient() {
    const Geometry g =
        random_.Chance(2) ? WithSizes(Window(3), 12, 900) : WithSizes(Window(5), 300, 12);
    const Array images(g.batch * g.height * g.width * g.channels, random_);
    const Array cotangent(g.PixelCount() * g.outputs, random_);
    Array gradient(g.TapCount() * g.channels * g.outputs);
    DirectKernelGradient(Pool(), g, images, cotangent, gradient);
    checks_.Compare("kernel gradient", Describe(g, 1, threads_), gradient,
                    KernelGradient(g, 1, images, cotangent), kDirectError);
  }

  // Sanitizers do not see what AMX's instructions read; those of AVX512-BF16 read the same.
  void CheckBfloat16([[maybe_unused]] const std::string& name, [[maybe_unused]] const Geometry& g) {
#ifdef JAXCNN_HAS_BFLOAT16
    if (HasAvx512Bfloat16()) CheckBfloat16With<Avx512Pairs>(name + ", AVX512-BF16", g);
    if (HasAmxBfloat16()) CheckBfloat16With<AmxTiles>(name + ", AMX", g);
  }

  template <class Unit>
  void CheckBfloat16With(const std::string& name, const Geometry& g) {
    const std::string shape = Describe(g, 1, threads_);
    const Bfloat16Array images(Array(g.batch * g.height * g.width * g.channels, random_));
    const Bfloat16Array kernel(Array(g.TapCount() * g.channels * g.outputs, random_));
    const Bfloat16Array cotangent(Array(g.PixelCount() * g.outputs, random_));
    const Array images32 = images.ToFloats(), kernel32 = kernel.ToFloats();
    const Array factors(g.outputs, random_), bias(g.outputs, random_);
    const auto run = [&](bool is_flipped, const Epilogue& epilogue) {
      Bfloat16Array result(g.PixelCount() * g.outputs);
      Bfloat16Convolution<Unit>(Pool(), g, images, {kernel, is_flipped}, epilogue, result);
      return result.ToFloats();
    };
    const Reference sums = Convolve(g, 1, images32, kernel32, false);
    checks_.Compare(name, shape, run(false, {}), sums, kBfloat16Error);
    const Epilogue relu = {factors, bias, Activation::kClip, 0, INFINITY};
    checks_.Compare(name + ", ReLU", shape, run(false, relu), Activate(sums, factors, bias),
                    kBfloat16Error);
    checks_.Compare(name + ", flipped", shape, run(true, {}),
                    Convolve(g, 1, images32, kernel32, true), kBfloat16Error);
    Bfloat16Array gradient(g.TapCount() * g.channels * g.outputs);
    Bfloat16KernelGradient<Unit>(Pool(), g, images, cotangent, gradient);
    checks_.Compare(name + ", kernel gradient", shape, gradient.ToFloats(),
                    KernelGradient(g, 1, images32, cotangent.ToFloats()), kBfloat16Error);
#endif
  }

  void CheckDepthwise() {
    Geometry g = WithSizes(Window(), 60, 1);
    g.channels = g.image_stride = g.outputs = g.result_stride = random_.SmallInteger(1, 120);
    const std::string shape = Describe(g, g.channels, threads_);
    const Array images(g.batch * g.height * g.width * g.channels, random_);
    const Array kernel(g.TapCount() * g.channels, random_);
    Array result(g.PixelCount() * g.channels), image_gradient(images.Size());
    Array kernel_gradient(kernel.Size());
    const Reference sums = Convolve(g, g.channels, images, kernel, false);
    DepthwiseConvolution(Pool(), g, images, kernel, false, {}, result);
    checks_.Compare("depthwise", shape, result, sums, kDirectError);
    const Array factors(g.channels, random_), bias(g.channels, random_);
    const Epilogue relu = {factors, bias, Activation::kClip, 0, INFINITY};
    DepthwiseConvolution(Pool(), g, images, kernel, false, relu, result);
    checks_.Compare("depthwise, ReLU", shape, result, Activate(sums, factors, bias), kDirectError);
    const Array summand(result.Size(), random_);
    Epilogue sum_relu = relu;
    sum_relu.summand = summand;
    sum_relu.result = result;
    DepthwiseConvolution(Pool(), g, images, kernel, false, sum_relu, result);
    checks_.Compare("depthwise, sum, ReLU", shape, result, Activate(sums, factors, bias, summand),
                    kDirectError);

    const Array cotangent(result.Size(), random_);
    Geometry transposed = g;
    std::swap(transposed.height, transposed.rows);
    std::swap(transposed.width, transposed.columns);
    DepthwiseConvolution(Pool(), transposed, cotangent, kernel, true, {}, image_gradient);
    checks_.Compare("depthwise, image gradient", shape, image_gradient,
                    DepthwiseImageGradient(g, cotangent, kernel), kDirectError);
    DepthwiseKernelGradient(Pool(), g, images, cotangent, kernel_gradient);
    checks_.Compare("depthwise, kernel gradient", shape, kernel_gradient,
                    KernelGradient(g, g.channels, images, cotangent), kDirectError);
  }

  void CheckBatchNorm() {
    const Index pixels = random_.SmallInteger(1, 3000), channels = random_.SmallInteger(1, 200);
    const std::string shape = std::to_string(pixels) + " pixels, " + std::to_string(channels) +
                              " channels, threads " + std::to_string(threads_);
    const Array x(pixels * channels, random_), mean(channels, random_), factor(channels, random_);
    const Array shift(channels, random_), slope(channels, random_), offset(channels, random_);
    Array cotangent(x.Size(), random_), moments(2 * channels), sums(2 * channels);
    Array gradient(x.Size());
    const Clip clip = {random_.Chance(3) ? -INFINITY : 0, random_.Chance(2) ? INFINITY : 0.25f};
    Reference expected_moments(2 * channels), expected_sums(2 * channels);
    Reference expected_gradient(x.Size());
    for (Index i = 0; i < x.Size(); ++i) {
      const Index c = i % channels;
      const double centered = double(x[i]) - mean[c], y = centered * factor[c] + shift[c];
      // The rounding of y decides whether it is clipped.
      if (std::abs(y - clip.low) < 1e-5 || std::abs(y - clip.high) < 1e-5) cotangent[i] = 0;
      const bool is_clipped = y <= clip.low || y >= clip.high;
      const double g = is_clipped ? 0 : cotangent[i];
      if (is_clipped && random_.Chance(5) && cotangent[i] != 0) cotangent[i] = INFINITY;
      expected_moments.Add(c, x[i]);
      expected_moments.Add(channels + c, double(x[i]) * x[i]);
      expected_sums.Add(c, g);
      expected_sums.Add(channels + c, g * centered);
      expected_gradient.Add(i, g * factor[c]);
      expected_gradient.Add(i, centered * slope[c]);
      expected_gradient.Add(i, offset[c]);
    }
    const Normalization normalization = {mean, factor, shift, clip};
    ChannelMoments(Pool(), pixels, channels, x, moments);
    checks_.Compare("batch norm, moments", shape, moments, expected_moments, kDirectError);
    NormalizeGradientSums(Pool(), pixels, channels, x, cotangent, normalization, sums);
    checks_.Compare("batch norm, gradient sums", shape, sums, expected_sums, kDirectError);
    NormalizeGradient(Pool(), pixels, channels, x, cotangent, normalization, slope, offset,
                      gradient);
    checks_.Compare("batch norm, gradient", shape, gradient, expected_gradient, kDirectError);
  }

  Random random_;
  std::vector<std::unique_ptr<ffi::ThreadPool>> pools_;
  Index threads_ = 1;
  Checks checks_;
};

}  // namespace
}  // namespace jaxcnn

int main(int count, char** arguments) {
  const long shapes = count > 1 ? std::atol(arguments[1]) : 600;
  const long seed = count > 2 ? std::atol(arguments[2]) : 0;
  jaxcnn::Checker checker(seed);
  for (long shape = 0; shape < shapes; ++shape) checker.Check(shape);
  int failures = checker.Report();
  if (!checker.RethrowsExceptions()) {
    std::printf("WRONG: an exception of a share did not reach the caller\n");
    ++failures;
  }
  std::printf("%ld shapes, vectors of %d floats, %d wrong\n", shapes, jaxcnn::kLanes, failures);
  return failures ? 1 : 0;
}
