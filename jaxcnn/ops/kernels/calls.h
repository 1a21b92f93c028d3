// What the functions that XLA calls have in common.
#pragma once

#include "xla/ffi/api/ffi.h"

namespace jaxcnn {

namespace ffi = xla::ffi;

using Span = ffi::Span<const std::int64_t>;  // a shape, or an attribute with several elements

inline ffi::Error Require(bool holds, const char* message) {
  return holds ? ffi::Error::Success() : ffi::Error::InvalidArgument(message);
}

}  // namespace jaxcnn
