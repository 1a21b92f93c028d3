// Vectors of floats, in registers and in memory, and small helpers.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

// JAXCNN_UNROLL unrolls the loop that follows, whose number of iterations is a constant;
// JAXCNN_UNROLL_4 unrolls any loop four times.
#if defined(__clang__)
#define JAXCNN_UNROLL _Pragma("unroll")
#define JAXCNN_UNROLL_4 _Pragma("unroll 4")
#else
#define JAXCNN_UNROLL _Pragma("GCC unroll 64")
#define JAXCNN_UNROLL_4 _Pragma("GCC unroll 4")
#endif

namespace jaxcnn {

using Index = std::int64_t;

inline Index CeilDiv(Index numerator, Index denominator) {
  return (numerator + denominator - 1) / denominator;
}

// The indices first <= index < last.
struct Range {
  Index first, last;

  Index Size() const { return last - first; }
};

// One of `parts` parts of 0 ... total, as equal in size as possible.
inline Range PartOf(Index total, Index part, Index parts) {
  return {total * part / parts, total * (part + 1) / parts};
}

// The size of pieces of at most `limit`, of which the last is not much smaller than the others.
inline Index EvenSize(Index total, Index limit) { return CeilDiv(total, CeilDiv(total, limit)); }

// Floats of a vector, vectors of a tile's row, and vectors of a tile (accumulators).
#if defined(__AVX512F__)
constexpr int kLanes = 16, kMaxVectors = 4, kAccumulators = 24;  // of 32 registers
#elif defined(__aarch64__)
constexpr int kLanes = 4, kMaxVectors = 4, kAccumulators = 24;
#elif defined(__AVX__)
constexpr int kLanes = 8, kMaxVectors = 2, kAccumulators = 12;  // of 16 registers
#else
constexpr int kLanes = 4, kMaxVectors = 2, kAccumulators = 12;
#endif

// A vector in a register, and one in memory, which need not be aligned.
typedef float Vector __attribute__((vector_size(4 * kLanes)));
typedef std::int32_t IntVector __attribute__((vector_size(4 * kLanes)));
typedef float VectorInMemory __attribute__((vector_size(4 * kLanes), aligned(4), may_alias));

inline Vector Load(const float* from) { return *reinterpret_cast<const VectorInMemory*>(from); }
inline void Store(float* to, Vector vector) { *reinterpret_cast<VectorInMemory*>(to) = vector; }

// Loads the first `count` lanes, at most kLanes; the others are zero.
inline Vector LoadPartial(const float* from, Index count) {
  if (count >= kLanes) return Load(from);
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << std::max<Index>(0, count)) - 1), from);
#else
  Vector vector{};
  for (Index lane = 0; lane < count; ++lane) vector[lane] = from[lane];
  return vector;
#endif
}

// Stores the first `count` lanes, at most kLanes.
inline void StorePartial(float* to, Vector vector, Index count) {
  if (count >= kLanes) return Store(to, vector);
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << std::max<Index>(0, count)) - 1), vector);
#else
  for (Index lane = 0; lane < count; ++lane) to[lane] = vector[lane];
#endif
}

}  // namespace jaxcnn
