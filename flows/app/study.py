"""A paper's claims about its method in a built-in world, and the runs that test them.

Claims are in `claims.toml` in a method's folder, or in `NAME-claims.toml` there or in
`data/english`. Every number is a query over the runs' tables.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from flows.app.evidence import Verdict, judge
from flows.runtime.store_root import SOURCE, store_root
from warehouse.address import check_run_name
from warehouse.query import Ask, query
from warehouse.schemas import TABLES, Row

SUFFIX = "-claims.toml"  # of further studies; what precedes it is the study's name
# does not search all of `data`, which would list every run of the user's store
FURTHER = (*(SOURCE / "flows").glob(f"*/*{SUFFIX}"), *(SOURCE / "data/english").glob(f"*{SUFFIX}"))
FILES = {
    path.parent.name: path
    for folder in ("flows", "data")
    for path in (SOURCE / folder).glob("*/claims.toml")
} | {path.name.removesuffix(SUFFIX): path for path in FURTHER}
STUDIES = tuple(sorted(FILES))
PROFILE = "micro"
NUM_SEEDS = 8  # enough to detect an effect of about one standard deviation across seeds
KINDS = ("claim", "symptom", "check")
HELD_OUT = ("micro", "score")  # the held-out score: its benchmark and metric
SERIES = """
    select iteration, avg(score) as score from evaluations
    where run = $run and benchmark = $benchmark and metric = $metric
    group by iteration order by iteration
"""
GAIN = """
    select arg_max(score, iteration) - arg_min(score, iteration) from evaluations
    where run = $whole and benchmark = $benchmark and metric = $metric
"""
LEAD = """
    select arg_max(score, iteration) filter (where run = $whole)
        - arg_max(score, iteration) filter (where run = $variant)
    from evaluations where benchmark = $benchmark and metric = $metric
"""
# the mean score from iteration 1 on: the area under the learning curve
CURVE_LEAD = """
    select avg(score) filter (where run = $whole) - avg(score) filter (where run = $variant)
    from evaluations where benchmark = $benchmark and metric = $metric and iteration > 0
"""


@dataclass(frozen=True)
class Study:
    """A paper's claims about its method, and the runs that test them.

    `variants` holds settings by the variant's name, the whole method first; `metrics` holds the
    (benchmark, metric) of each column in the table of variants. Raises ValueError for a variant
    whose name cannot be part of a run's name.
    """

    method: str
    variants: dict[str, dict[str, Any]]
    claims: tuple[Claim, ...]
    metrics: dict[str, Sequence[str]] = field(default_factory=dict)
    name: str = ""  # prefix of its runs and files; by default the method's name
    seedless: Sequence[str] = ()  # variants that do not depend on the seed
    # a profile of prepare-corpus, and the name of the run of it that the study's runs learn from
    corpus: str = ""
    profile: str = PROFILE
    # profiles of the variants that do not use the study's
    profiles: Mapping[str, str] = field(default_factory=dict)
    held_out: Sequence[str] = HELD_OUT
    num_seeds: int = NUM_SEEDS

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or self.method)
        for variant in self.variants:
            check_run_name(self.run_name(variant, 0))

    @classmethod
    def load(cls, name: str) -> Study:
        """Read the study `name` from its file of claims.

        `gains` is the minimum gain in held-out score of the whole method, `learning` what causes
        it. `settings` apply to every variant. Each variant in `without` has its own settings or
        profile and may carry the claim that it ends below the whole method. A further claim is a
        query in which `$no_memory` stands for the run of the variant "no memory". A claim of the
        paper says where the paper makes it (`source`) and what it reports, in words (`reported`)
        and as a number (`effect`). `seeds` is how many seeds a claim needs, if more than the study.
        """
        values = tomllib.loads(FILES[name].read_text(encoding="utf-8"))
        whole = values["whole"]
        shared = values.get("settings", {})
        variants = {whole: {**shared, **values.get("of_whole", {})}}
        profiles = {}
        claims = [raises(whole, values["gains"], values.get("learning", "self-play"))]
        for variant, parts in values["without"].items():
            variants[variant] = {
                **shared,
                **values.get("of_others", {}),
                **parts.get("settings", {}),
            }
            if "profile" in parts:
                profiles[variant] = parts["profile"]
            if "says" in parts:
                details = {key: parts[key] for key in CLAIM_DETAILS if key in parts}
                claims.append(beats(whole, variant, parts["says"], **details))
        claims += [Claim.of(variants, **claim) for claim in values.get("claims", ())]
        return cls(
            method=values.get("method", name),
            variants=variants,
            claims=tuple(claims),
            metrics=values.get("metrics", {}),
            name=name,
            seedless=values.get("seedless", ()),
            corpus=values.get("corpus", ""),
            profile=values.get("profile", PROFILE),
            profiles=profiles,
            held_out=values.get("held_out", HELD_OUT),
            num_seeds=values.get("seeds", NUM_SEEDS),
        )

    @property
    def whole(self) -> str:
        """The name of the variant that is the whole method."""
        return next(iter(self.variants))

    @property
    def tables(self) -> list[str]:
        """The tables that the study's numbers are computed from."""
        return tables_in(" ".join([SERIES, *(claim.query for claim in self.claims)]))

    def run_name(self, variant: str, seed: int) -> str:
        """The name of a variant's run with one seed."""
        return f"{self.name}-{variant.lower().replace(' ', '-')}-{self.seed_of(variant, seed)}"

    def profile_of(self, variant: str) -> str:
        """The profile of a variant: its own, or else the study's."""
        return self.profiles.get(variant, self.profile)

    def seeds(self, variant: str) -> range:
        """The seeds of a variant: as many as the most demanding claim about it needs."""
        needed = (claim.seeds for claim in self.claims if variant in claim.runs.values())
        return range(max(self.num_seeds, *(number or 0 for number in needed), 0))

    def seed_of(self, variant: str, seed: int) -> int:
        """The seed in the settings and the name of a variant's run: 0 if the variant does not
        depend on the seed."""
        if variant in self.seedless:
            return 0
        return seed


@dataclass(frozen=True)
class Claim:
    """A statement about a method, and the number that tests it.

    `query` computes the number for one seed; `runs` maps its `$names` to variants. The claim is
    that the mean over seeds is above `at_least` or below `below`; above 0 if neither is given.
    `kind`: a "claim" is made by the paper, in `source`, with the number `reported`; a "symptom" is
    something that the paper calls a sign of it; a "check" is ours. `effect`: the value of
    `reported` in the unit and with the sign of `number`, if the two can be compared. `is_share`:
    the number is 1 if something happened, else 0, and the mean is the share of seeds. `headline`:
    it belongs to the table of headline claims (`flows.app.headlines`).
    """

    says: str
    number: str
    query: str
    runs: Mapping[str, str]
    at_least: float | None = None
    below: float | None = None
    kind: str = "check"
    source: str = ""
    reported: str = ""
    effect: float | None = None
    seeds: int | None = None
    is_share: bool = False
    headline: bool = False

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"{self.says!r} is of the kind {self.kind!r}: {', '.join(KINDS)}")

    @classmethod
    def of(cls, variants: Iterable[str], query: str, **fields: Any) -> Claim:
        """A claim whose query refers to `variants` by `$names` in lower case with underscores.

        `fields` are the claim's other fields. Raises KeyError for a name that matches no variant.
        """
        by_name = {re.sub(r"\W", "_", variant.lower()): variant for variant in variants}
        runs = {name: by_name[name] for name in re.findall(r"\$(\w+)", query)}
        return cls(query=query, runs=runs, **fields)

    @property
    def tables(self) -> list[str]:
        """The tables that its number is computed from."""
        return tables_in(self.query)

    @property
    def threshold(self) -> str:
        """The means for which the claim holds."""
        if self.below is not None:
            return f"below {self.below:g}"
        return f"above {self.at_least or 0:g}"

    def judge(self, values: Sequence[float]) -> Verdict:
        """What the numbers of several seeds say about the claim."""
        judged = partial(judge, values, is_share=self.is_share, reported=self.effect)
        if self.below is not None:
            return judged(self.below, is_below=True)
        return judged(self.at_least or 0.0)


def tables_in(sql: str) -> list[str]:
    """The tables of the store that a query mentions."""
    return [name for name in TABLES if re.search(rf"\b{name}\b", sql)]


def ask_store(sql: str, parameters: dict[str, Any]) -> list[Row]:
    """The rows of a query over all runs of the store."""
    return query(store_root(), sql, parameters)


@dataclass(frozen=True)
class Seed:
    """The runs of a study that share one seed.

    `ask` runs queries on the store, or on a snapshot of it.
    """

    study: Study = field(hash=False)
    number: int
    ask: Ask = field(default=ask_store, compare=False)

    def rows(self, sql: str, runs: Mapping[str, str], parameters: Mapping[str, str]) -> list[Row]:
        """The rows of a query.

        Each name in `runs` stands for a variant's run with this seed; `parameters` are the query's
        other parameters.
        """
        names = {name: self.study.run_name(variant, self.number) for name, variant in runs.items()}
        return self.ask(sql, {**names, **parameters})

    def value(self, claim: Claim) -> float:
        """The number of a claim; NaN if there is nothing to compute it from."""
        benchmark, metric = self.study.held_out
        parameters = {}
        if "$benchmark" in claim.query:
            parameters["benchmark"] = benchmark
        if "$metric" in claim.query:
            parameters["metric"] = metric
        [row] = self.rows(claim.query, claim.runs, parameters)
        [value] = row.values()
        if value is None:
            return math.nan
        return float(value)

    def series(
        self, variant: str, metric: str | None = None, benchmark: str | None = None
    ) -> list[float]:
        """The measured values of a metric by iteration, from 0 on; by default the held-out score.

        A monitor's values are averaged over the steps of an iteration.
        """
        parameters = {
            "benchmark": benchmark or self.study.held_out[0],
            "metric": metric or self.study.held_out[1],
        }
        return [row["score"] for row in self.rows(SERIES, {"run": variant}, parameters)]

    def gain(self, variant: str) -> float:
        """A variant's last held-out score minus its first. Raises IndexError if it has none."""
        scores = self.series(variant)
        return scores[-1] - scores[0]


def raises(whole: str, at_least: float, learning: str = "self-play") -> Claim:
    """The claim that the whole method learns: its held-out score gains at least this much."""
    says = f"{learning} raises the held-out score"
    number = "gain over iteration 0"
    return Claim(says, number, GAIN, {"whole": whole}, at_least=at_least)


# the fields that a variant in `without` may set for its claim, besides `says`
CLAIM_DETAILS = ("by", "kind", "source", "reported", "effect", "seeds", "at_least", "headline")
# ways to compare a variant with the whole method
COMPARED_BY = {"final": ("final score", LEAD), "curve": ("mean score over iterations", CURVE_LEAD)}


def beats(whole: str, variant: str, says: str, *, by: str = "final", **details: Any) -> Claim:
    """The claim that a variant has a lower held-out score than the whole method.

    `by`: "final" compares the scores after the last iteration; "curve" compares the means over all
    iterations, which vary less between seeds. `details` are fields of the claim.
    """
    number, query = COMPARED_BY[by]
    return Claim(
        says,
        f"{number}, {whole} minus {variant}",
        query,
        {"whole": whole, "variant": variant},
        **details,
    )
