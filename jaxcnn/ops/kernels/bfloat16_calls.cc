// The convolutions of bfloat16 numbers that XLA calls. Their names and arguments are those of
// jaxcnn/ops/native/calls.py. Libraries without them have JaxcnnBfloat16 alone.

#include "bfloat16_convolution.h"
#include "bfloat16_gradient.h"
#include "convolution_arguments.h"

// The instructions for bfloat16 that programs use, because they are faster on this processor than
// Winograd's method in float32. AVX512-BF16 is not: it has the rate of float32 on Intel's
// processors, and on an AMD EPYC (Zen 4) a train step of resnet18_cifar takes 488 ms with it and
// 349 ms with conversions to float32.
extern "C" int JaxcnnBfloat16() {
#ifdef JAXCNN_HAS_BFLOAT16
  if (jaxcnn::HasAmxBfloat16()) return static_cast<int>(jaxcnn::kAmxBfloat16);
#endif
  return 0;
}

#ifdef JAXCNN_HAS_BFLOAT16

namespace jaxcnn {
namespace {

using Array = ffi::Buffer<ffi::BF16, 4>;
using Result = ffi::Result<Array>;

// Calls f with the class that has the instructions, one of those in bfloat16_tiles.h.
template <class F>
ffi::Error WithUnit(Index instructions, F f) {
  if (!HasBfloat16(instructions))
    return ffi::Error::InvalidArgument("this processor lacks the instructions for bfloat16");
  if (instructions == kAmxBfloat16) {
    f(static_cast<AmxTiles*>(nullptr));
  } else {
    f(static_cast<Avx512Pairs*>(nullptr));
  }
  return ffi::Error::Success();
}

ffi::Error Convolve(ffi::ThreadPool& pool, const Array& images, const Array& kernel,
                    const Epilogue& epilogue, Result& result, const Attributes& attributes,
                    Index instructions, bool is_flipped) {
  const ffi::ErrorOr<Geometry> geometry = ConvolutionGeometry(
      images.dimensions(), kernel.dimensions(), result->dimensions(), attributes, is_flipped);
  if (geometry.has_error()) return geometry.error();
  return WithUnit(instructions, [&](auto* unit) {
    Bfloat16Convolution<std::remove_pointer_t<decltype(unit)>>(
        pool, geometry.value(), images.typed_data(), {kernel.typed_data(), is_flipped}, epilogue,
        result->typed_data());
  });
}

ffi::Error Convolution(ffi::ThreadPool pool, Array images, Array kernel, Result result,
                       Span strides, Span before, Span dilation, Index instructions, bool flipped) {
  return Convolve(pool, images, kernel, {}, result, {strides, before, dilation, 1}, instructions,
                  flipped);
}

ffi::Error ActivatedConvolution(ffi::ThreadPool pool, Array images, Array kernel, Channels factors,
                                Channels bias, Result result, Span strides, Span before,
                                Span dilation, Index instructions, Index activation, float low,
                                float high) {
  const ffi::ErrorOr<Epilogue> epilogue =
      MakeEpilogue(factors, bias, result->dimensions()[3], activation, low, high);
  if (epilogue.has_error()) return epilogue.error();
  return Convolve(pool, images, kernel, epilogue.value(), result, {strides, before, dilation, 1},
                  instructions, false);
}

ffi::Error KernelGradient(ffi::ThreadPool pool, Array images, Array cotangent, Result result,
                          Span strides, Span before, Span dilation, Index instructions) {
  const ffi::ErrorOr<Geometry> geometry =
      GradientGeometry(images.dimensions(), cotangent.dimensions(), result->dimensions(),
                       {strides, before, dilation, 1});
  if (geometry.has_error()) return geometry.error();
  return WithUnit(instructions, [&](auto* unit) {
    Bfloat16KernelGradient<std::remove_pointer_t<decltype(unit)>>(
        pool, geometry.value(), images.typed_data(), cotangent.typed_data(), result->typed_data());
  });
}

// Binds the attributes that all calls have.
template <class Arguments>
auto WithInstructions(Arguments&& arguments) {
  return WithWindow(std::move(arguments)).template Attr<Index>("instructions");
}

// Binds the operands that all calls have.
auto WithOperands() { return ffi::Ffi::Bind().Ctx<ffi::ThreadPool>().Arg<Array>().Arg<Array>(); }

// The same with those of an epilogue, and the result.
auto WithEpilogue() { return WithOperands().Arg<Channels>().Arg<Channels>().Ret<Array>(); }

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnBfloat16Convolution, jaxcnn::Convolution,
    jaxcnn::WithInstructions(jaxcnn::WithOperands().Ret<jaxcnn::Array>()).Attr<bool>("flipped"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnBfloat16ActivatedConvolution, jaxcnn::ActivatedConvolution,
    jaxcnn::WithActivation(jaxcnn::WithInstructions(jaxcnn::WithEpilogue())));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnBfloat16KernelGradient, jaxcnn::KernelGradient,
    jaxcnn::WithInstructions(jaxcnn::WithOperands().Ret<jaxcnn::Array>()));

#endif  // JAXCNN_HAS_BFLOAT16
