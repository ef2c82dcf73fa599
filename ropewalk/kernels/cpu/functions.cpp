// From views to a Task, checked, and run over PyTorch's thread pool.
#include "functions.h"
#include "pages.h"
#include "task.h"

#include <algorithm>
#include <initializer_list>
#include <vector>

#include <torch/csrc/stable/ops.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(ROPEWALK_X86)
#include <cpuid.h>
#endif

namespace ropewalk {
namespace {

struct Loops {
  Rows rows;
  Fill fill;
  int64_t vector_bits;
};

#if defined(ROPEWALK_X86)
#if !defined(ROPEWALK_WIDEST)
#define ROPEWALK_WIDEST 512  // bits; less to test the narrower loops on a wider machine
#endif
constexpr int kWidest = ROPEWALK_WIDEST;

// Conversions of float16, a feature that older compilers do not know by name.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

Loops choose() {
#if defined(ROPEWALK_X86)
  if (kWidest >= 512 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    if (__builtin_cpu_supports("avx512bf16")) return {avx512_bf16::rows, avx512_bf16::fill, 512};
    return {avx512::rows, avx512::fill, 512};
  }
  if (kWidest >= 256 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
      has_f16c())
    return {avx2::rows, avx2::fill, 256};
#endif
  return {baseline::rows, baseline::fill, 128};
}

const Loops kLoops = choose();

// --- from tensors to a task ----------------------------------------------------------------------

Element element_of(ScalarType type) {
  switch (type) {
    case ScalarType::Float: return Element::f32;
    case ScalarType::BFloat16: return Element::bf16;
    case ScalarType::Half: return Element::f16;
    case ScalarType::Double: return Element::f64;
    default: STD_TORCH_CHECK(false, "a rotation needs a real floating dtype");
  }
  return Element::f32;
}

int64_t bytes_of(Element e) { return e == Element::f64 ? 8 : e == Element::f32 ? 4 : 2; }

struct Lanes {
  bool negate, neighbours, twice;
  int64_t first, second;
  explicit Lanes(int64_t code)
      : negate(code & 1), neighbours(code & 2), twice(code >> 62 & 1),
        first(code >> 2 & 0x3fffffff), second(code >> 32 & 0x3fffffff) {}
};

Task start(const View& x, const Lanes& lanes, int64_t pairs) {
  Task t{};
  t.element = element_of(x.type);
  STD_TORCH_CHECK(x.dims >= 2 && x.dims <= 3 + kMaxLead, "x needs [..., tokens, head_dim]");
  t.lead_dims = static_cast<int>(std::max<int64_t>(x.dims - 3, 0));
  std::copy_n(x.sizes, t.lead_dims, t.lead_size);
  t.tokens = x.size(1);
  t.head_dim = x.size(0);
  t.pairs = pairs;
  t.first = lanes.first;
  t.second = lanes.second;
  t.lane_step = lanes.neighbours ? 2 : 1;
  t.negate = lanes.negate;
  t.scale = 1.0;
  t.table_heads = 1;
  STD_TORCH_CHECK(
      pairs > 0 && t.first >= 0 &&
          (lanes.neighbours ? t.second == t.first + 1 : t.second >= t.first + pairs) &&
          t.second + (pairs - 1) * t.lane_step < t.head_dim,
      "rotated lanes do not fit in head_dim");
  return t;
}

constexpr int64_t kStreamed = int64_t{32} << 20;  // bytes of a result that no cache will keep
constexpr int64_t kLine = 64;

bool worth_streaming(const Task& t, const Operand& o) {
  const int64_t size = bytes_of(t.element);
  int64_t bytes = t.tokens * t.head_dim * o.heads * size;
  for (int d = 0; d < t.lead_dims; ++d) bytes *= t.lead_size[d];
  if (bytes < kStreamed || o.in == o.out || o.in_lane != 1 || o.out_lane != 1) return false;
  const auto lined = [size](int64_t elements) { return elements * size % kLine == 0; };
  bool aligned = reinterpret_cast<uintptr_t>(o.out) % kLine == 0 && lined(o.out_head) &&
                 lined(o.out_token) && lined(t.first) && lined(t.pairs * t.lane_step) &&
                 lined(t.head_dim) && (t.lane_step == 2 || lined(t.second));
  for (int d = 0; d < t.lead_dims; ++d) aligned = aligned && lined(o.out_lead[d]);
  return aligned;
}

// The bytes a tensor reaches over.
struct Reach {
  uintptr_t from, to;
  Reach(const View& x, int64_t size) {
    from = to = reinterpret_cast<uintptr_t>(x.data);
    to += static_cast<uintptr_t>(size);
    for (int64_t d = 0; d < x.dims; ++d) {
      const int64_t span = (x.sizes[d] - 1) * x.strides[d] * size;
      (span < 0 ? from : to) += static_cast<uintptr_t>(span);
    }
  }
};

// out is x itself, or memory that x does not reach into; no two of its elements share a place.
void check_memory(const Task& t, const View& x, const View& out) {
  bool same = x.data == out.data;
  for (int64_t d = 0; d < x.dims; ++d)
    if (x.sizes[d] == 0) return;
  for (int64_t d = 0; d < x.dims; ++d) {
    STD_TORCH_CHECK(x.sizes[d] == 1 || out.strides[d] != 0, "out is expanded");
    same = same && (x.sizes[d] == 1 || x.strides[d] == out.strides[d]);
  }
  if (same) return;
  const Reach read(x, bytes_of(t.element)), written(out, bytes_of(t.element));
  STD_TORCH_CHECK(read.to <= written.from || written.to <= read.from, "out overlaps x");
}

// x is [lead..., heads, tokens, head_dim]; missing dimensions count as 1.
void add_operand(Task& t, const View& x, const View& out) {
  const int64_t dims = x.dims;
  STD_TORCH_CHECK(out.dims == dims && dims >= 2 && std::max<int64_t>(dims - 3, 0) == t.lead_dims,
                  "unexpected dimensions");
  STD_TORCH_CHECK(element_of(x.type) == t.element && out.type == x.type, "dtypes differ");
  for (int64_t d = 0; d < dims; ++d)
    STD_TORCH_CHECK(x.sizes[d] == out.sizes[d], "out has another shape than x");
  STD_TORCH_CHECK(x.size(0) == t.head_dim && x.size(1) == t.tokens,
                  "q and k differ in tokens or head_dim");
  Operand& o = t.operand[t.operands++];
  o.in = x.data;
  o.out = const_cast<void*>(out.data);
  o.in_lane = x.stride(0);
  o.out_lane = out.stride(0);
  o.in_token = x.stride(1);
  o.out_token = out.stride(1);
  o.heads = dims > 2 ? x.size(2) : 1;
  o.in_head = dims > 2 ? x.stride(2) : 0;
  o.out_head = dims > 2 ? out.stride(2) : 0;
  STD_TORCH_CHECK(t.table_heads > 0 ? o.heads % t.table_heads == 0 : o.heads == 0,
                  "heads are not a multiple of the tables' heads");
  for (int d = 0; d < t.lead_dims; ++d) {
    STD_TORCH_CHECK(t.lead_size[d] == x.sizes[d], "q and k differ in batch");
    o.in_lead[d] = x.strides[d];
    o.out_lead[d] = out.strides[d];
  }
  check_memory(t, x, out);
  o.stream = worth_streaming(t, o);
}

// Strides of `source`'s leading dimensions broadcast over those of x; `tail` dimensions follow them.
void set_lead(const Task& t, const View& source, int64_t tail, int64_t* strides) {
  const int64_t own = source.dims - tail;
  STD_TORCH_CHECK(own >= 0 && own <= t.lead_dims, "positions or tables have too many dimensions");
  for (int d = 0; d < t.lead_dims; ++d) {
    const int64_t at = d - (t.lead_dims - own);
    const int64_t size = at < 0 ? 1 : source.sizes[at];
    strides[d] = size == 1 ? 0 : source.strides[at];
    STD_TORCH_CHECK(size == 1 || size == t.lead_size[d],
                    "positions or tables do not broadcast over the batch of x");
  }
}

void set_phases(Task& t, const MaybeView& positions, int64_t offset, const View& steps,
                double scale) {
  STD_TORCH_CHECK(steps.type == ScalarType::Long && (steps.dims == 2 || steps.dims == 3),
                  "steps are int64 [heads?, axes, pairs]");
  t.axes = steps.size(1);
  t.table_heads = steps.dims == 3 ? steps.size(2) : 1;
  STD_TORCH_CHECK(steps.stride(0) == 1 && (t.axes == 1 || steps.stride(1) == t.pairs) &&
                      (t.table_heads == 1 || steps.stride(2) == t.axes * t.pairs) && t.axes > 0,
                  "steps are contiguous");
  t.steps = static_cast<const int64_t*>(steps.data);
  t.scale = scale;
  t.offset = offset;
  const int64_t tail = t.axes == 1 ? 1 : 2;
  STD_TORCH_CHECK(positions.has_value() || tail == 1, "several axes need positions");
  if (!positions) return;
  const View& where = *positions;
  STD_TORCH_CHECK(where.type == ScalarType::Long && where.dims >= tail &&
                      where.size(tail - 1) == t.tokens && (tail == 1 || where.size(0) == t.axes),
                  "positions are int64 and fit the tokens of x");
  t.positions = static_cast<const int64_t*>(where.data);
  t.position_token = where.stride(tail - 1);
  t.position_axis = tail == 1 ? 0 : where.stride(0);
  set_lead(t, where, tail, t.position_lead);
}

// Tables [..., tokens, pairs] for all heads, or [..., heads, tokens, pairs] where they have as many
// dimensions as x. The angles of neighbouring pairs lie `step` apart.
void set_tables(Task& t, const View& x, const View& cosine, const View& sine, int64_t step) {
  const int64_t dims = cosine.dims;
  STD_TORCH_CHECK(sine.dims == dims && sine.type == cosine.type, "cos and sin differ");
  for (int64_t d = 0; d < dims; ++d)
    STD_TORCH_CHECK(cosine.sizes[d] == sine.sizes[d], "cos and sin differ in shape");
  t.table = element_of(cosine.type);
  const int64_t tokens = cosine.size(1);
  STD_TORCH_CHECK(tokens == t.tokens || tokens == 1, "tables do not fit the tokens of x");
  const bool headed = dims == x.dims && dims > 2;
  t.table_heads = headed ? cosine.size(2) : 1;
  const auto strides = [&](const View& table, int64_t* lead, int64_t& head, int64_t& token,
                           int64_t& pair) {
    set_lead(t, table, headed ? 3 : 2, lead);
    head = headed ? table.stride(2) : 0;
    token = tokens == 1 ? 0 : table.stride(1);
    pair = table.stride(0) * step;
  };
  strides(cosine, t.cosine_lead, t.cosine_head, t.cosine_token, t.cosine_pair);
  strides(sine, t.sine_lead, t.sine_head, t.sine_token, t.sine_pair);
  t.cosine = cosine.data;
  t.sine = sine.data;
}

// --- running a task ------------------------------------------------------------------------------

// This thread's memory for tables, on a cache line.
void* scratch(int64_t bytes) {
  thread_local std::vector<char> memory;
  if (static_cast<int64_t>(memory.size()) < bytes + kLine)
    memory.resize(static_cast<size_t>(bytes + kLine));
  const uintptr_t at = reinterpret_cast<uintptr_t>(memory.data());
  return reinterpret_cast<void*>((at + kLine - 1) & ~static_cast<uintptr_t>(kLine - 1));
}

// Blocks of tokens over the pool; heads are split too where there are few tokens.
void run(const Task& t) {
  int64_t lead = 1, heads = 0, most = 1;
  for (int d = 0; d < t.lead_dims; ++d) lead *= t.lead_size[d];
  for (int o = 0; o < t.operands; ++o) {
    heads += t.operand[o].heads;
    most = std::max(most, t.operand[o].heads);
  }
  if (lead == 0 || t.tokens == 0 || heads == 0 || t.head_dim == 0) return;
  constexpr int64_t kBlock = 64;
  const int64_t work = lead * t.tokens * heads * t.head_dim;
  const int64_t threads = work <= kGrain ? 1 : torch::stable::get_num_threads();
  const int64_t wanted = std::min<int64_t>(threads * 4, (work + kGrain - 1) / kGrain);
  const int64_t block = std::clamp<int64_t>(lead * t.tokens / wanted, 1, kBlock);
  const int64_t blocks = (t.tokens + block - 1) / block;
  const int64_t parts =
      lead * blocks >= threads
          ? 1
          : std::min<int64_t>(most, (wanted + lead * blocks - 1) / (lead * blocks));
  const int64_t items = lead * blocks * parts;
  const auto work_on = [&](int64_t begin, int64_t end) {
    void* memory = scratch(scratch_bytes(t, block));
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i % parts, b = (i / parts) % blocks, l = i / parts / blocks;
      kLoops.rows(t, l, b * block, std::min(t.tokens, (b + 1) * block), static_cast<int>(part),
                  static_cast<int>(parts), memory);
    }
  };
  if (threads == 1) return work_on(0, items);
  torch::stable::parallel_for(0, items, std::max<int64_t>(1, kGrain * items / work), work_on);
}

// --- turned --------------------------------------------------------------------------------------

struct Pair {
  const View& in;
  const View& out;
};

void by_phases(std::initializer_list<Pair> operands, const MaybeView& positions, int64_t offset,
               const View& steps, double scale, int64_t lanes) {
  STD_TORCH_CHECK(steps.dims >= 2, "steps are int64 [heads?, axes, pairs]");
  Task t = start(operands.begin()->in, Lanes(lanes), steps.size(0));
  set_phases(t, positions, offset, steps, scale);
  for (const Pair& o : operands) add_operand(t, o.in, o.out);
  run(t);
}

void by_tables(std::initializer_list<Pair> operands, const View& cosine, const View& sine,
               int64_t lanes) {
  STD_TORCH_CHECK(cosine.dims >= 2, "tables are [..., tokens, pairs]");
  const Lanes where(lanes);
  const int64_t width = cosine.size(0);
  STD_TORCH_CHECK(!where.twice || width % 2 == 0, "tables of two copies have an even width");
  Task t = start(operands.begin()->in, where, where.twice ? width / 2 : width);
  set_tables(t, operands.begin()->in, cosine, sine, where.twice && where.neighbours ? 2 : 1);
  for (const Pair& o : operands) add_operand(t, o.in, o.out);
  run(t);
}

}  // namespace

void rotate(const View& x, const View& out, const MaybeView& positions, int64_t offset,
            const View& steps, double scale, int64_t lanes) {
  by_phases({{x, out}}, positions, offset, steps, scale, lanes);
}

void rotate_qk(const View& q, const View& k, const View& q_out, const View& k_out,
               const MaybeView& positions, int64_t offset, const View& steps, double scale,
               int64_t lanes) {
  by_phases({{q, q_out}, {k, k_out}}, positions, offset, steps, scale, lanes);
}

void rotate_qk_(const View& q, const View& k, const MaybeView& positions, int64_t offset,
                const View& steps, double scale, int64_t lanes) {
  by_phases({{q, q}, {k, k}}, positions, offset, steps, scale, lanes);
}

void rotate_by(const View& x, const View& out, const View& cosine, const View& sine,
               int64_t lanes) {
  by_tables({{x, out}}, cosine, sine, lanes);
}

void rotate_qk_by(const View& q, const View& k, const View& q_out, const View& k_out,
                  const View& cosine, const View& sine, int64_t lanes) {
  by_tables({{q, q_out}, {k, k_out}}, cosine, sine, lanes);
}

// --- normed first --------------------------------------------------------------------------------

namespace {

void set_weight(const Task& t, Operand& o, const View& out, const MaybeView& weight) {
  static const float one = 1;
  o.weight = &one;
  o.weight_element = Element::f32;
  o.weight_lane = 0;
  if (!weight) return;
  const View& w = *weight;
  STD_TORCH_CHECK(w.dims == 1 && w.sizes[0] == t.head_dim, "the weight is [head_dim]");
  o.weight = w.data;
  o.weight_element = element_of(w.type);
  o.weight_lane = w.strides[0];
  for (int64_t d = 0; d < out.dims; ++d)
    if (out.sizes[d] == 0) return;
  const Reach read(w, bytes_of(o.weight_element)), written(out, bytes_of(t.element));
  STD_TORCH_CHECK(read.to <= written.from || written.to <= read.from, "out overlaps the weight");
}

}  // namespace

void norm_rotate(const View& q, const MaybeView& k, const View& q_out, const MaybeView& k_out,
                 const MaybeView& q_weight, const MaybeView& k_weight, double eps,
                 const MaybeView& positions, int64_t offset, const View& steps, double scale,
                 int64_t lanes) {
  STD_TORCH_CHECK(steps.dims >= 2 && k.has_value() == k_out.has_value(),
                  "steps are int64 [heads?, axes, pairs], and k goes with k_out");
  Task t = start(q, Lanes(lanes), steps.size(0));
  set_phases(t, positions, offset, steps, scale);
  t.normed = true;
  t.eps = eps;
  add_operand(t, q, q_out);
  set_weight(t, t.operand[0], q_out, q_weight);
  if (k) {
    add_operand(t, *k, *k_out);
    set_weight(t, t.operand[1], *k_out, k_weight);
  }
  run(t);
}

// --- into pages ----------------------------------------------------------------------------------

namespace {

// x [heads, tokens, head_dim] and pages [blocks, block_size, heads, head_dim].
Pages pages_of(const View& x, const View& pages, const View& like) {
  STD_TORCH_CHECK(x.dims == 3 && pages.dims == 4 && pages.type == x.type &&
                      pages.size(1) == x.size(2) && pages.size(0) == x.size(0) &&
                      pages.size(3) == like.size(3) && pages.size(2) == like.size(2),
                  "pages do not fit");
  for (int64_t d = 0; d < 4; ++d)
    STD_TORCH_CHECK(pages.sizes[d] <= 1 || pages.strides[d] != 0, "pages are expanded");
  const int64_t size = bytes_of(element_of(x.type));
  bool empty = false;
  for (int64_t d = 0; d < 3; ++d) empty = empty || x.sizes[d] == 0;
  for (int64_t d = 0; d < 4; ++d) empty = empty || pages.sizes[d] == 0;
  if (!empty) {
    const Reach read(x, size), written(pages, size);
    STD_TORCH_CHECK(read.to <= written.from || written.to <= read.from, "pages overlap x");
  }
  return {pages.size(3), pages.size(2), pages.stride(3), pages.stride(2)};
}

void copy_into_pages(const View& x, const View& out, const std::vector<int64_t>& places) {
  const Copy c{static_cast<const char*>(x.data),
               static_cast<char*>(const_cast<void*>(out.data)),
               x.stride(1), x.stride(2), x.stride(0), out.stride(1), out.stride(0),
               x.size(2), x.size(0), bytes_of(element_of(x.type))};
  const int64_t grain = kGrain / std::max<int64_t>(1, c.heads * c.head_dim) + 1;
  torch::stable::parallel_for(0, x.size(1), grain, [&](int64_t begin, int64_t end) {
    copy_tokens(c, places.data(), begin, end);
  });
}

void require_slots(const View& slots, const Pages& cut) {
  STD_TORCH_CHECK(slots_fit(static_cast<const int64_t*>(slots.data), slots.stride(0), slots.size(0),
                            cut.blocks * cut.block_size),
                  "slots are not each -1 or one place of the pages");
}

}  // namespace

void rotate_into_pages(const View& k, const MaybeView& v, const View& pages,
                       const MaybeView& v_pages, const View& slots, const MaybeView& positions,
                       int64_t offset, const View& steps, double scale, int64_t lanes) {
  STD_TORCH_CHECK(steps.dims >= 2, "steps are int64 [heads?, axes, pairs]");
  STD_TORCH_CHECK(slots.type == ScalarType::Long && slots.dims == 1 && k.dims == 3 &&
                      slots.size(0) == k.size(1) && v.has_value() == v_pages.has_value(),
                  "slots are int64 [tokens], and v goes with v_pages");
  const Pages cut = pages_of(k, pages, pages);
  const int64_t* slot = static_cast<const int64_t*>(slots.data);
  const int64_t tokens = slots.size(0), stride = slots.stride(0);
  Task t = start(k, Lanes(lanes), steps.size(0));
  set_phases(t, positions, offset, steps, scale);
  STD_TORCH_CHECK(t.table_heads > 0 && k.size(2) % t.table_heads == 0,
                  "heads are not a multiple of the tables' heads");
  thread_local std::vector<int64_t> places, v_places;
  if (v) {
    const Pages v_cut = pages_of(*v, *v_pages, pages);
    STD_TORCH_CHECK(v->size(1) == tokens, "v has other tokens than k");
    require_slots(slots, cut);
    find_places(slot, stride, tokens, v_cut, v_places);
    copy_into_pages(*v, *v_pages, v_places);
  } else {
    require_slots(slots, cut);
  }
  find_places(slot, stride, tokens, cut, places);
  Operand& o = t.operand[t.operands++];
  o.in = k.data;
  o.out = const_cast<void*>(pages.data);
  o.in_lane = k.stride(0);
  o.in_token = k.stride(1);
  o.in_head = k.stride(2);
  o.out_lane = pages.stride(0);
  o.out_head = pages.stride(1);
  o.heads = k.size(2);
  o.places = places.data();
  run(t);
}

// --- beside --------------------------------------------------------------------------------------

namespace {

bool contiguous(const View& x) {
  if (x.elements() == 0) return true;
  int64_t step = 1;
  for (int64_t d = x.dims - 1; d >= 0; --d) {
    if (x.sizes[d] != 1 && x.strides[d] != step) return false;
    step *= x.sizes[d];
  }
  return true;
}

}  // namespace

void phase_tables(const View& positions, const View& steps, double scale, const View& cosine,
                  const View& sine) {
  const bool wide = cosine.type == ScalarType::Double;
  STD_TORCH_CHECK(contiguous(positions) && contiguous(cosine) && contiguous(sine) &&
                      cosine.type == sine.type && (wide || cosine.type == ScalarType::Float),
                  "phase tables are contiguous, float32 or float64");
  STD_TORCH_CHECK(steps.dims >= 2, "steps are int64 [heads?, axes, pairs]");
  Task t{};
  t.pairs = steps.size(0);
  const int64_t axes = steps.size(1), tail = axes == 1 ? 1 : 2;
  const int64_t size = cosine.elements();
  if (positions.elements() == 0 || axes == 0 || size == 0) return;
  STD_TORCH_CHECK(positions.dims >= tail, "positions are int64 [..., tokens, axes]");
  t.tokens = positions.size(tail - 1);
  const int64_t lead = positions.elements() / axes / t.tokens;
  t.lead_dims = 1;
  t.lead_size[0] = lead;
  const int64_t sizes[] = {lead, t.tokens, axes}, strides[] = {t.tokens * axes, axes, 1};
  set_phases(t, View{tail + 1, sizes, strides, positions.data, positions.type}, 0, steps, scale);
  STD_TORCH_CHECK(size == lead * t.table_heads * t.tokens * t.pairs && sine.elements() == size,
                  "phase tables have another size");
  char* c = static_cast<char*>(const_cast<void*>(cosine.data));
  char* s = static_cast<char*>(const_cast<void*>(sine.data));
  const int64_t width = wide ? 8 : 4, head = t.tokens * t.pairs;
  const int64_t grain = std::max<int64_t>(1, 4096 / (t.pairs * t.table_heads));
  torch::stable::parallel_for(0, lead * t.tokens, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t l = begin / t.tokens, first = begin % t.tokens;
      const int64_t last = std::min(t.tokens, first + end - begin);
      const int64_t at = (l * t.table_heads * head + first * t.pairs) * width;
      kLoops.fill(t, l, first, last, wide, {c + at, s + at, head, t.pairs, false});
      begin += last - first;
    }
  });
}

void advise(const View& out) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t page = 1 << 21;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(out.data);
  const uintptr_t end =
      begin + static_cast<uintptr_t>(out.elements() * bytes_of(element_of(out.type)));
  const uintptr_t from = (begin + page - 1) & ~(page - 1), to = end & ~(page - 1);
  if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
  (void)out;
#endif
}

int64_t vector_bits() { return kLoops.vector_bits; }

}  // namespace ropewalk
