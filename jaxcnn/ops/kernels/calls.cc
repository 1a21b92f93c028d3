// What a program calls: XLA's foreign functions, whose names and arguments are those of jaxcnn/ops/native.py.

#include "winograd.h"

namespace jaxcnn {
namespace {

using Array = ffi::Buffer<ffi::F32>;
using Result = ffi::Result<Array>;
using Pair = ffi::Span<const std::int64_t>;

ffi::Error Wrong(const char* what) { return ffi::Error::InvalidArgument(what); }

Geometry GeometryOf(ffi::Span<const std::int64_t> images, ffi::Span<const std::int64_t> result, Index tall, Index across, Pair strides,
                    Pair before, Pair dilation) {
  return {images[0], images[1], images[2], images[3], result[1], result[2], result[3], {tall, across},
          {strides[0], strides[1]}, {before[0], before[1]}, {dilation[0], dilation[1]}};
}

ffi::Error Convolve(ffi::ThreadPool pool, Array images, Array kernel, const float* bias, Result result, Pair strides, Pair before,
                    Pair dilation, bool winograd, bool turned) {
  const auto taps = kernel.dimensions();
  if (images.dimensions().size() != 4 || taps.size() != 4) return Wrong("images and kernel have four axes");
  const Geometry g = GeometryOf(images.dimensions(), result->dimensions(), taps[0], taps[1], strides, before, dilation);
  const Kernel weights = {kernel.typed_data(), g.Taps(), g.channels, g.outputs, turned};
  const auto convolution = winograd ? WinogradConvolution : DirectConvolution;
  convolution(pool, g, images.typed_data(), weights, bias, result->typed_data());
  return ffi::Error::Success();
}

ffi::Error Plain(ffi::ThreadPool pool, Array images, Array kernel, Result result, Pair strides, Pair before, Pair dilation, bool winograd,
                 bool turned) {
  return Convolve(pool, images, kernel, nullptr, result, strides, before, dilation, winograd, turned);
}

ffi::Error Rectified(ffi::ThreadPool pool, Array images, Array kernel, Array bias, Result result, Pair strides, Pair before,
                     Pair dilation, bool winograd) {
  return Convolve(pool, images, kernel, bias.typed_data(), result, strides, before, dilation, winograd, false);
}

ffi::Error ByKernel(ffi::ThreadPool pool, Array images, Array cotangent, Result result, Pair strides, Pair before, Pair dilation,
                    bool winograd) {
  const auto taps = result->dimensions();
  if (images.dimensions().size() != 4 || taps.size() != 4) return Wrong("images and kernel have four axes");
  const Geometry g = GeometryOf(images.dimensions(), cotangent.dimensions(), taps[0], taps[1], strides, before, dilation);
  const auto gradient = winograd ? WinogradKernelGradient : DirectKernelGradient;
  gradient(pool, g, images.typed_data(), cotangent.typed_data(), result->typed_data());
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxcnn

namespace ffi = xla::ffi;
using jaxcnn::Array;
using jaxcnn::Pair;

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnConvolution, jaxcnn::Plain,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>().Ret<Array>()
                                  .Attr<Pair>("strides").Attr<Pair>("before").Attr<Pair>("dilation").Attr<bool>("winograd")
                                  .Attr<bool>("turned"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnConvRelu, jaxcnn::Rectified,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>().Arg<Array>().Ret<Array>()
                                  .Attr<Pair>("strides").Attr<Pair>("before").Attr<Pair>("dilation").Attr<bool>("winograd"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnKernelGradient, jaxcnn::ByKernel,
                              ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>().Ret<Array>()
                                  .Attr<Pair>("strides").Attr<Pair>("before").Attr<Pair>("dilation").Attr<bool>("winograd"));

// Whether this processor has the instructions that this library was compiled for.
extern "C" int JaxcnnRuns() {
#if defined(__AVX512F__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
#elif defined(__AVX2__)
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
  return 1;
#endif
}
