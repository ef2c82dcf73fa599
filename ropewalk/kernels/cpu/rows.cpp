// The loops. Compiled once per instruction set, in namespace ROPEWALK_ISA.
#include "task.h"

#include <cstring>
#include <vector>
#if defined(__F16C__)
#include <immintrin.h>
#endif

namespace ropewalk {
namespace ROPEWALK_ISA {
namespace {

// --- phases to sin and cos -----------------------------------------------------------------------

// The nearest quarter turn is split off in integers; the rest is an angle in [-pi/4, pi/4], where
// the Taylor polynomials below err by less than 1e-16. All of it is in double and is rounded once.
template <typename A>
inline void sincos_of(const uint64_t* phase, int64_t n, double scale, double sign,
                      A* __restrict c, A* __restrict s) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t quadrant = (phase[i] + (uint64_t{1} << 61)) >> 62;
    const double x = static_cast<double>(static_cast<int64_t>(phase[i] - (quadrant << 62))) *
                     3.4061215800865545e-19;  // 2 pi / 2^64
    const double z = x * x;
    double sine = -1.0 / 1307674368000.0;
    sine = sine * z + 1.0 / 6227020800.0;
    sine = sine * z - 1.0 / 39916800.0;
    sine = sine * z + 1.0 / 362880.0;
    sine = sine * z - 1.0 / 5040.0;
    sine = sine * z + 1.0 / 120.0;
    sine = sine * z - 1.0 / 6.0;
    sine = x + x * z * sine;
    double cosine = 1.0 / 20922789888000.0;
    cosine = cosine * z - 1.0 / 87178291200.0;
    cosine = cosine * z + 1.0 / 479001600.0;
    cosine = cosine * z - 1.0 / 3628800.0;
    cosine = cosine * z + 1.0 / 40320.0;
    cosine = cosine * z - 1.0 / 720.0;
    cosine = cosine * z + 1.0 / 24.0;
    cosine = 1.0 - (0.5 * z - z * z * cosine);
    const bool odd = quadrant & 1u;
    const double ss = odd ? cosine : sine, cc = odd ? sine : cosine;
    s[i] = static_cast<A>(((quadrant & 2u) ? -ss : ss) * scale * sign);
    c[i] = static_cast<A>((((quadrant + 1u) & 2u) ? -cc : cc) * scale);
  }
}

// --- elements ------------------------------------------------------------------------------------

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

inline float load(float v) { return v; }
inline double load(double v) { return v; }
inline float load(BFloat16 v) {
  const uint32_t wide = static_cast<uint32_t>(v.bits) << 16;
  float f;
  std::memcpy(&f, &wide, 4);
  return f;
}
inline void store(float* p, float v) { *p = v; }
inline void store(double* p, double v) { *p = v; }
inline void store(BFloat16* p, float v) {
  uint32_t u;
  std::memcpy(&u, &v, 4);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  p->bits = static_cast<uint16_t>(v != v ? ((u >> 16) | 0x40u) : rounded);
}
#if defined(__F16C__)
inline float load(Half v) { return _cvtsh_ss(v.bits); }
inline void store(Half* p, float v) { p->bits = _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT); }
#else
inline float load(Half v) {
  _Float16 h;
  std::memcpy(&h, &v.bits, 2);
  return static_cast<float>(h);
}
inline void store(Half* p, float v) {
  const _Float16 h = static_cast<_Float16>(v);
  std::memcpy(&p->bits, &h, 2);
}
#endif

// --- one row -------------------------------------------------------------------------------------

// Lanes of unit stride, half layout: two runs of `n` lanes.
template <typename E, typename A>
inline void turn_half(const E* a, const E* b, E* oa, E* ob, const A* __restrict c,
                      const A* __restrict s, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const A x = load(a[i]), y = load(b[i]);
    store(&oa[i], x * c[i] - y * s[i]);
    store(&ob[i], x * s[i] + y * c[i]);
  }
}

#if defined(__F16C__)
inline void turn_half(const Half* a, const Half* b, Half* oa, Half* ob, const float* __restrict c,
                      const float* __restrict s, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256 x = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a + i)));
    const __m256 y = _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(b + i)));
    const __m256 cc = _mm256_loadu_ps(c + i), ss = _mm256_loadu_ps(s + i);
    const __m256 u = _mm256_sub_ps(_mm256_mul_ps(x, cc), _mm256_mul_ps(y, ss));
    const __m256 v = _mm256_add_ps(_mm256_mul_ps(x, ss), _mm256_mul_ps(y, cc));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(oa + i),
                     _mm256_cvtps_ph(u, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(ob + i),
                     _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) {
    const float x = load(a[i]), y = load(b[i]);
    store(&oa[i], x * c[i] - y * s[i]);
    store(&ob[i], x * s[i] + y * c[i]);
  }
}
#endif

// Neighbouring lanes: pairs (2i, 2i + 1).
template <typename E, typename A>
inline void turn_neighbours(const E* a, E* o, const A* __restrict c, const A* __restrict s,
                            int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const A x = load(a[2 * i]), y = load(a[2 * i + 1]);
    store(&o[2 * i], x * c[i] - y * s[i]);
    store(&o[2 * i + 1], x * s[i] + y * c[i]);
  }
}

template <typename E, typename A>
inline void turn_strided(const E* in, E* out, int64_t in_lane, int64_t out_lane, const Task& t,
                         const A* c, const A* s) {
  for (int64_t i = 0; i < t.pairs; ++i) {
    const int64_t a = t.first + i * t.lane_step, b = t.second + i * t.lane_step;
    const A x = load(in[a * in_lane]), y = load(in[b * in_lane]);
    store(&out[a * out_lane], x * c[i] - y * s[i]);
    store(&out[b * out_lane], x * s[i] + y * c[i]);
  }
}

template <typename E>
inline void copy_lanes(const E* in, E* out, int64_t in_lane, int64_t out_lane, int64_t begin,
                       int64_t end) {
  if (begin >= end || (in == out && in_lane == out_lane)) return;
  if (in_lane == 1 && out_lane == 1) {
    std::memcpy(out + begin, in + begin, static_cast<size_t>(end - begin) * sizeof(E));
    return;
  }
  for (int64_t i = begin; i < end; ++i) out[i * out_lane] = in[i * in_lane];
}

template <typename E, typename A>
inline void turn_row(const E* in, E* out, int64_t in_lane, int64_t out_lane, const Task& t,
                     const A* c, const A* s) {
  const bool unit = in_lane == 1 && out_lane == 1;
  if (t.lane_step == 2) {
    copy_lanes(in, out, in_lane, out_lane, 0, t.first);
    if (unit) turn_neighbours(in + t.first, out + t.first, c, s, t.pairs);
    else turn_strided(in, out, in_lane, out_lane, t, c, s);
    copy_lanes(in, out, in_lane, out_lane, t.first + 2 * t.pairs, t.head_dim);
    return;
  }
  copy_lanes(in, out, in_lane, out_lane, 0, t.first);
  copy_lanes(in, out, in_lane, out_lane, t.first + t.pairs, t.second);
  if (unit) turn_half(in + t.first, in + t.second, out + t.first, out + t.second, c, s, t.pairs);
  else turn_strided(in, out, in_lane, out_lane, t, c, s);
  copy_lanes(in, out, in_lane, out_lane, t.second + t.pairs, t.head_dim);
}

// --- a block of tokens ---------------------------------------------------------------------------

template <typename A>
struct Scratch {
  std::vector<A> cosine, sine;
  std::vector<uint64_t> phase;
};

template <typename E, typename A>
void run(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts) {
  int64_t at[kMaxLead], rest = lead;
  for (int d = t.lead_dims - 1; d >= 0; --d) {
    at[d] = rest % t.lead_size[d];
    rest /= t.lead_size[d];
  }
  const auto offset = [&](const int64_t* strides) {
    int64_t sum = 0;
    for (int d = 0; d < t.lead_dims; ++d) sum += at[d] * strides[d];
    return sum;
  };
  const int64_t tokens = end - begin;
  const A *cosine, *sine;
  int64_t head_stride, token_stride, table_heads;
  thread_local Scratch<A> scratch;
  if (t.positions != nullptr) {
    const int64_t size = tokens * t.pairs;
    scratch.cosine.resize(size * t.spectrum_heads);
    scratch.sine.resize(size * t.spectrum_heads);
    scratch.phase.resize(t.pairs);
    const int64_t* where = t.positions + offset(t.position_lead);
    for (int64_t h = 0; h < t.spectrum_heads; ++h) {
      for (int64_t i = 0; i < tokens; ++i) {
        const int64_t* p = where + (begin + i) * t.position_token;
        uint64_t* phase = scratch.phase.data();
        for (int64_t a = 0; a < t.axes; ++a) {
          const uint64_t position = static_cast<uint64_t>(p[a * t.position_axis]);
          const uint64_t* step =
              reinterpret_cast<const uint64_t*>(t.steps) + (h * t.axes + a) * t.pairs;
          if (a == 0) {
            for (int64_t c = 0; c < t.pairs; ++c) phase[c] = position * step[c];
          } else {
            for (int64_t c = 0; c < t.pairs; ++c) phase[c] += position * step[c];
          }
        }
        sincos_of(phase, t.pairs, t.scale, t.negate ? -1.0 : 1.0,
                  scratch.cosine.data() + (h * tokens + i) * t.pairs,
                  scratch.sine.data() + (h * tokens + i) * t.pairs);
      }
    }
    cosine = scratch.cosine.data();
    sine = scratch.sine.data();
    head_stride = size;
    token_stride = t.pairs;
    table_heads = t.spectrum_heads;
  } else {
    const int64_t base = offset(t.table_lead) + begin * t.table_token;
    cosine = static_cast<const A*>(t.cosine) + base;
    sine = static_cast<const A*>(t.sine) + base;
    head_stride = t.table_head;
    token_stride = t.table_token;
    table_heads = t.spectrum_heads;
  }
  for (int o = 0; o < t.operands; ++o) {
    const Operand& x = t.operand[o];
    const E* in = static_cast<const E*>(x.in) + offset(x.in_lead) + begin * x.in_token;
    E* out = static_cast<E*>(x.out) + offset(x.out_lead) + begin * x.out_token;
    const int64_t group = table_heads > 0 ? x.heads / table_heads : x.heads;
    const int64_t h0 = x.heads * part / parts, h1 = x.heads * (part + 1) / parts;
    for (int64_t h = h0; h < h1; ++h) {
      const int64_t table = (h / group) * head_stride;
      const E* row = in + h * x.in_head;
      E* result = out + h * x.out_head;
      for (int64_t i = 0; i < tokens; ++i) {
        turn_row<E, A>(row + i * x.in_token, result + i * x.out_token, x.in_lane, x.out_lane, t,
                       cosine + table + i * token_stride, sine + table + i * token_stride);
      }
    }
  }
}

}  // namespace

void rows(const Task& t, int64_t lead, int64_t begin, int64_t end, int part, int parts) {
  switch (t.element) {
    case Element::f32: return run<float, float>(t, lead, begin, end, part, parts);
    case Element::bf16: return run<BFloat16, float>(t, lead, begin, end, part, parts);
    case Element::f16: return run<Half, float>(t, lead, begin, end, part, parts);
    case Element::f64: return run<double, double>(t, lead, begin, end, part, parts);
  }
}

void sincos(const uint64_t* phase, int64_t n, bool wide, double scale, void* cosine, void* sine) {
  if (wide) {
    sincos_of(phase, n, scale, 1.0, static_cast<double*>(cosine), static_cast<double*>(sine));
  } else {
    sincos_of(phase, n, scale, 1.0, static_cast<float*>(cosine), static_cast<float*>(sine));
  }
}

}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
