// The functions of the kernel as PyTorch's operators, on its stable ABI.
#include "functions.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

namespace ropewalk {
namespace {

using torch::stable::Tensor;
using MaybeTensor = std::optional<Tensor>;

template <class T> struct Given { using type = T; };
template <> struct Given<const View&> { using type = const Tensor&; };
template <> struct Given<const MaybeView&> { using type = const MaybeTensor&; };

int64_t viewed(int64_t x) { return x; }
double viewed(double x) { return x; }

// A lazy copy gets its own memory first, as it may be written.
View viewed(const Tensor& x) {
  STD_TORCH_CHECK(x.is_cpu(), "the CPU kernel takes CPU tensors");
  const auto sizes = x.sizes();
  return View{static_cast<int64_t>(sizes.size()), sizes.data(), x.strides().data(),
              x.mutable_data_ptr(), x.scalar_type()}
      .whole();
}

MaybeView viewed(const MaybeTensor& x) {
  if (!x) return std::nullopt;
  return viewed(*x);
}

// A function over views as one over tensors.
template <auto function> struct Operator;
template <class... T, void (*function)(T...)> struct Operator<function> {
  static void call(typename Given<T>::type... given) { function(viewed(given)...); }
};

}  // namespace
}  // namespace ropewalk

STABLE_TORCH_LIBRARY(ropewalk_cpu, m) {
  m.def("rotate(Tensor x, Tensor(a!) out, Tensor? positions, int offset, Tensor steps, "
        "float scale, int lanes) -> ()");
  m.def("rotate_qk(Tensor q, Tensor k, Tensor(a!) q_out, Tensor(b!) k_out, Tensor? positions, "
        "int offset, Tensor steps, float scale, int lanes) -> ()");
  m.def("rotate_qk_(Tensor(a!) q, Tensor(b!) k, Tensor? positions, int offset, Tensor steps, "
        "float scale, int lanes) -> ()");
  m.def("rotate_by(Tensor x, Tensor(a!) out, Tensor cos, Tensor sin, int lanes) -> ()");
  m.def("rotate_qk_by(Tensor q, Tensor k, Tensor(a!) q_out, Tensor(b!) k_out, Tensor cos, "
        "Tensor sin, int lanes) -> ()");
  m.def("phase_tables(Tensor positions, Tensor steps, float scale, Tensor(a!) cos, "
        "Tensor(b!) sin) -> ()");
  m.def("rotate_into_pages(Tensor k, Tensor? v, Tensor(a!) pages, Tensor(b!)? v_pages, "
        "Tensor slots, Tensor? positions, int offset, Tensor steps, float scale, int lanes) -> ()");
  m.def("norm_rotate(Tensor q, Tensor? k, Tensor(a!) q_out, Tensor(b!)? k_out, Tensor? q_weight, "
        "Tensor? k_weight, float eps, Tensor? positions, int offset, Tensor steps, float scale, "
        "int lanes) -> ()");
  m.def("advise(Tensor(a!) out) -> ()");
  m.def("vector_bits() -> int");
}

STABLE_TORCH_LIBRARY_IMPL(ropewalk_cpu, CPU, m) {
  m.impl("rotate", TORCH_BOX(&ropewalk::Operator<ropewalk::rotate>::call));
  m.impl("rotate_qk", TORCH_BOX(&ropewalk::Operator<ropewalk::rotate_qk>::call));
  m.impl("rotate_qk_", TORCH_BOX(&ropewalk::Operator<ropewalk::rotate_qk_>::call));
  m.impl("rotate_by", TORCH_BOX(&ropewalk::Operator<ropewalk::rotate_by>::call));
  m.impl("rotate_qk_by", TORCH_BOX(&ropewalk::Operator<ropewalk::rotate_qk_by>::call));
  m.impl("phase_tables", TORCH_BOX(&ropewalk::Operator<ropewalk::phase_tables>::call));
  m.impl("rotate_into_pages", TORCH_BOX(&ropewalk::Operator<ropewalk::rotate_into_pages>::call));
  m.impl("norm_rotate", TORCH_BOX(&ropewalk::Operator<ropewalk::norm_rotate>::call));
  m.impl("advise", TORCH_BOX(&ropewalk::Operator<ropewalk::advise>::call));
}

STABLE_TORCH_LIBRARY_IMPL(ropewalk_cpu, CompositeExplicitAutograd, m) {
  m.impl("vector_bits", TORCH_BOX(&ropewalk::vector_bits));
}
