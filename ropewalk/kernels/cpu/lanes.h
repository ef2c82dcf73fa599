// How the lanes of one token turn, in vectors, in packs, or one by one, and how the others pass.
// Compiled once per instruction set, without fusing products and sums, so that the result is that of
// plain tensor arithmetic bit for bit.
#pragma once
#include "packed.h"
#include "vectors.h"

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

// One token in neighbouring heads that share its cosines and sines: `heads` runs of lanes, `in_head`
// and `out_head` apart. They are read as elements, or as what elements are computed in.
template <typename I, typename E>
struct Token {
  const I* in;
  E* out;
  int64_t in_head, out_head;
  int heads;
};

// The lanes of a task, by value: stores to elements might otherwise be stores to the task.
struct Span {
  int64_t pairs, first, apart;
};

constexpr int kTogether = 4;  // heads that turn together
template <int n>
using Count = std::integral_constant<int, n>;

// turn(Count<n>, in, out) for groups of n heads, from lane `from` on. It loads the lanes of a group
// before it stores any: heads often lie a multiple of 4096 bytes apart, and a load waits for every
// store under way to an address that ends alike.
template <typename I, typename E, typename Turn>
ROPEWALK_INLINED void in_groups(Token<I, E> x, int64_t from, Turn turn) {
  const I* in = x.in + from;
  E* out = x.out + from;
  const auto next = [&](auto heads) ROPEWALK_ALWAYS {
    turn(heads, in, out);
    in += heads() * x.in_head;
    out += heads() * x.out_head;
  };
  int left = x.heads;
  for (; left >= kTogether; left -= kTogether) next(Count<kTogether>());
  if (left >= 2) next(Count<2>());
  if (left % 2) next(Count<1>());
}

// Whether lanes turn from the last to the first: where out lies a little beyond in, multiples of
// 4096 bytes aside, and heads lie alike. Forwards, a store to some lanes would hold up the loads of
// the next ones in every head; backwards, these have been loaded.
template <typename I, typename E>
inline bool goes_back(Token<I, E> x) {
  constexpr uintptr_t alike = 4096, little = 512;
  const auto heads_alike = [](int64_t bytes) { return bytes % (alike / 2) == 0; };
  const uintptr_t ahead = reinterpret_cast<uintptr_t>(x.out) - reinterpret_cast<uintptr_t>(x.in);
  return ahead % alike > 0 && ahead % alike < little && heads_alike(x.in_head * sizeof(I)) &&
         heads_alike(x.out_head * sizeof(E));
}

// turn(i) for every whole step from `begin` on, or from the last one back; returns where they end.
template <int step, bool back, typename Turn>
ROPEWALK_INLINED int64_t in_steps(int64_t begin, int64_t end, Turn turn) {
  if constexpr (back) {
    const int64_t stop = begin + (end - begin) / step * step;
    for (int64_t i = stop - step; i >= begin; i -= step) turn(i);
    return stop;
  } else {
    int64_t i = begin;
    for (; i + step <= end; i += step) turn(i);
    return i;
  }
}

// The pairs of lanes [from, from + W) and those `apart` lanes on. cos and sin stay in registers.
template <int W, bool stream, typename I, typename E, typename A>
ROPEWALK_INLINED void turn_lanes_apart(Token<I, E> x, int64_t from, int64_t apart, const A* c,
                                       const A* s) {
  const Vector<A, W> cosine = load<W>(c), sine = load<W>(s);
  in_groups(x, from, [&](auto heads, const I* in, E* out) ROPEWALK_ALWAYS {
    Vector<A, W> u[heads()], v[heads()];
    for (int h = 0; h < heads(); ++h, in += x.in_head) {
      u[h] = load<W>(in);
      v[h] = load<W>(in + apart);
    }
    for (int h = 0; h < heads(); ++h, out += x.out_head) {
      store<W, stream>(out, u[h] * cosine - v[h] * sine);
      store<W, stream>(out + apart, u[h] * sine + v[h] * cosine);
    }
  });
}

// W neighbouring lanes: cosines stand twice, sines twice with the first negative.
template <int W, bool stream, typename I, typename E, typename A>
ROPEWALK_INLINED void turn_neighbour_lanes(Token<I, E> x, int64_t from, const A* c, const A* s) {
  const Vector<A, W> cosine = load<W>(c), sine = load<W>(s);
  in_groups(x, from, [&](auto heads, const I* in, E* out) ROPEWALK_ALWAYS {
    Vector<A, W> u[heads()];
    for (int h = 0; h < heads(); ++h, in += x.in_head) u[h] = load<W>(in);
    for (int h = 0; h < heads(); ++h, out += x.out_head)
      store<W, stream>(out, u[h] * cosine + swap_neighbours<W>(u[h]) * sine);
  });
}

// Pairs from `begin` on, in vectors of W and then, for the rest, of half of that.
template <int W, bool stream, bool back, typename I, typename E, typename A>
ROPEWALK_INLINED void turn_apart(Token<I, E> x, Span l, int64_t begin, const A* c, const A* s) {
  const auto end = in_steps<W, back>(begin, l.pairs, [&](int64_t i) ROPEWALK_ALWAYS {
    turn_lanes_apart<W, stream>(x, l.first + i, l.apart, c + i, s + i);
  });
  if constexpr (W > 1) {
    if (end < l.pairs) turn_apart<W / 2, false, back>(x, l, end, c, s);
  }
}

template <int W, bool stream, bool back, typename I, typename E, typename A>
ROPEWALK_INLINED void turn_neighbours(Token<I, E> x, Span l, int64_t begin, const A* c,
                                      const A* s) {
  const int64_t lanes = 2 * l.pairs;
  const auto end = in_steps<W, back>(begin, lanes, [&](int64_t i) ROPEWALK_ALWAYS {
    turn_neighbour_lanes<W, stream>(x, l.first + i, c + i, s + i);
  });
  if constexpr (W > 2) {
    if (end < lanes) turn_neighbours<W / 2, false, back>(x, l, end, c, s);
  }
}

#if defined(__AVX512BF16__)
// The same for lanes in packs. Cosines of 32 pairs lie evens first.
template <bool stream, typename Some>
ROPEWALK_INLINED void turn_pack_apart(Token<BFloat16, BFloat16> x, int64_t from, int64_t apart,
                                      const float* c, const float* s, Some some) {
  const Pack cosine{load<16>(c), load<16>(c + 16)}, sine{load<16>(s), load<16>(s + 16)};
  in_groups(x, from, [&](auto heads, const BFloat16* in, BFloat16* out) ROPEWALK_ALWAYS {
    __m512i first[heads()], second[heads()];
    for (int h = 0; h < heads(); ++h) {
      first[h] = some.load(in + h * x.in_head);
      second[h] = some.load(in + h * x.in_head + apart);
    }
    for (int h = 0; h < heads(); ++h, out += x.out_head) {
      const Pack a = unpacked(first[h]), b = unpacked(second[h]);
      const Pack u{a.even * cosine.even - b.even * sine.even, a.odd * cosine.odd - b.odd * sine.odd};
      const Pack v{a.even * sine.even + b.even * cosine.even, a.odd * sine.odd + b.odd * cosine.odd};
      __m512i p = narrowed(u), q = narrowed(v);
      if (__builtin_expect(!_kortestz_mask32_u8(some.zeros(p), some.zeros(q)), 0)) {
        p = narrowed_in_integers(u);
        q = narrowed_in_integers(v);
      }
      some.template store<stream>(out, in_order(p));
      some.template store<stream>(out + apart, in_order(q));
    }
  });
}

template <bool stream, bool back>
ROPEWALK_INLINED void turn_packs_apart(Token<BFloat16, BFloat16> x, Span l, const float* c,
                                       const float* s) {
  const auto end = in_steps<kPack, back>(0, l.pairs, [&](int64_t i) ROPEWALK_ALWAYS {
    turn_pack_apart<stream>(x, l.first + i, l.apart, c + i, s + i, AllLanes());
  });
  if (end < l.pairs)
    turn_pack_apart<false>(x, l.first + end, l.apart, c + end, s + end, SomeLanes(l.pairs - end));
}

// A pack of neighbouring lanes is 16 first lanes and 16 second lanes; cosines lie in order.
template <bool stream, typename Some>
ROPEWALK_INLINED void turn_packed_neighbours(Token<BFloat16, BFloat16> x, int64_t from,
                                             const float* c, const float* s, Some some) {
  const __m512 cosine = load<16>(c), sine = load<16>(s);
  in_groups(x, from, [&](auto heads, const BFloat16* in, BFloat16* out) ROPEWALK_ALWAYS {
    __m512i lanes[heads()];
    for (int h = 0; h < heads(); ++h) lanes[h] = some.load(in + h * x.in_head);
    for (int h = 0; h < heads(); ++h, out += x.out_head) {
      const Pack a = unpacked(lanes[h]);
      const Pack u{a.even * cosine - a.odd * sine, a.even * sine + a.odd * cosine};
      __m512i p = narrowed(u);
      if (__builtin_expect(some.zeros(p) != 0, 0)) p = narrowed_in_integers(u);
      some.template store<stream>(out, in_order(p));
    }
  });
}

template <bool stream, bool back>
ROPEWALK_INLINED void turn_packs_of_neighbours(Token<BFloat16, BFloat16> x, Span l, const float* c,
                                               const float* s) {
  const int64_t lanes = 2 * l.pairs;
  const auto end = in_steps<kPack, back>(0, lanes, [&](int64_t i) ROPEWALK_ALWAYS {
    turn_packed_neighbours<stream>(x, l.first + i, c + i / 2, s + i / 2, AllLanes());
  });
  if (end < lanes)
    turn_packed_neighbours<false>(x, l.first + end, c + end / 2, s + end / 2,
                                  SomeLanes(lanes - end));
}
#endif

// Whether lanes of this element are turned in packs.
template <typename E>
constexpr bool packed() {
#if defined(__AVX512BF16__)
  return std::is_same_v<E, BFloat16>;
#else
  return false;
#endif
}

template <bool stream, bool back, typename I, typename E, typename A>
ROPEWALK_INLINED void turn_token(Token<I, E> x, Span l, bool neighbours, const A* c, const A* s) {
  constexpr int W = kVectorBytes / sizeof(A);
#if defined(__AVX512BF16__)
  if constexpr (packed<I>()) {
    return neighbours ? turn_packs_of_neighbours<stream, back>(x, l, c, s)
                      : turn_packs_apart<stream, back>(x, l, c, s);
  } else
#endif
  if (neighbours) {
    turn_neighbours<W, stream, back>(x, l, 0, c, s);
  } else {
    turn_apart<W, stream, back>(x, l, 0, c, s);
  }
}

// Lanes with strides, one by one.
template <typename I, typename E, typename A>
inline void turn_strided(const I* in, E* out, int64_t in_lane, int64_t out_lane, Span l,
                         int64_t lane_step, const A* c, const A* s, bool twice) {
  const int64_t width = twice ? 2 : 1;
  for (int64_t i = 0; i < l.pairs; ++i) {
    const int64_t a = l.first + i * lane_step, b = a + l.apart;
    const A cosine = c[width * i], sine = s[width * i + width - 1];
    const A u = load<1>(in + a * in_lane), v = load<1>(in + b * in_lane);
    store<1, false>(out + a * out_lane, u * cosine - v * sine);
    store<1, false>(out + b * out_lane, u * sine + v * cosine);
  }
}

// Lanes [begin, end) as elements: the same bits, or rounded.
template <bool stream, typename I, typename E>
inline void copy_lanes(const I* in, E* out, int64_t in_lane, int64_t out_lane, int64_t begin,
                       int64_t end) {
  constexpr bool same = std::is_same_v<I, E>;
  const auto copy_one = [](const I* from, E* to) {
    if constexpr (same) {
      *to = *from;
    } else {
      store<1, false>(to, load<1>(from));
    }
  };
  int64_t i = begin;
  if (in_lane == 1 && out_lane == 1) {
    constexpr int W = kVectorBytes / sizeof(I);
    for (; i + W <= end; i += W) {
      if constexpr (same) {
        Vector<uint8_t, kVectorBytes> lanes;
        std::memcpy(&lanes, in + i, sizeof(lanes));
        put<stream>(out + i, lanes);
      } else {
        store<W, stream>(out + i, load<W>(in + i));
      }
    }
  }
  for (; i < end; ++i) copy_one(in + i * in_lane, out + i * out_lane);
}

// Lanes that do not turn: before, between and after those that do.
template <bool stream, typename I, typename E>
inline void pass(const I* in, E* out, int64_t in_lane, int64_t out_lane, Span l, bool neighbours,
                 int64_t head_dim) {
  const int64_t first_end = l.first + (neighbours ? 2 * l.pairs : l.pairs);
  const int64_t second = neighbours ? first_end : l.first + l.apart;
  const int64_t second_end = neighbours ? first_end : second + l.pairs;
  copy_lanes<stream>(in, out, in_lane, out_lane, 0, l.first);
  copy_lanes<stream>(in, out, in_lane, out_lane, first_end, second);
  copy_lanes<stream>(in, out, in_lane, out_lane, second_end, head_dim);
}

}  // namespace
}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
