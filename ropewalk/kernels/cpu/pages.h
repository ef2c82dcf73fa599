// A paged cache in plain pointers: where the slot of each token lies, and rows copied there.
#pragma once
#include <cstdint>
#include <cstring>
#include <vector>

namespace ropewalk {

constexpr int64_t kSkip = -1;  // the slot of a token that is not written

// Strides in elements of pages [blocks, block_size, heads, head_dim].
struct Pages {
  int64_t blocks, block_size;
  int64_t block, token;
};

// Whether every slot is kSkip or one of the pages', and none is named twice.
inline bool slots_fit(const int64_t* slots, int64_t stride, int64_t tokens, int64_t size) {
  thread_local std::vector<uint64_t> taken;  // a bit for each slot, all clear between calls
  if (static_cast<int64_t>(taken.size()) * 64 < size) taken.resize((size + 63) / 64);
  bool fit = true;
  for (int64_t i = 0; i < tokens; ++i)
    fit = fit && slots[i * stride] >= kSkip && slots[i * stride] < size;
  if (!fit) return false;
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t slot = slots[i * stride];
    if (slot == kSkip) continue;
    uint64_t& word = taken[slot / 64];
    const uint64_t bit = uint64_t{1} << slot % 64;
    fit = fit && !(word & bit);
    word |= bit;
  }
  for (int64_t i = 0; i < tokens; ++i)
    if (slots[i * stride] != kSkip) taken[slots[i * stride] / 64] = 0;
  return fit;
}

// Elements before each token's slot; kSkip where there is none.
inline void find_places(const int64_t* slots, int64_t stride, int64_t tokens, const Pages& pages,
                        std::vector<int64_t>& places) {
  places.resize(static_cast<size_t>(tokens));
  for (int64_t i = 0; i < tokens; ++i) {
    const int64_t slot = slots[i * stride];
    places[i] = slot == kSkip ? kSkip
                              : slot / pages.block_size * pages.block +
                                    slot % pages.block_size * pages.token;
  }
}

// Rows of `heads` heads of one token each; strides in elements of `size` bytes.
struct Copy {
  const char* in;
  char* out;
  int64_t in_token, in_head, in_lane, out_head, out_lane;
  int64_t heads, head_dim, size;
};

inline void copy_tokens(const Copy& c, const int64_t* places, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) {
    if (places[i] == kSkip) continue;
    for (int64_t h = 0; h < c.heads; ++h) {
      const char* in = c.in + (i * c.in_token + h * c.in_head) * c.size;
      char* out = c.out + (places[i] + h * c.out_head) * c.size;
      if (c.in_lane == 1 && c.out_lane == 1) {
        std::memcpy(out, in, static_cast<size_t>(c.head_dim * c.size));
      } else {
        for (int64_t d = 0; d < c.head_dim; ++d)
          std::memcpy(out + d * c.out_lane * c.size, in + d * c.in_lane * c.size,
                      static_cast<size_t>(c.size));
      }
    }
  }
}

}  // namespace ropewalk
