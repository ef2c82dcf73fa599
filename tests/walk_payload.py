"""A made-up result of the walk, complete and plausible, for the tests of the page alone.

Nothing here is measured: the numbers have the shape and the size of the real ones.
"""

from __future__ import annotations

import math
import random

TOKENS = ["The", " dog", " chased", " another", " dog"]
PROPERTIES = [
    "unique",
    "linear",
    "relative",
    "norm",
    "bounded",
    "decay",
    "extends",
    "deterministic",
    "axes",
    "precision",
    "generalises",
    "learnable",
]
TRUTHS = {
    "integer": "YNNNN-YY-N--",
    "normalised": "YNNNY-NY-N--",
    "binary": "YNNNY-YY-Y--",
    "sinusoidal": "YYNNY-YY-YNY",
    "learned": "YNNN--NN-Y--",
    "rope": "YYYYYNYY-YNY",
    "p_rope": "YYYYYNYY-Y--",
    "axial": "YYYYYNYYYY--",
    "alibi": "Y-Y-NYYY-NYY",
}


def softmax(row: list[float]) -> list[float]:
    top = [math.exp(x - max(row)) for x in row]
    return [round(x / sum(top), 4) for x in top]


def sinusoid(position: int, dim: int) -> list[float]:
    pairs = dim // 2
    turns = [position * 10000 ** (-2 * i / dim) for i in range(pairs)]
    return [round(f(turn), 4) for turn in turns for f in (math.sin, math.cos)]


def distance(a: list[float], b: list[float]) -> float:
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True)))


def problem(tokens: list[str], rng: random.Random) -> dict:
    kinds = {token: i for i, token in enumerate(dict.fromkeys(tokens))}
    ids = [kinds[token] for token in tokens]
    size, n = len(tokens), len(kinds)
    attention = []
    for _ in range(4):
        scores = [[rng.gauss(0, 1.4) for _ in range(n)] for _ in range(n)]
        attention.append([softmax([scores[i][j] for j in ids]) for i in ids])
    apart = [[0.0] * n for _ in range(n)]
    for i in range(n):
        for j in range(i):
            apart[i][j] = apart[j][i] = round(rng.uniform(0.55, 1.35), 3)
    causal = [[0.0] * size for _ in range(size)]
    for i in range(size):
        for j in range(i):
            near = 0.66 if ids[i] == ids[j] else rng.uniform(0.6, 1.3)
            causal[i][j] = causal[j][i] = round(near, 3)
    equal = [[i, j] for i in range(size) for j in range(i + 1, size) if ids[i] == ids[j]]
    return {
        "tokens": tokens,
        "attention": attention,
        "distance": [[apart[i][j] for j in ids] for i in ids],
        "equal": equal,
        "causal_distance": causal,
    }


def integer() -> dict:
    rows = [
        ("integer p=1", -21.5, 8.0, 0.0, 0.02),
        ("integer p=1000", -81.5, -52.0, 0.0, 0.0),
        ("normalised", -9.1, 20.4, 0.0, 0.31),
        ("binary", -16.2, 13.3, 0.71, 0.74),
        ("sinusoidal", -18.5, 11.1, 0.93, 0.95),
        ("learned", 12.0, 41.6, 0.99, 0.99),
    ]
    keys = ("code", "raw", "scaled", "layernorm", "rmsnorm")
    return {"bars": [dict(zip(keys, row, strict=True)) for row in rows]}


def normalised() -> dict:
    lengths = [10, 100, 1000, 10000]
    codes = [[{"position": p, "code": p / (n - 1)} for p in range(10)] for n in lengths]
    return {"lengths": lengths, "codes": codes}


def binary() -> dict:
    def bits(p: int) -> list[int]:
        return [p >> (7 - k) & 1 for k in range(8)]

    def jump(p: int) -> float:
        return round(math.sqrt(bin(p ^ (p + 1)).count("1")), 4)

    corners = [[p >> k & 1 for k in range(3)] for p in range(8)]
    smooth = [
        [round(math.sin(2 * math.pi * t / 200 / turn - 0.6), 4) for turn in (0.6, 1.2, 2.4)]
        for t in range(201)
    ]
    step = round(distance(sinusoid(0, 16), sinusoid(1, 16)), 4)
    return {
        "bits": [bits(p) for p in range(32)],
        "jump": [jump(p) for p in range(256)],
        "smooth_jump": [step] * 256,
        "path": [*corners, corners[0]],
        "smooth_path": smooth,
    }


def sinusoidal() -> dict:
    codes = [sinusoid(p, 64) for p in range(64)]
    dots = [sum(x * y for x, y in zip(sinusoid(0, 64), sinusoid(k, 64), strict=True)) / 32
            for k in range(129)]  # fmt: skip
    nearest = {2: 0.0004, 4: 0.044, 8: 0.31, 16: 0.66, 32: 1.02, 64: 1.47, 128: 2.08, 256: 2.95}
    return {
        "bits": [[p >> (7 - k) & 1 for k in range(8)] for p in range(64)],
        "codes": codes,
        "nearest": [{"dim": d, "distance": x} for d, x in nearest.items()],
        "similarity": [{"offset": k, "dot": round(x, 4)} for k, x in enumerate(dots)],
        "wavelengths": [round(2 * math.pi * 10000 ** (2 * i / 64), 4) for i in range(32)],
    }


def relative(rng: random.Random) -> dict:
    positions = [*range(0, 1024, 8)]
    adding = [round(0.52 + 0.11 * math.sin(p / 90) + rng.gauss(0, 0.045), 4) for p in positions]
    return {
        "distance": 3,
        "positions": positions,
        "adding": adding,
        "rotating": [0.5317] * len(positions),
    }


def rotary(tokens: list[str], rng: random.Random) -> dict:
    drawn = problem(tokens, rng)
    after = [softmax([math.log(x + 1e-3) + rng.gauss(0, 0.9) for x in row])
             for row in drawn["attention"][0]]  # fmt: skip
    shift = [(1, 0.0, 2.1e-3), (16, 4.4e-16, 1.9e-3), (256, 3.3e-16, 2.4e-2), (4096, 4e-16, 0.31),
             (65536, 5.6e-16, 0.92), (1048576, 4.4e-16, 1.1)]  # fmt: skip
    return {
        "frequencies": [10000 ** (-2 * c / 64) for c in range(32)],
        "tokens": tokens,
        "before": drawn["attention"][0],
        "after": after,
        "shift": [{"shift": t, "exact": e, "bf16": b} for t, e, b in shift],
    }


def axes() -> dict:
    def shared(x: int, y: int) -> float:
        return sum(math.cos((x + y - 32) * 100 ** (-c / 16)) for c in range(16)) / 16

    def axial(x: int, y: int) -> float:
        thetas = [100 ** (-c / 8) for c in range(8)]
        return sum(math.cos((x - 16) * t) + math.cos((y - 16) * t) for t in thetas) / 16

    side = range(33)
    return {
        "shared": [[round(shared(x, y), 4) for x in side] for y in side],
        "axial": [[round(axial(x, y), 4) for x in side] for y in side],
        "collision": {"a": [20, 12], "b": [21, 11]},
        "per_axis": [
            {"axis": "x", "error": 3.1e-15},
            {"axis": "y", "error": 2.7e-15},
            {"axis": "z", "error": 3.0e-15},
            {"axis": "jointly", "error": 4.4e-15},
        ],
    }


def future() -> dict:
    context, pairs = 2048, 32
    waves = [2 * math.pi * 10000 ** (2 * c / 64) for c in range(pairs)]
    weights = [0.7 + 0.08 * c + (1.6 if c in (22, 25, 30) else 0) for c in range(pairs)]
    bands = ["fastest quarter", "fast quarter", "slow quarter", "slowest quarter"]
    after = [(372.0, 395.0), (131.0, 96.0), (109.0, 81.0), (102.0, 87.0)]
    positions = [0, 256, 4096, 131072]
    flat = {"float32": 4.5e-9, "float16": 3.6e-5, "bfloat16": 2.9e-4, "float8_e4m3": 4.7e-3}
    rows = [{"dtype": d, "angles": "exact", "position": p, "error": e}
            for d, e in flat.items() for p in positions]  # fmt: skip
    rows += [{"dtype": "bfloat16", "angles": "same dtype", "position": p, "error": e}
             for p, e in zip(positions, [1.5e-3, 0.034, 0.11, 0.12], strict=True)]  # fmt: skip
    quant = {8: (1.4e-5, 2.3e-5), 4: (3.9e-3, 6.5e-3), 2: (0.10, 0.18)}
    return {
        "wavelengths": [{"pair": c, "wavelength": w, "turns": w <= context}
                        for c, w in enumerate(waves)],
        "context": context,
        "usage": [{"pair": c, "share": round(w / sum(weights), 5)} for c, w in enumerate(weights)],
        "bands": [{"band": b, "length": n, "before": f, "after": e[i]}
                  for b, e in zip(bands, after, strict=True)
                  for i, (n, f) in enumerate([(512, 101.9), (4096, 69.0)])],
        "precision": rows,
        "quantised": [{"bits": b, "when": f"{w} rotation", "error": e}
                      for b, es in quant.items()
                      for w, e in zip(("before", "after"), es, strict=True)],
        "lengths": [{"method": m, "from": 2048 * i, "to": 2048 * (i + 1), "loss": loss}
                    for m, losses in {"untouched": (3.4, 3.3, 4.9, 6.2),
                                      "yarn ×4": (3.5, 3.4, 3.4, 3.5)}.items()
                    for i, loss in enumerate(losses)],
        "native": 4096,
    }  # fmt: skip


def race() -> dict:
    medians = {
        "sinusoidal": [2.97, 3.71, 4.26, 4.49],
        "rope": [2.90, 3.22, 3.64, 3.93],
        "alibi": [3.04, 3.02, 3.02, 3.02],
        "none": [3.62, 3.62, 3.63, 3.64],
    }
    return {
        "task": "next character of public-domain text, two layers of width 64",
        "train_length": 128,
        "lengths": [128, 256, 512, 1024],
        "unit": "bits per character",
        "curves": [
            {
                "encoding": name,
                "median": xs,
                "low": [round(x - 0.03 - 0.05 * i, 3) for i, x in enumerate(xs)],
                "high": [round(x + 0.04 + 0.06 * i, 3) for i, x in enumerate(xs)],
            }
            for name, xs in medians.items()
        ],
        "seeds": 3,
    }


def scorecard() -> dict:
    table = {}
    for i, (name, row) in enumerate(TRUTHS.items()):
        table[name] = {}
        for j, (prop, mark) in enumerate(zip(PROPERTIES, row, strict=True)):
            holds = {"Y": True, "N": False, "-": None}[mark]
            error = None if holds is None else (3.1e-14 * (i + 1) if holds else 0.17 + j / 20)
            table[name][prop] = {"error": error, "holds": holds, "claimed": holds}
    table["learned"]["unique"] = {"error": 0.91, "holds": True, "claimed": False}
    return table


WORDS = {
    "problem": (
        "Two dogs, one vector",
        "Can attention tell the first dog from the second?",
        "No. Without position, equal tokens get equal outputs, to the last bit that matters.",
        "measured",
        "Self-attention compares every token with every other one and takes a weighted mean. "
        "Nothing in this asks where a token stands: shuffle the sentence, and the outputs are "
        "shuffled in the same way.",
        [r"\operatorname{attend}(P x) = P \operatorname{attend}(x)"],
        {"equal_tokens": 0.0, "permutation": 4.4e-16, "causal": 0.66},
        {
            "equal_tokens": "largest difference between outputs of equal tokens",
            "permutation": "permutation equivariance error, relative",
            "causal": "the same two tokens under the causal mask, relative",
        },
    ),
    "integer": (
        "Add the number",
        "Why not add the position itself to every component?",
        "The word drowns: at position 1,000 the code is 81 dB louder than the word.",
        "measured",
        "The simplest code is the position as a number. It is never ambiguous, and it grows "
        "without end, while the embeddings stay the size they are.",
        [r"E(p) = (p, p, \dots, p) \in \mathbb{R}^{D}", r"20\log_{10}\frac{\lVert e\rVert}"
         r"{\lVert E(p)\rVert}"],
        {"word": 2.03, "snr_1": -21.5},
        {"word": "length of the word's embedding", "snr_1": "dB, word against code at p = 1"},
    ),
    "normalised": (
        "Divide by the length",
        "What if the code always runs from 0 to 1?",
        "Bounded, but a position no longer has a code of its own.",
        "proved",
        "Dividing by the length keeps the code small. But the same place now has another code "
        "in every text, and neighbours in a long text all but coincide.",
        [r"E(p) = \frac{p}{L-1}"],
        {"short": 0.5556, "long": 0.00050005},
        {"short": "code of position 5 at length 10", "long": "the same at length 10,000"},
    ),
    "binary": (
        "Write it in bits",
        "Can the code be bounded, and the same in every text?",
        "Yes, and it jumps: one step can flip every bit.",
        "measured",
        "Binary digits are bounded, exact in every data type and independent of the length. "
        "But from 127 to 128 all eight bits change at once, from 128 to 129 just one.",
        [r"E_k(p) = \left\lfloor p / 2^{k} \right\rfloor \bmod 2"],
        {"jump_max": 2.8284, "jump_mean": 1.3721},
        {"jump_max": "largest jump between neighbours", "jump_mean": "mean jump"},
    ),
    "sinusoidal": (
        "Round off the bits",
        "What is a bit that changes smoothly?",
        "A shift is a fixed rotation: the first code with a rule for distance.",
        "proved",
        "Every bit is a square wave, each half as fast as the one before. Sinusoids keep the "
        "ladder of speeds and drop the corners. A shift by k then turns each pair by a fixed "
        "angle, whatever the position.",
        [r"E(p)_{2i} = \sin\!\left(p\, b^{-2i/D}\right),\quad "
         r"E(p)_{2i+1} = \cos\!\left(p\, b^{-2i/D}\right)",
         r"\begin{pmatrix}\sin (p+k)\omega\\ \cos (p+k)\omega\end{pmatrix} = "
         r"\begin{pmatrix}\cos k\omega & \sin k\omega\\ -\sin k\omega & \cos k\omega"
         r"\end{pmatrix}\begin{pmatrix}\sin p\omega\\ \cos p\omega\end{pmatrix}"],
        {"shift": 3.1e-15, "longest": 47117.0},
        {"shift": "largest error of M(k) E(p) = E(p + k)",
         "longest": "longest wavelength at D = 64, positions"},
    ),
    "relative": (
        "Add or turn?",
        "Does the score of two words depend on their distance alone?",
        "Not when the code is added. When the vectors are turned, it does.",
        "measured",
        "Added codes go through the same matrices as the words. The products that result mix "
        "word with position, and the score of the same two words drifts along the text.",
        [r"(x_i + E_i)^{\top} W (x_j + E_j) = x_i^{\top} W x_j + x_i^{\top} W E_j + "
         r"E_i^{\top} W x_j + E_i^{\top} W E_j"],
        {"adding_spread": 0.41, "rotating_spread": 1.3e-15},
        {"adding_spread": "spread over position, adding",
         "rotating_spread": "spread over position, rotating"},
    ),
    "rotary": (
        "Turn q and k",
        "What is the smallest change that makes every score relative?",
        "Rotating q and k pair by pair keeps norms and makes every score relative.",
        "proved",
        "Take two components of the query as a point in a plane and turn it by an angle that is "
        "proportional to its position; do the same with the key. A dot product sees only the "
        "difference of the angles.",
        [r"\langle R_{m\theta}\, q,\; R_{n\theta}\, k\rangle = q^{\top} R_{(n-m)\theta}\, k"],
        {"score": 4.4e-16, "norm": 2.2e-16, "equal": 0.31},
        {"score": "score(i + t, j + t) against score(i, j)", "norm": "change of norm, relative",
         "equal": "how far apart the equal tokens now are, relative"},
    ),
    "axes": (
        "More than one axis",
        "And an image, which has no single order?",
        "One frequency for both axes confuses places; frequencies of its own for each do not.",
        "measured",
        "A place in an image has two coordinates. If both turn the same pairs, only their sum "
        "counts. If each axis has pairs of its own, no two places coincide.",
        [r"\phi_c = x\, f_{x,c} + y\, f_{y,c}"],
        {"shared": 0.0, "axial": 0.42},
        {"shared": "distance of (x, y) and (x + 1, y − 1), shared frequency",
         "axial": "the same, a frequency for each axis"},
    ),
    "future": (
        "What comes next",
        "Which pairs does a model use, and what survives eight bits?",
        "Open: slow pairs carry much of the norm, and matter more the longer the text.",
        "literature",
        "Slow pairs never complete a turn within the context. Some papers call them expendable, "
        "others find that retrieval rests on them. Both can be seen here, at two lengths.",
        [r"\theta_c = b^{-2c/d}"],
        {"never": 14.0, "slow_half": 0.77},
        {"never": "pairs that never turn within the context",
         "slow_half": "share of the slower half in usage"},
    ),
}  # fmt: skip


def full_payload(tokens: list[str] | None = None) -> dict:
    """A payload with every part present; ``tokens`` may be anything at all."""
    tokens = TOKENS if tokens is None else tokens
    rng = random.Random(0)
    drawings = {
        "problem": problem(tokens, rng),
        "integer": integer(),
        "normalised": normalised(),
        "binary": binary(),
        "sinusoidal": sinusoidal(),
        "relative": relative(rng),
        "rotary": rotary(tokens, rng),
        "axes": axes(),
        "future": future(),
    }
    steps = []
    for name, words in WORDS.items():
        title, question, verdict, evidence, paragraph, equations, figures, labels = words
        steps.append({
            "name": name, "title": title, "question": question, "verdict": verdict,
            "evidence": evidence, "paragraphs": [paragraph], "equations": equations,
            "figures": figures, "labels": labels, "drawing": drawings[name],
        })  # fmt: skip
    return {
        "title": "ropewalk walk",
        "version": "0.1.0",
        "text": "".join(tokens),
        "tokens": tokens,
        "source": "SmolLM2-135M token embeddings (embedded slice, 8-bit)",
        "steps": steps,
        "scorecard": scorecard(),
        "race": race(),
    }
