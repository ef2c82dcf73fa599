// A tensor as the functions of the kernel see it, whoever brings it.
#pragma once
#include <cstdint>

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>

namespace ropewalk {

using torch::headeronly::ScalarType;

struct View {
  int64_t dims;
  const int64_t *sizes, *strides;  // in elements
  const void* data;
  ScalarType type;
  // Counted from the end: 0 is the last dimension.
  int64_t size(int64_t from_end) const { return sizes[dims - 1 - from_end]; }
  int64_t stride(int64_t from_end) const { return strides[dims - 1 - from_end]; }
  int64_t elements() const {
    int64_t product = 1;
    for (int64_t d = 0; d < dims; ++d) product *= sizes[d];
    return product;
  }
  // This view of a tensor whose memory was not taken away, or kept elsewhere.
  const View& whole() const {
    STD_TORCH_CHECK(data != nullptr || elements() == 0, "a tensor without memory");
    return *this;
  }
};

}  // namespace ropewalk
