// The operators: from tensors to a Task, checked, and run over PyTorch's thread pool.
#include "task.h"

#include <algorithm>
#include <vector>

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace ropewalk {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

struct Loops {
  Rows rows;
  SinCos sincos;
  int64_t vector_bits;
};

Loops choose() {
#if defined(ROPEWALK_X86)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    return {avx512::rows, avx512::sincos, 512};
  if (__builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("f16c"))
    return {avx2::rows, avx2::sincos, 256};
#endif
  return {baseline::rows, baseline::sincos, 128};
}

const Loops kLoops = choose();

Element element_of(const Tensor& x) {
  switch (x.scalar_type()) {
    case ScalarType::Float: return Element::f32;
    case ScalarType::BFloat16: return Element::bf16;
    case ScalarType::Half: return Element::f16;
    case ScalarType::Double: return Element::f64;
    default: STD_TORCH_CHECK(false, "a rotation needs a real floating dtype");
  }
  return Element::f32;
}

// x is [lead..., heads, tokens, head_dim]; missing dimensions count as 1.
void set_operand(Task& t, int index, const Tensor& x, const Tensor& out) {
  const int64_t dims = x.dim();
  STD_TORCH_CHECK(x.is_cpu() && out.is_cpu(), "the CPU kernel takes CPU tensors");
  STD_TORCH_CHECK(out.dim() == dims && dims >= 2 && dims <= 3 + kMaxLead, "unexpected dimensions");
  STD_TORCH_CHECK(element_of(x) == t.element && element_of(out) == t.element, "dtypes differ");
  Operand& o = t.operand[index];
  o.in = x.const_data_ptr();
  o.out = out.mutable_data_ptr();
  const auto size = x.sizes();
  const auto in = x.strides();
  const auto to = out.strides();
  for (int64_t d = 0; d < dims; ++d)
    STD_TORCH_CHECK(size[d] == out.size(d), "out has another shape than x");
  STD_TORCH_CHECK(size[dims - 1] == t.head_dim && size[dims - 2] == t.tokens,
                  "q and k differ in tokens or head_dim");
  o.in_lane = in[dims - 1];
  o.out_lane = to[dims - 1];
  o.in_token = in[dims - 2];
  o.out_token = to[dims - 2];
  o.heads = dims > 2 ? size[dims - 3] : 1;
  o.in_head = dims > 2 ? in[dims - 3] : 0;
  o.out_head = dims > 2 ? to[dims - 3] : 0;
  const int lead = static_cast<int>(std::max<int64_t>(dims - 3, 0));
  STD_TORCH_CHECK(index == 0 || lead == t.lead_dims, "q and k differ in leading dimensions");
  t.lead_dims = lead;
  for (int d = 0; d < lead; ++d) {
    STD_TORCH_CHECK(index == 0 || t.lead_size[d] == size[d], "q and k differ in batch");
    t.lead_size[d] = size[d];
    o.in_lead[d] = in[d];
    o.out_lead[d] = to[d];
  }
}

// Strides of `source`'s leading dimensions broadcast over those of x; `tail` dimensions follow them.
void set_lead(const Task& t, const Tensor& source, int64_t tail, int64_t* strides) {
  const int64_t own = source.dim() - tail;
  STD_TORCH_CHECK(own >= 0 && own <= t.lead_dims, "positions or tables have too many dimensions");
  for (int d = 0; d < t.lead_dims; ++d) {
    const int64_t at = d - (t.lead_dims - own);
    strides[d] = at < 0 || source.size(at) == 1 ? 0 : source.stride(at);
    STD_TORCH_CHECK(at < 0 || source.size(at) == 1 || source.size(at) == t.lead_size[d],
                    "positions or tables do not broadcast over the batch of x");
  }
}

void set_lanes(Task& t, int64_t pairs, int64_t first, int64_t second, int64_t lane_step) {
  STD_TORCH_CHECK(pairs >= 0 && first >= 0 && (lane_step == 1 || lane_step == 2) &&
                      (lane_step == 2 ? second == first + 1 : second >= first + pairs) &&
                      second + (pairs - 1) * lane_step < t.head_dim,
                  "rotated lanes do not fit in head_dim");
  t.pairs = pairs;
  t.first = first;
  t.second = second;
  t.lane_step = lane_step;
}

// Blocks of tokens over the pool; heads are split too where there are few tokens.
void run(const Task& t) {
  int64_t lead = 1, heads = 0;
  for (int d = 0; d < t.lead_dims; ++d) lead *= t.lead_size[d];
  for (int o = 0; o < t.operands; ++o) heads += t.operand[o].heads;
  if (lead == 0 || t.tokens == 0 || heads == 0 || t.head_dim == 0) return;
  const int64_t work = lead * t.tokens * heads * t.head_dim;
  constexpr int64_t kGrain = 1 << 15;
  if (work <= kGrain) {
    for (int64_t l = 0; l < lead; ++l) kLoops.rows(t, l, 0, t.tokens, 0, 1);
    return;
  }
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t wanted = std::min<int64_t>(threads * 4, (work + kGrain - 1) / kGrain);
  const int64_t block =
      std::clamp<int64_t>(lead * t.tokens / std::max<int64_t>(wanted, 1), 1, 64);
  const int64_t blocks = (t.tokens + block - 1) / block;
  int64_t most = 1;
  for (int o = 0; o < t.operands; ++o) most = std::max(most, t.operand[o].heads);
  const int64_t parts =
      lead * blocks >= threads ? 1 : std::min<int64_t>(most, (wanted + lead * blocks - 1) / (lead * blocks));
  const int64_t items = lead * blocks * parts;
  const int64_t grain = std::max<int64_t>(1, kGrain * items / work);
  torch::stable::parallel_for(0, items, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t part = i % parts, b = (i / parts) % blocks, l = i / parts / blocks;
      kLoops.rows(t, l, b * block, std::min(t.tokens, (b + 1) * block), static_cast<int>(part),
            static_cast<int>(parts));
    }
  });
}

Task start(const Tensor& x, int operands) {
  Task t{};
  t.element = element_of(x);
  t.operands = operands;
  STD_TORCH_CHECK(x.dim() >= 2, "x needs [..., tokens, head_dim]");
  t.tokens = x.size(x.dim() - 2);
  t.head_dim = x.size(x.dim() - 1);
  return t;
}

void set_phases(Task& t, const Tensor& positions, const Tensor& steps, double scale, bool negate) {
  STD_TORCH_CHECK(positions.scalar_type() == ScalarType::Long &&
                      steps.scalar_type() == ScalarType::Long && steps.is_contiguous() &&
                      positions.is_cpu() && steps.is_cpu(),
                  "positions and steps are int64 on the CPU");
  const int64_t dims = steps.dim();
  t.axes = steps.size(dims - 2);
  t.spectrum_heads = dims == 3 ? steps.size(0) : 1;
  const int64_t tail = t.axes == 1 ? 1 : 2;
  STD_TORCH_CHECK(positions.dim() >= tail && positions.size(positions.dim() - tail) == t.tokens &&
                      (tail == 1 || positions.size(positions.dim() - 1) == t.axes),
                  "positions do not fit the tokens of x");
  t.positions = static_cast<const int64_t*>(positions.const_data_ptr());
  t.position_token = positions.stride(positions.dim() - tail);
  t.position_axis = tail == 1 ? 0 : positions.stride(positions.dim() - 1);
  t.steps = static_cast<const int64_t*>(steps.const_data_ptr());
  t.scale = scale;
  t.negate = negate;
}

void rotate_out(Tensor x, Tensor out, Tensor positions, Tensor steps, double scale, bool negate,
                int64_t first, int64_t second, int64_t lane_step) {
  Task t = start(x, 1);
  set_lanes(t, steps.size(steps.dim() - 1), first, second, lane_step);
  set_operand(t, 0, x, out);
  set_phases(t, positions, steps, scale, negate);
  set_lead(t, positions, t.axes == 1 ? 1 : 2, t.position_lead);
  STD_TORCH_CHECK(t.operand[0].heads % t.spectrum_heads == 0, "heads are not a multiple");
  run(t);
}

void rotate_qk_out(Tensor q, Tensor k, Tensor q_out, Tensor k_out, Tensor positions, Tensor steps,
                   double scale, bool negate, int64_t first, int64_t second, int64_t lane_step) {
  Task t = start(q, 2);
  set_lanes(t, steps.size(steps.dim() - 1), first, second, lane_step);
  set_operand(t, 0, q, q_out);
  set_operand(t, 1, k, k_out);
  set_phases(t, positions, steps, scale, negate);
  set_lead(t, positions, t.axes == 1 ? 1 : 2, t.position_lead);
  for (int o = 0; o < 2; ++o)
    STD_TORCH_CHECK(t.operand[o].heads % t.spectrum_heads == 0, "heads are not a multiple");
  run(t);
}

// Tables [..., tokens, pairs], shared by all heads.
void rotate_by_out(Tensor x, Tensor out, Tensor cosine, Tensor sine, int64_t first, int64_t second,
                   int64_t lane_step) {
  Task t = start(x, 1);
  const int64_t dims = cosine.dim();
  set_lanes(t, cosine.size(dims - 1), first, second, lane_step);
  set_operand(t, 0, x, out);
  const Element wide = t.element == Element::f64 ? Element::f64 : Element::f32;
  STD_TORCH_CHECK(element_of(cosine) == wide && element_of(sine) == wide,
                  "tables are float32, or float64 for a float64 x");
  STD_TORCH_CHECK(cosine.is_contiguous() && sine.is_contiguous() && cosine.is_cpu() &&
                      sine.is_cpu() && sine.dim() == dims,
                  "tables are contiguous on the CPU");
  for (int64_t d = 0; d < dims; ++d)
    STD_TORCH_CHECK(cosine.size(d) == sine.size(d), "cos and sin differ in shape");
  STD_TORCH_CHECK(cosine.size(dims - 2) == t.tokens, "tables do not fit the tokens of x");
  set_lead(t, cosine, 2, t.table_lead);
  t.cosine = cosine.const_data_ptr();
  t.sine = sine.const_data_ptr();
  t.table_token = cosine.stride(dims - 2);
  t.spectrum_heads = 1;
  run(t);
}

// Ask for huge pages behind a large fresh result: half of what naive code loses is page faults.
void advise(Tensor out) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  const uintptr_t page = 1 << 21;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(out.mutable_data_ptr());
  const uintptr_t end = begin + static_cast<uintptr_t>(out.numel()) * out.element_size();
  const uintptr_t from = (begin + page - 1) & ~(page - 1), to = end & ~(page - 1);
  if (to > from) madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
#else
  (void)out;
#endif
}

int64_t vector_bits() { return kLoops.vector_bits; }

// cos and sin [..., spectrum_heads?, tokens, pairs], contiguous, float or double.
void phase_tables_out(Tensor positions, Tensor steps, double scale, Tensor cosine, Tensor sine) {
  const int64_t dims = steps.dim();
  const int64_t axes = steps.size(dims - 2), pairs = steps.size(dims - 1);
  const int64_t heads = dims == 3 ? steps.size(0) : 1;
  const bool wide = cosine.scalar_type() == ScalarType::Double;
  STD_TORCH_CHECK(positions.scalar_type() == ScalarType::Long && positions.is_contiguous() &&
                      steps.scalar_type() == ScalarType::Long && steps.is_contiguous() &&
                      cosine.is_contiguous() && sine.is_contiguous() &&
                      cosine.scalar_type() == sine.scalar_type() &&
                      (wide || cosine.scalar_type() == ScalarType::Float),
                  "phase tables need contiguous int64 input and float32 or float64 output");
  const int64_t places = axes > 0 ? positions.numel() / axes : 0;
  STD_TORCH_CHECK(cosine.numel() == places * heads * pairs && sine.numel() == cosine.numel(),
                  "phase tables have another size");
  if (places == 0 || pairs == 0) return;
  const int64_t tokens = positions.size(positions.dim() - (axes == 1 ? 1 : 2));
  const int64_t* where = static_cast<const int64_t*>(positions.const_data_ptr());
  const uint64_t* step = static_cast<const uint64_t*>(steps.const_data_ptr());
  char* c = static_cast<char*>(cosine.mutable_data_ptr());
  char* s = static_cast<char*>(sine.mutable_data_ptr());
  const int64_t width = pairs * (wide ? 8 : 4);
  const int64_t grain = std::max<int64_t>(1, 4096 / pairs);
  torch::stable::parallel_for(0, places * heads, grain, [&](int64_t begin, int64_t end) {
    std::vector<uint64_t> phase(static_cast<size_t>(pairs));
    for (int64_t row = begin; row < end; ++row) {  // row = (lead * heads + head) * tokens + token
      const int64_t token = row % tokens, head = row / tokens % heads, lead = row / tokens / heads;
      const int64_t* p = where + (lead * tokens + token) * axes;
      std::fill(phase.begin(), phase.end(), 0);
      for (int64_t a = 0; a < axes; ++a)
        for (int64_t i = 0; i < pairs; ++i)
          phase[i] += static_cast<uint64_t>(p[a]) * step[(head * axes + a) * pairs + i];
      kLoops.sincos(phase.data(), pairs, wide, scale, c + row * width, s + row * width);
    }
  });
}

}  // namespace
}  // namespace ropewalk

STABLE_TORCH_LIBRARY(ropewalk_cpu, m) {
  m.def("rotate_out(Tensor x, Tensor(a!) out, Tensor positions, Tensor steps, float scale, "
        "bool negate, int first, int second, int lane_step) -> ()");
  m.def("rotate_qk_out(Tensor q, Tensor k, Tensor(a!) q_out, Tensor(b!) k_out, Tensor positions, "
        "Tensor steps, float scale, bool negate, int first, int second, int lane_step) -> ()");
  m.def("rotate_by_out(Tensor x, Tensor(a!) out, Tensor cos, Tensor sin, int first, int second, "
        "int lane_step) -> ()");
  m.def("phase_tables_out(Tensor positions, Tensor steps, float scale, Tensor(a!) cos, "
        "Tensor(b!) sin) -> ()");
  m.def("advise(Tensor(a!) out) -> ()");
  m.def("vector_bits() -> int");
}

STABLE_TORCH_LIBRARY_IMPL(ropewalk_cpu, CPU, m) {
  m.impl("rotate_out", TORCH_BOX(&ropewalk::rotate_out));
  m.impl("rotate_qk_out", TORCH_BOX(&ropewalk::rotate_qk_out));
  m.impl("rotate_by_out", TORCH_BOX(&ropewalk::rotate_by_out));
  m.impl("phase_tables_out", TORCH_BOX(&ropewalk::phase_tables_out));
  m.impl("advise", TORCH_BOX(&ropewalk::advise));
}

STABLE_TORCH_LIBRARY_IMPL(ropewalk_cpu, CompositeExplicitAutograd, m) {
  m.impl("vector_bits", TORCH_BOX(&ropewalk::vector_bits));
}
