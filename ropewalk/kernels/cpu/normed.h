// Rows over their root mean square: read once into scratch, in what they are computed in, where they
// turn as any others. Compiled once per instruction set.
#pragma once
#include "vectors.h"

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

template <int W, typename A>
inline A total(Vector<A, W> v) {
  if constexpr (W == 1) {
    return v;
  } else {
    Vector<A, W / 2> halves[2];
    std::memcpy(halves, &v, sizeof(v));
    return total<W / 2, A>(halves[0] + halves[1]);
  }
}

// Lanes into a row of scratch, which has whole vectors: zeros follow. The sum of their squares,
// in the same order whatever the strides.
template <typename E, typename A>
inline A widen(const E* in, int64_t lane, int64_t lanes, A* row) {
  constexpr int W = kVectorBytes / sizeof(A);
  Vector<A, W> even = {}, odd = {};
  const auto taken = [&](int64_t i) {
    const Vector<A, W> v = convert<A, W>(load<W>(in + i));
    put<false>(row + i, v);
    return v * v;
  };
  int64_t i = 0;
  if (lane == 1) {
    for (; i + 2 * W <= lanes; i += 2 * W) {
      even += taken(i);
      odd += taken(i + W);
    }
    if (i + W <= lanes) {
      even += taken(i);
      i += W;
    }
  }
  const int64_t rest = i;
  for (; i < lanes; ++i) row[i] = static_cast<A>(load<1>(in + i * lane));
  for (; i % W; ++i) row[i] = 0;
  for (i = rest; i < lanes; i += W) {
    const auto v = load<W>(row + i);
    (i / W % 2 ? odd : even) += v * v;
  }
  return total<W, A>(even + odd);
}

template <typename A>
inline A over_root(A mean_square) {
  if constexpr (sizeof(A) == 8) {
    return 1 / __builtin_sqrt(mean_square);
  } else {
    return 1 / __builtin_sqrtf(mean_square);
  }
}

// A row of scratch times `over` and weight.
template <typename A>
inline void weigh(A* row, int64_t lanes, A over, const A* weight) {
  constexpr int W = kVectorBytes / sizeof(A);
  for (int64_t i = 0; i < lanes; i += W)
    put<false>(row + i, load<W>(row + i) * over * load<W>(weight + i));
}

}  // namespace
}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
