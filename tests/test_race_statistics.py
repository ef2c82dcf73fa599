"""Medians, intervals, verdicts and ranks against brute force, scipy and every order of values."""

from __future__ import annotations

import itertools
import json
import math
import random
import statistics as standard
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from race_records import record
from scipy import stats

from ropewalk.checks import races
from ropewalk.lab import outcome
from ropewalk.lab import statistics as seeds
from ropewalk.lab.statistics import NOT_DISTINGUISHABLE, Interval

numbers = st.floats(-1e6, 1e6, allow_nan=False)
some_numbers = st.lists(numbers, min_size=1, max_size=6)
coarse = st.integers(-4, 4).map(float)
diverged = coarse | st.just(math.inf)


def brute_interval(values: list[float]) -> Interval:
    """Every resample written out; an end leaves 2.5 % of them, or just more, behind it."""
    medians = sorted(map(standard.median, itertools.product(values, repeat=len(values))))
    beyond = math.ceil(Fraction(len(medians), 40)) - 1
    return Interval(standard.median(values), medians[beyond], medians[-1 - beyond])


@given(some_numbers)
def test_the_interval_is_that_of_every_resample(values: list[float]) -> None:
    assert seeds.interval(values) == pytest.approx(brute_interval(values), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", range(1, 24))
def test_the_resamples_are_counted_right(n: int) -> None:
    counted = dict(seeds._resamples(n))
    assert sum(counted.values()) == n**n
    for k in range(1, n + 1):  # the upper of the two middle values, by the binomial law
        below = sum(ways for (_, j), ways in counted.items() if j <= k) / n**n
        assert below == pytest.approx(stats.binom.sf(n // 2, n, k / n), abs=1e-12)


@pytest.mark.parametrize("n", [7, 8, 11, 30])
def test_the_interval_agrees_with_resampling_by_chance(n: int) -> None:
    draw = random.Random(n)
    values = [draw.gauss(0, 1) for _ in range(n)]
    drawn = stats.bootstrap(
        (values,), standard.median, n_resamples=4000, method="percentile",
        vectorized=False, rng=1,
    ).bootstrap_distribution  # fmt: skip
    found = seeds.interval(values)
    for end, side in ((found.low, drawn <= found.low), (found.high, drawn >= found.high)):
        beyond = abs(drawn - end) > 1e-12
        assert (side & beyond).mean() < 0.025 + 0.01  # less than a tail lies beyond the end
        assert side.mean() > 0.025 - 0.01  # and with the end itself no less than one


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5])
def test_few_seeds_give_their_range(n: int) -> None:
    values = random.Random(n).sample(range(100), n)
    assert seeds.interval(values)[1:] == (min(values), max(values))


def test_an_interval_reaches_to_a_trial_that_diverged() -> None:
    assert seeds.interval([2.0, math.inf, 3.0]) == (3.0, 2.0, math.inf)
    assert seeds.interval([2.0, math.inf]) == (math.inf, 2.0, math.inf)
    assert seeds.interval([math.inf] * 3) == (math.inf,) * 3
    assert seeds.interval([-math.inf, math.inf]).median == 0


@pytest.mark.parametrize("values", [[], [1.0, math.nan]])
def test_no_numbers_have_no_interval(values: list[float]) -> None:
    with pytest.raises(ValueError, match="must be numbers, at least one"):
        seeds.interval(values)


# --- chances -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 4), (5, 5), (5, 3), (6, 6), (7, 5), (8, 9)])
def test_the_chance_of_a_gap_is_that_of_the_hypergeometric_law(n: int, m: int) -> None:
    k, most = seeds._rank(n), m + 1 - seeds._rank(m)
    above = stats.hypergeom.sf(most - 1, n + m, m, k + most - 1)
    assert float(seeds.chance_of_gap(n, m)) == pytest.approx(2 * above, rel=1e-12)


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 5), (4, 4), (5, 5), (6, 6), (7, 7), (6, 7)])
def test_the_chance_of_a_gap_holds_over_every_order(n: int, m: int) -> None:
    random_numbers = random.Random(n * m)
    order = sorted(random_numbers.uniform(0, 1) ** 3 for _ in range(n + m))
    gaps = total = 0
    for own in itertools.combinations(range(n + m), n):
        a = seeds.interval([order[i] for i in own])
        b = seeds.interval([order[i] for i in range(n + m) if i not in own])
        gaps += a.high < b.low or b.high < a.low
        total += 1
    found, bound = Fraction(gaps, total), seeds.chance_of_gap(n, m)
    exact = all(size % 2 or size <= 4 for size in (n, m))
    assert found == bound if exact else found <= bound


def test_chances_are_those_of_the_textbook() -> None:
    assert [seeds.chance_of_gap(n, n) for n in (2, 3, 4, 5)] == [
        Fraction(2, math.comb(2 * n, n)) for n in (2, 3, 4, 5)
    ]
    assert [float(seeds.chance_of_gap(n, n)) for n in (3, 5)] == pytest.approx(
        [stats.mannwhitneyu(range(n), range(n, 2 * n), method="exact").pvalue for n in (3, 5)]
    )
    for pairs, against in ((5, 0), (7, 1), (8, 1), (12, 2), (4, 2)):
        assert float(seeds.chance_of_split(pairs, against)) == pytest.approx(
            stats.binomtest(against, pairs).pvalue
        )


@pytest.mark.parametrize("n", range(3, 9))
def test_equal_encodings_are_told_apart_no_more_often_than_the_risk(n: int) -> None:
    draw, found, trials = random.Random(n), 0, 1500
    for _ in range(trials):
        a, b = ({seed: draw.expovariate(1) for seed in range(n)} for _ in "ab")
        found += seeds.compare(a, b).verdict != NOT_DISTINGUISHABLE
    assert found / trials <= float(seeds.risk(n, n, n)) + 0.03


# --- two encodings -------------------------------------------------------------------------------


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values))


def test_three_seeds_are_apart_only_by_their_intervals() -> None:
    apart = seeds.compare(by_seed(1.0, 1.2, 1.1), by_seed(1.3, 1.21, 1.5))
    assert (apart.verdict, apart.rule, apart.chance) == ("lower", seeds.BY_INTERVALS, 0.1)
    assert seeds.compare(by_seed(1.3, 1.21, 1.5), by_seed(1.0, 1.2, 1.1)).verdict == "higher"
    paired = seeds.compare(by_seed(1.0, 2.0, 3.0), by_seed(1.1, 2.1, 3.1))
    assert (paired.verdict, paired.rule, paired.chance) == (NOT_DISTINGUISHABLE, None, None)
    assert paired.difference is not None
    assert paired.difference.high < 0


def test_five_seeds_are_apart_by_pairs_too() -> None:
    a, b = by_seed(1, 2, 3, 4, 5), by_seed(1.1, 2.2, 3.1, 4.4, 5.1)
    found = seeds.compare(a, b)
    assert (found.verdict, found.rule) == ("lower", seeds.BY_PAIRS)
    assert found.chance == pytest.approx(2 / 2**5)
    assert found.difference == pytest.approx((-0.1, -0.4, -0.1))
    assert seeds.compare(a, {**b, 4: 4.9}).verdict == NOT_DISTINGUISHABLE
    assert seeds.compare(a, {**b, 4: 5.0}).verdict == NOT_DISTINGUISHABLE  # a tie is no agreement


def test_seven_seeds_with_one_against_are_too_few() -> None:
    a = by_seed(*(float(10 * seed) for seed in range(7)))
    b = {seed: value + (1 if seed else -1) for seed, value in a.items()}
    found = seeds.compare(a, b)
    assert found.difference is not None
    assert found.difference.high < 0  # the interval alone would tell them apart,
    assert seeds.chance_of_split(7, 1) == Fraction(1, 8)  # by chance once in eight times
    assert found.verdict == NOT_DISTINGUISHABLE


@pytest.mark.parametrize("n", [1, 2])
def test_one_or_two_seeds_say_nothing(n: int) -> None:
    few = dict.fromkeys(range(n), 0.0)
    many = dict.fromkeys(range(5), 9.0)
    assert seeds.chance_of_gap(2, 5) <= seeds.MOST_CHANCE  # and yet
    for a, b in ((few, few), (few, dict.fromkeys(few, 9.0)), (few, many), (many, few)):
        found = seeds.compare(a, b)
        assert (found.verdict, found.rule, found.chance) == (NOT_DISTINGUISHABLE, None, None)
        assert found.risk == 0


def test_seeds_of_one_alone_make_no_pair() -> None:
    a, b = {0: 1.0, 1: 2.0, 2: 3.0, 7: 9.0}, {0: 1.5, 2: 3.5, 3: 0.0}
    found = seeds.compare(a, b)
    assert (found.pairs, found.unpaired) == (2, 3)
    assert found.difference == (-0.5, -0.5, -0.5)
    strangers = seeds.compare({0: 1.0, 1: 1.0, 2: 1.0}, {3: 2.0, 4: 2.0, 5: 2.0})
    assert (strangers.pairs, strangers.difference) == (0, None)
    assert (strangers.verdict, strangers.rule) == ("lower", seeds.BY_INTERVALS)


def test_trials_that_diverged_are_worst() -> None:
    fine, lost = by_seed(1.0, 2.0, 3.0), dict.fromkeys(range(3), math.inf)
    assert seeds.compare(fine, lost).verdict == "lower"
    assert seeds.compare(lost, lost).verdict == NOT_DISTINGUISHABLE
    assert seeds.compare(lost, lost).difference == (0, 0, 0)
    assert seeds.compare(fine, by_seed(4.0, math.inf, 5.0)).verdict == "lower"
    assert seeds.compare(fine, by_seed(2.5, math.inf, 5.0)).verdict == NOT_DISTINGUISHABLE
    scored = {"fine": fine, "lost": lost}
    assert seeds.rank(scored, lower_is_better=True).best == "fine"
    shares = {"fine": by_seed(0.0, 0.1, 0.2), "lost": dict.fromkeys(range(3), -math.inf)}
    ranked = seeds.rank(shares, lower_is_better=False)
    assert (ranked.best, ranked.ranks, ranked.alike) == ("fine", {"fine": 1, "lost": 2}, ())


pair_of_runs = st.integers(1, 7).flatmap(
    lambda n: st.tuples(*[st.dictionaries(st.integers(0, 8), diverged, min_size=n)] * 2)
)


@given(pair_of_runs, st.randoms())
def test_the_order_of_seeds_and_sides_changes_nothing(pair, draw: random.Random) -> None:
    a, b = pair
    shuffled = [draw.sample(sorted(own.items()), len(own)) for own in pair]
    found = seeds.compare(a, b)
    assert seeds.compare(*map(dict, shuffled)) == found
    back = seeds.compare(b, a)
    flipped = {"lower": "higher", "higher": "lower", NOT_DISTINGUISHABLE: NOT_DISTINGUISHABLE}
    assert back.verdict == flipped[found.verdict]
    assert (back.rule, back.chance, back.risk) == (found.rule, found.chance, found.risk)
    if found.difference is not None:
        assert back.difference is not None
        m, low, high = found.difference
        assert tuple(back.difference) == (-m, -high, -low)


@given(pair_of_runs)
def test_names_of_seeds_matter_only_where_they_pair(pair) -> None:
    renamed = tuple({seed * 13 + 5: value for seed, value in own.items()} for own in pair)
    assert seeds.compare(*renamed) == seeds.compare(*pair)


# --- many encodings ------------------------------------------------------------------------------

grids = st.integers(1, 4).flatmap(
    lambda n: st.dictionaries(
        st.sampled_from("abcde"),
        st.lists(coarse, min_size=n, max_size=n).map(lambda v: by_seed(*v)),
        min_size=1,
    )
)  # fmt: skip


@given(grids, st.booleans())
def test_ranks_are_those_of_scipy(scores, lower: bool) -> None:
    ranked = seeds.rank(scores, lower_is_better=lower)
    columns = [[own[seed] for own in scores.values()] for seed in ranked.seeds]
    sign = 1 if lower else -1
    found = [stats.rankdata([sign * v for v in column]) for column in columns]
    means = [float(sum(column[i] for column in found)) / len(found) for i in range(len(scores))]
    assert list(ranked.ranks.values()) == pytest.approx(means)
    medians = {name: standard.median(own.values()) for name, own in scores.items()}
    assert medians[ranked.best] == (min if lower else max)(medians.values())
    for name, own in scores.items():
        alike = seeds.compare(own, scores[ranked.best]).verdict == NOT_DISTINGUISHABLE
        assert (name in ranked.alike) == (alike and name != ranked.best)


@given(grids, st.booleans(), st.randoms())
def test_the_order_of_encodings_changes_nothing(scores, lower, draw) -> None:
    shuffled = dict(draw.sample(sorted(scores.items()), len(scores)))
    assert seeds.rank(shuffled, lower_is_better=lower) == seeds.rank(scores, lower_is_better=lower)


def test_ranks_are_taken_where_all_ran() -> None:
    scores = {"a": {0: 1.0, 1: 5.0, 2: 2.0}, "b": {0: 2.0, 2: 2.0}, "c": {0: 3.0, 2: 1.0, 3: 0.0}}
    ranked = seeds.rank(scores, lower_is_better=True)
    assert ranked.seeds == (0, 2)
    assert ranked.ranks == {"a": 1.75, "b": 2.25, "c": 2.0}
    alone = seeds.rank({"a": {0: 1.0}, "b": {1: 2.0}}, lower_is_better=True)
    assert (alone.seeds, alone.ranks, alone.best) == ((), {}, "a")
    with pytest.raises(ValueError, match="one encoding at least"):
        seeds.rank({}, lower_is_better=True)


# --- the document --------------------------------------------------------------------------------


def test_the_document_says_what_the_statistics_say() -> None:
    records = [
        record(name, seed, base + seed / 10, base + 2 + seed / 10)
        for name, base in (("rope", 1.0), ("alibi", 3.0))
        for seed in (2, 0, 1)
    ]
    found = outcome.document(records)
    assert (found["task"], found["unit"], found["better"]) == ("made-up", "bits", "lower")
    assert (found["train_length"], found["lengths"], found["seeds"]) == (8, [8, 16], 3)
    rope = found["curves"][0]
    assert (rope["encoding"], rope["seeds"]) == ("rope", [0, 1, 2])
    assert rope["values"] == [[1.0, 1.1, 1.2], [3.0, 3.1, 3.2]]
    assert (rope["median"], rope["low"], rope["high"]) == ([1.1, 3.1], [1.0, 3.0], [1.2, 3.2])
    first = found["comparisons"][0]
    assert (first["length"], first["a"], first["b"]) == (8, "rope", "alibi")
    assert (first["verdict"], first["rule"], first["pairs"]) == ("lower", seeds.BY_INTERVALS, 3)
    assert first["difference"]["median"] == pytest.approx(-2)
    assert found["by_chance"] == pytest.approx(0.2)
    rank = found["ranks"][1]
    assert (rank["length"], rank["best"], rank["not_distinguishable_from_best"]) == (16, "rope", [])
    assert rank["mean_rank"] == {"rope": 1, "alibi": 2}
    assert "encoding" not in found["config"]
    assert found["config"]["task_options"] == {"k": 3}
    assert found["origins"] == [{**records[0]["made"], "trials": 6}]
    assert found["versions"] == records[0]["made"]
    assert found["trials"] == records


def test_a_trial_that_diverged_is_null_and_worst() -> None:
    for better in ("lower", "higher"):
        records = [record("a", seed, None, better=better) for seed in range(3)]
        records += [record("b", seed, 0.5, better=better) for seed in range(3)]
        found = outcome.document(records)
        assert found["curves"][0]["median"] == [None]
        assert found["ranks"][0]["best"] == "b"
        side = "higher" if better == "lower" else "lower"
        assert found["comparisons"][0]["verdict"] == side


def test_properties_read_the_document() -> None:
    records = [record("rope", seed, 1.0 + seed, None if seed else 2.0) for seed in range(3)]
    found = races.curve(json.loads(json.dumps(outcome.document(records))), "rope")
    assert found is not None
    assert (found.train_length, found.seeds, found.unit) == (8, 3, "bits")
    assert (found.median, found.low) == ({8: 2.0, 16: math.inf}, {8: 1.0, 16: 2.0})
    assert found.high == {8: 3.0, 16: math.inf}
    better = outcome.document([{**each, "better": "higher"} for each in records])
    lost = races.curve(better, "rope")
    assert lost is not None
    assert lost.low[16] == -math.inf


def test_the_order_of_records_changes_no_figure() -> None:
    records = [
        record(name, seed, seed % 2 + len(name)) for name in ("a", "bb") for seed in range(4)
    ]
    first = outcome.document(records)
    again = outcome.document(sorted(records, key=lambda each: -each["config"]["seed"]))
    assert {**again, "trials": None} == {**first, "trials": None}


def test_records_of_several_machines_say_so() -> None:
    made = record("a", 0, 1.0)["made"]
    other = {**made, "machine": "arm64"}
    records = [record("a", seed, 1.0, made=other if seed == 1 else made) for seed in range(3)]
    found = outcome.document(records)
    assert found["origins"] == [{**made, "trials": 2}, {**other, "trials": 1}]
    assert found["versions"] == {key: made[key] for key in ("format", "ropewalk", "torch")}


def test_records_that_are_not_comparable_are_kept_apart() -> None:
    records = [record("a", 0, 1.0), record("a", 0, 1.0, config={"steps": 9}), record("b", 1, 1.0)]
    assert outcome.comparable(records) == [[records[0], records[2]], [records[1]]]
    with pytest.raises(ValueError, match="in 2 groups of comparable trials"):
        outcome.document(records)
    with pytest.raises(ValueError, match="two records are of one trial: a, seed 0"):
        outcome.document([records[0], records[0]])
    with pytest.raises(ValueError, match="0 in 0 groups"):
        outcome.document([])


@pytest.mark.parametrize("changed", [{"unit": "shares"}, {"better": "higher"}])
def test_records_that_disagree_on_what_a_score_is_make_no_document(changed: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"of rope, seed 1, is not that of other records"):
        outcome.document([record("rope", 0, 1.0), record("rope", 1, 2.0, **changed)])


def test_many_seeds_have_an_interval_that_others_compute_too() -> None:
    values = [float(i) for i in range(60)]
    found = seeds.interval(values)
    assert found.median == 29.5
    assert found.low == 59 - found.high  # the same from either side
    rng = random.Random(0)
    drawn = sorted(standard.median(rng.choices(values, k=60)) for _ in range(4000))
    assert abs(found.low - drawn[100]) <= 1
