"""What each rope_type makes of a spectrum: a function for each, by name."""

from __future__ import annotations

from ropewalk import spectra
from ropewalk.configs.findings import behaviour, magnitude, spelling
from ropewalk.configs.lanes import Lanes
from ropewalk.configs.parameter import LONGEST, Parameter, block_key
from ropewalk.configs.parameters import THETA
from ropewalk.configs.resolved import Variant
from ropewalk.configs.turned import Rotation
from ropewalk.configs.value import Value
from ropewalk.spectra import Spectrum
from ropewalk.spectra.dynamic_ntk import DynamicNTK
from ropewalk.spectra.longrope import longrope_attention_factor
from ropewalk.spectra.yarn import mscale, yarn_attention_factor


def _unscaled(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    del p, lane, declared
    result.spectrum = result.plain


def _linear(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    """linear, ntk and proportional: one factor."""
    del declared, lane
    assert result.plain is not None
    needed = result.kind.value != "proportional"
    factor = p.factor() if needed or p.own.get("factor") else None
    if factor is None:
        return
    result.factor = factor
    result.original = p.original(None, needed=False)
    if result.kind.value == "ntk":
        result.spectrum = spectra.ntk(result.plain, factor.value)
    else:
        result.spectrum = result.plain.map(lambda f: f / factor.value)


def _dynamic(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    del lane
    assert result.plain is not None
    factor = p.factor()
    if factor is None:
        return
    result.factor = factor
    if declared is None:
        p.notes.add(
            spelling.MISSING_KEY,
            block_key(p.kind),
            rope_type="dynamic",
            key="max_position_embeddings",
        )
        return
    original = declared.value
    result.original = declared
    at = round(original * max(factor.value, 1.0))
    if at <= original or at > LONGEST:
        at = min(2 * original, LONGEST)
    rule = DynamicNTK(float(factor.value), original)
    grown = rule.at(result.plain, at)
    result.variants = (Variant(original, at, grown.inv_freq, 1.0),)
    dim = result.plain.rotary_dim
    theta = float(p.own[THETA].value) * rule.scale(at) ** (dim / (dim - 2))
    p.notes.add(behaviour.DYNAMIC, block_key(p.kind), original=original, at=at, theta=theta)


def _alpha(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    del lane, declared
    assert result.plain is not None
    alpha = p.need("alpha")
    if alpha is None:
        return
    result.spectrum = spectra.hunyuan_alpha(result.plain, alpha.value)
    dim = result.plain.rotary_dim
    theta = float(p.own[THETA].value) * alpha.value ** (dim / (dim - 2))
    result.details["effective_theta"] = theta
    given = p.own.get("rope_type") or p.own.get("type")
    factor = p.own.get("factor")
    p.notes.add(
        behaviour.ALPHA,
        alpha,
        alpha=alpha.value,
        theta=theta,
        given="(none)" if given is None else given.value,
        factor=None if factor is None else factor.value,
    )


def _llama3(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    del lane
    assert result.plain is not None
    factor, low, high = p.factor(), p.need("low_freq_factor"), p.need("high_freq_factor")
    result.original = p.original(declared)
    result.factor = factor
    if factor is None or low is None or high is None or result.original is None:
        return
    unscaled = result.plain.inv_freq
    if factor.value >= 1:
        result.spectrum = spectra.llama3(
            result.plain, factor.value, low.value, high.value, result.original.value
        )
        divided = sum(a != b for a, b in zip(unscaled, result.spectrum.inv_freq, strict=True))
        if low.value == high.value and factor.value != 1:
            p.notes.add(
                behaviour.HARD_CUT,
                low,
                low_key="low_freq_factor",
                low=low.value,
                high_key="high_freq_factor",
                kept=len(unscaled) - divided,
                divided=divided,
                factor=factor.value,
            )


def _yarn(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    assert result.plain is not None
    result.original = p.original(declared)
    given = p.own.get("factor")
    if given is not None and given.value is None and declared is not None and result.original:
        p.own["factor"] = Value(declared.value / result.original.value, declared.source)
    factor = p.factor()
    result.factor = factor
    if factor is None:
        stated = p.positive("attention_factor")
        result.attention = stated or result.attention
        return
    fast, slow = p.positive("beta_fast", 32.0), p.positive("beta_slow", 1.0)
    truncate = p.own.get("truncate")
    whole_pairs = truncate is None or truncate.value is None or bool(truncate.value)
    assert fast is not None
    assert slow is not None
    weights = _attention(result, p, factor)
    if factor.value >= 1 and result.original is not None:
        result.spectrum = spectra.yarn(
            result.plain,
            factor.value,
            result.original.value,
            attention_factor=result.attention.value,
            beta_fast=fast.value,
            beta_slow=slow.value,
            truncate=whole_pairs,
            base=float(p.own[THETA].value),
        )
    if lane.latent and weights[1]:
        power = mscale(factor.value, weights[1]) ** 2
        stated = p.own["mscale_all_dim"]
        result.softmax = Value(power, stated.source)
        p.notes.add(
            magnitude.SOFTMAX, stated, value=stated.value, factor=factor.value, result=power
        )


def _attention(result: Rotation, p: Parameter, factor: Value) -> tuple[float | None, float | None]:
    """The factor on cos and sin, and mscale and mscale_all_dim."""
    found = [p.number("mscale"), p.number("mscale_all_dim")]
    weights = (found[0].value if found[0] else None, found[1].value if found[1] else None)
    coefficient = p.own.get("yarn_coefficient")
    if coefficient is None:
        usual = yarn_attention_factor(factor.value, *weights)
    else:
        usual = mscale(factor.value, coefficient.value / 0.1)
    source = next((w.source for w in found if w is not None), factor.source)
    result.attention = Value(usual, source)
    if bool(weights[0]) != bool(weights[1]) and coefficient is None:
        alone = found[0] if weights[0] else found[1]
        assert alone is not None
        p.notes.add(
            magnitude.MSCALE_ALONE, alone, key=alone.source_key, value=alone.value, usual=usual
        )
    _stated_attention(result, p, usual)
    return weights


def _stated_attention(result: Rotation, p: Parameter, usual: float) -> None:
    """attention_factor, which is final, and attn_factor, which multiplies the usual one."""
    final, times = p.positive("attention_factor"), p.positive("attn_factor")
    if times is not None:
        product = times.value * usual
        if final is None:
            p.notes.add(magnitude.MULTIPLIER, times, value=times.value, usual=usual, result=product)
            result.attention = Value(product, times.source)
        elif abs(product - final.value) > 1e-6 * final.value:
            p.notes.add(
                magnitude.BOTH,
                times,
                final=final.value,
                value=times.value,
                usual=usual,
                result=product,
            )
    if final is not None:
        result.attention = Value(float(final.value), final.source)
        apart = abs(usual / final.value - 1)
        if apart > 1e-3:
            p.notes.add(
                magnitude.OVERRIDES,
                final,
                value=final.value,
                usual=usual,
                percent=round(100 * apart, 1),
            )


def _own_magnitudes(result: Rotation, p: Parameter, after: Spectrum) -> Spectrum:
    """short_mscale and long_mscale, which Phi-3.5-MoE has in place of one attention factor."""
    short, long = p.positive("short_mscale"), p.positive("long_mscale")
    if short is not None and result.spectrum is not None:
        result.attention = Value(float(short.value), short.source)
        result.spectrum = result.spectrum.replace(attention_factor=float(short.value))
    return after if long is None else after.replace(attention_factor=float(long.value))


def _longrope(result: Rotation, p: Parameter, lane: Lanes, declared: Value | None) -> None:
    assert result.plain is not None
    result.original = p.original(declared)
    factor = p.positive("factor")
    if factor is None and declared is not None and result.original is not None:
        factor = Value(declared.value / result.original.value, declared.source)
    result.factor = factor
    if factor is not None and result.original is not None:
        usual = longrope_attention_factor(factor.value, result.original.value)
        result.attention = Value(usual, factor.source)
        _stated_attention(result, p, usual)
    lists = [p.divisors(key, lane.pairs) for key in ("short_factor", "long_factor")]
    short, long = lists
    if result.original is None or short is None or long is None:
        return
    scaled = spectra.longrope(
        result.plain,
        short,
        long,
        result.original.value,
        attention_factor=result.attention.value,
        any_order=True,  # as the model was trained
    )
    after = scaled.for_length(result.original.value + 1)
    result.spectrum = scaled.for_length(1)
    after = _own_magnitudes(result, p, after)
    at = result.original.value + 1
    result.variants = (Variant(result.original.value, at, after.inv_freq, after.attention_factor),)
    apart = max(abs(a - b) for a, b in zip(result.spectrum.inv_freq, after.inv_freq, strict=True))
    p.notes.add(
        behaviour.SWITCH,
        block_key(p.kind),
        original=result.original.value,
        next=at,
        radians=float(f"{apart * result.original.value:.3g}"),
    )


SCALE = {
    "default": _unscaled,
    "axial": _unscaled,
    "linear": _linear,
    "proportional": _linear,
    "ntk": _linear,
    "dynamic": _dynamic,
    "alpha": _alpha,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
"""rope_type → the function that fills in a Rotation."""
