// The gradient of a convolution of bfloat16 numbers with respect to its kernel. Sums are in
// float32; the result is rounded once.
//
// It is a product of the transposed images with the cotangent, summed over pixels. Both are laid
// out such that a tap is an offset into the transposed images: rows of the cotangent are as long as
// those of the padded images, and zero there.
#pragma once

#include "bfloat16_convolution.h"

#ifdef JAXCNN_HAS_BFLOAT16

namespace jaxcnn {

JAXCNN_BEGIN_BFLOAT16

// Transposes 8 pixels of 8 channels: to[channel * stride + pixel]. Null pixels are zero; `lanes`
// are the channels that are loaded.
inline void Transpose8x8(const Bfloat16* const* pixels, Index channel, __mmask8 lanes, Bfloat16* to,
                         Index stride) {
  __m128i a[8], b[8];
  JAXCNN_UNROLL
  for (int i = 0; i < 8; ++i)
    a[i] = pixels[i] ? _mm_maskz_loadu_epi16(lanes, pixels[i] + channel) : __m128i{};
  JAXCNN_UNROLL
  for (int i = 0; i < 4; ++i) {
    b[2 * i] = _mm_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
  }
  JAXCNN_UNROLL
  for (int half = 0; half < 2; ++half) {  // of the pixels
    JAXCNN_UNROLL
    for (int i = 0; i < 2; ++i) {         // halves of the channels
      a[4 * half + 2 * i] = _mm_unpacklo_epi32(b[4 * half + i], b[4 * half + 2 + i]);
      a[4 * half + 2 * i + 1] = _mm_unpackhi_epi32(b[4 * half + i], b[4 * half + 2 + i]);
    }
  }
  JAXCNN_UNROLL
  for (int i = 0; i < 4; ++i) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 2 * i * stride),
                     _mm_unpacklo_epi64(a[i], a[4 + i]));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + (2 * i + 1) * stride),
                     _mm_unpackhi_epi64(a[i], a[4 + i]));
  }
}

JAXCNN_END_BFLOAT16

// The pixels of the images and of the cotangent as positions on one line, so that pixels under a
// tap are at a fixed distance from those of the cotangent. A part is some rows of one image's
// result; a group is several parts, which are multiplied together. The transposed images have a
// line for each channel and each pair of remainders of their positions by the strides.
struct GradientLayout {
  Geometry g;
  Index last_pixel;     // of a product: the pixels behind it do not exist
  bool is_by_tap;       // few channels: there is a line for each tap and channel
  Index remainders[2];  // of positions by the strides, that taps have
  Index rows;           // of a part's cotangent
  Index slots, pitch;   // rows of a part and positions of a row, with those that taps reach
  Index parts_per_image, parts;
  Index group;   // parts of a group
  Index length;  // positions of a group, a multiple of kMaxDepth
  Index line;    // and with those that the last taps reach
  Index lines;   // that a product has: channels, or taps and channels
  Index blocks;  // of lines

  explicit GradientLayout(const Geometry& geometry) : g(geometry) {
    constexpr Index kMaxColumns = 256, kFewChannels = 8;
    constexpr Index kLength = 1024;  // of a group: a panel of its cotangent stays in a cache
    last_pixel = g.PixelCount();
    if (IsMatrixProduct(g)) {  // its pixels may be divided into rows of any length
      g.batch = 1;
      g.width = g.columns = EvenSize(last_pixel, kMaxColumns);
      g.height = g.rows = CeilDiv(last_pixel, g.columns);
    }
    is_by_tap = g.TapCount() > 1 && g.channels <= kFewChannels;
    Index reach[2];
    for (int axis = 0; axis < 2; ++axis) {
      const Index span = (g.taps[axis] - 1) * g.dilation[axis];
      reach[axis] = span / g.strides[axis];
      remainders[axis] = std::min(g.strides[axis], span + 1);
    }
    lines = g.channels * (is_by_tap ? g.TapCount() : 1);
    blocks = CeilDiv(lines, kBlockSide);
    pitch = g.columns + reach[1];
    rows = EvenSize(g.rows, std::max<Index>(1, kLength / pitch));
    slots = rows + reach[0];
    parts_per_image = CeilDiv(g.rows, rows);
    parts = g.batch * parts_per_image;
    group = std::clamp<Index>(kLength / (slots * pitch), 1, parts);
    length = RoundUp(group * slots * pitch, kMaxDepth);
    line = RoundUp(length + reach[0] * pitch + reach[1] + 8, kMaxDepth);
    if (line / kMaxDepth % 2 == 0) line += kMaxDepth;  // lines compete for places in the cache
  }

  bool IsProduct() const { return last_pixel < g.PixelCount() || IsMatrixProduct(g); }
  Index GroupCount() const { return CeilDiv(parts, group); }
  // Products with the same panel of the cotangent: one for each tap, or one with all taps.
  Index ProductCount() const { return is_by_tap ? 1 : g.TapCount(); }
  // Lines of a remainder, and elements of all transposed images. Whole blocks of lines are read.
  Index RemainderLines() const { return RoundUp(g.channels, kBlockSide); }
  Index ImagesSize() const { return remainders[0] * remainders[1] * RemainderLines() * line; }

  // Where the positions under a tap begin in the transposed images.
  Index TapOffset(Index tap) const {
    const Index row = tap / g.taps[1] * g.dilation[0], column = tap % g.taps[1] * g.dilation[1];
    const Index remainder = row % g.strides[0] * remainders[1] + column % g.strides[1];
    return remainder * RemainderLines() * line + row / g.strides[0] * pitch + column / g.strides[1];
  }
};

JAXCNN_BEGIN_BFLOAT16

// Transposes the images of a group's parts; the positions behind the last one stay as they are.
inline void TransposeImages(const GradientLayout& layout, const Bfloat16* images, Range parts,
                            Bfloat16* to) {
  const Geometry& g = layout.g;
  const auto transpose_row = [&](Index image, Index y, Index x, Bfloat16* line) {
    const bool is_inside = y >= 0 && y < g.height;
    const Index row = (image * g.height + y) * g.width;
    for (Index first = 0; first < layout.pitch; first += 8) {
      const Bfloat16* pixels[8];
      for (Index i = 0; i < 8; ++i) {
        const Index column = x + (first + i) * g.strides[1];
        const bool exists = is_inside && first + i < layout.pitch && column >= 0 &&
                            column < g.width &&
                            (!layout.IsProduct() || row + column < layout.last_pixel);
        pixels[i] = exists ? images + (row + column) * g.channels : nullptr;
      }
      Index channel = 0;
      for (; channel + 8 <= g.channels; channel += 8)
        Transpose8x8(pixels, channel, 0xff, line + channel * layout.line + first, layout.line);
      if (channel == g.channels) continue;
      Bfloat16 last[64];
      const Index count = g.channels - channel;
      Transpose8x8(pixels, channel, static_cast<__mmask8>((1u << count) - 1), last, 8);
      for (Index i = 0; i < count; ++i)
        std::memcpy(line + (channel + i) * layout.line + first, last + 8 * i, 8 * sizeof(Bfloat16));
    }
  };
  for (Index part = parts.first; part < parts.last; ++part) {
    const Index image = part / layout.parts_per_image;
    const Index top = part % layout.parts_per_image * layout.rows;
    Bfloat16* const at = to + (part - parts.first) * layout.slots * layout.pitch;
    for (Index i = 0; i < layout.remainders[0]; ++i)
      for (Index j = 0; j < layout.remainders[1]; ++j)
        for (Index slot = 0; slot < layout.slots; ++slot)
          transpose_row(image, (top + slot) * g.strides[0] + i - g.padding[0], j - g.padding[1],
                        at +
                            (i * layout.remainders[1] + j) * layout.RemainderLines() * layout.line +
                            slot * layout.pitch);
  }
}

// Copies the lines of all channels for each tap, from where its positions begin.
inline void CopyLinesByTap(const GradientLayout& layout, const Bfloat16* transposed, Bfloat16* to) {
  for (Index tap = 0; tap < layout.g.TapCount(); ++tap)
    for (Index channel = 0; channel < layout.g.channels; ++channel, to += layout.line)
      std::memcpy(to, transposed + layout.TapOffset(tap) + channel * layout.line,
                  layout.length * sizeof(Bfloat16));
}

// Pointers to the cotangent's pixels at each position of a group; null where there is none.
inline void FindPixels(const GradientLayout& layout, const Bfloat16* cotangent, Range parts,
                       std::vector<const Bfloat16*>& pixels) {
  const Geometry& g = layout.g;
  std::fill(pixels.begin(), pixels.end(), nullptr);
  for (Index part = parts.first; part < parts.last; ++part) {
    const Index image = part / layout.parts_per_image;
    const Index top = part % layout.parts_per_image * layout.rows;
    const Index rows = std::min(layout.rows, g.rows - top);
    for (Index row = 0; row < rows; ++row)
      for (Index column = 0; column < g.columns; ++column) {
        const Index pixel = (image * g.rows + top + row) * g.columns + column;
        if (pixel < layout.last_pixel)
          pixels[((part - parts.first) * layout.slots + row) * layout.pitch + column] =
              cotangent + pixel * g.outputs;
      }
  }
}

// Rounds the sums of a block of lines and outputs, and stores them in the result.
inline void StoreGradient(const GradientLayout& layout, Index panel, Index product, Index block,
                          const float* sums, Bfloat16* result) {
  const Index output = panel * kBlockSide,
              columns = std::min(kBlockSide, layout.g.outputs - output);
  const Index first = block * kBlockSide, last = std::min(layout.lines, first + kBlockSide);
  for (Index line = first; line < last; ++line, sums += kBlockSide)
    StoreRounded(sums, columns,
                 result + (product * layout.lines + line) * layout.g.outputs + output);
}

// Adds the products of the groups first <= group < last to sums[panel][product][block], or begins
// them. With a single group, `sums` is one block, and the result is stored.
template <class Unit>
void AddGroups(const GradientLayout& layout, const Bfloat16* images, const Bfloat16* cotangent,
               Range groups, Range panels, float* sums, Bfloat16* result) {
  const Geometry& g = layout.g;
  const Unit unit(kMaxDepth);
  const Index pieces = layout.length / kMaxDepth;
  const Bfloat16Buffer transposed(layout.ImagesSize()), panel_rows(layout.length * kBlockSide);
  std::memset(transposed, 0, layout.ImagesSize() * sizeof(Bfloat16));
  std::optional<Bfloat16Buffer> by_tap;
  if (layout.is_by_tap) by_tap.emplace(layout.blocks * kBlockSide * layout.line);
  std::vector<const Bfloat16*> pixels(layout.length);
  std::vector<Index> offsets(pieces);
  for (Index piece = 0; piece < pieces; ++piece) offsets[piece] = piece * kMaxDepth;
  for (Index group = groups.first; group < groups.last; ++group) {
    const Range parts = {group * layout.group, std::min(layout.parts, (group + 1) * layout.group)};
    TransposeImages(layout, images, parts, transposed);
    if (by_tap) CopyLinesByTap(layout, transposed, *by_tap);
    FindPixels(layout, cotangent, parts, pixels);
    float* to = sums;
    for (Index panel = panels.first; panel < panels.last; ++panel) {
      const Index output = panel * kBlockSide, columns = std::min(kBlockSide, g.outputs - output);
      PackPanel(
          pieces, kMaxDepth, columns,
          [&](Index piece, Index k, Index column, __mmask16 lanes) {
            const Bfloat16* const* const pair = &pixels[piece * kMaxDepth + k];
            const auto from = [&](const Bfloat16* pixel) {
              return pixel ? pixel + output + column : nullptr;
            };
            return PairRows(from(pair[0]), from(pair[1]), lanes);
          },
          panel_rows);
      for (Index product = 0; product < layout.ProductCount(); ++product)
        for (Index block = 0; block < layout.blocks; ++block) {
          const Bfloat16* const from = (by_tap ? *by_tap : transposed + layout.TapOffset(product)) +
                                       block * kBlockSide * layout.line;
          const Index rows = std::min(kBlockSide, layout.lines - block * kBlockSide);
          MultiplyBlock(unit, rows, columns, {from, layout.line, offsets.data(), pieces, kMaxDepth},
                        panel_rows, group == groups.first, to);
          if (result)
            StoreGradient(layout, panel, product, block, to, result);
          else
            to += kBlockSize;
        }
    }
  }
}

// images [N][H][W][C] and cotangent [N][H'][W'][D] to result [h][w][C][D].
template <class Unit>
void Bfloat16KernelGradient(ffi::ThreadPool& pool, const Geometry& g, const Bfloat16* images,
                            const Bfloat16* cotangent, Bfloat16* result) {
  constexpr Index kMaxOwnSums = 1 << 18;  // floats: sums that stay in a second-level cache
  const GradientLayout layout(g);
  const Index panel_count = CeilDiv(g.outputs, kBlockSide), threads = ThreadCount(pool);
  const Index panel_size = layout.ProductCount() * layout.blocks * kBlockSize;
  const Index groups = layout.GroupCount(), work = layout.length * panel_size;
  // Shares have all groups of some panels, or sums of their own of all panels.
  const bool is_by_panel =
      panel_count >= threads && (groups < threads || panel_count * panel_size > kMaxOwnSums);
  const Index limit = is_by_panel ? panel_count : groups;
  const Index shares = std::min(
      threads, ShareCount(pool, limit, work * (is_by_panel ? groups : panel_count) / kBlockSide));
  const bool stores = is_by_panel && groups == 1;  // and keeps no sums
  const Index own_size = stores ? kBlockSize : panel_count * panel_size;
  const Buffer sums((is_by_panel && !stores ? 1 : shares) * own_size);
  ParallelFor(pool, shares, [&, shares](Index share) {
    const Range mine = PartOf(limit, share, shares);
    float* const own_sums =
        sums + (is_by_panel && !stores ? mine.first * panel_size : share * own_size);
    if (is_by_panel)
      AddGroups<Unit>(layout, images, cotangent, {0, groups}, mine, own_sums,
                      stores ? result : nullptr);
    else
      AddGroups<Unit>(layout, images, cotangent, mine, {0, panel_count}, own_sums, nullptr);
  });
  if (stores) return;

  const Index addends = is_by_panel ? 1 : shares, blocks = layout.ProductCount() * layout.blocks;
  const Index units = panel_count * blocks, store_shares = ShareCount(pool, units, kBlockSize);
  ParallelFor(pool, store_shares, [&, store_shares](Index share) {
    const Range mine = PartOf(units, share, store_shares);
    for (Index unit = mine.first; unit < mine.last; ++unit) {
      float* const block = sums + unit * kBlockSize;
      for (Index addend = 1; addend < addends; ++addend) {
        const float* const other = block + addend * own_size;
        for (Index i = 0; i < kBlockSize; ++i) block[i] += other[i];
      }
      StoreGradient(layout, unit / blocks, unit % blocks / layout.blocks, unit % layout.blocks,
                    block, result);
    }
  });
}

JAXCNN_END_BFLOAT16

}  // namespace jaxcnn

#endif  // JAXCNN_HAS_BFLOAT16
