// What a program calls: XLA's foreign functions, whose names and arguments are those of jaxcnn/ops/native.py.

#include "direct.h"
#include "gradient.h"
#include "winograd.h"

namespace jaxcnn {
namespace {

using Array = ffi::Buffer<ffi::F32, 4>;
using Bias = ffi::Buffer<ffi::F32, 1>;
using Result = ffi::Result<Array>;
using Pair = ffi::Span<const std::int64_t>;

// How windows lie; the names are those of the calls' attributes. Winograd's way makes tiles of so many pixels a side, 0 for no such way.
struct Attributes {
  Pair strides, before, dilation;
  Index winograd;
};

// Shapes are those of the images, of the convolution's result, and of its kernel.
Geometry GeometryOf(Pair images, Pair result, Pair kernel, const Attributes& attributes) {
  return {images[0], images[1], images[2], images[3], result[1], result[2], result[3], {kernel[0], kernel[1]},
          {attributes.strides[0], attributes.strides[1]}, {attributes.before[0], attributes.before[1]},
          {attributes.dilation[0], attributes.dilation[1]}};
}

ffi::Error Checked(const Geometry& g) {
  if (std::min({g.images, g.high, g.wide, g.channels, g.rows, g.columns, g.outputs, g.Taps()}) > 0) return ffi::Error::Success();
  return ffi::Error::InvalidArgument("no images, pixels, channels, outputs or taps: nothing is left to compute");
}

bool Suits(const Geometry& g, Index taps) {
  return g.taps[0] == taps && g.taps[1] == taps && g.strides[0] == 1 && g.strides[1] == 1 && g.dilation[0] == 1 && g.dilation[1] == 1;
}

// Calls f with Winograd's scheme of those tiles and these taps, if there is one.
template <class F>
ffi::Error WithScheme(const Geometry& g, Index tile, F f) {
  if (tile == 2 && Suits(g, 3))
    f(Winograd<2, 3>{});
  else if (tile == 4 && Suits(g, 3))
    f(Winograd<4, 3>{});
  else if (tile == 2 && Suits(g, 5))
    f(Winograd<2, 5>{});
  else
    return ffi::Error::InvalidArgument("Winograd's way is for tiles of 2 or 4 pixels under 3x3 taps side by side, or of 2 under 5x5");
  return ffi::Error::Success();
}

ffi::Error Convolve(ffi::ThreadPool& pool, Array images, Array kernel, const float* bias, Result result, const Attributes& attributes,
                    bool turned) {
  const Geometry g = GeometryOf(images.dimensions(), result->dimensions(), kernel.dimensions(), attributes);
  if (ffi::Error error = Checked(g); error.failure()) return error;
  const Kernel weights = {kernel.typed_data(), g.Taps(), g.channels, g.outputs, turned};
  if (attributes.winograd)
    return WithScheme(g, attributes.winograd, [&](auto scheme) {
      WinogradConvolution<decltype(scheme)>(pool, g, images.typed_data(), weights, bias, result->typed_data());
    });
  DirectConvolution(pool, g, images.typed_data(), weights, bias, result->typed_data());
  return ffi::Error::Success();
}

ffi::Error Convolution(ffi::ThreadPool pool, Array images, Array kernel, Result result, Pair strides, Pair before, Pair dilation,
                       Index winograd, bool turned) {
  return Convolve(pool, images, kernel, nullptr, result, {strides, before, dilation, winograd}, turned);
}

ffi::Error ConvRelu(ffi::ThreadPool pool, Array images, Array kernel, Bias bias, Result result, Pair strides, Pair before,
                    Pair dilation, Index winograd) {
  return Convolve(pool, images, kernel, bias.typed_data(), result, {strides, before, dilation, winograd}, false);
}

ffi::Error KernelGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result, Pair strides, Pair before, Pair dilation,
                          Index winograd) {
  const Attributes attributes = {strides, before, dilation, winograd};
  const Geometry g = GeometryOf(images.dimensions(), cotangent.dimensions(), result->dimensions(), attributes);
  if (ffi::Error error = Checked(g); error.failure()) return error;
  if (winograd)
    return WithScheme(g, winograd, [&](auto scheme) {
      WinogradKernelGradient<decltype(scheme)>(pool, g, images.typed_data(), cotangent.typed_data(), result->typed_data());
    });
  DirectKernelGradient(pool, g, images.typed_data(), cotangent.typed_data(), result->typed_data());
  return ffi::Error::Success();
}

template <class Arguments>
auto WithWindows(Arguments arguments) {
  return std::move(arguments)
      .template Attr<Pair>("strides")
      .template Attr<Pair>("before")
      .template Attr<Pair>("dilation")
      .template Attr<Index>("winograd");
}

auto Operands() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>(); }

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnConvolution, jaxcnn::Convolution,
                              jaxcnn::WithWindows(jaxcnn::Operands().Ret<jaxcnn::Array>()).Attr<bool>("turned"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnConvRelu, jaxcnn::ConvRelu,
                              jaxcnn::WithWindows(jaxcnn::Operands().Arg<jaxcnn::Bias>().Ret<jaxcnn::Array>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnKernelGradient, jaxcnn::KernelGradient,
                              jaxcnn::WithWindows(jaxcnn::Operands().Ret<jaxcnn::Array>()));

// The version of XLA's interface that this library speaks, and a digest of the sources it was compiled from.
extern "C" int JaxcnnInterface() { return XLA_FFI_API_MAJOR * 1000 + XLA_FFI_API_MINOR; }
extern "C" const char* JaxcnnSources() { return JAXCNN_SOURCES; }

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
