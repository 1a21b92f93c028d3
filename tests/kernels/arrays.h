// Arrays of random numbers, random shapes, and the comparison of results with references.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "geometry.h"

namespace jaxcnn {

// A reproducible series of random numbers, the same on every system.
class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}

  // An integer first <= i <= last.
  Index Integer(Index first, Index last) {
    return first + static_cast<Index>(engine_() % static_cast<std::uint64_t>(last - first + 1));
  }
  // An integer first <= i <= last, where small ones are more likely.
  Index SmallInteger(Index first, Index last) { return Integer(first, Integer(first, last)); }
  bool Chance(Index one_in) { return Integer(1, one_in) == 1; }
  float Number() { return static_cast<float>(Integer(-1000000, 1000000)) / 1e6f; }

 private:
  std::mt19937_64 engine_;
};

// Memory for exactly this many floats, so that a sanitizer notices the first one behind it. New
// arrays are filled with NaN, so that a result that is not written is noticed too.
class Array {
 public:
  explicit Array(Index size)
      : size_(size), data_(static_cast<float*>(std::malloc(size * sizeof(float))), std::free) {
    std::fill_n(data_.get(), size, std::numeric_limits<float>::quiet_NaN());
  }
  Array(Index size, Random& random) : Array(size) {
    for (Index i = 0; i < size; ++i) data_.get()[i] = random.Number();
  }

  Index Size() const { return size_; }
  operator float*() { return data_.get(); }
  operator const float*() const { return data_.get(); }

 private:
  Index size_;
  std::unique_ptr<float, void (*)(void*)> data_;
};

// Memory for exactly this many bfloat16 numbers: floats without their last bits.
class Bfloat16Array {
 public:
  explicit Bfloat16Array(Index size)
      : size_(size),
        data_(static_cast<std::uint16_t*>(std::malloc(size * sizeof(std::uint16_t))), std::free) {
    std::fill_n(data_.get(), size, 0x7fc0);  // NaN
  }
  explicit Bfloat16Array(const Array& floats) : Bfloat16Array(floats.Size()) {
    const float* const from = floats;
    for (Index i = 0; i < size_; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, from + i, sizeof bits);
      data_.get()[i] = static_cast<std::uint16_t>(bits >> 16);
    }
  }

  Array ToFloats() const {
    Array floats(size_);
    float* const to = floats;
    for (Index i = 0; i < size_; ++i) {
      const std::uint32_t bits = std::uint32_t{data_.get()[i]} << 16;
      std::memcpy(to + i, &bits, sizeof bits);
    }
    return floats;
  }
  operator std::uint16_t*() { return data_.get(); }
  operator const std::uint16_t*() const { return data_.get(); }

 private:
  Index size_;
  std::unique_ptr<std::uint16_t, void (*)(void*)> data_;
};

// Sums of products in double, and for each the sum of the products' absolute values.
struct Reference {
  std::vector<double> values, magnitudes;

  explicit Reference(Index size) : values(size), magnitudes(size) {}

  void Add(Index at, double term) {
    values[at] += term;
    magnitudes[at] += std::abs(term);
  }
};

// The comparisons so far.
class Checks {
 public:
  // Compares a result with its reference: the largest error, divided by the largest magnitude, may
  // be at most `tolerance`. `what` names the computation and `shape` its operands.
  void Compare(const std::string& what, const std::string& shape, const Array& result,
               const Reference& reference, double tolerance) {
    double error = 0, magnitude = 1e-30;
    for (Index i = 0; i < result.Size(); ++i) {
      const double difference = std::abs(result[i] - reference.values[i]);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
      magnitude = std::max(magnitude, reference.magnitudes[i]);
    }
    Row& row = rows_[what];
    ++row.count;
    row.largest_error = std::max(row.largest_error, error / magnitude);
    if (error / magnitude <= tolerance) return;
    ++failures_;
    std::printf("WRONG %s: error %.2g of the largest magnitude, allowed are %.2g: %s\n",
                what.c_str(), error / magnitude, tolerance, shape.c_str());
  }

  // Prints a row for each computation. Returns the number of failures.
  int Report() const {
    std::printf("%-36s %8s %14s\n", "computation", "results", "largest error");
    for (const auto& [what, row] : rows_)
      std::printf("%-36s %8d %14.1e\n", what.c_str(), row.count, row.largest_error);
    return failures_;
  }

 private:
  struct Row {
    int count = 0;
    double largest_error = 0;
  };
  std::map<std::string, Row> rows_;
  int failures_ = 0;
};

inline std::string Describe(const Geometry& g, Index groups, Index threads) {
  char text[400];
  std::snprintf(text, sizeof text,
                "images [%ld, %ld, %ld, %ld], result [%ld, %ld, %ld], taps %ldx%ld, strides %ld, "
                "%ld, padding %ld, %ld, dilation %ld, %ld, groups %ld, threads %ld",
                long(g.batch), long(g.height), long(g.width), long(g.channels), long(g.rows),
                long(g.columns), long(g.outputs), long(g.taps[0]), long(g.taps[1]),
                long(g.strides[0]), long(g.strides[1]), long(g.padding[0]), long(g.padding[1]),
                long(g.dilation[0]), long(g.dilation[1]), long(groups), long(threads));
  return text;
}

}  // namespace jaxcnn
