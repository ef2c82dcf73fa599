"""The idiom ``x * cos + rotate_half(x) * sin`` inside a function, as one fused rotation.

Functions of no known form (several q, excluded tokens, repeated tables …) still write the rotation
so. Their source is compiled anew with each such sum replaced; the rest of the function stays. That
the inner function turns pairs is established by running it, whatever its name.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from ropewalk.models.applied import Applied
from ropewalk.models.forms import Form, turned
from ropewalk.models.places import here
from ropewalk.models.rotation import compared

ALIAS = "_ropewalk_{layout}_{sign}"


class Turn:
    """``x * cos + rotated(x) * sin`` for tables as wide as x."""

    def __init__(self, form: Form, rotated: Callable[[Tensor], Tensor]):
        self.form, self.rotated = form, rotated

    def __call__(self, x: Tensor, cos: Tensor, sin: Tensor, function: str) -> Tensor:
        """The rotated x, in the dtype that the sum would have."""
        place = here()
        if place is not None and place.forgoes(function):
            return self._sum((x,), cos, sin)[0]
        instead = None if place is None else place.instead
        alike = sin.shape == cos.shape and sin.dtype == cos.dtype and cos.is_floating_point()
        if not alike or cos.shape[-1] != x.shape[-1]:
            if instead is None:
                return self._sum((x,), cos, sin)[0]
            raise ValueError(
                f"{function}: cos {tuple(cos.shape)} and sin {tuple(sin.shape)} must be alike and "
                f"as wide as x {tuple(x.shape)}"
            )
        if instead is not None:
            applied = Applied.at(place, (x,), cos, sin, self.form, function, self._sum)
            return instead(applied)[0]
        if place is None or function in place.agreed:
            return self._turned(x, cos, sin, function)
        return compared(
            place,
            function,
            [x, cos, sin],
            sin,
            lambda: self._turned(x, cos, sin, function),
            lambda: self._sum((x,), cos, sin)[0],
        )

    def _sum(self, tensors: tuple[Tensor, ...], cos: Tensor, sin: Tensor) -> tuple[Tensor, ...]:
        """As the model writes it."""
        return tuple(x * cos + self.rotated(x) * sin for x in tensors)

    def _turned(self, x: Tensor, cos: Tensor, sin: Tensor, function: str) -> Tensor:
        return turned((x,), cos, sin, self.form, function)[0]


def fused_in(function: FunctionType) -> FunctionType | None:
    """``function`` with each such sum fused; None if it has none, or no source that can be read."""
    called = (function.__globals__.get(name) for name in function.__code__.co_names)
    if function.__code__.co_freevars or not any(turns_pairs(f) for f in called):
        return None
    definition = _definition(function)
    if definition is None:
        return None
    rewriter = _Sums(function.__globals__, function.__name__)
    definition = rewriter.visit(definition)
    if not rewriter.turns:
        return None
    code = _compiled(definition, function)
    function.__globals__.update(rewriter.turns)
    new = FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    new.__kwdefaults__ = function.__kwdefaults__
    new.__annotations__ = function.__annotations__
    new.__qualname__, new.__doc__ = function.__qualname__, function.__doc__
    new.__dict__.update(function.__dict__)
    return new


def _definition(function: FunctionType) -> ast.FunctionDef | None:
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    ast.increment_lineno(tree, first - 1)
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef) or any(_mangled(n) for n in ast.walk(found)):
        return None
    return found


def _mangled(node: ast.AST) -> bool:
    """Whether a name is private to its class, and would be another name outside it."""
    name = getattr(node, "attr", None) or getattr(node, "id", None) or ""
    return name.startswith("__") and not name.endswith("__")


def _compiled(definition: ast.FunctionDef, function: FunctionType) -> CodeType:
    definition.decorator_list, definition.returns = [], None
    arguments = definition.args
    for argument in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        argument.annotation = None
    for argument in (arguments.vararg, arguments.kwarg):
        if argument is not None:
            argument.annotation = None
    arguments.defaults = [ast.Constant(None) for _ in arguments.defaults]
    arguments.kw_defaults = [d and ast.Constant(None) for d in arguments.kw_defaults]
    module = ast.fix_missing_locations(ast.Module([definition], []))
    whole = compile(module, function.__code__.co_filename, "exec", dont_inherit=True)
    return next(c for c in whole.co_consts if isinstance(c, CodeType))


class _Sums(ast.NodeTransformer):
    """Replaces the sums, and gathers the turns that they need by alias."""

    def __init__(self, names: dict[str, Any], function: str):
        self.names, self.function = names, function
        self.turns: dict[str, Turn] = {}

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if not isinstance(node.op, ast.Add):
            return node
        for plain, other in ((node.left, node.right), (node.right, node.left)):
            for call, sine in _factors(other):
                form = self._form(call)
                if form is None:
                    continue
                inner = _bare(call)[0].args[0]  # pyright: ignore[reportAttributeAccessIssue]
                for x, cosine in _factors(plain):
                    if _same(x, inner):
                        name = _bare(call)[0].func.id  # pyright: ignore[reportAttributeAccessIssue]
                        self._note(form, self.names[name])
                        return self._turn(form, _widest(x, inner, call), cosine, sine)
        return node

    def _form(self, node: ast.expr) -> Form | None:
        call, _ = _bare(node)
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return None
        if len(call.args) != 1 or call.keywords:
            return None
        return turns_pairs(self.names.get(call.func.id))

    def _note(self, form: Form, rotated: Callable[[Tensor], Tensor]) -> None:
        self.turns[_alias(form)] = Turn(form, rotated)

    def _turn(self, form: Form, x: ast.expr, cosine: ast.expr, sine: ast.expr) -> ast.expr:
        called = ast.Name(_alias(form), ast.Load())
        return ast.Call(called, [x, cosine, sine, ast.Constant(self.function)], [])


def _alias(form: Form) -> str:
    return ALIAS.format(layout=form.layout, sign="back" if form.sign < 0 else "on")


def _factors(node: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [(node.left, node.right), (node.right, node.left)]
    return []


def _bare(node: ast.expr) -> tuple[ast.expr, bool]:
    """An expression without a ``.float()`` at its end, and whether it had one."""
    called = (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "float"
        and not node.args
        and not node.keywords
    )
    return (node.func.value, True) if called else (node, False)  # pyright: ignore[reportAttributeAccessIssue]


def _same(x: ast.expr, inner: ast.expr) -> bool:
    return ast.dump(_bare(x)[0]) == ast.dump(_bare(inner)[0])


def _widest(x: ast.expr, inner: ast.expr, call: ast.expr) -> ast.expr:
    """x, as float32 where any of its uses is."""
    if _bare(x)[1] or not (_bare(inner)[1] or _bare(call)[1]):
        return x
    return ast.Call(ast.Attribute(x, "float", ast.Load()), [], [])


def turns_pairs(function: Callable[..., Any] | None) -> Form | None:
    """The form of a function that maps lanes (x₀, x₁) to (−x₁, x₀), found by running it.

    Only functions of one argument with "rot" in their name are run.
    """
    if not isinstance(function, FunctionType) or "rot" not in function.__name__.lower():
        return None
    if function.__code__.co_argcount != 1:
        return None
    x = torch.arange(1.0, 1.0 + 2 * 3 * 4 * 8, device="cpu").reshape(2, 3, 4, 8)
    try:
        y = function(x)
    except Exception:
        return None
    if not isinstance(y, Tensor) or y.shape != x.shape:
        return None
    half = torch.cat((-x[..., 4:], x[..., :4]), -1)
    interleaved = torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)
    for layout, image in (("half", half), ("interleaved", interleaved)):
        for sign in (1, -1):
            if torch.equal(y, sign * image):
                return Form(layout, "both", sign=sign, dtype="promoted")
    return None
