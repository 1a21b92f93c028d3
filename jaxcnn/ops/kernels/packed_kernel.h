// The kernel of a convolution in the layout in which the convolution reads it, for kernels that are
// used many times.
#pragma once

#include "direct.h"
#include "winograd.h"

namespace jaxcnn {

// Whether the windows are `taps` x `taps` adjacent taps with stride 1.
inline bool HasAdjacentTaps(const Geometry& g, Index taps) {
  return g.taps[0] == taps && g.taps[1] == taps && g.strides[0] == 1 && g.strides[1] == 1 &&
         g.dilation[0] == 1 && g.dilation[1] == 1;
}

// Calls f with the Winograd scheme for tiles of this side and these windows, or `direct()` if the
// side is 0 or 1. Returns whether there is such a scheme.
template <class F, class Direct>
bool WithScheme(const Geometry& g, Index side, F f, Direct direct) {
  if (side == 0 || side == 1)
    direct();
  else if (side == 2 && HasAdjacentTaps(g, 3))
    f(Winograd<2, 3>{});
  else if (side == 4 && HasAdjacentTaps(g, 3))
    f(Winograd<4, 3>{});
  else if (side == 2 && HasAdjacentTaps(g, 5))
    f(Winograd<2, 5>{});
  else
    return false;
  return true;
}

// Floats of a packed kernel; 0 if there is no Winograd scheme for tiles of this side.
inline Index PackedSize(const Geometry& g, Index side) {
  Index size = 0;
  WithScheme(
      g, side, [&](auto scheme) { size = TransformedSize<decltype(scheme)>(g); },
      [&] {
        const Geometry wide = WideGeometry(g, ColumnsOfDirect(g, side == 1));
        const Panels panels(wide.outputs);
        size = panels.count * panels.width * wide.TapCount() * wide.channels;
      });
  return size;
}

// Packs a kernel for the convolution by tiles of this side.
inline void PackForConvolution(ffi::ThreadPool& pool, const Geometry& g, Index side,
                               const Kernel& kernel, float* to) {
  WithScheme(
      g, side, [&](auto scheme) { TransformKernels<decltype(scheme)>(pool, g, kernel, to); },
      [&] {
        const Index together = ColumnsOfDirect(g, side == 1);
        if (together == 1) return PackKernel(pool, Panels(g.outputs), kernel, to);
        const Geometry wide = WideGeometry(g, together);
        const Buffer data(wide.TapCount() * g.channels * wide.outputs);
        WidenKernel(g, wide, together, kernel, data);
        PackKernel(pool, Panels(wide.outputs),
                   {data, wide.TapCount(), g.channels, wide.outputs, false}, to);
      });
}

}  // namespace jaxcnn
