// A V of which the mean over the first keys is known in closed form, and the comparison of an output with it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <vector>

constexpr double kAllowed = 1.0 / 512;  // rounding O and the weights to fp16 costs 2^-11 each

// V of key j is offset + j % 31: at most 61, so fp16 holds it exactly.
inline int64_t offset_of(int64_t batch, int64_t kv_head, int64_t column) {
  return (column + 3 * kv_head + 5 * batch) % 32;
}
inline int64_t value_of(int64_t offset, int64_t key) { return offset + key % 31; }

inline double mean_of_first(int64_t offset, int64_t keys) {
  const int64_t rounds = keys / 31, rest = keys % 31;
  const int64_t sum = rounds * (30 * 31 / 2) + rest * (rest - 1) / 2;
  return static_cast<double>(offset) + static_cast<double>(sum) / static_cast<double>(keys);
}

// The bits of the fp16 number of an integer from 0 to 2048: all of these are exact.
inline uint16_t half_of(int64_t value) {
  if (value == 0) return 0;
  const int exponent = std::ilogb(value);
  return static_cast<uint16_t>((exponent + 15) << 10 | ((value << 10 >> exponent) & 1023));
}

inline double number_of(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  if (exponent == 31) return std::numeric_limits<double>::quiet_NaN();  // inf as well: neither is ever expected
  const double size = exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25);
  return half >> 15 ? -size : size;
}
inline double number_of(float value) { return value; }

// The error of an element is relative where more than 1 is expected, and infinite for a NaN.
template <typename T, typename Expected>
bool agrees(const char* name, const std::vector<T>& output, const Expected& expected) {
  double largest = 0;
  size_t wrong = 0;
  for (size_t i = 0; i < output.size(); ++i) {
    const double value = expected(static_cast<int64_t>(i));
    double error = std::abs(number_of(output[i]) - value) / std::max(1.0, value);
    if (std::isnan(error)) error = std::numeric_limits<double>::infinity();
    largest = std::max(largest, error);
    wrong += error > kAllowed;
  }
  std::printf("%s: largest error %.2e, allowed %.2e; %zu of %zu elements are wrong\n", name, largest, kAllowed, wrong,
              output.size());
  return wrong == 0;
}
