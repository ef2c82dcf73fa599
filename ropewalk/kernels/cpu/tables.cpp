// cos and sin: from phases, or from the caller's own tables. Compiled once per instruction set, and
// the only part that may fuse products and sums: it is rounded once, at its end.
#include "task.h"
#include "vectors.h"

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

constexpr int kWide = kVectorBytes / 8;
using Double = Vector<double, kWide>;
using Bits = Vector<uint64_t, kWide>;

// Signed integers to double, rounded to nearest.
inline Double to_double(Bits v) {
#if defined(__AVX512DQ__) || !defined(ROPEWALK_X86)
  return convert<double, kWide>(bits_of<Vector<int64_t, kWide>>(v));
#else
  // Without an instruction for it: both halves become mantissas of doubles of known exponent.
  const Double high = bits_of<Double>((v >> 32) ^ 0x4530000080000000u) - 0x1.00000801p+84;
  return high + bits_of<Double>((v & 0xffffffffu) | 0x4330000000000000u);
#endif
}

// To the type of the tables.
template <typename A>
inline Vector<A, kWide> rounded(Double v) {
#if defined(__AVX512F__)
  // Spelt out: GCC 12 makes two halves of the conversion.
  if constexpr (sizeof(A) == 4) return bits_of<Vector<A, kWide>>(_mm512_cvtpd_ps(v));
#endif
  return convert<A, kWide>(v);
}

struct SinCos {
  Double sine, cosine;
};

// On [-pi/4, pi/4]: Taylor, off by less than 1e-16.
inline SinCos accurate(Double x, Double z) {
  Double s = z * (-1.0 / 1307674368000.0) + 1.0 / 6227020800.0;
  s = s * z - 1.0 / 39916800.0;
  s = s * z + 1.0 / 362880.0;
  s = s * z - 1.0 / 5040.0;
  s = s * z + 1.0 / 120.0;
  s = s * z - 1.0 / 6.0;
  Double c = z * (1.0 / 20922789888000.0) - 1.0 / 87178291200.0;
  c = c * z + 1.0 / 479001600.0;
  c = c * z - 1.0 / 3628800.0;
  c = c * z + 1.0 / 40320.0;
  c = c * z - 1.0 / 720.0;
  c = c * z + 1.0 / 24.0;
  return {x + x * z * s, 1.0 - (0.5 * z - z * z * c)};
}

// On [-pi/4, pi/4]: minimax in double (Remez), off by less than 1e-11, for rounding to float.
inline SinCos close(Double x, Double z) {
  Double s = z * 2.71734946412010711e-6 - 1.98392615535077543e-4;
  s = s * z + 8.33332932910197406e-3;
  s = s * z - 1.66666666442201087e-1;
  Double c = z * -2.72371674528490627e-7 + 2.4799911669435135e-5;
  c = c * z - 1.38888855474829639e-3;
  c = c * z + 4.16666666479347486e-2;
  return {x + x * z * s, 1.0 - (0.5 * z - z * z * c)};
}

// The nearest quarter turn is split off in integers, so the angle left is in [-pi/4, pi/4]. Bits 62
// and 63 of the phase plus an eighth turn count the quarters.
template <typename A>
inline SinCos sincos(Bits phase, double scale, uint64_t sign) {
  constexpr uint64_t eighth = uint64_t{1} << 61, quarter = eighth << 1, half = quarter << 1;
  const Bits turned = phase + eighth;
  const Double x = to_double(phase - (turned & (half | quarter))) * 3.4061215800865545e-19;  // 2pi/2^64
  const Double z = x * x;
  const SinCos small = sizeof(A) == 8 ? accurate(x, z) : close(x, z);
  const auto odd = (turned & quarter) != 0;
  const Bits sine = bits_of<Bits>(odd ? small.cosine : small.sine);
  const Bits cosine = bits_of<Bits>(odd ? small.sine : small.cosine);
  return {bits_of<Double>(sine ^ (turned & half) ^ sign) * scale,
          bits_of<Double>(cosine ^ ((turned + quarter) & half)) * scale};
}

// n values to the table, once or twice each.
template <typename A>
inline void tabulate(A* c, A* s, const Vector<A, kWide>& cosine, const Vector<A, kWide>& sine, int n,
                bool twice) {
  if (twice) {
    for (int i = 0; i < n; ++i) {
      c[2 * i] = c[2 * i + 1] = cosine[i];
      s[2 * i] = -sine[i];
      s[2 * i + 1] = sine[i];
    }
  } else if (n == kWide) {
    std::memcpy(c, &cosine, sizeof(cosine));
    std::memcpy(s, &sine, sizeof(sine));
  } else {
    std::memcpy(c, &cosine, n * sizeof(A));
    std::memcpy(s, &sine, n * sizeof(A));
  }
}

template <typename A>
void from_phases(const Task& t, int64_t lead, int64_t begin, int64_t end, const Tables& out) {
  const int64_t* where =
      t.positions ? t.positions + lead_offset(t, lead, t.position_lead) : nullptr;
  const int64_t token_stride = t.position_token, axis_stride = t.position_axis;
  const int64_t axes = t.axes, pairs = t.pairs, row = out.row;
  const uint64_t sign = static_cast<uint64_t>(t.negate) << 63;
  const double scale = t.scale;
  const bool twice = out.twice;
  for (int64_t h = 0; h < t.table_heads; ++h) {
    for (int64_t p = 0; p < pairs; p += kWide) {
      const int n = static_cast<int>(pairs - p < kWide ? pairs - p : kWide);
      const int64_t* steps = t.steps + h * axes * pairs + p;
      const auto step_of = [&](int64_t axis) {
        Bits step = {};
        if (n == kWide) {
          std::memcpy(&step, steps + axis * pairs, sizeof(step));
        } else {
          std::memcpy(&step, steps + axis * pairs, n * sizeof(uint64_t));
        }
        return step;
      };
      const Bits first = step_of(0);
      A* c = static_cast<A*>(out.cosine) + h * out.head + (twice ? 2 * p : p);
      A* s = static_cast<A*>(out.sine) + h * out.head + (twice ? 2 * p : p);
      for (int64_t i = begin; i < end; ++i, c += row, s += row) {
        const uint64_t position =
            where ? where[i * token_stride] : static_cast<uint64_t>(t.offset) + i;
        Bits phase = first * position;
        for (int64_t a = 1; a < axes; ++a)
          phase += step_of(a) * static_cast<uint64_t>(where[i * token_stride + a * axis_stride]);
        const SinCos turned = sincos<A>(phase, scale, sign);
        tabulate(c, s, rounded<A>(turned.cosine), rounded<A>(turned.sine), n, twice);
      }
    }
  }
}

template <typename A, typename E>
void from_tables(const Task& t, int64_t lead, int64_t begin, int64_t end, const Tables& out) {
  const E* cosine = static_cast<const E*>(t.cosine) + lead_offset(t, lead, t.cosine_lead);
  const E* sine = static_cast<const E*>(t.sine) + lead_offset(t, lead, t.sine_lead);
  const bool unit = t.cosine_pair == 1 && t.sine_pair == 1;
  const int width = out.twice ? 2 : 1;
  for (int64_t h = 0; h < t.table_heads; ++h) {
    for (int64_t i = begin; i < end; ++i) {
      const E* from_c = cosine + h * t.cosine_head + i * t.cosine_token;
      const E* from_s = sine + h * t.sine_head + i * t.sine_token;
      A* c = static_cast<A*>(out.cosine) + h * out.head + (i - begin) * out.row;
      A* s = static_cast<A*>(out.sine) + h * out.head + (i - begin) * out.row;
      int64_t p = 0;
      for (; unit && p + kWide <= t.pairs; p += kWide) {
        tabulate(c + width * p, s + width * p, convert<A, kWide>(load<kWide>(from_c + p)),
            convert<A, kWide>(load<kWide>(from_s + p)), kWide, out.twice);
      }
      for (; p < t.pairs; ++p) {
        const A cc = static_cast<A>(load<1>(from_c + p * t.cosine_pair));
        const A ss = static_cast<A>(load<1>(from_s + p * t.sine_pair));
        tabulate(c + width * p, s + width * p, Vector<A, kWide>{cc}, Vector<A, kWide>{ss}, 1, out.twice);
      }
    }
  }
}

template <typename A>
void fill_as(const Task& t, int64_t lead, int64_t begin, int64_t end, const Tables& out) {
  if (t.steps != nullptr) return from_phases<A>(t, lead, begin, end, out);
  switch (t.table) {
    case Element::f32: return from_tables<A, float>(t, lead, begin, end, out);
    case Element::bf16: return from_tables<A, BFloat16>(t, lead, begin, end, out);
    case Element::f16: return from_tables<A, Half>(t, lead, begin, end, out);
    case Element::f64: return from_tables<A, double>(t, lead, begin, end, out);
  }
}

}  // namespace

void fill(const Task& t, int64_t lead, int64_t begin, int64_t end, bool wide, const Tables& out) {
  if (wide) {
    fill_as<double>(t, lead, begin, end, out);
  } else {
    fill_as<float>(t, lead, begin, end, out);
  }
}

}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
