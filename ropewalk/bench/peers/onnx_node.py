"""onnxruntime: a model of one RotaryEmbedding node a tensor, bound to memory that is there."""

# pyright: reportMissingImports=false
from __future__ import annotations

from typing import Any

import onnxruntime
import torch
from onnx import TensorProto, helper
from torch import Tensor

from ropewalk.bench.rotor import Cannot, Rotor
from ropewalk.spectra import Spectrum

_TYPES = {
    torch.float32: TensorProto.FLOAT,
    torch.float16: TensorProto.FLOAT16,
    torch.bfloat16: TensorProto.BFLOAT16,
}
_NAMES = ("q", "k")


class OnnxNode(Rotor):
    """``com.microsoft.RotaryEmbedding`` with exact tables of the dtype of x."""

    def __init__(self, spectrum: Spectrum, positions: Tensor, dtype: torch.dtype) -> None:
        super().__init__(spectrum, positions, dtype)
        if dtype not in _TYPES:
            raise Cannot(f"no {dtype}")
        self.cosine, self.sine = (table.contiguous() for table in self.tables(dtype))
        self.places: Tensor | None = None
        self.bound: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def fresh(self, x: Tensor) -> Any:
        return self._run((x,), None)[0]

    def into(self, x: Tensor, out: Tensor) -> Tensor:
        self._run((x,), out)
        return out

    def pair(self, q: Tensor, k: Tensor) -> tuple[Any, Any]:
        one, other = self._run((q, k), None)
        return one, other

    def give(self, y: Any) -> Tensor:
        return y if isinstance(y, Tensor) else torch.from_dlpack(y._ortvalue.to_dlpack()).clone()

    def _run(self, inputs: tuple[Tensor, ...], out: Tensor | None) -> Any:
        key = tuple(x.data_ptr() for x in (*inputs, *(() if out is None else (out,))))
        if key not in self.bound:
            self.bound[key] = self._bind(inputs, out)
        session, binding = self.bound[key]
        session.run_with_iobinding(binding)
        return None if out is not None else binding.get_outputs()

    def _bind(self, inputs: tuple[Tensor, ...], out: Tensor | None) -> tuple[Any, Any]:
        batch, _, tokens, _ = inputs[0].shape
        self.places = torch.arange(tokens).expand(batch, tokens).contiguous()
        session = _session(inputs, self.spectrum, _TYPES[self.dtype])
        binding = session.io_binding()

        def bind(name: str, value: Tensor, element: int, write: bool = False) -> None:
            to = binding.bind_output if write else binding.bind_input
            to(name, "cpu", 0, element, tuple(value.shape), value.data_ptr())

        bind("places", self.places, TensorProto.INT64)
        bind("cosine", self.cosine, _TYPES[self.dtype])
        bind("sine", self.sine, _TYPES[self.dtype])
        for name, x in zip(_NAMES, inputs, strict=False):
            bind(name, x, _TYPES[self.dtype])
            if out is None:
                binding.bind_output(f"{name}_out", "cpu")
            else:
                bind(f"{name}_out", out, _TYPES[self.dtype], write=True)
        return session, binding


def _session(inputs: tuple[Tensor, ...], spectrum: Spectrum, element: int) -> Any:
    partial = spectrum.rotary_dim < spectrum.head_dim
    shared = [
        helper.make_tensor_value_info("places", TensorProto.INT64, [None, None]),
        helper.make_tensor_value_info("cosine", element, [None, spectrum.pairs]),
        helper.make_tensor_value_info("sine", element, [None, spectrum.pairs]),
    ]
    ins, outs, nodes = [], [], []
    for name, x in zip(_NAMES, inputs, strict=False):
        ins.append(helper.make_tensor_value_info(name, element, list(x.shape)))
        outs.append(helper.make_tensor_value_info(f"{name}_out", element, list(x.shape)))
        some: dict[str, Any] = {
            "rotary_embedding_dim": spectrum.rotary_dim,
            "num_heads": x.shape[1],
        }
        nodes.append(
            helper.make_node(
                "RotaryEmbedding",
                [name, "places", "cosine", "sine"],
                [f"{name}_out"],
                domain="com.microsoft",
                interleaved=int(spectrum.layout == "interleaved"),
                **(some if partial else {}),
            )
        )
    model = helper.make_model(
        helper.make_graph(nodes, "rotation", [*ins, *shared], outs),
        opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # its own exceptions derive from Exception only
        raise Cannot(f"no kernel on the CPU: {str(error).splitlines()[0][:80]}") from error
