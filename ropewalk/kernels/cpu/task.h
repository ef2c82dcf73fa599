// What one rotation is, in plain pointers and strides: the contract between the operator and the
// loops that are compiled once per instruction set.
#pragma once
#include <cstdint>

namespace ropewalk {

enum class Element { f32, bf16, f16, f64 };

constexpr int kMaxLead = 5;

// One tensor to turn: strides in elements.
struct Operand {
  const void* in;
  void* out;
  int64_t in_lead[kMaxLead], out_lead[kMaxLead];
  int64_t in_head, in_token, in_lane;
  int64_t out_head, out_token, out_lane;
  int64_t heads;
};

struct Task {
  Operand operand[2];
  int operands;
  Element element;
  int lead_dims;
  int64_t lead_size[kMaxLead];
  int64_t tokens;
  int64_t head_dim;
  // Lanes: pair c is (first + c * lane_step, second + c * lane_step).
  int64_t pairs, first, second, lane_step;
  // Either phases: positions [..., tokens, axes] and steps [spectrum_heads, axes, pairs] …
  const int64_t* positions;
  int64_t position_lead[kMaxLead], position_token, position_axis;
  int64_t axes, spectrum_heads;
  const int64_t* steps;
  // … or tables [..., heads?, tokens, pairs], in float or double as the arithmetic is.
  const void* cosine;
  const void* sine;
  int64_t table_lead[kMaxLead], table_head, table_token;
  double scale;  // multiplies cos and sin
  bool negate;   // turn by the negative angle
};

// Turn tokens [begin, end) of leading row `lead`; part `part` of `parts` of each operand's heads.
using Rows = void (*)(const Task&, int64_t lead, int64_t begin, int64_t end, int part, int parts);

// cos and sin of one row of phases, in float or double: what `rows` uses, for those who want tables.
using SinCos = void (*)(const uint64_t* phase, int64_t n, bool wide, double scale, void* cosine,
                        void* sine);

#define ROPEWALK_DECLARE(isa)                                                          \
  namespace isa {                                                                      \
  void rows(const Task&, int64_t, int64_t, int64_t, int, int);                         \
  void sincos(const uint64_t*, int64_t, bool, double, void*, void*);                   \
  }
ROPEWALK_DECLARE(baseline)
#if defined(ROPEWALK_X86)
ROPEWALK_DECLARE(avx2)
ROPEWALK_DECLARE(avx512)
#endif

}  // namespace ropewalk
