// The functions that XLA calls. Their names and arguments are those of jaxcnn/ops/native.

#include "direct.h"
#include "gradient.h"
#include "winograd.h"

namespace jaxcnn {
namespace {

using Array = ffi::Buffer<ffi::F32, 4>;
using Bias = ffi::Buffer<ffi::F32, 1>;
using Result = ffi::Result<Array>;
using Pair = ffi::Span<const std::int64_t>;

// The attributes that all calls have. `before` is the padding before the rows and the columns.
// `winograd` is the side of Winograd's tiles in pixels, or 0 for the direct convolution.
struct Attributes {
  Pair strides, before, dilation;
  Index winograd;
};

// The arguments are the shapes of a convolution's images, result and kernel.
Geometry MakeGeometry(Pair images, Pair result, Pair kernel, const Attributes& attributes) {
  Geometry g;
  g.batch = images[0];
  g.height = images[1];
  g.width = images[2];
  g.channels = images[3];
  g.rows = result[1];
  g.columns = result[2];
  g.outputs = result[3];
  for (int axis = 0; axis < 2; ++axis) {
    g.taps[axis] = kernel[axis];
    g.strides[axis] = attributes.strides[axis];
    g.padding[axis] = attributes.before[axis];
    g.dilation[axis] = attributes.dilation[axis];
  }
  return g;
}

ffi::Error CheckNotEmpty(const Geometry& g) {
  if (std::min({g.batch, g.height, g.width, g.channels, g.rows, g.columns, g.outputs,
                g.TapCount()}) > 0)
    return ffi::Error::Success();
  return ffi::Error::InvalidArgument(
      "images, kernel and result must not be empty: every dimension must be at least 1");
}

// Whether the windows are `taps` x `taps` adjacent taps with stride 1.
bool HasAdjacentTaps(const Geometry& g, Index taps) {
  return g.taps[0] == taps && g.taps[1] == taps && g.strides[0] == 1 && g.strides[1] == 1 &&
         g.dilation[0] == 1 && g.dilation[1] == 1;
}

// Calls f with the Winograd scheme for this tile and these windows, if there is one.
template <class F>
ffi::Error WithScheme(const Geometry& g, Index tile, F f) {
  if (tile == 2 && HasAdjacentTaps(g, 3))
    f(Winograd<2, 3>{});
  else if (tile == 4 && HasAdjacentTaps(g, 3))
    f(Winograd<4, 3>{});
  else if (tile == 2 && HasAdjacentTaps(g, 5))
    f(Winograd<2, 5>{});
  else
    return ffi::Error::InvalidArgument(
        "Winograd's method needs stride 1, and tiles of 2 or 4 pixels for adjacent 3x3 taps or of "
        "2 pixels for adjacent 5x5 taps");
  return ffi::Error::Success();
}

ffi::Error Convolve(ffi::ThreadPool& pool, Array images, Array kernel, const float* bias,
                    Result result, const Attributes& attributes, bool is_flipped) {
  const Geometry g = MakeGeometry(images.dimensions(), result->dimensions(), kernel.dimensions(),
                                  attributes);
  if (ffi::Error error = CheckNotEmpty(g); error.failure()) return error;
  const Kernel weights = {kernel.typed_data(), g.TapCount(), g.channels, g.outputs, is_flipped};
  if (attributes.winograd)
    return WithScheme(g, attributes.winograd, [&](auto scheme) {
      WinogradConvolution<decltype(scheme)>(pool, g, images.typed_data(), weights, bias,
                                            result->typed_data());
    });
  DirectConvolution(pool, g, images.typed_data(), weights, bias, result->typed_data());
  return ffi::Error::Success();
}

ffi::Error Convolution(ffi::ThreadPool pool, Array images, Array kernel, Result result,
                       Pair strides, Pair before, Pair dilation, Index winograd, bool flipped) {
  const Attributes attributes = {strides, before, dilation, winograd};
  return Convolve(pool, images, kernel, nullptr, result, attributes, flipped);
}

ffi::Error ConvRelu(ffi::ThreadPool pool, Array images, Array kernel, Bias bias, Result result,
                    Pair strides, Pair before, Pair dilation, Index winograd) {
  const Attributes attributes = {strides, before, dilation, winograd};
  return Convolve(pool, images, kernel, bias.typed_data(), result, attributes, false);
}

ffi::Error KernelGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result,
                          Pair strides, Pair before, Pair dilation, Index winograd) {
  const Attributes attributes = {strides, before, dilation, winograd};
  const Geometry g = MakeGeometry(images.dimensions(), cotangent.dimensions(),
                                  result->dimensions(), attributes);
  if (ffi::Error error = CheckNotEmpty(g); error.failure()) return error;
  if (winograd)
    return WithScheme(g, winograd, [&](auto scheme) {
      WinogradKernelGradient<decltype(scheme)>(pool, g, images.typed_data(), cotangent.typed_data(),
                                               result->typed_data());
    });
  DirectKernelGradient(pool, g, images.typed_data(), cotangent.typed_data(), result->typed_data());
  return ffi::Error::Success();
}

// Binds the `Attributes`.
template <class Arguments>
auto WithAttributes(Arguments arguments) {
  return std::move(arguments)
      .template Attr<Pair>("strides")
      .template Attr<Pair>("before")
      .template Attr<Pair>("dilation")
      .template Attr<Index>("winograd");
}

// Binds the operands that all calls have.
auto WithOperands() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>(); }

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnConvolution, jaxcnn::Convolution,
    jaxcnn::WithAttributes(jaxcnn::WithOperands().Ret<jaxcnn::Array>()).Attr<bool>("flipped"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnConvRelu, jaxcnn::ConvRelu,
    jaxcnn::WithAttributes(jaxcnn::WithOperands().Arg<jaxcnn::Bias>().Ret<jaxcnn::Array>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnKernelGradient, jaxcnn::KernelGradient,
    jaxcnn::WithAttributes(jaxcnn::WithOperands().Ret<jaxcnn::Array>()));

// jaxcnn/ops/native/loader.py calls the following functions to decide whether it can use a library.
// Their names must not change: it also calls those of libraries compiled from older sources.

// The version of XLA's foreign function interface, as major * 1000 + minor.
extern "C" int JaxcnnInterface() { return XLA_FFI_API_MAJOR * 1000 + XLA_FFI_API_MINOR; }

// The digest of the sources that this library was compiled from.
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
