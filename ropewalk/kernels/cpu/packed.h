// bfloat16 lanes two to a 32-bit word, on processors that narrow floats to bfloat16 themselves: the
// even lanes of 32 are the words shifted up, the odd ones the words masked. One instruction narrows
// both again, evens then odds, and one permutes them back.
#pragma once
#include "vectors.h"
#if defined(__AVX512BF16__)

namespace ropewalk {
namespace ROPEWALK_ISA {

constexpr int kPack = 32;

struct Pack {
  __m512 even, odd;
};

inline Pack unpacked(__m512i lanes) {
  const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(lanes, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(lanes, upper))};
}

// Rounded in integers, evens then odds as the instruction gives them: it takes denormal values for
// zero, so this is for packs in which it gives a zero.
inline __m512i narrowed_in_integers(Pack v) {
  const auto half = [](__m512 x) {
    return bits_of<__m256i>(to_bfloat16<16>(bits_of<Vector<float, 16>>(x)));
  };
  return _mm512_inserti64x4(_mm512_castsi256_si512(half(v.even)), half(v.odd), 1);
}

inline __m512i narrowed(Pack v) {
  return bits_of<__m512i>(_mm512_cvtne2ps_pbh(v.odd, v.even));
}

inline __m512i in_order(__m512i evens_then_odds) {
  const __m512i places = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24,
                                          8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
  return _mm512_permutexvar_epi16(places, evens_then_odds);
}

// The first lanes of a pack: all, or n of them.
struct AllLanes {
  __m512i load(const BFloat16* p) const { return _mm512_loadu_si512(p); }
  template <bool stream>
  void store(BFloat16* p, __m512i v) const { put<stream>(p, v); }
  __mmask32 zeros(__m512i v) const {
    return _mm512_testn_epi16_mask(v, _mm512_set1_epi16(0x7fff));
  }
};

struct SomeLanes {
  __mmask32 lanes;
  explicit SomeLanes(int64_t n) : lanes((__mmask32{1} << n) - 1) {}
  __m512i load(const BFloat16* p) const { return _mm512_maskz_loadu_epi16(lanes, p); }
  template <bool stream>
  void store(BFloat16* p, __m512i v) const { _mm512_mask_storeu_epi16(p, lanes, v); }
  __mmask32 zeros(__m512i v) const {
    return _mm512_mask_testn_epi16_mask(lanes, v, _mm512_set1_epi16(0x7fff));
  }
};

// 32 values as evens, then odds: how tables for unpacked lanes lie.
inline void part_evens(float* p) {
  const __m512 low = _mm512_loadu_ps(p), high = _mm512_loadu_ps(p + 16);
  const __m512i evens =
      _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
  const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
  _mm512_storeu_ps(p, _mm512_permutex2var_ps(low, evens, high));
  _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(low, odds, high));
}

}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
#endif
