// The convolutions that XLA calls. Their names and arguments are those of
// jaxcnn/ops/native/calls.py.

#include "convolution_arguments.h"
#include "depthwise.h"
#include "depthwise_gradient.h"
#include "direct.h"
#include "gradient.h"
#include "grouped.h"
#include "packed_kernel.h"

namespace jaxcnn {
namespace {

using Array = FloatArray;
using Result = ffi::Result<Array>;

// `winograd` is the side of Winograd's tiles in pixels; 0 for the direct convolution as defined; or
// 1 for the direct convolution that may multiply zeros by pixels beside a window.
ffi::Error Convolve(ffi::ThreadPool& pool, const Array& images, const Array& kernel,
                    const Epilogue& epilogue, Result& result, const Attributes& attributes,
                    Index winograd, bool is_flipped) {
  const ffi::ErrorOr<Geometry> geometry = ConvolutionGeometry(
      images.dimensions(), kernel.dimensions(), result->dimensions(), attributes, is_flipped);
  if (geometry.has_error()) return geometry.error();
  const Geometry& g = geometry.value();
  const auto convolve = [&](auto method) {
    if (attributes.groups == 1)
      return method(g, images.typed_data(),
                    Kernel{kernel.typed_data(), g.TapCount(), g.channels, g.outputs, is_flipped},
                    epilogue, result->typed_data());
    GroupedConvolution(g, attributes.groups, images.typed_data(), kernel.typed_data(), is_flipped,
                       epilogue, result->typed_data(), method);
  };
  const bool has_scheme = WithScheme(
      g, winograd,
      [&](auto scheme) {
        convolve([&](const Geometry& part, const float* from, const Kernel& weights,
                     const Epilogue& after, float* to) {
          WinogradConvolution<decltype(scheme)>(pool, part, from, weights, after, to);
        });
      },
      [&] {
        convolve([&](const Geometry& part, const float* from, const Kernel& weights,
                     const Epilogue& after, float* to) {
          DirectConvolution(pool, part, from, weights, winograd == 1, after, to);
        });
      });
  return Require(has_scheme, kNoScheme);
}

ffi::Error Convolution(ffi::ThreadPool pool, Array images, Array kernel, Result result,
                       Span strides, Span before, Span dilation, Index groups, Index winograd,
                       bool flipped) {
  return Convolve(pool, images, kernel, {}, result, {strides, before, dilation, groups}, winograd,
                  flipped);
}

ffi::Error ActivatedConvolution(ffi::ThreadPool pool, Array images, Array kernel, Channels factors,
                                Channels bias, Array summand, Result result, Span strides,
                                Span before, Span dilation, Index groups, Index winograd,
                                Index activation, float low, float high) {
  const ffi::ErrorOr<Epilogue> epilogue =
      MakeEpilogue(factors, bias, summand, *result, activation, low, high);
  if (epilogue.has_error()) return epilogue.error();
  return Convolve(pool, images, kernel, epilogue.value(), result,
                  {strides, before, dilation, groups}, winograd, false);
}

ffi::Error KernelGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result,
                          Span strides, Span before, Span dilation, Index groups, Index winograd) {
  const Attributes attributes = {strides, before, dilation, groups};
  const ffi::ErrorOr<Geometry> geometry = GradientGeometry(
      images.dimensions(), cotangent.dimensions(), result->dimensions(), attributes);
  if (geometry.has_error()) return geometry.error();
  const Geometry& g = geometry.value();
  const auto compute = [&](auto method) {
    if (groups == 1)
      return method(g, images.typed_data(), cotangent.typed_data(), result->typed_data());
    GroupedKernelGradient(g, groups, images.typed_data(), cotangent.typed_data(),
                          result->typed_data(), method);
  };
  const bool has_scheme = WithScheme(
      g, winograd,
      [&](auto scheme) {
        compute([&](const Geometry& part, const float* from, const float* by, float* to) {
          WinogradKernelGradient<decltype(scheme)>(pool, part, from, by, to);
        });
      },
      [&] {
        compute([&](const Geometry& part, const float* from, const float* by, float* to) {
          DirectKernelGradient(pool, part, from, by, to);
        });
      });
  return Require(has_scheme, kNoScheme);
}

// A depthwise convolution or, if transposed, its gradient with respect to the images, from the
// cotangent.
ffi::Error ConvolveDepthwise(ffi::ThreadPool& pool, const Array& images, const Array& kernel,
                             const Epilogue& epilogue, Result& result, Span strides, Span before,
                             Span dilation, bool transposed) {
  const Attributes attributes = {strides, before, dilation, images.dimensions()[3]};
  if (ffi::Error error = CheckAttributes(attributes); error.failure()) return error;
  const Span from = images.dimensions(), to = result->dimensions(), taps = kernel.dimensions();
  if (ffi::Error error = CheckShapes(from, taps, to, from[3], to[3], from[3]); error.failure())
    return error;
  DepthwiseConvolution(pool, MakeGeometry(from, to, taps, attributes), images.typed_data(),
                       kernel.typed_data(), transposed, epilogue, result->typed_data());
  return ffi::Error::Success();
}

ffi::Error Depthwise(ffi::ThreadPool pool, Array images, Array kernel, Result result, Span strides,
                     Span before, Span dilation, bool transposed) {
  return ConvolveDepthwise(pool, images, kernel, {}, result, strides, before, dilation, transposed);
}

ffi::Error ActivatedDepthwise(ffi::ThreadPool pool, Array images, Array kernel, Channels factors,
                              Channels bias, Array summand, Result result, Span strides,
                              Span before, Span dilation, Index activation, float low, float high) {
  const ffi::ErrorOr<Epilogue> epilogue =
      MakeEpilogue(factors, bias, summand, *result, activation, low, high);
  if (epilogue.has_error()) return epilogue.error();
  return ConvolveDepthwise(pool, images, kernel, epilogue.value(), result, strides, before,
                           dilation, false);
}

ffi::Error DepthwiseGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result,
                             Span strides, Span before, Span dilation) {
  const Attributes attributes = {strides, before, dilation, images.dimensions()[3]};
  const ffi::ErrorOr<Geometry> geometry = GradientGeometry(
      images.dimensions(), cotangent.dimensions(), result->dimensions(), attributes);
  if (geometry.has_error()) return geometry.error();
  DepthwiseKernelGradient(pool, geometry.value(), images.typed_data(), cotangent.typed_data(),
                          result->typed_data());
  return ffi::Error::Success();
}

// Binds the attributes of a dense or grouped convolution.
template <class Arguments>
auto WithGroups(Arguments&& arguments) {
  return WithWindow(std::move(arguments))
      .template Attr<Index>("groups")
      .template Attr<Index>("winograd");
}

// Binds the operands that all calls have.
auto WithOperands() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>(); }

// The same with those of an epilogue, and the result.
auto WithEpilogue() {
  return WithOperands().Arg<Channels>().Arg<Channels>().Arg<Array>().Ret<Array>();
}

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnConvolution, jaxcnn::Convolution,
    jaxcnn::WithGroups(jaxcnn::WithOperands().Ret<jaxcnn::Array>()).Attr<bool>("flipped"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnActivatedConvolution, jaxcnn::ActivatedConvolution,
                              jaxcnn::WithActivation(jaxcnn::WithGroups(jaxcnn::WithEpilogue())));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnKernelGradient, jaxcnn::KernelGradient,
                              jaxcnn::WithGroups(jaxcnn::WithOperands().Ret<jaxcnn::Array>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnDepthwise, jaxcnn::Depthwise,
    jaxcnn::WithWindow(jaxcnn::WithOperands().Ret<jaxcnn::Array>()).Attr<bool>("transposed"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnActivatedDepthwise, jaxcnn::ActivatedDepthwise,
                              jaxcnn::WithActivation(jaxcnn::WithWindow(jaxcnn::WithEpilogue())));

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnDepthwiseGradient, jaxcnn::DepthwiseGradient,
                              jaxcnn::WithWindow(jaxcnn::WithOperands().Ret<jaxcnn::Array>()));
