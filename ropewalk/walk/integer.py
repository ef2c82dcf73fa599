"""Step 2: add the position as a number, and how loud every additive code is beside the word."""

from __future__ import annotations

import torch
from torch import Tensor

from ropewalk.catalog import make
from ropewalk.core import Additive
from ropewalk.walk.embeddings import Embedded
from ropewalk.walk.layer import equal_pairs, generator
from ropewalk.walk.step import Figure, Step, order, rounded

FAR = 1000
"""A later position, as any page of text reaches."""


def additive_codes(dim: int) -> dict[str, Additive]:
    """Every additive encoding of the catalogue at width ``dim``, the learned one as initialised."""
    codes: dict[str, Additive] = {}
    for name in ("integer", "normalised", "binary", "sinusoidal", "learned"):
        config = {"learned": {"length": FAR + 1}, "binary": {"bits": min(10, dim)}}.get(name, {})
        with torch.random.fork_rng(devices=[]):
            encoding = make(name, dim=dim, **config)
        if not isinstance(encoding, Additive):
            raise TypeError(f"{name} is {encoding.family}, not additive")
        codes[name] = encoding
    learned = codes["learned"]
    with torch.no_grad():
        for parameter in learned.parameters():
            parameter.normal_(std=0.02, generator=generator(2))
    return codes


def code_at(encoding: Additive, position: int, length: int) -> Tensor:
    """The float64 code of one position, ``[dim]``."""
    with torch.no_grad():
        return encoding.encode(torch.tensor([position]), length=length, dtype=torch.float64)[0]


def decibel(signal: Tensor, noise: Tensor) -> float:
    """20·log₁₀(‖signal‖ ÷ ‖noise‖)."""
    return 20 * torch.log10(signal.norm() / noise.norm().clamp_min(1e-300)).item()


def separation(a: Tensor, b: Tensor) -> float:
    """‖a − b‖ ÷ (‖a‖ + ‖b‖), between 0 (equal) and 1 (opposite)."""
    return ((a - b).norm() / (a.norm() + b.norm()).clamp_min(1e-300)).item()


def layer_normed(x: Tensor) -> Tensor:
    """LayerNorm without weights: the mean is removed, then the scale."""
    centred = x - x.mean(-1, keepdim=True)
    return centred / centred.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)


def rms_scaled(x: Tensor) -> Tensor:
    """RMSNorm without weights."""
    return x / x.square().mean(-1, keepdim=True).sqrt().clamp_min(1e-30)


def focus(text: Embedded) -> int:
    """Index of the token that the story follows: the first that is repeated, else the second."""
    pairs = equal_pairs(text.ids)
    return pairs[0][0] if pairs else min(1, len(text.ids) - 1)


def run(text: Embedded) -> Step:
    """Measure the word against every additive code, and what a norm leaves of it."""
    token = focus(text)
    word = text.vectors[token]
    dim = len(word)
    bars = []
    for name, encoding in additive_codes(dim).items():
        for position in (1, FAR):
            length = FAR + 1
            code = code_at(encoding, position, length)
            other = code_at(encoding, position - 1, length)
            with_code, with_other = word + code, word + other
            bars.append(
                {
                    "code": f"{name} p={position}",
                    "raw": rounded(decibel(word, code)),
                    "scaled": rounded(decibel(word * dim**0.5, code)),
                    "layernorm": rounded(
                        separation(layer_normed(with_code), layer_normed(with_other))
                    ),
                    "rmsnorm": rounded(separation(rms_scaled(with_code), rms_scaled(with_other))),
                }
            )
    raw = {bar["code"]: bar["raw"] for bar in bars}
    kinds = {
        "raw": ("db", "word over code, dB"),
        "scaled": ("scaled_db", "the same with embeddings × √D"),
        "layernorm": ("layernorm", "separation from the position before, after LayerNorm"),
        "rmsnorm": ("rmsnorm", "separation from the position before, after RMSNorm"),
    }
    scaled = next(bar["scaled"] for bar in bars if bar["code"] == "sinusoidal p=1")
    lost = max(b["layernorm"] for b in bars if b["code"].startswith(("integer", "normalised")))
    kept = min(b["layernorm"] for b in bars if b["code"].startswith(("binary", "sinusoidal")))
    name = text.tokens[token].strip() or text.tokens[token]
    figures = {"word_norm": Figure(word.norm().item(), f"‖e‖ of “{name}”")}
    for bar in bars:
        key = bar["code"].replace(" p=", "_p")
        for kind, (suffix, label) in kinds.items():
            first = kind == "raw" and bar["code"].startswith(("integer", "sinusoidal"))
            figures[f"{key}_{suffix}"] = Figure(bar[kind], f"{bar['code']}: {label}", first)
    figures["constant_after_layernorm"] = Figure(
        lost, "largest separation of neighbours that LayerNorm leaves of integer and normalised"
    )
    return Step(
        name="integer",
        title="Add the number of the position",
        question="What if the position is simply added to the word?",
        verdict=(
            f"At position 1 the integer drowns “{name}” by {-raw['integer p=1']:.1f} dB, at "
            f"{FAR} by {-raw[f'integer p={FAR}']:.1f} dB, and it grows without end. Sinusoids of "
            f"unit size are hardly quieter ({-raw['sinusoidal p=1']:.1f} dB), but bounded; the "
            "original transformer multiplies embeddings by √D, which brings the word to "
            f"{scaled:+.1f} dB. LayerNorm removes a code that is equal in all lanes "
            f"({order(lost)} is left between neighbours)."
        ),
        evidence="measured",
        figures=figures,
        paragraphs=(
            "E(p) = p in every lane. It is unique and continues for ever, but the word is soon a "
            "whisper beside its own address, and bfloat16 cannot count beyond 256 without gaps.",
            "Every additive code pays this price in some measure; the bars compare all of them, "
            "raw and with embeddings multiplied by √D as the original transformer does.",
            "A norm follows in most models. LayerNorm takes the mean away, and with it any code "
            "that is the same number in every lane; RMSNorm keeps some of it. At least "
            f"{kept:.1g} of a binary or sinusoidal step survives LayerNorm here.",
        ),
        equations=(r"E(p) = (p, \dots, p)", r"20\log_{10}\frac{\|e\|}{\|E(p)\|}"),
        drawing={"bars": bars},
        remarks=(
            "word over code in dB, raw and × √D; separation left by LayerNorm and RMSNorm:",
            *(
                f"  {bar['code']:<18} {bar['raw']:7.1f} {bar['scaled']:7.1f}   "
                f"{bar['layernorm']:8.1g} {bar['rmsnorm']:8.1g}"
                for bar in bars
            ),
        ),
    )
