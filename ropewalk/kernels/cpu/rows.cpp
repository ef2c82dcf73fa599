// The loops that turn lanes. Compiled once per instruction set, without fusing products and sums, so
// that the result is that of plain tensor arithmetic bit for bit.
#include "packed.h"
#include "task.h"
#include "vectors.h"

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

// One token in neighbouring heads that share its cosines and sines: `heads` runs of lanes, `in_head`
// and `out_head` apart.
template <typename E>
struct Token {
  const E* in;
  E* out;
  int64_t in_head, out_head;
  int heads;
};

// The lanes of a task, by value: stores to elements might otherwise be stores to the task.
struct Span {
  int64_t pairs, first, apart;
};

// The pairs of lanes [from, from + W) and those `apart` lanes on. cos and sin stay in registers.
template <int W, bool stream, typename E, typename A>
inline void turn_lanes_apart(Token<E> x, int64_t from, int64_t apart, const A* c, const A* s) {
  const auto cosine = load<W>(c), sine = load<W>(s);
  const E* in = x.in + from;
  E* out = x.out + from;
  for (int h = 0; h < x.heads; ++h, in += x.in_head, out += x.out_head) {
    const auto u = load<W>(in), v = load<W>(in + apart);
    store<W, stream>(out, u * cosine - v * sine);
    store<W, stream>(out + apart, u * sine + v * cosine);
  }
}

// W neighbouring lanes: cosines stand twice, sines twice with the first negative.
template <int W, bool stream, typename E, typename A>
inline void turn_neighbour_lanes(Token<E> x, int64_t from, const A* c, const A* s) {
  const auto cosine = load<W>(c), sine = load<W>(s);
  const E* in = x.in + from;
  E* out = x.out + from;
  for (int h = 0; h < x.heads; ++h, in += x.in_head, out += x.out_head) {
    const auto u = load<W>(in);
    store<W, stream>(out, u * cosine + swap_neighbours<W>(u) * sine);
  }
}

// Pairs from i on, in vectors of W and then, for the rest, of half of that.
template <int W, bool stream, typename E, typename A>
inline void turn_apart(Token<E> x, Span l, int64_t i, const A* c, const A* s) {
  for (; i + W <= l.pairs; i += W)
    turn_lanes_apart<W, stream>(x, l.first + i, l.apart, c + i, s + i);
  if constexpr (W > 1) {
    if (i < l.pairs) turn_apart<W / 2, false>(x, l, i, c, s);
  }
}

template <int W, bool stream, typename E, typename A>
inline void turn_neighbours(Token<E> x, Span l, int64_t i, const A* c, const A* s) {
  const int64_t lanes = 2 * l.pairs;
  for (; i + W <= lanes; i += W) turn_neighbour_lanes<W, stream>(x, l.first + i, c + i, s + i);
  if constexpr (W > 2) {
    if (i < lanes) turn_neighbours<W / 2, false>(x, l, i, c, s);
  }
}

#if defined(__AVX512BF16__)
// The same for lanes in packs. Cosines of 32 pairs lie evens first.
template <bool stream, typename Some>
inline void turn_pack_apart(Token<BFloat16> x, int64_t from, int64_t apart, const float* c,
                            const float* s, Some some) {
  const Pack cosine{load<16>(c), load<16>(c + 16)}, sine{load<16>(s), load<16>(s + 16)};
  const BFloat16* in = x.in + from;
  BFloat16* out = x.out + from;
  for (int h = 0; h < x.heads; ++h, in += x.in_head, out += x.out_head) {
    const Pack a = unpacked(some.load(in)), b = unpacked(some.load(in + apart));
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
}

template <bool stream>
inline void turn_packs_apart(Token<BFloat16> x, Span l, const float* c, const float* s) {
  int64_t i = 0;
  for (; i + kPack <= l.pairs; i += kPack)
    turn_pack_apart<stream>(x, l.first + i, l.apart, c + i, s + i, AllLanes());
  if (i < l.pairs)
    turn_pack_apart<false>(x, l.first + i, l.apart, c + i, s + i, SomeLanes(l.pairs - i));
}

// A pack of neighbouring lanes is 16 first lanes and 16 second lanes; cosines lie in order.
template <bool stream, typename Some>
inline void turn_packed_neighbours(Token<BFloat16> x, int64_t from, const float* c,
                                   const float* s, Some some) {
  const __m512 cosine = load<16>(c), sine = load<16>(s);
  const BFloat16* in = x.in + from;
  BFloat16* out = x.out + from;
  for (int h = 0; h < x.heads; ++h, in += x.in_head, out += x.out_head) {
    const Pack a = unpacked(some.load(in));
    const Pack u{a.even * cosine - a.odd * sine, a.even * sine + a.odd * cosine};
    __m512i p = narrowed(u);
    if (__builtin_expect(some.zeros(p) != 0, 0)) p = narrowed_in_integers(u);
    some.template store<stream>(out, in_order(p));
  }
}

template <bool stream>
inline void turn_packs_of_neighbours(Token<BFloat16> x, Span l, const float* c, const float* s) {
  const int64_t lanes = 2 * l.pairs;
  int64_t i = 0;
  for (; i + kPack <= lanes; i += kPack)
    turn_packed_neighbours<stream>(x, l.first + i, c + i / 2, s + i / 2, AllLanes());
  if (i < lanes)
    turn_packed_neighbours<false>(x, l.first + i, c + i / 2, s + i / 2, SomeLanes(lanes - i));
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

template <bool stream, typename E, typename A>
inline void turn_token(Token<E> x, Span l, bool neighbours, const A* c, const A* s) {
  constexpr int W = kVectorBytes / sizeof(A);
#if defined(__AVX512BF16__)
  if constexpr (packed<E>()) {
    return neighbours ? turn_packs_of_neighbours<stream>(x, l, c, s)
                      : turn_packs_apart<stream>(x, l, c, s);
  } else
#endif
  if (neighbours) {
    turn_neighbours<W, stream>(x, l, 0, c, s);
  } else {
    turn_apart<W, stream>(x, l, 0, c, s);
  }
}

// Lanes with strides, one by one.
template <typename E, typename A>
inline void turn_strided(const E* in, E* out, int64_t in_lane, int64_t out_lane, Span l,
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

template <bool stream, typename E>
inline void copy_lanes(const E* in, E* out, int64_t in_lane, int64_t out_lane, int64_t begin,
                       int64_t end) {
  if (in_lane == 1 && out_lane == 1) {
    constexpr int W = kVectorBytes / sizeof(E);
    int64_t i = begin;
    for (; i + W <= end; i += W) {
      Vector<uint8_t, kVectorBytes> lanes;
      std::memcpy(&lanes, in + i, sizeof(lanes));
      put<stream>(out + i, lanes);
    }
    for (; i < end; ++i) out[i] = in[i];
    return;
  }
  for (int64_t i = begin; i < end; ++i) out[i * out_lane] = in[i * in_lane];
}

// Lanes that do not turn: before, between and after those that do.
template <bool stream, typename E>
inline void pass(const E* in, E* out, int64_t in_lane, int64_t out_lane, Span l, bool neighbours,
                 int64_t head_dim) {
  const int64_t first_end = l.first + (neighbours ? 2 * l.pairs : l.pairs);
  const int64_t second = neighbours ? first_end : l.first + l.apart;
  const int64_t second_end = neighbours ? first_end : second + l.pairs;
  copy_lanes<stream>(in, out, in_lane, out_lane, 0, l.first);
  copy_lanes<stream>(in, out, in_lane, out_lane, first_end, second);
  copy_lanes<stream>(in, out, in_lane, out_lane, second_end, head_dim);
}

// How the tables of one task lie: rows of cosines, then sines, for the loops that will read them.
struct Order {
  bool unit;   // all lanes lie side by side
  bool twice;  // every value stands twice
};

// All tokens of `heads` neighbouring heads. With `places`, each token is written at its own place
// from `out` on, or nowhere.
template <bool stream, typename E, typename A>
void turn_heads(const Task& t, const Operand& x, const E* in, E* out, const int64_t* places,
                int64_t tokens, int heads, const A* tables, Order order) {
  const int64_t width = table_width(t), head_dim = t.head_dim, lane_step = t.lane_step;
  const int64_t in_head = x.in_head, in_token = x.in_token, in_lane = x.in_lane;
  const int64_t out_head = x.out_head, out_token = x.out_token, out_lane = x.out_lane;
  const Span lanes{t.pairs, t.first, t.second - t.first};
  const bool neighbours = lane_step == 2, rest = in != out && lanes.pairs * 2 != head_dim;
  E* const base = out;
  for (int64_t i = 0; i < tokens; ++i, in += in_token, out += out_token, tables += 2 * width) {
    if (places) {
      if (places[i] < 0) continue;
      out = base + places[i];
    }
    const A *c = tables, *s = tables + width;
    if (order.unit) {
      turn_token<stream>(Token<E>{in, out, in_head, out_head, heads}, lanes, neighbours, c, s);
    } else {
      for (int h = 0; h < heads; ++h)
        turn_strided(in + h * in_head, out + h * out_head, in_lane, out_lane, lanes, lane_step, c,
                     s, order.twice);
    }
    for (int h = 0; rest && h < heads; ++h)
      pass<stream>(in + h * in_head, out + h * out_head, in_lane, out_lane, lanes, neighbours,
                   head_dim);
  }
}

constexpr int64_t kTogether = 2;  // heads that turn by cosines and sines read once

template <bool stream, typename E, typename A>
void turn_operand(const Task& t, const Operand& x, int64_t lead, int64_t begin, int64_t end,
                  int part, int parts, const A* tables, int64_t head_tables, Order order) {
  const E* in = static_cast<const E*>(x.in) + lead_offset(t, lead, x.in_lead) + begin * x.in_token;
  E* out = static_cast<E*>(x.out) + lead_offset(t, lead, x.out_lead) + begin * x.out_token;
  const int64_t group = x.heads / t.table_heads, tokens = end - begin;
  const int64_t last = x.heads * (part + 1) / parts;
  const int64_t* places = x.places ? x.places + begin : nullptr;
  for (int64_t h = x.heads * part / parts; h < last;) {
    const int64_t table = h / group;
    const int64_t stop = last < (table + 1) * group ? last : (table + 1) * group;
    const A* mine = tables + table * head_tables;
    const E* from = in + h * x.in_head;
    E* to = out + h * x.out_head;
    const int heads = static_cast<int>(stop - h < kTogether ? stop - h : kTogether);
    turn_heads<stream>(t, x, from, to, places, tokens, heads, mine, order);
    h += heads;
  }
}

template <typename E>
void run(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts,
         void* scratch) {
  using A = Arithmetic<E>;
  const int64_t width = table_width(t), head = (end - begin) * 2 * width;
  Order order{true, t.lane_step == 2 && !packed<E>()};
  for (int o = 0; o < t.operands; ++o)
    order.unit = order.unit && t.operand[o].in_lane == 1 && t.operand[o].out_lane == 1;
  A* tables = static_cast<A*>(scratch);
  fill(t, lead, begin, end, sizeof(A) == 8, {tables, tables + width, head, 2 * width, order.twice});
#if defined(__AVX512BF16__)
  if (packed<E>() && order.unit && t.lane_step == 1) {
    for (int64_t i = 0; i < head * t.table_heads; i += kPack)
      part_evens(static_cast<float*>(scratch) + i);
  }
#endif
  for (int o = 0; o < t.operands; ++o) {
    const Operand& x = t.operand[o];
    if (x.stream) {
      turn_operand<true, E>(t, x, lead, begin, end, part, parts, tables, head, order);
      fence();
    } else {
      turn_operand<false, E>(t, x, lead, begin, end, part, parts, tables, head, order);
    }
  }
}

}  // namespace

void rows(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts,
          void* scratch) {
  switch (t.element) {
    case Element::f32: return run<float>(t, lead, begin, end, part, parts, scratch);
    case Element::bf16: return run<BFloat16>(t, lead, begin, end, part, parts, scratch);
    case Element::f16: return run<Half>(t, lead, begin, end, part, parts, scratch);
    case Element::f64: return run<double>(t, lead, begin, end, part, parts, scratch);
  }
}

}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
