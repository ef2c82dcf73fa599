// The loops over tokens and heads, whose lanes turn as they lie or normalised first.
#include "lanes.h"
#include "normed.h"
#include "task.h"

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

// How the tables of one task lie: rows of cosines, then sines, for the loops that will read them.
struct Order {
  bool unit;   // all lanes lie side by side
  bool twice;  // every value stands twice
};

// Where the lanes of a token are read, in heads `head` apart.
template <typename I>
struct Lanes {
  const I* in;
  int64_t head, lane;
};

// They are read as they lie. Heads that turn together share cosines and sines in registers; those
// that do not turn are in place already where out is.
template <typename E>
struct Given {
  using In = E;
  static constexpr bool kFresh = false;
  static constexpr int64_t kMost = kTogether;
  static bool goes_back(Token<E, E> x) { return ROPEWALK_ISA::goes_back(x); }
  Lanes<E> operator()(const E* in, int64_t head, int64_t lane, int) const {
    return {in, head, lane};
  }
};

// They are read normalised, from rows of scratch.
template <typename E, typename A>
struct Normalised {
  using In = A;
  static constexpr bool kFresh = true;
  static constexpr int64_t kMost = kNormedTogether;
  int64_t lanes, width;
  A eps;
  const A* weight;
  A* rows;
  static bool goes_back(Token<E, E>) { return false; }  // a row is read before any of it is written
  Lanes<A> operator()(const E* in, int64_t head, int64_t lane, int heads) const {
    A over[kMost] = {};
    for (int h = 0; h < heads; ++h) over[h] = widen(in + h * head, lane, lanes, rows + h * width);
    for (A& value : over) value = over_root(value / static_cast<A>(lanes) + eps);
    for (int h = 0; h < heads; ++h) weigh(rows + h * width, lanes, over[h], weight);
    return {rows, width, 1};
  }
};

// All tokens of `heads` neighbouring heads. With `places`, each token is written at its own place
// from `out` on, or nowhere. They turn from the first to the last, or `back`.
template <bool stream, bool back, typename E, typename A, typename Source>
void turn_heads(const Task& t, const Operand& x, const E* in, E* out, const int64_t* places,
                int64_t tokens, int heads, const A* tables, Order order, Source source) {
  const int64_t width = table_width(t), head_dim = t.head_dim, lane_step = t.lane_step;
  const int64_t in_head = x.in_head, in_token = x.in_token, in_lane = x.in_lane;
  const int64_t out_head = x.out_head, out_token = x.out_token, out_lane = x.out_lane;
  const Span lanes{t.pairs, t.first, t.second - t.first};
  const bool neighbours = lane_step == 2;
  const bool rest = (Source::kFresh || in != out) && lanes.pairs * 2 != head_dim;
  E* const base = out;
  constexpr int64_t way = back ? -1 : 1;
  const int64_t first = back ? tokens - 1 : 0;
  in += first * in_token, out += first * out_token, tables += first * 2 * width;
  for (int64_t i = 0; i < tokens;
       ++i, in += way * in_token, out += way * out_token, tables += way * 2 * width) {
    if (places) {
      const int64_t place = places[first + way * i];
      if (place < 0) continue;
      out = base + place;
    }
    const A *c = tables, *s = tables + width;
    const auto from = source(in, in_head, in_lane, heads);
    if (order.unit) {
      const Token<typename Source::In, E> token{from.in, out, from.head, out_head, heads};
      turn_token<stream, back>(token, lanes, neighbours, c, s);
    } else {
      for (int h = 0; h < heads; ++h)
        turn_strided(from.in + h * from.head, out + h * out_head, from.lane, out_lane, lanes,
                     lane_step, c, s, order.twice);
    }
    for (int h = 0; rest && h < heads; ++h)
      pass<stream>(from.in + h * from.head, out + h * out_head, from.lane, out_lane, lanes,
                   neighbours, head_dim);
  }
}

// Tables of one task in scratch, those of a head `head` values apart.
template <typename A>
struct Filled {
  const A* tables;
  int64_t head;
  Order order;
};

template <bool stream, typename E, typename A, typename Source>
void turn_operand(const Task& t, const Operand& x, int64_t lead, int64_t begin, int64_t end,
                  int part, int parts, Filled<A> filled, Source source) {
  const E* in = static_cast<const E*>(x.in) + lead_offset(t, lead, x.in_lead) + begin * x.in_token;
  E* out = static_cast<E*>(x.out) + lead_offset(t, lead, x.out_lead) + begin * x.out_token;
  const int64_t group = x.heads / t.table_heads, tokens = end - begin;
  const int64_t last = x.heads * (part + 1) / parts;
  const int64_t* places = x.places ? x.places + begin : nullptr;
  const bool all_turn = 2 * t.pairs == t.head_dim;  // lanes that pass gain nothing from going back
  for (int64_t h = x.heads * part / parts; h < last;) {
    const int64_t table = h / group;
    const int64_t stop = last < (table + 1) * group ? last : (table + 1) * group;
    const A* mine = filled.tables + table * filled.head;
    const E* from = in + h * x.in_head;
    E* to = out + h * x.out_head;
    constexpr int64_t most = Source::kMost;
    const int heads = static_cast<int>(stop - h < most ? stop - h : most);
    const Token<E, E> first{from, to, x.in_head, x.out_head, heads};
    if (all_turn && source.goes_back(first)) {
      turn_heads<stream, true>(t, x, from, to, places, tokens, heads, mine, filled.order, source);
    } else {
      turn_heads<stream, false>(t, x, from, to, places, tokens, heads, mine, filled.order, source);
    }
    h += heads;
  }
}

// The weight of a norm in scratch: ones where there is none.
template <typename A>
void fill_weight(const Operand& x, int64_t lanes, A* to) {
  const auto from = [&](auto* weight) { widen(weight, x.weight_lane, lanes, to); };
  switch (x.weight_element) {
    case Element::f32: return from(static_cast<const float*>(x.weight));
    case Element::bf16: return from(static_cast<const BFloat16*>(x.weight));
    case Element::f16: return from(static_cast<const Half*>(x.weight));
    case Element::f64: return from(static_cast<const double*>(x.weight));
  }
}

template <typename E, bool normed>
void run(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts,
         void* scratch) {
  using A = Arithmetic<E>;
  constexpr bool packs = packed<E>() && !normed;
  const int64_t width = table_width(t), head = (end - begin) * 2 * width;
  Order order{true, t.lane_step == 2 && !packs};
  for (int o = 0; o < t.operands; ++o)
    order.unit = order.unit && (normed || t.operand[o].in_lane == 1) && t.operand[o].out_lane == 1;
  A* tables = static_cast<A*>(scratch);
  fill(t, lead, begin, end, sizeof(A) == 8, {tables, tables + width, head, 2 * width, order.twice});
#if defined(__AVX512BF16__)
  if (packs && order.unit && t.lane_step == 1) {
    for (int64_t i = 0; i < head * t.table_heads; i += kPack)
      part_evens(static_cast<float*>(scratch) + i);
  }
#endif
  const auto turn = [&](const Operand& x, auto source) {
    const Filled<A> filled{tables, head, order};
    if (x.stream) {
      turn_operand<true, E>(t, x, lead, begin, end, part, parts, filled, source);
      fence();
    } else {
      turn_operand<false, E>(t, x, lead, begin, end, part, parts, filled, source);
    }
  };
  for (int o = 0; o < t.operands; ++o) {
    const Operand& x = t.operand[o];
    if constexpr (normed) {
      A* weight = tables + tables_size(t, end - begin);
      fill_weight(x, t.head_dim, weight);
      turn(x, Normalised<E, A>{t.head_dim, row_width(t), static_cast<A>(t.eps), weight,
                               weight + row_width(t)});
    } else {
      turn(x, Given<E>());
    }
  }
}

template <typename E>
void run_as(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts,
            void* scratch) {
  if (t.normed) return run<E, true>(t, lead, begin, end, part, parts, scratch);
  run<E, false>(t, lead, begin, end, part, parts, scratch);
}

}  // namespace

void rows(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts,
          void* scratch) {
  switch (t.element) {
    case Element::f32: return run_as<float>(t, lead, begin, end, part, parts, scratch);
    case Element::bf16: return run_as<BFloat16>(t, lead, begin, end, part, parts, scratch);
    case Element::f16: return run_as<Half>(t, lead, begin, end, part, parts, scratch);
    case Element::f64: return run_as<double>(t, lead, begin, end, part, parts, scratch);
  }
}

}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
