// Convolutions of 3x3 taps, one pixel apart, with 16 multiplications for 4 pixels instead of 36.
//
// Lavin & Gray 2016, "Fast Algorithms for Convolutional Neural Networks", section 4.1, F(2x2, 3x3): for a tile of 2x2 pixels of the result,
// with 4x4 pixels d of the images under it and the taps w,
//   result = A' [(G w G') * (B' d B)] A,   summed over the channels before A' and A are applied,
// so that each of the 16 elements is a product of matrices, over the channels. Turned round, for the gradient by the kernel,
//   taps' gradient = G' [(B' d B) * (A c A')] G,   c being the tile's cotangent, summed over the tiles before G' and G are applied.
// A tile's transforms stay in the caches: block by block they are made, multiplied and used up.
#pragma once

#include <vector>

#include "direct.h"

namespace jaxcnn {

constexpr Index kElements = 16;

struct Tiling {
  Index high, wide, count;  // tiles of an image's column, of its row, of all images

  explicit Tiling(const Geometry& g) : high((g.rows + 1) / 2), wide((g.columns + 1) / 2), count(g.images * high * wide) {}
};

// B' d B of each tile from first to last, of so many channels from one on: to [element][tile][channel]; elements lie `apart`.
inline void TransformImages(const Geometry& g, const Tiling& tiling, const float* images, Index first, Index last, Index channel,
                            Index channels, const float* zeros, float* to, Index apart) {
  for (Index tile = first; tile < last; ++tile, to += channels) {
    const Index image = tile / (tiling.high * tiling.wide);
    const Geometry::Place place = {image, tile / tiling.wide % tiling.high * 2 - g.before[0], tile % tiling.wide * 2 - g.before[1]};
    const float* pixels[4][4];
    g.UnderAll(images + channel, place, 4, 4, zeros, &pixels[0][0]);
    for (Index c = 0; c < channels; c += kLanes) {
      const Index have = channels - c;
      Vector d[4][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const Vector d0 = LoadSome(pixels[0][j] + c, have), d1 = LoadSome(pixels[1][j] + c, have);
        const Vector d2 = LoadSome(pixels[2][j] + c, have), d3 = LoadSome(pixels[3][j] + c, have);
        d[0][j] = d0 - d2;
        d[1][j] = d1 + d2;
        d[2][j] = d2 - d1;
        d[3][j] = d1 - d3;
      }
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        float* element = to + i * 4 * apart + c;
        StoreSome(element, d[i][0] - d[i][2], have);
        StoreSome(element + apart, d[i][1] + d[i][2], have);
        StoreSome(element + 2 * apart, d[i][2] - d[i][1], have);
        StoreSome(element + 3 * apart, d[i][1] - d[i][3], have);
      }
    }
  }
}

// G w G' of a panel of the kernel: to [element][C][width]; elements lie `apart`.
inline void TransformKernel(const Panels& panels, Index panel, const Kernel& kernel, float* to, Index apart) {
  const Index size = kernel.channels * panels.width;
  const Numbers packed(kernel.taps * size);
  kernel.Pack(panels, panel, 0, kernel.Rows(), packed);
  for (Index at = 0; at < size; at += kLanes) {
    Vector w[4][3];
    for (int j = 0; j < 3; ++j) {
      const float* tap = packed + j * size + at;
      const Vector ends = 0.5f * (Load(tap) + Load(tap + 6 * size)), middle = 0.5f * Load(tap + 3 * size);
      w[0][j] = Load(tap);
      w[1][j] = ends + middle;
      w[2][j] = ends - middle;
      w[3][j] = Load(tap + 6 * size);
    }
    for (int i = 0; i < 4; ++i) {
      const Vector ends = 0.5f * (w[i][0] + w[i][2]), middle = 0.5f * w[i][1];
      float* element = to + i * 4 * apart + at;
      Store(element, w[i][0]);
      Store(element + apart, ends + middle);
      Store(element + 2 * apart, ends - middle);
      Store(element + 3 * apart, w[i][2]);
    }
  }
}

// A' m A of each tile from first to last, m being [element][tile][width]: to the result's pixels, finished.
inline void TransformSums(const Geometry& g, const Tiling& tiling, const Panels& panels, Index panel, const float* sums, Index apart,
                          Index first, Index last, const float* bias, float* result) {
  for (Index tile = first; tile < last; ++tile, sums += panels.width) {
    const Index image = tile / (tiling.high * tiling.wide), row = tile / tiling.wide % tiling.high * 2, column = tile % tiling.wide * 2;
    for (Index lane = 0; lane < panels.width; lane += kLanes) {
      const Index have = panels.Have(panel) - lane, output = panels.First(panel) + lane;
      if (have <= 0) break;
      Vector m[2][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const float* element = sums + j * apart + lane;
        const Vector m1 = Load(element + 4 * apart), m2 = Load(element + 8 * apart);
        m[0][j] = Load(element) + m1 + m2;
        m[1][j] = m1 - m2 - Load(element + 12 * apart);
      }
      const Vector shift = bias ? LoadSome(bias + output, have) : Vector{};
      for (Index i = 0; i < std::min<Index>(2, g.rows - row); ++i) {
        Vector pixels[2] = {m[i][0] + m[i][1] + m[i][2], m[i][1] - m[i][2] - m[i][3]};
        for (Index j = 0; j < std::min<Index>(2, g.columns - column); ++j) {
          if (bias) pixels[j] = Rectified(pixels[j] + shift);
          StoreSome(result + ((image * g.rows + row + i) * g.columns + column + j) * g.outputs + output, pixels[j], have);
        }
      }
    }
  }
}

// A c A' of each tile from first to last, of a panel of the cotangent [N][H'][W'][D]: to [element][tile][width].
inline void TransformCotangent(const Geometry& g, const Tiling& tiling, const Panels& panels, Index panel, const float* cotangent,
                               Index first, Index last, float* to, Index apart) {
  for (Index tile = first; tile < last; ++tile, to += panels.width) {
    const Index image = tile / (tiling.high * tiling.wide), row = tile / tiling.wide % tiling.high * 2, column = tile % tiling.wide * 2;
    for (Index lane = 0; lane < panels.width; lane += kLanes) {
      Vector c[2][2];
      for (Index i = 0; i < 2; ++i)
        for (Index j = 0; j < 2; ++j) {
          const bool inside = row + i < g.rows && column + j < g.columns;
          const Index at = ((image * g.rows + row + i) * g.columns + column + j) * g.outputs + panels.First(panel) + lane;
          c[i][j] = inside ? LoadSome(cotangent + at, panels.Have(panel) - lane) : Vector{};
        }
      const Vector rows[4][2] = {{c[0][0], c[0][1]}, {c[0][0] + c[1][0], c[0][1] + c[1][1]}, {c[0][0] - c[1][0], c[0][1] - c[1][1]}, {-c[1][0], -c[1][1]}};
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        float* element = to + i * 4 * apart + lane;
        Store(element, rows[i][0]);
        Store(element + apart, rows[i][0] + rows[i][1]);
        Store(element + 2 * apart, rows[i][0] - rows[i][1]);
        Store(element + 3 * apart, -rows[i][1]);
      }
    }
  }
}

// G' m G of the sums [element][channel][width]: to so many channels, from one on, of the kernel's gradient [3][3][C][D].
inline void TransformGradient(const Panels& panels, Index panel, const float* sums, Index apart, Index channel, Index channels, Index all,
                              float* result) {
  for (Index c = 0; c < channels; ++c)
    for (Index lane = 0; lane < panels.width; lane += kLanes) {
      Vector m[3][4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const float* element = sums + j * apart + c * panels.width + lane;
        const Vector m1 = Load(element + 4 * apart), m2 = Load(element + 8 * apart);
        const Vector half = 0.5f * (m1 + m2);
        m[0][j] = Load(element) + half;
        m[1][j] = 0.5f * (m1 - m2);
        m[2][j] = half + Load(element + 12 * apart);
      }
      for (int i = 0; i < 3; ++i) {
        const Vector half = 0.5f * (m[i][1] + m[i][2]);
        const Vector taps[3] = {m[i][0] + half, 0.5f * (m[i][1] - m[i][2]), half + m[i][3]};
        for (int j = 0; j < 3; ++j)
          StoreSome(result + ((i * 3 + j) * all + channel + c) * panels.columns + panels.First(panel) + lane, taps[j],
                    panels.Have(panel) - lane);
      }
    }
}

// As `DirectConvolution`.
inline void WinogradConvolution(ffi::ThreadPool& pool, const Geometry& g, const float* images, const Kernel& kernel,
                                const float* bias, float* result) {
  constexpr Index kBlock = 16384;  // numbers of an element's channels, at most: 16 of them stay in the second cache
  const Tiling tiling(g);
  const Panels panels(g.outputs);
  const Index channels = g.channels, panel_size = channels * panels.width, apart = panels.count * panel_size;
  const Numbers transformed(kElements * apart);
  float* const weights = transformed;  // [element][panel][channel][width]
  InParallel(pool, panels.count, [=](Index panel) {
    TransformKernel(panels, panel, kernel, weights + panel * panel_size, apart);
  });

  const Index block = std::min<Index>(192, std::max<Index>(24, kBlock / std::max(channels, g.outputs) / 6 * 6));
  const Index blocks = (tiling.count + block - 1) / block, shares = std::min(blocks, 4 * Threads(pool));
  InParallel(pool, shares, [=](Index share) {
    const Numbers pixels(kElements * block * channels), sums(kElements * block * panels.width), zeros(channels);
    std::fill_n(static_cast<float*>(zeros), channels, 0.0f);
    std::vector<const float*> lefts(kElements * block);
    const Index none = 0;
    for (Index at = 0; at < kElements * block; ++at) lefts[at] = pixels + at * channels;
    for (Index at = blocks * share / shares; at < blocks * (share + 1) / shares; ++at) {
      const Index first = at * block, last = std::min(tiling.count, first + block);
      TransformImages(g, tiling, images, first, last, 0, channels, zeros, pixels, block * channels);
      for (Index panel = 0; panel < panels.count; ++panel) {
        for (Index element = 0; element < kElements; ++element)
          panels.EachTile(last - first, [&](Index row, Index rows) {
            panels.OfPointers(rows)({&lefts[element * block + row], 1, 0, &none, 0}, 1, channels, weights + element * apart + panel * panel_size,
                                    sums + (element * block + row) * panels.width, true);
          });
        TransformSums(g, tiling, panels, panel, sums, block * panels.width, first, last, bias, result);
      }
    }
  });
}

// As `DirectKernelGradient`. The channels are shared out.
inline void WinogradKernelGradient(ffi::ThreadPool& pool, const Geometry& g, const float* images, const float* cotangent, float* result) {
  const Tiling tiling(g);
  const Panels panels(g.outputs);
  const Index shares = std::min(g.channels, Threads(pool));
  InParallel(pool, shares, [=](Index share) {
    const Index channel = g.channels * share / shares, channels = g.channels * (share + 1) / shares - channel;
    const Index held = channels * panels.width, total = kElements * panels.count * held;
    const Index block = std::min<Index>(256, std::max<Index>(32, (total > 1 << 19 ? 4 : 1) * 8192 / std::max(channels, panels.width)));
    const Numbers pixels(kElements * block * channels), tiles(kElements * block * panels.width), sums(total), zeros(g.channels);
    std::fill_n(static_cast<float*>(zeros), g.channels, 0.0f);
    for (Index first = 0; first < tiling.count; first += block) {
      const Index last = std::min(tiling.count, first + block);
      TransformImages(g, tiling, images, first, last, channel, channels, zeros, pixels, block * channels);
      for (Index panel = 0; panel < panels.count; ++panel) {
        TransformCotangent(g, tiling, panels, panel, cotangent, first, last, tiles, block * panels.width);
        for (Index element = 0; element < kElements; ++element) {
          const float* left = pixels + element * block * channels;
          const float* right = tiles + element * block * panels.width;
          panels.EachTile(channels, [&](Index row, Index rows) {
            panels.OfColumns(rows)(&left, &right, 1, last - first, row, channels,
                                   sums + (panel * kElements + element) * held + row * panels.width, first == 0);
          });
        }
      }
    }
    for (Index panel = 0; panel < panels.count; ++panel)
      TransformGradient(panels, panel, sums + panel * kElements * held, held, channel, channels, g.channels, result);
  });
}

}  // namespace jaxcnn
