"""Write ``docs/audit.md``: what an audit does, and the kinds of findings; ``--check`` compares."""

from __future__ import annotations

import sys
from pathlib import Path

from one_page import command

from ropewalk.models.auditing import KINDS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "audit.md"

HEAD = """# Audits of running models

[`ropewalk explain`](configs.md) says what a config asks for. `ropewalk audit` loads the model and
looks whether it does that.

```sh
ropewalk audit path/to/model              # a folder with safetensors, or a GGUF file
ropewalk audit smollm2 --quick            # the packaged model, tables and rotations only
ropewalk audit path/to/model --json       # one document on stdout
```

```python
from transformers import AutoModelForCausalLM

from ropewalk.models import audit

model = AutoModelForCausalLM.from_pretrained("path/to/model")
found = audit(model)          # a loaded model of transformers, left as it was
print(found)                  # every check with its figures, then the findings
assert found                  # True if no finding is an error
found.skipped                 # what did not apply, and why
```

Files are read from this machine only; no code in them is run, and no pickle is loaded. Exit status
0: no error was found; 1: there is one; 2: the model could not be loaded. A check that does not
apply says why, and is never counted as passed.

## What is looked at

| check | how |
|---|---|
| config | the errors that `explain` finds in it |
| file = loaded config | both resolved, and compared as `diff` does |
| frequencies | every `inv_freq`: finite, written, wide, the config's to 4e-6 |
| attention factor | every `attention_scaling` |
| rotation of keys | see below: layers, lanes, pairs, angles |
| keys at far positions | the same at the original length − 1, + 0, + 1 and twice it |
| rotary functions, lane by lane | each call, one lane at a time: pairs, factor, dtype, q = k |
| cached decoding = full pass | token by token, with positions given, and in chunks |
| left-padded = unpadded | positions from the mask, as `generate` makes them |
| packed = separate | by restarted positions, or by a block mask |
| rows of a batch are independent | a row beside others, and alone |
| all positions may move | by 1 and by 17, where the encoding is relative |
| no memory of earlier calls | again after calls that are far, long, cached, bfloat16 |
| cached decoding over the original length | at positions on both sides of it |
| short rows beside long ones | a row beside one that reaches past it |
| no memory of longer calls | past it, before and after a longer call |
| cached decoding at full length | whole passes that take seconds; `--lengths` forces |
| sensitivity to the dtype of tables | figures only, of tables in half precision |

**Keys of lone tokens.** A sequence of one token attends to itself alone. So whatever the weights,
in every layer all that depends on its position is the rotation of its key, and the key that lands
in the cache at position p is the same linear map of the key at 0 for every token. That map is
compared with the config's spectrum; where it differs it is solved for, and its columns are the
images of the lanes taken one by one: which turn together, by what angle, and which stand. No name
of a module or function is needed.

**When are two results the same?** Rounding moves the results of a deep model by more than the
rounding of one operation. The audit measures it: the embeddings of this very model are multiplied
by 1 + 2ε·noise, and 50 times what that does to the results is allowed (at least 100ε; 5 times in
half precision). Load in float32 to see most: where rounding hides the rest, that is told as a check
that did not apply.

**Frequencies that depend on the length.** Dynamic NTK and LongRoPE as transformers has them do
change with the longest position of a call: cached keys keep old frequencies, rows of a batch change
each other, and dynamic NTK remembers longer calls. That is what the config asks for, so it is a
warning with figures (RW236 to RW238), and an error where the config asks for no such scaling.

What it cannot see: weights that were permuted for another layout (nothing says what a weight should
be), and models that need more than tokens to run; of those it reads the tables.

`python scripts/audit_sweep.py` audits a tiny random model of every architecture.

## Findings

Shape and severities are those of [`explain`](findings.md).

| code | severity | what it says | a fault that shows it |
|---|---|---|---|
"""


def page() -> str:
    """The whole page."""
    rows = [f"| {k.code} | {k.severity} | {k.title} | {k.example} |" for k in KINDS]
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(command(page(), PAGE))
