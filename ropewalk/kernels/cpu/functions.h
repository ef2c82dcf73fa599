// What the kernel does, over views. op.cpp offers each function as an operator of PyTorch, and
// direct.cpp to Python without a dispatcher between.
#pragma once
#include <cstdint>
#include <optional>

#include "view.h"

namespace ropewalk {

using MaybeView = std::optional<View>;

// Each throws std::exception, and has written nothing, where the views do not fit. The number of
// lanes: bit 0 the sign of the angle, bit 1 whether they are neighbours, from bit 2 the first lane,
// from bit 32 the second, bit 62 whether given tables hold each angle twice, as the lanes lie. One
// argument, because each costs a decode step.

void rotate(const View& x, const View& out, const MaybeView& positions, int64_t offset,
            const View& steps, double scale, int64_t lanes);
void rotate_qk(const View& q, const View& k, const View& q_out, const View& k_out,
               const MaybeView& positions, int64_t offset, const View& steps, double scale,
               int64_t lanes);
void rotate_qk_(const View& q, const View& k, const MaybeView& positions, int64_t offset,
                const View& steps, double scale, int64_t lanes);
void rotate_by(const View& x, const View& out, const View& cosine, const View& sine, int64_t lanes);
void rotate_qk_by(const View& q, const View& k, const View& q_out, const View& k_out,
                  const View& cosine, const View& sine, int64_t lanes);
// q over its root mean square, weighted and turned, into q_out; k, where there is one, beside it.
void norm_rotate(const View& q, const MaybeView& k, const View& q_out, const MaybeView& k_out,
                 const MaybeView& q_weight, const MaybeView& k_weight, double eps,
                 const MaybeView& positions, int64_t offset, const View& steps, double scale,
                 int64_t lanes);
void rotate_into_pages(const View& k, const MaybeView& v, const View& pages,
                       const MaybeView& v_pages, const View& slots, const MaybeView& positions,
                       int64_t offset, const View& steps, double scale, int64_t lanes);
// cos and sin [..., table heads?, tokens, pairs], contiguous, float or double.
void phase_tables(const View& positions, const View& steps, double scale, const View& cosine,
                  const View& sine);
// Ask for huge pages behind a large fresh result: half of what naive code loses is page faults.
void advise(const View& out);
int64_t vector_bits();

constexpr int64_t kGrain = 1 << 15;  // elements that one thread turns before it is worth two

}  // namespace ropewalk
