// The matrices of Winograd's minimal filtering, and their application to vectors.
//
// A convolution with TAPS taps and a tile of TILE results is, transposed, a product of
// polynomials. The product is determined by its values at TILE + TAPS - 2 points and at infinity
// (Toom and Cook). Any points are correct, but the rounding errors depend on them. For six values,
// the points 0, +-11/16 and +-25/16 give a quarter to a half of the errors of the usual 0, +-1 and
// +-2.
// On such choices see Barabasz et al. 2020, "Error Analysis and Improving the Accuracy of Winograd
// Convolution for Deep Neural Networks".
#pragma once

#include <array>
#include <utility>

#include "tile.h"

namespace jaxcnn {

template <int ROWS, int COLUMNS>
using Matrix = std::array<std::array<float, COLUMNS>, ROWS>;

template <int ROWS, int COLUMNS>
constexpr Matrix<COLUMNS, ROWS> Transpose(const Matrix<ROWS, COLUMNS>& matrix) {
  Matrix<COLUMNS, ROWS> transpose{};
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) transpose[j][i] = matrix[i][j];
  return transpose;
}

template <int COUNT>
using Points = std::array<double, COUNT>;

// [power][point]: the powers of the points. At infinity, the last point, only the highest power
// is not zero.
template <int POWERS, int POINTS>
constexpr Matrix<POWERS, POINTS + 1> Powers(const Points<POINTS>& points) {
  Matrix<POWERS, POINTS + 1> powers{};
  for (int j = 0; j < POINTS; ++j) {
    double power = 1;
    for (int i = 0; i < POWERS; ++i, power *= points[j]) powers[i][j] = static_cast<float>(power);
  }
  powers[POWERS - 1][POINTS] = 1;
  return powers;
}

// [point][power]: the same, each point's divided by the product of its differences from the others.
template <int POWERS, int POINTS>
constexpr Matrix<POINTS + 1, POWERS> ScaledPowers(const Points<POINTS>& points) {
  Matrix<POINTS + 1, POWERS> powers{};
  for (int j = 0; j < POINTS; ++j) {
    double power = 1;
    for (int other = 0; other < POINTS; ++other)
      power /= other == j ? 1 : points[j] - points[other];
    for (int i = 0; i < POWERS; ++i, power *= points[j]) powers[j][i] = static_cast<float>(power);
  }
  powers[POINTS][POWERS - 1] = 1;
  return powers;
}

// [point][power]: the coefficients of the polynomial with zeros at all other points. The polynomial
// of infinity, the last row, has zeros at all points.
template <int POINTS>
constexpr Matrix<POINTS + 1, POINTS + 1> PolynomialsWithZeros(const Points<POINTS>& points) {
  Matrix<POINTS + 1, POINTS + 1> coefficients{};
  for (int j = 0; j <= POINTS; ++j) {
    std::array<double, POINTS + 2> polynomial{};  // after one more coefficient, which is zero
    polynomial[1] = 1;
    for (int other = 0; other < POINTS; ++other)
      for (int i = POINTS + 1; i > 0 && other != j; --i)
        polynomial[i] = polynomial[i - 1] - points[other] * polynomial[i];
    for (int i = 0; i <= POINTS; ++i) coefficients[j][i] = static_cast<float>(polynomial[i + 1]);
  }
  return coefficients;
}

template <int SIDE>
constexpr Points<SIDE - 1> PointsOf() {
  if constexpr (SIDE == 4)
    return {0, 1, -1};
  else
    return {0, 11. / 16, -11. / 16, 25. / 16, -25. / 16};
}

// F(TILE x TILE, TAPS x TAPS): the matrices of Lavin & Gray 2016 by what they transform. In the
// paper's notation kImageMatrix is B', kTapMatrix is G and kSumMatrix is A'.
template <int TILE, int TAPS>
struct Winograd {
  static constexpr int kTile = TILE, kTaps = TAPS, kSide = TILE + TAPS - 1;
  static constexpr auto kPoints = PointsOf<kSide>();
  static constexpr auto kImageMatrix = PolynomialsWithZeros<kSide - 1>(kPoints);
  static constexpr auto kTapMatrix = ScaledPowers<TAPS, kSide - 1>(kPoints);
  static constexpr auto kSumMatrix = Powers<TILE, kSide - 1>(kPoints);
  static constexpr auto kCotangentMatrix = Transpose<TILE, kSide>(kSumMatrix);
  static constexpr auto kGradientMatrix = Transpose<kSide, TAPS>(kTapMatrix);
};

// The product of a row of the matrix and a column of vectors; zeros of the matrix are skipped.
template <const auto& MATRIX, int ROW, int... COLUMN>
inline __attribute__((always_inline)) Vector RowTimesColumn(const Vector* column,
                                                            std::integer_sequence<int, COLUMN...>) {
  Vector sum{};
  const auto add = [&](auto at, Vector vector) {
    constexpr float kWeight = MATRIX[ROW][decltype(at)::value];
    if constexpr (kWeight != 0) sum += kWeight * vector;
  };
  (add(std::integral_constant<int, COLUMN>{}, column[COLUMN]), ...);
  return sum;
}

// The product of the matrix and a column of vectors, passed to to(row, element).
template <const auto& MATRIX, class To, int... ROW>
inline __attribute__((always_inline)) void MatrixTimesColumn(const Vector* column, To to,
                                                             std::integer_sequence<int, ROW...>) {
  constexpr int kColumns = static_cast<int>(MATRIX[0].size());
  constexpr auto kIndices = std::make_integer_sequence<int, kColumns>{};
  (to(ROW, RowTimesColumn<MATRIX, ROW>(column, kIndices)), ...);
}

// matrix * x * matrix', where from(i, j) is the element of x in row i and column j, and elements of
// the product are passed to to(i, j, element).
template <const auto& MATRIX, class From, class To>
inline __attribute__((always_inline)) void Transform(From from, To to) {
  constexpr int kRows = static_cast<int>(MATRIX.size());
  constexpr int kColumns = static_cast<int>(MATRIX[0].size());
  constexpr auto kIndices = std::make_integer_sequence<int, kRows>{};
  Vector half[kRows][kColumns];
  JAXCNN_UNROLL
  for (int j = 0; j < kColumns; ++j) {
    Vector column[kColumns];
    JAXCNN_UNROLL
    for (int i = 0; i < kColumns; ++i)
      column[i] = from(i, j);
    MatrixTimesColumn<MATRIX>(
        column, [&](int i, Vector element) { half[i][j] = element; }, kIndices);
  }
  JAXCNN_UNROLL
  for (int i = 0; i < kRows; ++i)
    MatrixTimesColumn<MATRIX>(half[i], [&](int j, Vector element) { to(i, j, element); }, kIndices);
}

}  // namespace jaxcnn
