// Rows over their root mean square: read once into scratch, in what they are computed in, where they
// turn as any others. Compiled once per instruction set.
#pragma once
#include "vectors.h"

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

// Lanes into a row of scratch, which has whole vectors: zeros follow.
template <typename E, typename A>
inline void widen(const E* in, int64_t lane, int64_t lanes, A* to) {
  constexpr int W = kVectorBytes / sizeof(A);
  int64_t i = 0;
  if (lane == 1) {
    for (; i + W <= lanes; i += W)
      put<false>(to + i, convert<A, W>(load<W>(in + i)));
  }
  for (; i < lanes; ++i) to[i] = static_cast<A>(load<1>(in + i * lane));
  for (; i % W; ++i) to[i] = 0;
}

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

// A row of scratch times weight over the root of its mean square plus eps.
template <typename A>
inline void normalise(A* row, int64_t lanes, const A* weight, A eps) {
  constexpr int W = kVectorBytes / sizeof(A);
  Vector<A, W> squares = {};
  for (int64_t i = 0; i < lanes; i += W) {
    const auto v = load<W>(row + i);
    squares += v * v;
  }
  const A mean = total<W, A>(squares) / static_cast<A>(lanes);
  A root;
  if constexpr (sizeof(A) == 8) {
    root = __builtin_sqrt(mean + eps);
  } else {
    root = __builtin_sqrtf(mean + eps);
  }
  const A over = 1 / root;
  for (int64_t i = 0; i < lanes; i += W)
    put<false>(row + i, load<W>(row + i) * over * load<W>(weight + i));
}

}  // namespace
}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
