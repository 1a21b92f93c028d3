// The arguments that calls of convolutions have in common: checking them, and their geometry.
#pragma once

#include <algorithm>
#include <utility>

#include "calls.h"
#include "epilogue.h"
#include "geometry.h"

namespace jaxcnn {

// What a call answers if the attribute `winograd` does not fit its windows.
constexpr char kNoScheme[] =
    "Winograd's method needs stride 1, and tiles of 2 or 4 pixels for adjacent 3x3 taps or of 2 "
    "pixels for adjacent 5x5 taps";

// The attributes that all calls have. `before` is the padding before the rows and the columns.
struct Attributes {
  Span strides, before, dilation;
  Index groups;
};

// The arguments are the shapes of a convolution's images, result and kernel.
inline Geometry MakeGeometry(Span images, Span result, Span kernel, const Attributes& attributes) {
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
inline ffi::Error CheckAttributes(const Attributes& attributes) {
  for (const Span& pair : {attributes.strides, attributes.before, attributes.dilation})
    if (pair.size() != 2)
      return ffi::Error::InvalidArgument(
          "strides, before and dilation must have two elements each");
  const auto least = [](Span pair) { return std::min(pair[0], pair[1]); };
  return Require(least(attributes.strides) > 0 && least(attributes.dilation) > 0 &&
                     least(attributes.before) >= 0 && attributes.groups > 0,
                 "strides, dilation and groups must be at least 1, and padding at least 0");
}

// Whether images [N][H][W][C], a kernel [h][w][C / groups][D] and a result [N][H'][W'][D] fit
// together, and none of them is empty. `channels` and `outputs` are C and D.
inline ffi::Error CheckShapes(Span images, Span kernel, Span result, Index channels, Index outputs,
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

// The geometry of a gradient with respect to the kernel, from the shapes of the images, the
// cotangent and the gradient; an error if they do not fit.
inline ffi::ErrorOr<Geometry> GradientGeometry(Span images, Span cotangent, Span gradient,
                                               const Attributes& attributes) {
  if (ffi::Error error = CheckAttributes(attributes); error.failure())
    return ffi::Unexpected<ffi::Error>(error);
  if (ffi::Error error =
          CheckShapes(images, gradient, cotangent, images[3], cotangent[3], attributes.groups);
      error.failure())
    return ffi::Unexpected<ffi::Error>(error);
  return MakeGeometry(images, cotangent, gradient, attributes);
}

// The geometry of a convolution; an error if the operands do not fit. A flipped kernel has the
// shape [h, w, D / groups, C].
inline ffi::ErrorOr<Geometry> ConvolutionGeometry(Span images, Span kernel, Span result,
                                                  const Attributes& attributes, bool is_flipped) {
  if (ffi::Error error = CheckAttributes(attributes); error.failure())
    return ffi::Unexpected<ffi::Error>(error);
  const Index channels = is_flipped ? result[3] : images[3];
  const Index outputs = is_flipped ? images[3] : result[3];
  if (ffi::Error error = CheckShapes(images, kernel, result, channels, outputs, attributes.groups);
      error.failure())
    return ffi::Unexpected<ffi::Error>(error);
  return MakeGeometry(images, result, kernel, attributes);
}

using Channels = ffi::Buffer<ffi::F32, 1>;
using FloatArray = ffi::Buffer<ffi::F32, 4>;

// The epilogue of a call with factors [D] and a bias [D]; an error if they do not fit the outputs.
inline ffi::ErrorOr<Epilogue> MakeEpilogue(const Channels& factors, const Channels& bias,
                                           Index outputs, Index activation, float low, float high) {
  const auto last = static_cast<Index>(Activation::kExactGelu);
  if (factors.dimensions()[0] != outputs || bias.dimensions()[0] != outputs)
    return ffi::Unexpected<ffi::Error>(ffi::Error::InvalidArgument(
        "the factors and the bias must have an element for each output"));
  if (activation < 0 || activation > last)
    return ffi::Unexpected<ffi::Error>(ffi::Error::InvalidArgument("unknown activation"));
  return Epilogue{factors.typed_data(), bias.typed_data(), static_cast<Activation>(activation), low,
                  high};
}

// The same with an array that is added, of the shape of the result; empty if there is none.
inline ffi::ErrorOr<Epilogue> MakeEpilogue(const Channels& factors, const Channels& bias,
                                           const FloatArray& summand, const FloatArray& result,
                                           Index activation, float low, float high) {
  ffi::ErrorOr<Epilogue> epilogue =
      MakeEpilogue(factors, bias, result.dimensions()[3], activation, low, high);
  if (epilogue.has_error() || summand.element_count() == 0) return epilogue;
  const Span from = summand.dimensions(), to = result.dimensions();
  if (!std::equal(from.begin(), from.end(), to.begin()))
    return ffi::Unexpected<ffi::Error>(
        ffi::Error::InvalidArgument("the summand must have the shape of the result"));
  Epilogue with_summand = epilogue.value();
  with_summand.summand = summand.typed_data();
  with_summand.result = result.typed_data();
  return with_summand;
}

// Binds the attributes of an activation.
template <class Arguments>
auto WithActivation(Arguments&& arguments) {
  return std::move(arguments)
      .template Attr<Index>("activation")
      .template Attr<float>("low")
      .template Attr<float>("high");
}

// Binds the window's attributes.
template <class Arguments>
auto WithWindow(Arguments&& arguments) {
  return std::move(arguments)
      .template Attr<Span>("strides")
      .template Attr<Span>("before")
      .template Attr<Span>("dilation");
}

}  // namespace jaxcnn
