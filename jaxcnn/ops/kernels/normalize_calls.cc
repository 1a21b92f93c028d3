// The passes of batch norm that XLA calls. Their names and arguments are those of
// jaxcnn/ops/native/normalization.py.

#include "calls.h"
#include "normalize.h"

namespace jaxcnn {
namespace {

using Pixels = ffi::Buffer<ffi::F32, 2>;
using Channels = ffi::Buffer<ffi::F32, 1>;

// Whether arrays [pixel][channel] have the shape of x, and vectors an element for each channel.
ffi::Error CheckShapes(const Pixels& x, std::initializer_list<Span> matrices,
                       std::initializer_list<Span> vectors) {
  const Span shape = x.dimensions();
  bool fits = true;
  for (const Span& other : matrices) fits &= other[0] == shape[0] && other[1] == shape[1];
  for (const Span& vector : vectors) fits &= vector[0] == shape[1];
  return Require(fits,
                 "arrays [pixel, channel] must have the same shape, and all vectors an "
                 "element for each channel");
}

ffi::Error CheckSums(const Pixels& x, const Pixels& sums) {
  const Span result = sums.dimensions();
  return Require(result[0] == 2 && result[1] == x.dimensions()[1],
                 "the result must be [2, channels]");
}

ffi::Error Moments(ffi::ThreadPool pool, Pixels x, ffi::Result<Pixels> sums) {
  if (ffi::Error error = CheckSums(x, *sums); error.failure()) return error;
  const Span shape = x.dimensions();
  ChannelMoments(pool, shape[0], shape[1], x.typed_data(), sums->typed_data());
  return ffi::Error::Success();
}

ffi::Error GradientSums(ffi::ThreadPool pool, float low, float high, Pixels x, Pixels cotangent,
                        Channels mean, Channels factor, Channels shift, ffi::Result<Pixels> sums) {
  if (ffi::Error error = CheckSums(x, *sums); error.failure()) return error;
  if (ffi::Error error = CheckShapes(x, {cotangent.dimensions()},
                                     {mean.dimensions(), factor.dimensions(), shift.dimensions()});
      error.failure())
    return error;
  const Span shape = x.dimensions();
  NormalizeGradientSums(pool, shape[0], shape[1], x.typed_data(), cotangent.typed_data(),
                        {mean.typed_data(), factor.typed_data(), shift.typed_data(), {low, high}},
                        sums->typed_data());
  return ffi::Error::Success();
}

ffi::Error Gradient(ffi::ThreadPool pool, float low, float high, Pixels x, Pixels cotangent,
                    Channels mean, Channels factor, Channels shift, Channels slope, Channels offset,
                    ffi::Result<Pixels> gradient) {
  if (ffi::Error error = CheckShapes(x, {cotangent.dimensions(), gradient->dimensions()},
                                     {mean.dimensions(), factor.dimensions(), shift.dimensions(),
                                      slope.dimensions(), offset.dimensions()});
      error.failure())
    return error;
  const Span shape = x.dimensions();
  NormalizeGradient(pool, shape[0], shape[1], x.typed_data(), cotangent.typed_data(),
                    {mean.typed_data(), factor.typed_data(), shift.typed_data(), {low, high}},
                    slope.typed_data(), offset.typed_data(), gradient->typed_data());
  return ffi::Error::Success();
}

// Binds the operands and attributes of a gradient; further operands and the result follow.
auto WithNormalization() {
  return ffi::Ffi::Bind()
      .Ctx<ffi::ThreadPool>()
      .Attr<float>("low")
      .Attr<float>("high")
      .Arg<Pixels>()     // x
      .Arg<Pixels>()     // cotangent
      .Arg<Channels>()   // mean
      .Arg<Channels>()   // factor
      .Arg<Channels>();  // shift
}

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnMoments, jaxcnn::Moments,
                              jaxcnn::ffi::Ffi::Bind()
                                  .Ctx<jaxcnn::ffi::ThreadPool>()
                                  .Arg<jaxcnn::Pixels>()
                                  .Ret<jaxcnn::Pixels>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnNormalizeGradientSums, jaxcnn::GradientSums,
                              jaxcnn::WithNormalization().Ret<jaxcnn::Pixels>());

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnNormalizeGradient, jaxcnn::Gradient,
                              jaxcnn::WithNormalization()
                                  .Arg<jaxcnn::Channels>()
                                  .Arg<jaxcnn::Channels>()
                                  .Ret<jaxcnn::Pixels>());
