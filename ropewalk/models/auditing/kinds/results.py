"""Findings about results that differ where they must not."""

from __future__ import annotations

from ropewalk.configs.findings.finding import Kind

CACHED_UNLIKE = Kind(
    "RW230",
    "error",
    "Cached decoding is not the full pass",
    "results differ by {difference} of the largest, rounding allows {allowed}{hint}",
    "count positions on from the cache's length; keep position, mask and cache of the same length",
    "positions off by one with a cache",
)
PADDED_UNLIKE = Kind(
    "RW231",
    "error",
    "Left padding changes results",
    "results differ by {difference} of the largest, rounding allows {allowed}",
    "take positions from the attention mask: (mask.cumsum(-1) - 1).clamp(min=0)",
    "positions from arange with learned embeddings",
)
PACKED_UNLIKE = Kind(
    "RW232",
    "error",
    "Packed samples see each other",
    "samples in one row differ from the same samples alone by {difference} of the largest, "
    "rounding allows {allowed}",
    "restart positions at each sample and mask other samples",
    "a mask that ignores where samples begin",
)
NEIGHBOURS = Kind(
    "RW233",
    "error",
    "Rows of a batch change each other",
    "another row beside it changes a row's results by {difference} of the largest, rounding allows "
    "{allowed}{hint}",
    "compute positions, masks and frequencies row by row",
    "a scaling chosen by the longest row of a batch",
)
NOT_RELATIVE = Kind(
    "RW234",
    "error",
    "Results change when all positions move",
    "results at positions {shift} later differ by {difference} of the largest, rounding allows "
    "{allowed}",
    "rotate q and k by the same function of their positions",
    "q rotated by positions that restart",
)
HISTORY = Kind(
    "RW235",
    "error",
    "Results depend on earlier calls",
    "the same call gives results {difference} apart after {after}, rounding allows {allowed}",
    "compute tables from the call's own positions; write to no state in forward",
    "a table of bfloat16 kept from an earlier call",
)
CACHED_BY_LENGTH = Kind(
    "RW236",
    "warning",
    "The scaling depends on the length, and cached keys do not follow",
    "over the length of {length} tokens cached decoding differs from the full pass by {difference} "
    "of the largest: keys cached before were rotated by other frequencies ({scaling})",
    "read the prompt anew when it passes that length, or use a scaling that does not depend on it "
    "(yarn, linear)",
    "rope_type dynamic",
)
NEIGHBOURS_BY_LENGTH = Kind(
    "RW237",
    "warning",
    "The scaling depends on the longest row of a batch",
    "beside a row of more than {length} tokens a short row's results change by {difference} of the "
    "largest ({scaling})",
    "batch short and long rows apart, or use a scaling that does not depend on the length",
    "rope_type longrope",
)
HISTORY_BY_LENGTH = Kind(
    "RW238",
    "warning",
    "The scaling depends on earlier calls",
    "after a call of {longer} tokens one of {length} tokens gives results {difference} apart from "
    "those before ({scaling})",
    "build the model anew between texts, or use a scaling that does not depend on the length",
    "rope_type dynamic",
)
NO_RESULT = Kind(
    "RW239",
    "error",
    "No finite results within the declared length",
    "positions up to {position}, of {declared} that the config declares, give {what}",
    "make tables as long as the config says, or declare what they hold",
    "a table of 64 positions in a model of 128",
)
KINDS = (
    CACHED_UNLIKE,
    PADDED_UNLIKE,
    PACKED_UNLIKE,
    NEIGHBOURS,
    NOT_RELATIVE,
    HISTORY,
    CACHED_BY_LENGTH,
    NEIGHBOURS_BY_LENGTH,
    HISTORY_BY_LENGTH,
    NO_RESULT,
)
