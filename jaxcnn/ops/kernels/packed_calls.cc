// The packing of kernels that are used many times, and convolutions with them. The names and the
// arguments are those of jaxcnn/ops/native/packed.py. There are no groups.

#include "convolution_arguments.h"
#include "packed_kernel.h"

// Floats of a packed kernel; 0 if `winograd` does not fit. The arguments are the shapes of the
// images, the result and the kernel, with four elements each, and pairs.
extern "C" std::int64_t JaxcnnPackedSize(const std::int64_t* images, const std::int64_t* result,
                                         const std::int64_t* kernel, const std::int64_t* strides,
                                         const std::int64_t* before, const std::int64_t* dilation,
                                         std::int64_t winograd) {
  const jaxcnn::Attributes attributes = {{strides, 2}, {before, 2}, {dilation, 2}, 1};
  return jaxcnn::PackedSize(jaxcnn::MakeGeometry({images, 4}, {result, 4}, {kernel, 4}, attributes),
                            winograd);
}

namespace jaxcnn {
namespace {

using Packed = ffi::Buffer<ffi::F32, 1>;

// The geometry of a convolution with a packed kernel of this many floats; an error if they do not
// fit.
ffi::ErrorOr<Geometry> PackedGeometry(Span images, Span kernel, Span result,
                                      const Attributes& attributes, Index winograd, Index size) {
  for (const Span& shape : {images, kernel, result})
    if (shape.size() != 4)
      return ffi::Unexpected<ffi::Error>(
          ffi::Error::InvalidArgument("the shapes must have four elements each"));
  ffi::ErrorOr<Geometry> geometry = ConvolutionGeometry(images, kernel, result, attributes, false);
  if (geometry.has_error()) return geometry;
  const Index needed = PackedSize(geometry.value(), winograd);
  if (needed == 0) return ffi::Unexpected<ffi::Error>(ffi::Error::InvalidArgument(kNoScheme));
  if (needed != size)
    return ffi::Unexpected<ffi::Error>(
        ffi::Error::InvalidArgument("the packed kernel is that of another convolution"));
  return geometry;
}

ffi::Error PackKernelCall(ffi::ThreadPool pool, FloatArray kernel, ffi::Result<Packed> packed,
                          Span images, Span result, Span strides, Span before, Span dilation,
                          Index winograd) {
  const ffi::ErrorOr<Geometry> geometry =
      PackedGeometry(images, kernel.dimensions(), result, {strides, before, dilation, 1}, winograd,
                     packed->dimensions()[0]);
  if (geometry.has_error()) return geometry.error();
  const Geometry& g = geometry.value();
  PackForConvolution(pool, g, winograd,
                     {kernel.typed_data(), g.TapCount(), g.channels, g.outputs, false},
                     packed->typed_data());
  return ffi::Error::Success();
}

ffi::Error PackedConvolution(ffi::ThreadPool pool, FloatArray images, Packed packed,
                             Channels factors, Channels bias, FloatArray summand,
                             ffi::Result<FloatArray> result, Span kernel, Span strides, Span before,
                             Span dilation, Index winograd, Index activation, float low,
                             float high) {
  const ffi::ErrorOr<Geometry> geometry =
      PackedGeometry(images.dimensions(), kernel, result->dimensions(),
                     {strides, before, dilation, 1}, winograd, packed.dimensions()[0]);
  if (geometry.has_error()) return geometry.error();
  ffi::ErrorOr<Epilogue> epilogue = Epilogue{};
  if (factors.dimensions()[0] > 0)  // otherwise there is none
    epilogue = MakeEpilogue(factors, bias, summand, *result, activation, low, high);
  if (epilogue.has_error()) return epilogue.error();
  const Geometry& g = geometry.value();
  const Kernel weights = {nullptr, g.TapCount(), g.channels, g.outputs, false, packed.typed_data()};
  WithScheme(
      g, winograd,
      [&](auto scheme) {
        WinogradConvolution<decltype(scheme)>(pool, g, images.typed_data(), weights,
                                              epilogue.value(), result->typed_data());
      },
      [&] {
        DirectConvolution(pool, g, images.typed_data(), weights, winograd == 1, epilogue.value(),
                          result->typed_data());
      });
  return ffi::Error::Success();
}

}  // namespace
}  // namespace jaxcnn

XLA_FFI_DEFINE_HANDLER_SYMBOL(JaxcnnPackKernel, jaxcnn::PackKernelCall,
                              jaxcnn::WithWindow(jaxcnn::ffi::Ffi::Bind()
                                                     .Ctx<jaxcnn::ffi::ThreadPool>()
                                                     .Arg<jaxcnn::FloatArray>()
                                                     .Ret<jaxcnn::Packed>()
                                                     .Attr<jaxcnn::Span>("images")
                                                     .Attr<jaxcnn::Span>("result"))
                                  .Attr<jaxcnn::Index>("winograd"));

XLA_FFI_DEFINE_HANDLER_SYMBOL(
    JaxcnnPackedConvolution, jaxcnn::PackedConvolution,
    jaxcnn::WithActivation(jaxcnn::WithWindow(jaxcnn::ffi::Ffi::Bind()
                                                  .Ctx<jaxcnn::ffi::ThreadPool>()
                                                  .Arg<jaxcnn::FloatArray>()
                                                  .Arg<jaxcnn::Packed>()
                                                  .Arg<jaxcnn::Channels>()
                                                  .Arg<jaxcnn::Channels>()
                                                  .Arg<jaxcnn::FloatArray>()
                                                  .Ret<jaxcnn::FloatArray>()
                                                  .Attr<jaxcnn::Span>("kernel"))
                               .Attr<jaxcnn::Index>("winograd")));
