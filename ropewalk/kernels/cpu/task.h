// What one rotation is, in plain pointers and strides: the contract between the operators and the
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
  const void* weight;  // of a norm, [head_dim], or null for ones
  Element weight_element;
  int64_t weight_lane;
  const int64_t* places;  // elements of out before each token, negative for none; or null
  bool stream;  // write around the cache: large, aligned, read by nobody soon
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
  int64_t table_heads;  // 1, or each table serves heads / table_heads neighbouring heads
  // Either phases of positions [..., tokens, axes], or of offset, offset + 1, … where there are
  // none, and of steps [table_heads, axes, pairs] …
  const int64_t* positions;
  int64_t offset;
  int64_t position_lead[kMaxLead], position_token, position_axis;
  int64_t axes;
  const int64_t* steps;
  double scale;  // multiplies cos and sin
  bool negate;   // turn by the negative angle
  bool normed;   // rows are divided by the root of their mean square plus eps, and weighted, first
  double eps;
  // … or tables [..., table_heads, tokens, pairs].
  const void* cosine;
  const void* sine;
  Element table;
  int64_t cosine_lead[kMaxLead], cosine_head, cosine_token, cosine_pair;
  int64_t sine_lead[kMaxLead], sine_head, sine_token, sine_pair;
};

// Where cos and sin of (table head h, token i) are written: at h * head + i * row of each. With
// `twice` every value stands twice and the first sine of each two is negative, as neighbouring
// lanes want it.
struct Tables {
  void* cosine;
  void* sine;
  int64_t head, row;
  bool twice;
};

// cos and sin of tokens [begin, end) of leading row `lead`, in float, or double if `wide`.
using Fill = void (*)(const Task&, int64_t lead, int64_t begin, int64_t end, bool wide,
                      const Tables&);

// Turn tokens [begin, end) of leading row `lead`; part `part` of `parts` of each operand's heads.
// `scratch` has scratch_bytes() for the tables of these tokens.
using Rows = void (*)(const Task&, int64_t lead, int64_t begin, int64_t end, int part, int parts,
                      void* scratch);

// Functions here have internal linkage: the linker must never give one instruction set's code to
// another.

// Values that a row of cosines has room for: whole vectors of the widest kind.
static inline int64_t table_width(const Task& t) { return (t.pairs * t.lane_step + 31) / 32 * 32; }

static inline int64_t tables_size(const Task& t, int64_t tokens) {
  return t.table_heads * tokens * 2 * table_width(t);
}

constexpr int64_t kNormedTogether = 8;  // heads whose rows are normalised together

// Values of a normalised row, or of a weight, in whole vectors.
static inline int64_t row_width(const Task& t) { return (t.head_dim + 31) / 32 * 32; }

// Tables, and for a norm a weight and the rows that turn together.
static inline int64_t scratch_bytes(const Task& t, int64_t tokens) {
  const int64_t values = tables_size(t, tokens) + (t.normed ? (1 + kNormedTogether) * row_width(t) : 0);
  return values * (t.element == Element::f64 ? 8 : 4);
}

// The offset of leading row `lead` in a tensor of these leading strides.
static inline int64_t lead_offset(const Task& t, int64_t lead, const int64_t* strides) {
  int64_t sum = 0;
  for (int d = t.lead_dims - 1; d >= 0; --d) {
    sum += lead % t.lead_size[d] * strides[d];
    lead /= t.lead_size[d];
  }
  return sum;
}

#define ROPEWALK_DECLARE(isa)                                                       \
  namespace isa {                                                                   \
  void fill(const Task&, int64_t, int64_t, int64_t, bool, const Tables&);           \
  void rows(const Task&, int64_t, int64_t, int64_t, int, int, void*);               \
  }
ROPEWALK_DECLARE(baseline)
#if defined(ROPEWALK_X86)
ROPEWALK_DECLARE(avx2)
ROPEWALK_DECLARE(avx512)
ROPEWALK_DECLARE(avx512_bf16)
#endif

}  // namespace ropewalk
