// The convolutions that XLA calls. Their names and arguments are those of
// jaxcnn/ops/native/calls.py.

#include "calls.h"
#include "depthwise.h"
#include "depthwise_gradient.h"
#include "direct.h"
#include "gradient.h"
#include "grouped.h"
#include "winograd.h"

namespace jaxcnn {
namespace {

using Array = ffi::Buffer<ffi::F32, 4>;
using Bias = ffi::Buffer<ffi::F32, 1>;
using Result = ffi::Result<Array>;

// The attributes that all calls have. `before` is the padding before the rows and the columns.
struct Attributes {
  Span strides, before, dilation;
  Index groups;
};

// The arguments are the shapes of a convolution's images, result and kernel.
Geometry MakeGeometry(Span images, Span result, Span kernel, const Attributes& attributes) {
  Geometry g;
  g.batch = images[0];
  g.height = images[1];
  g.width = images[2];
  g.channels = g.image_stride = images[3];
  g.rows = result[1];
  g.columns = result[2];
  g.outputs = g.result_stride = result[3];
  for (int axis = 0; axis < 2; ++axis) {
    g.taps[axis] = kernel[axis];
    g.strides[axis] = attributes.strides[axis];
    g.padding[axis] = attributes.before[axis];
    g.dilation[axis] = attributes.dilation[axis];
  }
  return g;
}

// Whether the attributes are possible; to be called before MakeGeometry.
ffi::Error CheckAttributes(const Attributes& attributes) {
  for (const Span& pair : {attributes.strides, attributes.before, attributes.dilation})
    if (pair.size() != 2)
      return ffi::Error::InvalidArgument("strides, before and dilation must have two elements each");
  const auto least = [](Span pair) { return std::min(pair[0], pair[1]); };
  return Require(least(attributes.strides) > 0 && least(attributes.dilation) > 0 &&
                     least(attributes.before) >= 0 && attributes.groups > 0,
                 "strides, dilation and groups must be at least 1, and padding at least 0");
}

// Whether images [N][H][W][C], a kernel [h][w][C / groups][D] and a result [N][H'][W'][D] fit
// together, and none of them is empty. `channels` and `outputs` are C and D.
ffi::Error CheckShapes(Span images, Span kernel, Span result, Index channels, Index outputs,
                       Index groups) {
  for (const Span& shape : {images, kernel, result})
    if (*std::min_element(shape.begin(), shape.end()) < 1)
      return ffi::Error::InvalidArgument(
          "images, kernel and result must not be empty: every dimension must be at least 1");
  return Require(images[0] == result[0] && channels % groups == 0 && outputs % groups == 0 &&
                     kernel[2] == channels / groups && kernel[3] == outputs,
                 "images [N, H, W, C], kernel [h, w, C / groups, D] and result [N, H', W', D] do "
                 "not fit together");
}

// Whether the windows are `taps` x `taps` adjacent taps with stride 1.
bool HasAdjacentTaps(const Geometry& g, Index taps) {
  return g.taps[0] == taps && g.taps[1] == taps && g.strides[0] == 1 && g.strides[1] == 1 &&
         g.dilation[0] == 1 && g.dilation[1] == 1;
}

// Calls f with the Winograd scheme for tiles of this side and these windows, or `direct()` if the
// side is 0.
template <class F, class Direct>
ffi::Error WithScheme(const Geometry& g, Index side, F f, Direct direct) {
  if (side == 0)
    direct();
  else if (side == 2 && HasAdjacentTaps(g, 3))
    f(Winograd<2, 3>{});
  else if (side == 4 && HasAdjacentTaps(g, 3))
    f(Winograd<4, 3>{});
  else if (side == 2 && HasAdjacentTaps(g, 5))
    f(Winograd<2, 5>{});
  else
    return ffi::Error::InvalidArgument(
        "Winograd's method needs stride 1, and tiles of 2 or 4 pixels for adjacent 3x3 taps or of "
        "2 pixels for adjacent 5x5 taps");
  return ffi::Error::Success();
}

// `winograd` is the side of Winograd's tiles in pixels, or 0 for the direct convolution.
ffi::Error Convolve(ffi::ThreadPool& pool, const Array& images, const Array& kernel,
                    const float* bias, Result& result, const Attributes& attributes, Index winograd,
                    bool is_flipped) {
  if (ffi::Error error = CheckAttributes(attributes); error.failure()) return error;
  const Span from = images.dimensions(), to = result->dimensions(), taps = kernel.dimensions();
  const Index channels = is_flipped ? to[3] : from[3], outputs = is_flipped ? from[3] : to[3];
  if (ffi::Error error = CheckShapes(from, taps, to, channels, outputs, attributes.groups);
      error.failure())
    return error;
  const Geometry g = MakeGeometry(from, to, taps, attributes);
  const auto convolve = [&](auto method) {
    if (attributes.groups == 1)
      return method(g, images.typed_data(),
                    Kernel{kernel.typed_data(), g.TapCount(), g.channels, g.outputs, is_flipped},
                    bias, result->typed_data());
    GroupedConvolution(g, attributes.groups, images.typed_data(), kernel.typed_data(), is_flipped,
                       bias, result->typed_data(), method);
  };
  return WithScheme(
      g, winograd,
      [&](auto scheme) {
        convolve([&](const Geometry& part, const float* from, const Kernel& weights,
                     const float* shift, float* to) {
          WinogradConvolution<decltype(scheme)>(pool, part, from, weights, shift, to);
        });
      },
      [&] {
        convolve([&](const Geometry& part, const float* from, const Kernel& weights,
                     const float* shift, float* to) {
          DirectConvolution(pool, part, from, weights, shift, to);
        });
      });
}

ffi::Error Convolution(ffi::ThreadPool pool, Array images, Array kernel, Result result,
                       Span strides, Span before, Span dilation, Index groups, Index winograd,
                       bool flipped) {
  return Convolve(pool, images, kernel, nullptr, result, {strides, before, dilation, groups},
                  winograd, flipped);
}

ffi::Error ConvRelu(ffi::ThreadPool pool, Array images, Array kernel, Bias bias, Result result,
                    Span strides, Span before, Span dilation, Index groups, Index winograd) {
  if (bias.dimensions()[0] != result->dimensions()[3])
    return ffi::Error::InvalidArgument("the bias must have an element for each output");
  return Convolve(pool, images, kernel, bias.typed_data(), result,
                  {strides, before, dilation, groups}, winograd, false);
}

// The geometry of a gradient with respect to the kernel; an error if the operands do not fit.
ffi::ErrorOr<Geometry> GradientGeometry(const Array& images, const Array& cotangent,
                                        const Array& gradient, const Attributes& attributes) {
  if (ffi::Error error = CheckAttributes(attributes); error.failure())
    return ffi::Unexpected<ffi::Error>(error);
  const Span from = images.dimensions(), to = cotangent.dimensions();
  const Span taps = gradient.dimensions();
  if (ffi::Error error = CheckShapes(from, taps, to, from[3], to[3], attributes.groups);
      error.failure())
    return ffi::Unexpected<ffi::Error>(error);
  return MakeGeometry(from, to, taps, attributes);
}

ffi::Error KernelGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result,
                          Span strides, Span before, Span dilation, Index groups, Index winograd) {
  const Attributes attributes = {strides, before, dilation, groups};
  const ffi::ErrorOr<Geometry> geometry = GradientGeometry(images, cotangent, *result, attributes);
  if (geometry.has_error()) return geometry.error();
  const Geometry& g = geometry.value();
  const auto compute = [&](auto method) {
    if (groups == 1)
      return method(g, images.typed_data(), cotangent.typed_data(), result->typed_data());
    GroupedKernelGradient(g, groups, images.typed_data(), cotangent.typed_data(),
                          result->typed_data(), method);
  };
  return WithScheme(
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
}

// A depthwise convolution or, if transposed, its gradient with respect to the images, from the
// cotangent.
ffi::Error Depthwise(ffi::ThreadPool pool, Array images, Array kernel, Result result, Span strides,
                     Span before, Span dilation, bool transposed) {
  const Attributes attributes = {strides, before, dilation, images.dimensions()[3]};
  if (ffi::Error error = CheckAttributes(attributes); error.failure()) return error;
  const Span from = images.dimensions(), to = result->dimensions(), taps = kernel.dimensions();
  if (ffi::Error error = CheckShapes(from, taps, to, from[3], to[3], from[3]); error.failure())
    return error;
  DepthwiseConvolution(pool, MakeGeometry(from, to, taps, attributes), images.typed_data(),
                       kernel.typed_data(), transposed, result->typed_data());
  return ffi::Error::Success();
}

ffi::Error DepthwiseGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result,
                             Span strides, Span before, Span dilation) {
  const Attributes attributes = {strides, before, dilation, images.dimensions()[3]};
  const ffi::ErrorOr<Geometry> geometry = GradientGeometry(images, cotangent, *result, attributes);
  if (geometry.has_error()) return geometry.error();
  DepthwiseKernelGradient(pool, geometry.value(), images.typed_data(), cotangent.typed_data(),
                          result->typed_data());
  return ffi::Error::Success();
}

// Binds the window's attributes.
template <class Arguments>
auto WithWindow(Arguments&& arguments) {
  return std::move(arguments)
      .template Attr<Span>("strides")
      .template Attr<Span>("before")
      .template Attr<Span>("dilation");
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

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnConvolution, jaxcnn::Convolution,
    jaxcnn::WithGroups(jaxcnn::WithOperands().Ret<jaxcnn::Array>()).Attr<bool>("flipped"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnConvRelu, jaxcnn::ConvRelu,
    jaxcnn::WithGroups(jaxcnn::WithOperands().Arg<jaxcnn::Bias>().Ret<jaxcnn::Array>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnKernelGradient, jaxcnn::KernelGradient,
    jaxcnn::WithGroups(jaxcnn::WithOperands().Ret<jaxcnn::Array>()));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnDepthwise, jaxcnn::Depthwise,
    jaxcnn::WithWindow(jaxcnn::WithOperands().Ret<jaxcnn::Array>()).Attr<bool>("transposed"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnDepthwiseGradient, jaxcnn::DepthwiseGradient,
    jaxcnn::WithWindow(jaxcnn::WithOperands().Ret<jaxcnn::Array>()));
