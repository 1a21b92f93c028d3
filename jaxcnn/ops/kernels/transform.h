// The matrices of Winograd's minimal filtering, made from points at which polynomials are evaluated, and their application to vectors.
//
// A convolution of TAPS taps with a tile of TILE results is, transposed, a product of polynomials; it is found from its values at
// TILE + TAPS - 2 points and at infinity (Toom and Cook). Any points will do; rounding errors depend on them. With six, 0, ±3/4 and ±3/2 make a
// quarter to a half of the errors of the usual 0, ±1, ±2 (on choices like these: Barabasz et al. 2020, "Error Analysis and Improving the Accuracy
// of Winograd Convolution for Deep Neural Networks").
#pragma once

#include <array>
#include <utility>

#include "tile.h"

namespace jaxcnn {

template <int ROWS, int COLUMNS>
using Matrix = std::array<std::array<float, COLUMNS>, ROWS>;

template <int ROWS, int COLUMNS>
constexpr Matrix<COLUMNS, ROWS> Transposed(const Matrix<ROWS, COLUMNS>& matrix) {
  Matrix<COLUMNS, ROWS> transposed{};
  for (int i = 0; i < ROWS; ++i)
    for (int j = 0; j < COLUMNS; ++j) transposed[j][i] = matrix[i][j];
  return transposed;
}

template <int COUNT>
using Points = std::array<double, COUNT>;

// [power][point]: the points' powers, and the highest alone at infinity.
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

// [point][power]: as `Powers`, each point's divided by the product of its distances from the others.
template <int POWERS, int POINTS>
constexpr Matrix<POINTS + 1, POWERS> DividedPowers(const Points<POINTS>& points) {
  Matrix<POINTS + 1, POWERS> powers{};
  for (int j = 0; j < POINTS; ++j) {
    double power = 1;
    for (int other = 0; other < POINTS; ++other) power /= other == j ? 1 : points[j] - points[other];
    for (int i = 0; i < POWERS; ++i, power *= points[j]) powers[j][i] = static_cast<float>(power);
  }
  powers[POINTS][POWERS - 1] = 1;
  return powers;
}

// [point][power]: the coefficients of the polynomial that is zero at all other points; in the last row, at all.
template <int POINTS>
constexpr Matrix<POINTS + 1, POINTS + 1> Coefficients(const Points<POINTS>& points) {
  Matrix<POINTS + 1, POINTS + 1> coefficients{};
  for (int j = 0; j <= POINTS; ++j) {
    std::array<double, POINTS + 2> polynomial{};  // with one more in front, which is zero
    polynomial[1] = 1;
    for (int other = 0; other < POINTS; ++other)
      for (int i = POINTS + 1; i > 0 && other != j; --i) polynomial[i] = polynomial[i - 1] - points[other] * polynomial[i];
    for (int i = 0; i <= POINTS; ++i) coefficients[j][i] = static_cast<float>(polynomial[i + 1]);
  }
  return coefficients;
}

template <int SIDE>
constexpr Points<SIDE - 1> PointsOf() {
  if constexpr (SIDE == 4)
    return {0, 1, -1};
  else
    return {0, 0.75, -0.75, 1.5, -1.5};
}

// F(TILE x TILE, TAPS x TAPS): the matrices A, B and G of the paper, by what they transform.
template <int TILE, int TAPS>
struct Winograd {
  static constexpr int kTile = TILE, kTaps = TAPS, kSide = TILE + TAPS - 1;
  static constexpr auto kPoints = PointsOf<kSide>();
  static constexpr auto kOfImages = Coefficients<kSide - 1>(kPoints);
  static constexpr auto kOfTaps = DividedPowers<TAPS, kSide - 1>(kPoints);
  static constexpr auto kOfSums = Powers<TILE, kSide - 1>(kPoints);
  static constexpr auto kOfCotangent = Transposed<TILE, kSide>(kOfSums);
  static constexpr auto kOfGradient = Transposed<kSide, TAPS>(kOfTaps);
};

// The product of a row of the matrix and a column of vectors, without its zeros.
template <const auto& MATRIX, int ROW, int... COLUMN>
inline Vector RowTimes(const Vector* column, std::integer_sequence<int, COLUMN...>) {
  Vector sum{};
  const auto add = [&](auto weight, Vector vector) {
    if constexpr (MATRIX[ROW][decltype(weight)::value] != 0) sum += MATRIX[ROW][decltype(weight)::value] * vector;
  };
  (add(std::integral_constant<int, COLUMN>{}, column[COLUMN]), ...);
  return sum;
}

template <const auto& MATRIX, class To, int... ROW>
inline void Times(const Vector* column, To to, std::integer_sequence<int, ROW...>) {
  constexpr int kColumns = static_cast<int>(MATRIX[0].size());
  (to(ROW, RowTimes<MATRIX, ROW>(column, std::make_integer_sequence<int, kColumns>{})), ...);
}

// matrix * x * matrix': x's element of row i and column j is from(i, j), the product's goes to to(i, j, element).
template <const auto& MATRIX, class From, class To>
inline __attribute__((always_inline)) void Transform(From from, To to) {
  constexpr int kRows = static_cast<int>(MATRIX.size()), kColumns = static_cast<int>(MATRIX[0].size());
  constexpr auto rows = std::make_integer_sequence<int, kRows>{};
  Vector half[kRows][kColumns];
#pragma GCC unroll 6
  for (int j = 0; j < kColumns; ++j) {
    Vector column[kColumns];
#pragma GCC unroll 6
    for (int i = 0; i < kColumns; ++i) column[i] = from(i, j);
    Times<MATRIX>(column, [&](int i, Vector element) { half[i][j] = element; }, rows);
  }
#pragma GCC unroll 6
  for (int i = 0; i < kRows; ++i)
    Times<MATRIX>(half[i], [&](int j, Vector element) { to(i, j, element); }, rows);
}

}  // namespace jaxcnn
