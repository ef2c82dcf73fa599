"""Tables for other libraries: each consumer's rotation, restated number by number, equals ours.

The restatements follow the published conventions; onnxruntime runs its own operator. flash-attn and
TransformerEngine need CUDA, vLLM another PyTorch, so they are not installed here.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numeric_oracles import loop_rotate
from torch import Tensor

from ropewalk import rotate, spectra, tables_for
from ropewalk.kernels.exits import FORMS
from ropewalk.spectra import Spectrum, geometric

FITTING = {
    "half": geometric(8),
    "interleaved": geometric(8, layout="interleaved"),
    "partial": geometric(12, rotary_dim=6),
    "partial interleaved": geometric(11, rotary_dim=6, layout="interleaved"),
    "factor": geometric(8).replace(attention_factor=1.19),
    "partial with factor": geometric(10, rotary_dim=4).replace(attention_factor=0.8),
    "proportional": spectra.proportional(16, fraction=0.5),
    "proportional later": Spectrum(
        ((1.0, 0.1),), 12, pairing="proportional", lane_offset=2, attention_factor=1.3
    ),
    "interleaved later": geometric(11, rotary_dim=4, lane_offset=4, layout="interleaved"),
    "two axes": spectra.axial(8, axes=2),
    "unit": Spectrum(((-1.0, 3.0),), 4, unit=0.25),
}
TOKENS, BATCH, HEADS = 7, 2, 3


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# --- the consumers, literally -------------------------------------------------------------------


def turned_pair(row: list[float], i: int, j: int, cos: float, sin: float) -> None:
    row[i], row[j] = row[i] * cos - row[j] * sin, row[j] * cos + row[i] * sin


def flash_attn(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """x [batch, seqlen, heads, dim]; the first 2 · cos.shape[1] lanes turn."""
    out, half = x.tolist(), cos.shape[1]
    for b in out:
        for s, token in enumerate(b):
            for head in token:
                for c in range(half):
                    i, j = (2 * c, 2 * c + 1) if interleaved else (c, c + half)
                    turned_pair(head, i, j, cos[s, c].item(), sin[s, c].item())
    return torch.tensor(out, dtype=torch.float64)


def transformer_engine(t: Tensor, freqs: Tensor, interleaved: bool) -> Tensor:
    """t [s, b, h, d]: t·cos(freqs) + rotate_half(t)·sin(freqs) on the first lanes."""
    out = t.clone()
    assert freqs.shape[1:3] == (1, 1)
    width = freqs.shape[-1]
    for s in range(t.shape[0]):
        for lane in range(width):
            angle = freqs[s, 0, 0, lane].item()
            if interleaved:
                over = -t[s, :, :, lane + 1] if lane % 2 == 0 else t[s, :, :, lane - 1]
            elif lane < width // 2:
                over = -t[s, :, :, lane + width // 2]
            else:
                over = t[s, :, :, lane - width // 2]
            out[s, :, :, lane] = t[s, :, :, lane] * math.cos(angle) + over * math.sin(angle)
    return out


def vllm(ids: Tensor, x: Tensor, head_size: int, cos_sin_cache: Tensor, is_neox_style: bool):
    """x [tokens, heads · head_size]; row ids[t] is cos, then sin."""
    rotary_dim = cos_sin_cache.shape[1]
    half, out = rotary_dim // 2, x.view(len(x), -1, head_size).tolist()
    for t, token in enumerate(out):
        row = cos_sin_cache[ids[t]].tolist()
        for head in token:
            for c in range(half):
                i, j = (c, c + half) if is_neox_style else (2 * c, 2 * c + 1)
                turned_pair(head, i, j, row[c], row[half + c])
    return torch.tensor(out, dtype=torch.float64).view(x.shape)


def onnx_operator(x: Tensor, ids: Tensor | None, tensors: Any, flags: Any) -> Tensor:
    """onnxruntime's RotaryEmbedding of x [batch, heads, tokens, head_dim]."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    from onnx import TensorProto, helper

    given = {"x": x, **tensors, **({} if ids is None else {"ids": ids})}
    kinds = {torch.float32: TensorProto.FLOAT, torch.int64: TensorProto.INT64}
    kinds[torch.float16] = TensorProto.FLOAT16
    node = helper.make_node("RotaryEmbedding", list(given), ["y"], **flags)
    inputs = [
        helper.make_tensor_value_info(n, kinds[t.dtype], list(t.shape)) for n, t in given.items()
    ]
    output = helper.make_tensor_value_info("y", kinds[x.dtype], list(x.shape))
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    session = runtime.InferenceSession(model.SerializeToString())
    return torch.from_numpy(session.run(None, {n: t.numpy() for n, t in given.items()})[0])


# --- what they give -----------------------------------------------------------------------------


def rows_of(spectrum: Spectrum, far: int = 0) -> Tensor:
    shape = (TOKENS,) if spectrum.axes == 1 else (TOKENS, spectrum.axes)
    return far + torch.randint(-99, 99, shape, generator=torch.Generator().manual_seed(3))


def literal(x: Tensor, positions: Tensor, spectrum: Spectrum) -> Tensor:
    planes = positions if spectrum.axes > 1 else positions[..., None]
    return loop_rotate(x, planes.expand(x.shape[0], *planes.shape[-2:]), spectrum)


def consumed(form: str, x: Tensor, out: Any) -> Tensor:
    """x [batch, heads, tokens, head_dim] as the consumer turns it."""
    if form == "flash_attn":
        return flash_attn(x.transpose(1, 2), **out.tensors, **out.flags).transpose(1, 2)
    if form == "transformer_engine":
        turned = transformer_engine(x.permute(2, 0, 1, 3), **out.tensors, **out.flags)
        return turned.permute(1, 2, 0, 3)
    if form == "vllm":
        flat, ids = x.transpose(1, 2).flatten(0, 1).flatten(1), torch.arange(TOKENS).repeat(BATCH)
        turned = vllm(ids, flat, x.shape[-1], **out.tensors, **out.flags)
        return turned.view(BATCH, TOKENS, HEADS, -1).transpose(1, 2)
    ids = torch.arange(TOKENS).expand(BATCH, TOKENS)
    return onnx_operator(x.float(), ids, out.tensors, out.flags).double()


@pytest.mark.parametrize("far", [0, 2**40], ids=["near", "far"])
@pytest.mark.parametrize("name", FITTING)
@pytest.mark.parametrize("form", FORMS)
def test_each_consumer_turns_as_the_literal_loop(form, name, far):
    spectrum = FITTING[name]
    x, positions = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim), rows_of(spectrum, far)
    out = tables_for(form, spectrum, positions=positions)
    found = consumed(form, x, out)
    for part in spectrum.lanes:
        found[..., part] *= out.factor_left
    assert torch.allclose(found, literal(x, positions, spectrum), atol=3e-6, rtol=0)


@pytest.mark.parametrize("form", FORMS)
def test_rows_by_length_are_positions(form):
    spectrum = geometric(8)
    by_length = tables_for(form, spectrum, 5)
    by_position = tables_for(form, spectrum, positions=torch.arange(5))
    for name, table in by_length.tensors.items():
        assert torch.equal(table, by_position.tensors[name])
        assert table.is_contiguous()


def test_shapes_and_flags_are_the_consumers_own():
    half, pairs = geometric(12, rotary_dim=6), geometric(8, layout="interleaved")
    out = tables_for("flash_attn", half, 5)
    assert {n: tuple(t.shape) for n, t in out.tensors.items()} == {"cos": (5, 3), "sin": (5, 3)}
    assert out.flags == {"interleaved": False}
    assert tables_for("flash_attn", pairs, 5).flags == {"interleaved": True}
    out = tables_for("transformer_engine", half, 5)
    assert out.tensors["freqs"].shape == (5, 1, 1, 6)
    assert out.tensors["freqs"].abs().max() <= math.pi
    assert tables_for("transformer_engine", pairs, 5).flags == {"interleaved": True}
    out = tables_for("vllm", half, 5, dtype=torch.bfloat16)
    assert out.tensors["cos_sin_cache"].shape == (5, 6)
    assert out.tensors["cos_sin_cache"].dtype == torch.bfloat16
    assert out.flags == {"is_neox_style": True}
    assert tables_for("vllm", pairs, 5).flags == {"is_neox_style": False}
    out = tables_for("onnx", half, 5)
    assert out.tensors["sin_cache"].shape == (5, 3)
    assert out.flags == {"interleaved": 0, "rotary_embedding_dim": 6}
    assert out.rotary_dim == 6


@pytest.mark.parametrize("form", FORMS)
def test_only_angles_leave_the_factor_to_the_consumer(form):
    spectrum = geometric(8).replace(attention_factor=1.25)
    assert tables_for(form, spectrum, 4).factor_left == (
        1.25 if form == "transformer_engine" else 1.0
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_tables_are_rounded_once(dtype):
    spectrum = geometric(8, 100.0)
    wide, narrow = (tables_for("vllm", spectrum, 400, dtype=d) for d in (torch.float32, dtype))
    assert torch.equal(wide.tensors["cos_sin_cache"].to(dtype), narrow.tensors["cos_sin_cache"])


def test_onnx_without_ids_takes_rows_of_a_batch():
    spectrum = geometric(8, layout="interleaved")
    positions = torch.tensor([[0, 1, 2], [70, 71, 90]])
    out = tables_for("onnx", spectrum, positions=positions)
    x = drawn(2, HEADS, 3, 8).float()
    found = onnx_operator(x, None, out.tensors, out.flags)
    assert torch.allclose(found, rotate(x, positions, spectrum), atol=1e-6)


def test_onnx_in_half_precision():
    spectrum = geometric(8)
    out = tables_for("onnx", spectrum, TOKENS, dtype=torch.float16)
    x = drawn(BATCH, HEADS, TOKENS, 8).half()
    found = onnx_operator(x, torch.arange(TOKENS).expand(BATCH, -1), out.tensors, out.flags)
    assert torch.allclose(found, rotate(x, None, spectrum), atol=1e-2)


@settings(max_examples=25)
@given(
    st.sampled_from(FORMS),
    st.sampled_from(["half", "interleaved"]),
    st.integers(1, 6),
    st.integers(0, 5),
    st.integers(-(2**62), 2**62),
    st.floats(-3.0, 3.0),
)
def test_any_partial_spectrum_fits(form, layout, pairs, rest, far, frequency):
    freqs = (tuple(frequency / (c + 1) for c in range(pairs)),)
    spectrum = Spectrum(freqs, 2 * pairs + rest, layout=layout)
    positions = far + torch.arange(TOKENS)
    x = drawn(BATCH, HEADS, TOKENS, spectrum.head_dim)
    out = tables_for(form, spectrum, positions=positions)
    if form == "onnx":  # its kernel is tried above; building a session takes long
        mine = consumed("flash_attn", x, tables_for("flash_attn", spectrum, positions=positions))
        assert torch.equal(
            out.tensors["cos_cache"],
            tables_for("flash_attn", spectrum, positions=positions).tensors["cos"],
        )
    else:
        mine = consumed(form, x, out)
    assert torch.allclose(mine, rotate(x, positions, spectrum), atol=3e-6, rtol=0)


@pytest.mark.parametrize(
    ("changes", "call", "words"),
    [
        ({"lane_offset": 2, "head_dim": 10}, {"length": 4}, "lane_offset=2.*x\\[..., 2:\\]"),
        (
            {"lane_offset": 1, "head_dim": 9, "layout": "interleaved"},
            {"length": 4},
            "lane_offset=1.*head_dim=8",
        ),
        ({"freqs": (((1.0,),), ((2.0,),))}, {"length": 4}, "heads=2.*spectrum.freqs"),
        ({"freqs": ((1.0,), (2.0,))}, {"length": 4}, "length=4.*axes=2.*positions"),
        ({}, {}, "either length"),
        ({}, {"length": 4, "positions": torch.arange(4)}, "either length"),
        ({}, {"length": 0}, "length=0"),
        ({}, {"positions": torch.zeros(2, 3, dtype=torch.int64)}, "shape \\(2, 3\\).*flatten"),
        ({}, {"positions": torch.arange(3), "device": "cpu"}, "device=cpu"),
        ({}, {"length": 4, "dtype": torch.float64}, "float64.*float32"),
    ],
)
def test_what_a_form_cannot_hold_is_refused(changes, call, words):
    spectrum = geometric(8).replace(**changes)
    with pytest.raises(ValueError, match=words):
        tables_for("vllm", spectrum, **call)


def test_the_remedy_for_later_lanes_works():
    spectrum = geometric(10, rotary_dim=4, lane_offset=3)
    x = drawn(BATCH, HEADS, TOKENS, 10)
    inner = tables_for("flash_attn", spectrum.replace(head_dim=7, lane_offset=0), TOKENS)
    found = torch.cat((x[..., :3], consumed("flash_attn", x[..., 3:], inner)), dim=-1)
    assert torch.allclose(found, rotate(x, None, spectrum), atol=1e-6)


def test_other_refusals():
    with pytest.raises(ValueError, match=r"form='flash'.*flash_attn"):
        tables_for("flash", geometric(8), 4)
    with pytest.raises(TypeError, match="Spectrum"):
        tables_for("vllm", 8, 4)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="dtype='float32'"):
        tables_for("vllm", geometric(8), 4, dtype="float32")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match=r"bfloat16.*transformer_engine.*float32"):
        tables_for("transformer_engine", geometric(8), 4, dtype=torch.bfloat16)
    with pytest.raises(ValueError, match=r"changes with the length.*for_length"):
        tables_for("vllm", spectra.dynamic_ntk(geometric(8), 2.0, 64), 4)
    with pytest.raises(TypeError, match="integers"):
        tables_for("vllm", geometric(8), positions=torch.rand(3))
