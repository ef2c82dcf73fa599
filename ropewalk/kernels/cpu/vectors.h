// Vectors of W values in the compiler's own extension, and elements loaded to and stored from them.
// W is a power of two; a vector of one is the value itself. Compiled once per instruction set.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#if defined(ROPEWALK_X86)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define ROPEWALK_ALWAYS __attribute__((always_inline))
#define ROPEWALK_INLINED ROPEWALK_ALWAYS inline

namespace ropewalk {
namespace ROPEWALK_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T, int W>
struct VectorOf {
  typedef T type __attribute__((vector_size(W * sizeof(T))));
};
template <typename T>
struct VectorOf<T, 1> {
  typedef T type;
};
template <typename T, int W>
using Vector = typename VectorOf<T, W>::type;

template <typename To, typename From>
inline To bits_of(From v) {
  static_assert(sizeof(To) == sizeof(From), "the same bits as another type");
  To to;
  std::memcpy(&to, &v, sizeof(To));
  return to;
}

template <typename T, int W, typename From>
inline Vector<T, W> convert(From v) {
  if constexpr (W == 1) {
    return static_cast<T>(v);
  } else {
    return __builtin_convertvector(v, Vector<T, W>);
  }
}

// (v1, v0, v3, v2, …)
template <int W, typename V, int... I>
inline V swap_neighbours(V v, std::integer_sequence<int, I...>) {
#if defined(__clang__)
  return __builtin_shufflevector(v, v, (I ^ 1)...);
#else
  if constexpr (sizeof(v) / W == 8) {
    return __builtin_shuffle(v, Vector<int64_t, W>{(I ^ 1)...});
  } else {
    return __builtin_shuffle(v, Vector<int32_t, W>{(I ^ 1)...});
  }
#endif
}
template <int W, typename V>
inline V swap_neighbours(V v) {
  return swap_neighbours<W>(v, std::make_integer_sequence<int, W>());
}

// --- elements ------------------------------------------------------------------------------------

struct BFloat16 {
  uint16_t bits;
};
struct Half {
  uint16_t bits;
};

// W 16-bit values as 32-bit ones.
template <int W, typename E>
inline Vector<uint32_t, W> widened(const E* p) {
  Vector<uint16_t, W> narrow;
  std::memcpy(&narrow, p, sizeof(narrow));
#if defined(__AVX512F__)
  // Spelt out: GCC 12 makes two halves of the conversion.
  if constexpr (W == 16)
    return bits_of<Vector<uint32_t, W>>(_mm512_cvtepu16_epi32(bits_of<__m256i>(narrow)));
#endif
  return convert<uint32_t, W>(narrow);
}

// float16 in integer arithmetic, for processors or compilers without it: exact, and to nearest, ties
// to even. No step gives a denormal float, so it is right with these flushed to zero too.
template <int W, typename U>
inline Vector<float, W> from_float16(U h) {
  const U magnitude = h & 0x7fffu, sign = (h & 0x8000u) << 16;
  const U normal = (magnitude << 13) + 0x38000000u;
  const U special = (normal + 0x38000000u) | (magnitude > 0x7c00u ? U{} + 0x400000u : U{});
  const U small = bits_of<U>(bits_of<Vector<float, W>>(magnitude | 0x3f000000u) - 0.5f);
  const U large = magnitude < 0x7c00u ? normal : special;
  return bits_of<Vector<float, W>>((magnitude < 0x400u ? small : large) | sign);
}
template <int W>
inline Vector<uint16_t, W> to_float16(Vector<float, W> v) {
  using U = Vector<uint32_t, W>;
  const U u = bits_of<U>(v), magnitude = u & 0x7fffffffu, sign = (u >> 16) & 0x8000u;
  const U normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const U small = bits_of<U>(bits_of<Vector<float, W>>(magnitude) + 0.5f) - 0x3f000000u;
  const U nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
  const U special = magnitude > 0x7f800000u ? nan : U{} + 0x7c00u;
  const U large = magnitude < 0x47800000u ? normal : special;
  return convert<uint16_t, W>((magnitude < 0x38800000u ? small : large) | sign);
}

// What elements of type E are computed in.
template <typename E>
using Arithmetic = std::conditional_t<std::is_same_v<E, double>, double, float>;

template <int W, typename E>
inline Vector<Arithmetic<E>, W> load(const E* p) {
  Vector<Arithmetic<E>, W> v;
  if constexpr (std::is_same_v<E, float> || std::is_same_v<E, double>) {
    std::memcpy(&v, p, sizeof(v));
  } else if constexpr (std::is_same_v<E, BFloat16>) {
    v = bits_of<Vector<float, W>>(widened<W>(p) << 16);
  } else {
#if defined(__F16C__)
#if defined(__AVX512F__)
    if constexpr (W == 16) {
      return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    } else
#endif
    if constexpr (W == 8) {
      return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    } else if constexpr (W == 4) {
      return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    } else if constexpr (W == 2) {
      v[0] = load<1>(p);
      v[1] = load<1>(p + 1);
    } else {
      return _cvtsh_ss(p->bits);
    }
#else
#if defined(__aarch64__)
    if constexpr (W == 4) return vcvt_f32_f16(vld1_f16(reinterpret_cast<const __fp16*>(p)));
#endif
    v = from_float16<W>(widened<W>(p));
#endif
  }
  return v;
}

// Round to nearest, ties to even; a NaN stays one.
template <int W>
inline Vector<uint16_t, W> to_bfloat16(Vector<float, W> v) {
  const auto u = bits_of<Vector<uint32_t, W>>(v);
  const auto rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const auto quiet = (u >> 16) | 0x40u;
  return convert<uint16_t, W>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

template <int W>
inline Vector<uint16_t, W> narrowed(Vector<float, W> v, BFloat16*) {
  return to_bfloat16<W>(v);
}

template <int W>
inline Vector<uint16_t, W> narrowed(Vector<float, W> v, Half*) {
#if defined(__F16C__)
#if defined(__AVX512F__)
  if constexpr (W == 16) {
    return bits_of<Vector<uint16_t, W>>(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  } else
#endif
  if constexpr (W == 8) {
    return bits_of<Vector<uint16_t, W>>(_mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  } else if constexpr (W == 4) {
    const __m128i four = _mm_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT);
    Vector<uint16_t, W> low;
    std::memcpy(&low, &four, sizeof(low));
    return low;
  } else if constexpr (W == 2) {
    return Vector<uint16_t, W>{_cvtss_sh(v[0], _MM_FROUND_TO_NEAREST_INT),
                               _cvtss_sh(v[1], _MM_FROUND_TO_NEAREST_INT)};
  } else {
    return _cvtss_sh(v, _MM_FROUND_TO_NEAREST_INT);
  }
#else
#if defined(__aarch64__)
  if constexpr (W == 4) return bits_of<Vector<uint16_t, W>>(vcvt_f16_f32(v));
#endif
  return to_float16<W>(v);
#endif
}

// The bits to p; `stream` writes around the cache and wants p aligned to their size.
template <bool stream, typename Bits>
inline void put(void* p, Bits bits) {
#if defined(ROPEWALK_X86)
  if constexpr (stream && sizeof(bits) == 16)
    return _mm_stream_si128(static_cast<__m128i*>(p), bits_of<__m128i>(bits));
#if defined(__AVX2__)
  if constexpr (stream && sizeof(bits) == 32)
    return _mm256_stream_si256(static_cast<__m256i*>(p), bits_of<__m256i>(bits));
#endif
#if defined(__AVX512F__)
  if constexpr (stream && sizeof(bits) == 64)
    return _mm512_stream_si512(static_cast<__m512i*>(p), bits_of<__m512i>(bits));
#endif
#endif
  std::memcpy(p, &bits, sizeof(bits));
}

// Store W values as elements.
template <int W, bool stream, typename E>
inline void store(E* p, Vector<Arithmetic<E>, W> v) {
  if constexpr (sizeof(E) == 2) {
    put<stream>(p, narrowed<W>(v, p));
  } else {
    put<stream>(p, v);
  }
}

// Streamed stores of this thread are seen by all others afterwards.
inline void fence() {
#if defined(ROPEWALK_X86)
  _mm_sfence();
#endif
}

}  // namespace ROPEWALK_ISA
}  // namespace ropewalk
