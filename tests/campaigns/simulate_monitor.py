"""Years of batches with known truth, many at once. As a script: the figures for the documentation.

The states of all years are arrays here; `monitor/test_step.py` checks that they are those of the library. With MAPIE
installed the script compares with its `RiskMonitoring` too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from drrej.core.drift import bin_counts
from drrej.monitor import evidence
from drrej.monitor.evidence import Tally, start_share, unspent

BATCHES = 365
ALPHA = 0.05
LIMIT, LABELS = 0.05, 100
FIT_ROWS, ROWS = 2000, 200
NEVER = 10**9


@dataclass(frozen=True)
class Paths:
    """Logarithms of what a monitor is judged by, each of shape (years, batches)."""

    total: np.ndarray
    restarts: np.ndarray

    def alarms(self, alpha: float = ALPHA) -> dict[str, np.ndarray]:
        """The batch of each year's first alarm, from 1; NEVER without one."""
        return {
            "all": first(self.total >= -math.log(alpha)),
            "restarts": first(self.restarts >= -math.log(alpha)),
        }


def choose_edges(ordered: np.ndarray, bins: int = 16) -> tuple[float, ...]:
    """Distinct order statistics of ascending losses that cut them into bins of about equal counts."""
    edges = np.unique(ordered[np.arange(1, bins) * ordered.size // bins])
    return tuple(float(edge) for edge in edges if edge > ordered[0])


def first(alarm: np.ndarray) -> np.ndarray:
    return np.where(alarm.any(axis=1), alarm.argmax(axis=1) + 1, NEVER)


def log_sums(logs: np.ndarray) -> np.ndarray:
    """ln Σ exp over the last axis."""
    largest = logs.max(axis=-1, keepdims=True)
    return largest[..., 0] + np.log(np.exp(logs - largest).sum(axis=-1))


def run_restarts(factors: Callable[[int], np.ndarray], weights: np.ndarray, batches: int) -> np.ndarray:
    """The e-values of all years; factors(batch) has shape (years, alternatives)."""
    values, a = [], None
    for batch in range(batches):
        share = math.log(start_share(batch + 1))
        a = factors(batch) + (share if a is None else np.logaddexp(a, share))
        values.append(np.logaddexp(log_sums(a + weights), math.log(unspent(batch + 1))))
    return np.stack(values, 1)


# Rates


def rate_factors(events: np.ndarray, rows: np.ndarray | int, limit: np.ndarray | float, log_odds: np.ndarray):
    limit = np.asarray(limit, np.float64)[..., None]
    return events[..., None] * log_odds - np.asarray(rows)[..., None] * np.log1p(limit * np.expm1(log_odds))


def rate_paths(events: np.ndarray, rows: int, limit: float) -> Paths:
    """Both e-values of the risk for events of shape (years, batches)."""
    total = [
        log_sums(rate_factors(sums, rows * (batch + 1), limit, evidence.LOG_ODDS) + evidence.LOG_WEIGHTS)
        for batch, sums in enumerate(np.cumsum(events, axis=1).T)
    ]
    return Paths(
        np.stack(total, 1),
        run_restarts(
            lambda batch: rate_factors(events[:, batch], rows, limit, evidence.LOG_ODDS),
            evidence.LOG_WEIGHTS,
            events.shape[1],
        ),
    )


def sequence_misses(events: np.ndarray, rows: int, truth: np.ndarray, alpha: float = ALPHA) -> np.ndarray:
    """Whether the confidence sequence ever leaves out the average truth so far; truth of shape (years, batches)."""
    missed = np.zeros(events.shape[0], bool)
    sums, average = np.cumsum(events, axis=1), np.cumsum(truth, axis=1) / np.arange(1, truth.shape[1] + 1)
    for batch in range(events.shape[1]):
        logs = rate_factors(sums[:, batch], rows * (batch + 1), average[:, batch], evidence.BOTH_LOG_ODDS)
        missed |= log_sums(logs + evidence.BOTH_LOG_WEIGHTS) >= -math.log(alpha)
    return missed


def varying(years: int, batches: int, limit: float, rng: np.random.Generator) -> np.ndarray:
    """Risks that go up and down by the week and wander by the year, at most twice the limit."""
    week = 0.5 * np.sin(2 * np.pi * np.arange(batches) / 7)
    wander = 0.5 * np.sin(np.cumsum(rng.normal(0, 0.15, (years, batches)), axis=1))
    return limit * (1 + week + wander)


def fixed_sample(multiple: float, rows: int = LABELS, limit: float = LIMIT, alpha: float = ALPHA) -> int:
    """Batches after which one exact binomial test, told when to look, sees the change half of the time."""
    for batches in range(1, 10000):
        least = stats.binom.isf(alpha, batches * rows, limit) + 1
        if stats.binom.sf(least - 1, batches * rows, limit * multiple) >= 0.5:
            return batches
    raise ValueError(multiple)


def changed(years: int, quiet: int, multiple: float, rng: np.random.Generator, before: float = 1.0) -> np.ndarray:
    """Errors a batch: `quiet` batches at `before` times the limit, then a year at a multiple of it."""
    truth = LIMIT * np.concatenate([np.full(quiet, before), np.full(BATCHES, multiple)])
    return rng.binomial(LABELS, truth, (years, truth.size))


def delays(alarms: np.ndarray, quiet: int) -> np.ndarray:
    """Batches from the change to the alarm, of the years without one before."""
    late = alarms[alarms > quiet]
    return np.where(late == NEVER, np.inf, late - quiet)


# Drift


def fisher_tails(k: np.ndarray, l: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # noqa: E741
    """As `evidence.fisher_tails`, for arrays, by going up and down from k term by term."""

    def beyond(k, l, a, b):  # noqa: E741
        """Σ_{x > k} P(H = x) / P(H = k)."""
        total, term, x = np.zeros(k.shape), np.ones(k.shape), 0
        with np.errstate(over="ignore", invalid="ignore"):
            while True:
                # from x to x + 1 more: one of l and a less, one of k and b more
                term = term * ((a - x) / (k + x + 1.0)) * ((l - x) / (b + x + 1.0))
                total = total + term
                x += 1
                if not (term > 1e-17 * total).any():
                    return np.where(np.isnan(total), np.inf, total)

    up, down = beyond(k, l, a, b), beyond(l, k, b, a)
    with np.errstate(invalid="ignore"):
        share = np.where(np.isinf(down), 0.0, (1.0 + up) / (1.0 + up + down))
        other = np.where(np.isinf(up), 0.0, (1.0 + down) / (1.0 + up + down))
    empty = (k + l == 0) | (a + b == 0)
    return np.where(empty | np.isinf(up), 1.0, share), np.where(empty | np.isinf(down), 1.0, other)


def drift_paths(pool: np.ndarray, draw: Callable[[int], np.ndarray], batches: int) -> Paths:
    """pool and draw(batch): bin counts of shape (years, bins); each batch has as many rows in every year."""
    bins, first_rows = pool.shape[1], int(pool[0].sum())
    tree, weights = evidence.splits(bins), evidence.log_weights(bins).ravel()
    product, against_first = np.zeros((pool.shape[0], weights.size)), []

    def factors(batch: int) -> np.ndarray:
        nonlocal pool, product
        new = draw(batch)

        def counts(what: np.ndarray, side: int) -> np.ndarray:
            spans = [(at[0], at[1]) if side == 0 else (at[1], at[2]) for at in tree]
            return np.stack([what[:, first:end].sum(axis=1) for first, end in spans], 1).astype(np.float64)

        tails = np.stack(fisher_tails(counts(new, 0), counts(new, 1), counts(pool, 0), counts(pool, 1)), -1)
        rows, before = int(new[0].sum()), int(pool[0].sum())
        scale = math.sqrt(rows / (rows + before) * before)
        product = product + evidence.drift_factors(tails, scale * first_rows / before).reshape(product.shape)
        against_first.append(log_sums(product + weights))
        pool = pool + new
        return evidence.drift_factors(tails, scale).reshape(product.shape)

    restarts = run_restarts(factors, weights, batches)
    return Paths(np.stack(against_first, 1), restarts)


LOSS = stats.gamma(0.4, scale=0.5)


def drift_world(kind: str, years: int, rng: np.random.Generator) -> tuple[np.ndarray, Callable[[float], np.ndarray]]:
    """(the first batch's bin counts, the chances of the bins as a function of what the losses are multiplied with).

    `fresh`: the edges come from other rows. `fit`: from those of the first batch. `tied`: so too, and losses have 40
    values only; years with fewer bins get empty ones.
    """
    pools, edges = [], []
    for _ in range(years):
        losses = np.sort(LOSS.rvs(FIT_ROWS, random_state=rng))
        losses = np.floor(losses * 20) / 20 if kind == "tied" else losses
        edge = choose_edges(losses)
        if kind == "fresh":
            losses = LOSS.rvs(FIT_ROWS, random_state=rng)
        short = 15 - len(edge)
        pools.append(bin_counts(losses, edge) + (0,) * short)
        edges.append(edge + (np.inf,) * short)
    cut = np.array(edges)

    def chances(scale: float) -> np.ndarray:
        below = LOSS.cdf(cut / scale)  # for `tied`, edges are multiples of 1/20 and so are the values, from below
        return np.diff(below, prepend=0.0, append=1.0, axis=1)

    return np.array(pools), chances


@dataclass(frozen=True)
class Stream:
    """`quiet` batches as the fit's, then with all losses multiplied."""

    kind: str
    quiet: int = BATCHES
    scale: float = 1.0
    batches: int = BATCHES
    rows: int = ROWS

    def paths(self, years: int, rng: np.random.Generator) -> Paths:
        pool, chances = drift_world(self.kind, years, rng)
        before, after = chances(1.0), chances(self.scale)
        return drift_paths(
            pool, lambda batch: rng.multinomial(self.rows, before if batch < self.quiet else after), self.batches
        )


def fixed_drift(scale: float, before: int, rng: np.random.Generator, trials: int = 400) -> int:
    """Batches after which one rank-sum test against `before` rows, told when to look, sees it half of the time."""
    edges = LOSS.ppf(np.arange(1, 100) / 100)
    fit = rng.multinomial(before, np.full(100, 0.01), trials)
    new = np.zeros((trials, 100), np.int64)
    for batches in range(1, 2000):
        new = new + rng.multinomial(ROWS, np.diff(LOSS.cdf(edges / scale), prepend=0.0, append=1.0), trials)
        if np.mean(2 * stats.norm.sf(np.abs(rank_sum_score(new, fit))) <= ALPHA) >= 0.5:
            return batches
    return NEVER


def rank_sum_score(new: np.ndarray, old: np.ndarray) -> np.ndarray:
    """The standardised sum of mid-ranks of new rows among all, from counts of shape (trials, bins)."""
    both = new + old
    rank = np.cumsum(both, axis=1) - both / 2.0
    n, total = new.sum(axis=1), both.sum(axis=1)
    mean = total / 2.0
    spread = (both * (rank - mean[:, None]) ** 2).sum(axis=1) / (total - 1)
    return ((new * rank).sum(axis=1) - n * mean) / np.sqrt(n * (total - n) / total * spread)


# As a script


def share(alarm: np.ndarray) -> str:
    mean = float(np.mean(alarm))
    return f"{mean:.4f} ± {math.sqrt(mean * (1 - mean) / alarm.size):.4f}"


def median(values: np.ndarray) -> str:
    return "-" if not values.size else f"{np.median(values):.0f}"


def false_alarms(years: int) -> None:
    rng = np.random.default_rng(1)
    print(f"\n{years} years of {BATCHES} batches, truth at the limit; share with any false alarm, alpha {ALPHA}")
    for limit, labels in ((LIMIT, LABELS), (0.01, 1000), (0.02, 20)):
        for name, batch in rate_paths(rng.binomial(labels, limit, (years, BATCHES)), labels, limit).alarms().items():
            print(f"  risk {limit} {labels:5} labels a batch, {name:9} {share(batch < NEVER)}", flush=True)
    rejected = rng.binomial(ROWS, 0.2, (years, BATCHES))
    for name, batch in rate_paths(rejected, ROWS, 0.2).alarms().items():
        print(f"  coverage 0.8 {ROWS:5} rows a batch, {name:9} {share(batch < NEVER)}", flush=True)
    events = rng.binomial(LABELS, LIMIT, (years, BATCHES))
    for name, alarm in batchly_tests(events).items():
        print(f"  (not valid) {name:30} {share(alarm)}")
    truth = np.full((years, BATCHES), LIMIT)
    print(f"  confidence sequence, risk {LIMIT}          {share(sequence_misses(events, LABELS, truth))}")
    truth = varying(years, BATCHES, LIMIT, rng)
    events = rng.binomial(LABELS, truth)
    print(f"  confidence sequence, risk varies batchly {share(sequence_misses(events, LABELS, truth))}")
    truth = np.full((years, BATCHES), 0.8)
    events = rng.binomial(ROWS, truth)
    print(f"  confidence sequence, coverage 0.8        {share(sequence_misses(events, ROWS, truth))}", flush=True)


def batchly_tests(events: np.ndarray) -> dict[str, np.ndarray]:
    """What happens without care: an exact test of each batch, and of all batches so far, at every look."""
    batches = np.arange(1, events.shape[1] + 1)
    return {
        "an exact test a batch": (stats.binom.sf(events - 1, LABELS, LIMIT) <= ALPHA).any(axis=1),
        "an exact test of all so far": (
            stats.binom.sf(np.cumsum(events, axis=1) - 1, LABELS * batches, LIMIT) <= ALPHA
        ).any(axis=1),
    }


def drift_false_alarms(years: int) -> None:
    for kind, rows, count in (
        ("fresh", ROWS, years),
        ("fit", ROWS, years),
        ("tied", ROWS, years),
        ("fit", 4000, years // 4),
    ):
        paths = Stream(kind, rows=rows).paths(count, np.random.default_rng(2))
        for name, batch in paths.alarms().items():
            print(
                f"  drift, bins {kind:5}, {rows:4} rows a batch, {count} years, {name:8} {share(batch < NEVER)}",
                flush=True,
            )


def rate_delays(years: int) -> None:
    print(f"\nmedian delay in batches of {LABELS} labels; limit {LIMIT}, alpha {ALPHA}")
    for quiet, before in ((0, 1.0), (182, 1.0), (365, 0.5)):
        for multiple in (1.5, 2.0, 3.0):
            events = changed(years, quiet, multiple, np.random.default_rng([3, quiet]), before)
            found = {name: delays(batch, quiet) for name, batch in rate_paths(events, LABELS, LIMIT).alarms().items()}
            text = ", ".join(f"{name} {median(late)}" for name, late in found.items())
            print(
                f"  {quiet:3} batches at {before} x the limit, then {multiple} x: {text}; "
                f"fixed sample {fixed_sample(multiple)}",
                flush=True,
            )


def drift_delays(years: int) -> None:
    years = max(years // 10, 20)
    print(f"\nmedian delay in batches of {ROWS} rows, first batch {FIT_ROWS}; losses multiplied")
    for quiet in (0, 182):
        for scale in (1.1, 1.25, 1.5, 2.0):
            paths = Stream("fit", quiet, scale, quiet + 183).paths(years, np.random.default_rng([4, quiet]))
            text = ", ".join(f"{name} {median(delays(batch, quiet))}" for name, batch in paths.alarms().items())
            fixed = fixed_drift(scale, FIT_ROWS + quiet * ROWS, np.random.default_rng(5))
            late = "-" if fixed == NEVER else fixed
            print(f"  {quiet:3} quiet batches, then x {scale}: {text}; fixed sample {late}", flush=True)


def widths(_years: int) -> None:
    print("\nconfidence sequences at 95 %: width against Clopper-Pearson's (one look), and a beta(1/2, 1/2) mixture's")
    for chance in (0.01, 0.05, 0.8):
        for rows in (100, 1000, 10**4, 10**6, 10**8, 10**10):
            events = round(chance * rows)
            low, high = evidence.confidence_sequence(Tally(events, rows), ALPHA)
            one = stats.beta.ppf(1 - ALPHA / 2, events + 1, rows - events) - stats.beta.ppf(
                ALPHA / 2, events, rows - events + 1
            )
            mixture = beta_mixture_width(events, rows)
            print(f"  rate {chance}, {rows:11} rows: {(high - low) / one:.2f}, {(high - low) / mixture:.2f}")


def beta_mixture_width(events: int, rows: int) -> float:
    """Of the interval of all m with B(1/2 + S, 1/2 + n - S) / B(1/2, 1/2) < m^S (1 - m)^(n - S) / alpha."""
    import mpmath
    from scipy.optimize import brentq

    a = mpmath.mpf(1) / 2
    with mpmath.workdps(40):
        log_beta = mpmath.loggamma(a + events) + mpmath.loggamma(a + rows - events) - mpmath.loggamma(rows + 1)
        top = log_beta - mpmath.log(mpmath.pi)
        found = mpmath.mpf(events) / rows
        peak = float(top - events * mpmath.log(found) - (rows - events) * mpmath.log(1 - found) + mpmath.log(ALPHA))

    def excess(m: float) -> float:
        x = m / (events / rows)
        y = (1 - m) / (1 - events / rows)
        return peak - events * math.log(x) - (rows - events) * math.log(y)

    return brentq(excess, events / rows, 1 - 1e-15) - brentq(excess, 1e-15, events / rows)


def mapie(years: int) -> None:
    """The same streams through MAPIE's bound, whose boundary is a function of one number and is tabled here."""
    try:
        from mapie.exchangeability_testing.bounds import GammaExponentialMixtureBound
    except ImportError:
        print("\nMAPIE is not installed")
        return
    print(f"\nMAPIE's RiskMonitoring on the same streams of {LABELS} labels a batch, threshold {LIMIT}")
    for level in (ALPHA, 4 * ALPHA):  # it halves its level for the reference and again for the side
        bound = GammaExponentialMixtureBound(v_opt=1, c=1, alpha_opt=level / 4)
        grid = np.concatenate([np.arange(0, 50, 0.05), np.arange(50, 6000, 5.0)])
        table = (grid, np.array([bound(v=float(v), alpha=level / 4) for v in grid]))
        for quiet, multiple, batches in ((BATCHES, 1.0, 0), (0, 1.5, 200), (0, 2.0, 60), (0, 3.0, 30), (182, 2.0, 183)):
            rng = np.random.default_rng([7, quiet, int(10 * multiple)])
            truth = LIMIT * np.concatenate([np.ones(quiet), np.full(batches, multiple)])[:, None]
            theirs, ours = [], []
            for year in range(years):
                wrong = (rng.random((truth.size, LABELS)) < truth).astype(float)
                theirs.append(mapie_alarm(wrong, table))
                ours.append(wrong.sum(axis=1))
                if year < 2 and not quiet:
                    assert theirs[-1] == mapie_itself(wrong, level)
            found = {"MAPIE": np.array(theirs)} | rate_paths(np.array(ours, np.int64), LABELS, LIMIT).alarms()
            if batches:
                what = f"{quiet} batches at the limit, then {multiple} x"
                text = ", ".join(f"{name} {median(delays(n, quiet))}" for name, n in found.items())
            else:
                what = "false alarms in a year"
                text = ", ".join(f"{name} {share(n < NEVER)}" for name, n in found.items())
            print(f"  its level {level:.2f}: {what}: {text}", flush=True)


def mapie_alarm(wrong: np.ndarray, table: tuple[np.ndarray, np.ndarray]) -> int:
    """The first batch at whose end its lower bound is above the limit; errors of shape (batches, rows)."""
    rows = np.arange(1, wrong.size + 1)
    mean = np.cumsum(wrong) / rows
    spread = np.cumsum((wrong.ravel() - np.concatenate([[0.5], mean[:-1]])) ** 2)
    lower = np.maximum.accumulate(mean - np.interp(spread, *table) / rows)
    return int(first(lower.reshape(wrong.shape)[None, :, -1] > LIMIT)[0])


def mapie_itself(wrong: np.ndarray, level: float) -> int:
    """The batch of the alarm when its own class is fed batch by batch."""
    from mapie.exchangeability_testing import RiskMonitoring

    monitor = RiskMonitoring(risk="accuracy", test_level=level, threshold=LIMIT, warn=False)
    for batch, errors in enumerate(wrong, 1):
        monitor.update(np.ones(errors.size, int), 1 - errors.astype(int))
        if monitor.harmful_shift_detected:
            return batch
    return NEVER


PARTS = {
    "false": false_alarms,
    "drift": drift_false_alarms,
    "delays": rate_delays,
    "drift-delays": drift_delays,
    "widths": widths,
    "mapie": mapie,
}


def main(years: int, *parts: str) -> None:
    """Print the tables named, or all of them."""
    for part in parts or PARTS:
        started = time.perf_counter()
        PARTS[part](years)
        print(f"  ({part}: {time.perf_counter() - started:.0f} s)", flush=True)


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000, *sys.argv[2:])
