"""The layout explains itself: layers, one file per encoding, docs generated from the catalogue."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from ropewalk import records
from ropewalk.catalog import PROPERTIES, builtin, encodings

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "ropewalk"

LAYERS = (
    ("_version", "records", "data"),
    ("spectra",),
    ("positions",),
    ("kernels",),
    ("catalog", "core", "plugins"),
    ("encodings",),
    ("attention", "plan"),
    ("configs", "models"),
    ("bench", "checks", "lab"),
    ("report", "walk"),
    ("cli",),
    ("__init__", "__main__"),
)
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

LAZY_UPWARD = {
    ("spectra/spectrum.py", "kernels"): "a spectrum gives its tensors without loading torch",
    ("catalog.py", "encodings"): "the import lines of the encodings fill the catalogue",
    ("catalog.py", "core"): "annotations only",
    ("encodings/rotary/rope.py", "configs"): "RoPE.from_config reads a model's config",
}

STANDARD_ONLY = (
    "spectra",
    "configs",
    "catalog.py",
    "plugins.py",
    "_version.py",
    "records.py",
    "lab/record.py",
    "lab/store.py",
    "lab/executors",
    "cli/app.py",
    "cli/entry.py",
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = node.module or ""
        return [base] + [f"{base}.{alias.name}" for alias in node.names]
    return []


def rooms_used(path: Path) -> set[tuple[str, bool]]:
    """(room of ropewalk, imported at load time) for every import of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[tuple[str, bool]] = set()

    def visit(node: ast.AST, at_load: bool) -> None:
        for child in ast.iter_child_nodes(node):
            later = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            typing_only = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            for name in imported(child):
                parts = name.split(".")
                if parts[0] == "ropewalk" and len(parts) > 1 and parts[1] in RANK:
                    found.add((parts[1], at_load))
            visit(child, at_load and not later and not typing_only)

    visit(tree, True)
    return found


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path):
    own = room(path)
    assert own in RANK, f"{own} has no layer; add it to LAYERS"
    for used, at_load in rooms_used(path):
        if RANK[used] <= RANK[own]:
            continue
        where = (str(path.relative_to(PACKAGE)), used)
        assert not at_load, f"{where[0]} imports {used}, a higher layer"
        assert where in LAZY_UPWARD, f"{where[0]} reaches up to {used} inside a function"


def test_the_layer_test_sees_an_upward_import(tmp_path: Path):
    planted = tmp_path / "planted.py"
    planted.write_text("from ropewalk.cli.app import main\n\ndef f():\n    import ropewalk.walk\n")
    assert rooms_used(planted) == {("cli", True), ("walk", False)}


@pytest.mark.parametrize("name", STANDARD_ONLY)
def test_some_rooms_load_neither_torch_nor_numpy(name: str):
    module = "ropewalk." + name.removesuffix(".py").replace("/", ".")
    code = f"import sys, {module}; print({{'torch', 'numpy', 'transformers'}} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout.strip() == "set()", result.stderr


def encoding_files() -> dict[str, Path]:
    return {
        path.stem: path
        for path in (PACKAGE / "encodings").glob("*/*.py")
        if path.stem != "__init__"
    }


def test_one_file_per_encoding_and_one_import_line():
    files = encoding_files()
    assert set(encodings()) == set(files), "each file of encodings/*/ registers its own name"
    for name, path in files.items():
        assert path.parent.name == encodings()[name].family
        folder = (path.parent / "__init__.py").read_text(encoding="utf-8")
        lines = [li for li in folder.splitlines() if f".{path.parent.name}.{name} import" in li]
        assert len(lines) == 1, f"{path.parent.name}/__init__.py needs one import line for {name}"


def test_one_file_per_task_and_one_import_line():
    from ropewalk.lab.task import tasks

    folder = PACKAGE / "lab" / "tasks"
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    assert set(tasks()) == files, "each file of lab/tasks/ registers its own name"
    lines = (folder / "__init__.py").read_text(encoding="utf-8").splitlines()
    imports = [line.split()[1] for line in lines if line.startswith("from ")]
    assert imports == sorted(f"ropewalk.lab.tasks.{name}" for name in files)
    for name, spec in tasks().items():
        assert spec.factory.__module__ == f"ropewalk.lab.tasks.{name}"
        assert spec.title, name
        assert spec.source, name
        assert {"train_length", "lengths", "steps"} <= set(spec.usual), name


def test_every_spec_is_complete():
    for name, spec in encodings().items():
        assert spec.title, name
        assert spec.equation, name
        assert spec.source, name
        for key in PROPERTIES:
            claim = spec.claims.get(key)
            if claim is None and key not in ("generalises", "learnable"):
                assert key in spec.reasons, f"{name}: why does {key} not apply?"
            if claim is False:
                assert key in spec.reasons, f"{name}: why does {key} not hold?"


def script(name: str) -> ModuleType:
    """A script, as Python runs it: files beside it can be imported."""
    folder = str(ROOT / "scripts")
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(name)


def test_docs_are_generated_from_the_catalogue():
    make_docs = script("make_docs")
    assert make_docs.stale() == [], "run make docs-pages"
    names = [*builtin()]
    assert set(make_docs.pages()) == {
        "claims/index.md",
        "encodings/index.md",
        *(f"encodings/{name}.md" for name in names),
    }
    assert set(make_docs.figures()) == {
        *(f"encodings/{name}.svg" for name in names),
        *(f"claims/{name}.svg" for name in records.named("claim_")),
    }


def test_every_claim_has_its_script_and_its_section():
    stored = [records.load(name) for name in records.named("claim_")]
    page = script("make_docs").pages()["claims/index.md"]
    for record in stored:
        assert record is not None
        assert (ROOT / record["script"]).is_file()
        assert f"## {record['number']}. {record['title']}\n" in page
        assert record["seeds"] >= 5
        assert len(record["statements"]) >= 1
    scripts = {path.name for path in (ROOT / "runs").glob("claim_*.py")}
    assert scripts == {Path(record["script"]).name for record in stored if record}


def test_docs_tables_keep_their_columns_and_say_why():
    for path, page in script("make_docs").pages().items():
        folder, name = path.split("/")
        if folder != "encodings":
            continue
        rows = [li.replace(r"\|", "") for li in page.splitlines() if li.startswith("|")]
        assert len({row.count("|") for row in rows}) == 1, f"{name}: a cell holds a bare |"
        if name != "index.md":
            head, _, claims, *_ = ([c.strip() for c in row.split("|")] for row in rows)
            for key, claim in zip(head, claims, strict=True):
                assert claim not in ("no", "–") or f"- **{key}**: " in page, f"{name}: why {key}?"
            assert not re.search(r"- \*\*\w+\*\*: *$", page, re.M), name


@pytest.mark.parametrize("name", builtin())
def test_the_example_of_a_page_runs(name: str):
    page = script("docs_page").page(builtin()[name])
    (example,) = re.findall(r"```python\n(.*?)```", page, re.S)
    scope: dict[str, object] = {}
    exec(example, scope)
    y, given = scope["y"], scope["x" if builtin()[name].family == "additive" else "q"]
    assert y.shape == given.shape  # pyright: ignore[reportAttributeAccessIssue]
    assert bool(y.isfinite().all())  # pyright: ignore[reportAttributeAccessIssue]


def test_the_site_serves_its_own_scripts_and_lists_every_page(tmp_path: Path):
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert "nav" not in config, "a nav would have to name every page"
    assert config["theme"]["font"] is False, "fonts would be requested from elsewhere"
    assert config["hooks"] == ["scripts/docs_katex.py"]
    script("docs_katex").on_post_build({"site_dir": str(tmp_path)})
    for path in config["extra_css"] + config["extra_javascript"]:
        assert (tmp_path / path).exists() or (ROOT / "docs" / path).exists(), path


def test_public_names_exist():
    import ropewalk

    for name in ropewalk.__all__:
        assert getattr(ropewalk, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'rotat'"):
        _ = ropewalk.rotat
