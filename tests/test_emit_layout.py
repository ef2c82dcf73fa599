"""emit and the layout of converted weights: told to programs that read it, refused otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ropewalk.cli import main
from ropewalk.configs import resolve
from ropewalk.configs.emit import TARGETS, emit, whole
from ropewalk.models.conversion.record import recorded

LLAMA = {
    "model_type": "llama",
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rope_theta": 1e5,
    "max_position_embeddings": 4096,
}
QWEN3 = {**LLAMA, "model_type": "qwen3", "head_dim": 64}
DEEPSEEK = {**LLAMA, "model_type": "deepseek_v3", "qk_rope_head_dim": 16, "qk_nope_head_dim": 32}
UNKNOWN = {**LLAMA, "model_type": "of_its_own"}
PHI3_LONG = {
    **LLAMA,
    "model_type": "phi3",
    "original_max_position_embeddings": 1024,
    "rope_scaling": {"type": "longrope", "short_factor": [1.0] * 32, "long_factor": [2.0] * 32},
}


def converted(config: dict[str, Any], to: str) -> dict[str, Any]:
    """The config that ``ropewalk convert`` writes."""
    return recorded(config, to)[0]


def layouts(config: Any) -> set[str | None]:
    return {group.layout for group in resolve(config).text().layers}


@pytest.mark.parametrize("target", sorted(set(TARGETS) - {"mlx"}))
@pytest.mark.parametrize("config", [LLAMA, QWEN3], ids=lambda c: c["model_type"])
def test_a_program_that_would_turn_the_other_pairs_is_refused(config, target):
    moved = converted(config, "interleaved")
    assert moved["ropewalk_layout"] == "interleaved"
    words = f"ropewalk_layout=interleaved.*{target} turns half pairs in every.*convert.*--to half"
    with pytest.raises(ValueError, match=words):
        emit(resolve(moved), target)
    emit(resolve(config), target)
    back = converted(moved, "half")
    assert emit(resolve(back), target) == emit(resolve(config), target)


def test_mlx_is_told_where_its_class_reads_it():
    told = emit(resolve(converted(LLAMA, "interleaved")), "mlx")
    assert told == {**emit(resolve(LLAMA), "mlx"), "rope_traditional": True}
    mistral4 = converted({**DEEPSEEK, "model_type": "mistral4"}, "half")
    assert emit(resolve(mistral4), "mlx")["rope_interleave"] is False
    for config, why in ((QWEN3, "in every qwen3"), (PHI3_LONG, "with rope_type longrope")):
        with pytest.raises(ValueError, match=f"mlx turns half pairs {why}|{why}"):
            emit(resolve(converted(config, "interleaved")), "mlx")


def test_the_other_way_too():
    """glm4 turns interleaved pairs, and mlx-lm's rope_traditional is true unless stated."""
    moved = converted({**LLAMA, "model_type": "glm4", "head_dim": 64}, "half")
    assert moved["ropewalk_layout"] == "half"
    assert emit(resolve(moved), "mlx")["rope_traditional"] is False
    with pytest.raises(ValueError, match=r"turns interleaved pairs.*--to interleaved"):
        emit(resolve(moved), "vllm")


@pytest.mark.parametrize("target", ["transformers", "transformers4", "transformers5"])
def test_a_key_of_the_class_is_written(target):
    moved = converted(DEEPSEEK, "half")
    assert moved["rope_interleave"] is False
    written = emit(resolve(moved), target)
    assert written["rope_interleave"] is False
    assert layouts(written) == {"half"}
    assert "rope_interleave" not in emit(resolve(DEEPSEEK), target)
    by_hand = emit(resolve({**DEEPSEEK, "ropewalk_layout": "half"}), target)
    assert by_hand["rope_interleave"] is False


@pytest.mark.parametrize("target", ["vllm", "llama.cpp", "mlx"])
def test_programs_that_do_not_read_the_key_of_the_class_are_refused(target):
    with pytest.raises(ValueError, match=f"rope_interleave=half.*{target} turns interleaved"):
        emit(resolve(converted(DEEPSEEK, "half")), target)
    emit(resolve(DEEPSEEK), target)


def test_a_class_that_is_not_known_is_told_by_the_usual_key():
    written = emit(resolve(converted(UNKNOWN, "interleaved")), "transformers5")
    assert written["rope_interleave"] is True
    assert layouts(written) == {"interleaved"}
    with pytest.raises(ValueError, match="has no key to say otherwise"):
        emit(resolve(converted(UNKNOWN, "interleaved")), "vllm")


def test_a_layout_that_is_that_of_the_class_changes_nothing():
    for target in TARGETS:
        assert emit(resolve({**LLAMA, "ropewalk_layout": "half"}), target) == emit(
            resolve(LLAMA), target
        )


def test_a_part_that_reads_text():
    nested = {"model_type": "llava", "text_config": LLAMA, "vision_config": {"hidden_size": 64}}
    moved = converted(nested, "interleaved")
    assert moved["text_config"]["ropewalk_layout"] == "interleaved"
    with pytest.raises(ValueError, match=r"text_config\.ropewalk_layout=interleaved"):
        emit(resolve(moved), "vllm")


def test_a_whole_config_is_told_even_against_a_key_of_its_own():
    source = {**DEEPSEEK, "rope_interleave": True, "ropewalk_layout": "half"}
    fixed = whole(source, emit(resolve(source), "transformers5"))
    assert fixed["rope_interleave"] is False
    assert layouts({k: v for k, v in fixed.items() if k != "ropewalk_layout"}) == {"half"}
    kept = {**UNKNOWN, "rope_interleave": False}
    assert whole(kept, emit(resolve(kept), "transformers5"))["rope_interleave"] is False


def test_the_command_line_ends_with_2_and_one_line(tmp_path: Path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(converted(LLAMA, "interleaved")))
    for more in ([], ["--whole"], ["--json"]):
        assert main(["emit", str(path), "--for", "transformers", *more]) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "convert them back first: ropewalk convert FOLDER OUT --to half" in err
    assert main(["emit", str(path), "--for", "mlx", "--whole"]) == 0
    assert json.loads(capsys.readouterr().out)["rope_traditional"] is True
