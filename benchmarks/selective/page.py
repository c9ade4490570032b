"""The page and the figure, from the results alone. Everything is counted by experiment: the mean of its folds."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata, studentized_range

from benchmarks.pages import COLOURS, GREY, drawn, table
from benchmarks.selective.judge import DELTA, RISKS, RIVALS
from benchmarks.selective.scores import COMMON, OURS, SCORES

Results = dict[str, Any]
ORDER = {"augrc": ("AUGRC", 1), "aurc": ("AURC", 1), "accuracy at 80 %": ("accuracy at 80 %", -1)}
ORDER |= {"accuracy at 90 %": ("accuracy at 90 %", -1)}
"""Figures of an order: title, and whether low (1) or high (-1) is good."""
MAPIE = "MAPIE, split fixed sequence: auto"
FEWEST = 5
"""Experiments that a ranking of scores that need logits needs to be printed."""
NEAR = 0.01
"""Certified coverages that differ by no more count as equal."""
LEARNED = ("auto", "pNorm")
"""Scores with parameters that the labels of the validation rows have chosen."""

INTRODUCTION = """{dumps} predictions files of {experiments} experiments; the folds or splits of one experiment count
once, as their mean. Scores of drrej are calibrated and fitted on the validation rows, and `pNorm` chooses its p there;
the other scores are computed from the model's own outputs in float64. All figures are from test rows. Experiments on
the same data are not independent, so the critical differences are
somewhat too small. {shifted} experiments whose test rows
are known to differ from their validation rows (the official test splits of MedMNIST) are left out of the ranks and
means and have a section of their own. `auto` is drrej's default where there are labels; the loss that it learns is not
ranked a second time beside it."""

CERTIFIED = """Half of the validation rows are used to fit, the other half to certify a risk with confidence
{confidence:g}. Every rule gets the same rows and, where it can use them, the same rows of the fit: drrej plans its
starts on them, MAPIE's `split_fixed_sequence` learns the order of its 100 thresholds on them (they are quantiles of
the fitted losses; p-values are the exact binomial ones). Mean coverage of the test rows over experiments, in percent,
0 where nothing can be certified. In brackets: the share of predictions files whose test rows contradict the promise
(one-sided binomial test, 5 %); a promise may fail with chance {delta:g}."""

SHIFTED = """No promise holds if the validation rows do not resemble the new rows. OctMNIST's official test rows are
much harder than its validation rows, and some images occur twice; OrganSMNIST's are harder too. All rules are
certified on validation rows at confidence {confidence:g} and applied to the official test rows.
[Monitoring](monitoring.md) shows what drrej reports about it. Risk of the accepted test rows [coverage], in percent,
where 2 and 5 % were promised for rows like the validation rows; for MAPIE, the split fixed sequence is used with the
same score. AUGRC is times 10,000."""


def experiments(results: Results, shifted: bool = False) -> dict[str, list[Results]]:
    """Dumps by experiment."""
    found: dict[str, list[Results]] = defaultdict(list)
    for figures in results.values():
        if figures["shifted"] == shifted:
            found[figures["experiment"]].append(figures)
    return dict(sorted(found.items()))


def mean_order(folds: list[Results], score: str, figure: str = "augrc") -> float:
    """A figure of an order, the mean over folds."""
    return float(np.mean([fold["order"][score][figure] for fold in folds]))


def mean_certified(folds: list[Results], name: str, risk: float) -> float:
    """Certified coverage, the mean over folds."""
    return float(np.mean([fold["certified"][name][f"{100 * risk:g} %"][0] for fold in folds]))


def critical_difference(count: int, blocks: int) -> float:
    """Nemenyi's (Demšar 2006): mean ranks of `count` scores over `blocks` dumps that are further apart differ, at 5 %.

    >>> round(critical_difference(4, 14), 3)
    1.254
    """
    quantile = float(studentized_range.ppf(0.95, count, math.inf)) / math.sqrt(2)
    return quantile * math.sqrt(count * (count + 1) / (6 * blocks))


def rankings(results: Results, figure: str) -> dict[str, tuple[dict[str, float], float, int]]:
    """By kind of dump: all with the scores that all have, and those with logits with every score.

    The mean rank of each score (1 is best, ties share theirs), what difference counts, and the number of experiments.
    """
    blocks = list(experiments(results).values())
    with_logits = [block for block in blocks if not block[0]["probabilities"]]
    chosen = {"All experiments": (blocks, COMMON), "Experiments with logits": (with_logits, list(SCORES))}
    found = {}
    for title, (some, names) in chosen.items():
        if len(some) >= FEWEST or (some and names is COMMON):
            values = np.round([[mean_order(block, name, figure) for name in names] for block in some], 7)
            means = rankdata(ORDER[figure][1] * values, axis=1).mean(axis=0).tolist()
            found[title] = dict(zip(names, means, strict=True)), critical_difference(len(names), len(some)), len(some)
    return found


def page(results: Results) -> str:
    """The whole page."""
    blocks, shifted = experiments(results), experiments(results, shifted=True)
    numbers = {"dumps": len(results), "experiments": len(blocks) + len(shifted), "shifted": len(shifted) or "No"}
    lines = [
        "# Scores compared",
        "",
        INTRODUCTION.format(**numbers),
        "",
        "Made by `python -m benchmarks.selective judge`, then `write`, of `benchmarks/selective/results/results.json`.",
        *(f"{count} files: {made}." for made, count in Counter(f["made"] for f in results.values()).items()),
        "",
        *_ranks(results),
        "![mean ranks of AUGRC](figures/selective.svg)",
        "",
        *_certified(results),
        *(_shifted(shifted) if shifted else []),
        *_verdicts(results),
        "## Every experiment",
        "",
        *every(blocks),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _named(name: str) -> str:
    return f"`{name}`" if name in OURS else name


def _ranks(results: Results) -> list[str]:
    text = "1 is the best rank. Bold: not significantly different from the best (Nemenyi's critical difference, 5 %)."
    lines = ["## Which score orders rows best", "", f"Mean ranks over experiments. {text}", ""]
    found = {figure: rankings(results, figure) for figure in ORDER}
    for title, (first, _, blocks) in found["augrc"].items():
        own = [found[figure][title][:2] for figure in ORDER]
        rows = [
            [_named(name), *(_rank(means[name], min(means.values()), enough) for means, enough in own)]
            for name in sorted(first, key=lambda name, means=first: (means[name], name))
        ]
        rows.append(["critical difference", *(f"{enough:.2f}" for _, enough in own)])
        lines += [f"### {title}: {blocks}", "", *table(["score", *(name for name, _ in ORDER.values())], rows)]
    return lines


def _rank(mean: float, best: float, enough: float) -> str:
    return f"**{mean:.2f}**" if mean - best < enough else f"{mean:.2f}"


def contradicted(figures: Results, name: str, risk: float) -> bool:
    """The test rows say that a promise is broken: one-sided binomial test at 5 %."""
    from scipy.stats import binom

    coverage, share = figures["certified"][name][f"{100 * risk:g} %"]
    accepted = round(coverage * figures["rows"][1])
    return bool(accepted and binom.sf(round(share * accepted) - 1, accepted, risk) < 0.05)


def _certified(results: Results) -> list[str]:
    blocks = experiments(results)
    folds = [fold for block in blocks.values() for fold in block]
    rows = []
    for title, name in [*((f"drrej: {_named(name)}", name) for name in COMMON), *((name, name) for name in RIVALS)]:
        cells = []
        for risk in RISKS:
            mean = np.mean([mean_certified(block, name, risk) for block in blocks.values()])
            broken = np.mean([contradicted(fold, name, risk) for fold in folds])
            cells.append(f"{100 * mean:.1f} ({100 * broken:.0f} %)")
        rows.append([title, *cells])
    lines = ["## Which rule certifies most", "", CERTIFIED.format(confidence=1 - DELTA, delta=DELTA), ""]
    lines += table(["rule: score", *(f"risk {100 * risk:g} %" for risk in RISKS)], rows)
    lines += [f"Experiment by experiment on the same score, `auto`; coverages within {NEAR:g} are equal:", ""]
    rivals = [name for name in RIVALS if name.endswith(": auto")]
    rows = [[name, *(_against(blocks, name, risk) for risk in RISKS)] for name in rivals]
    lines += table(["drrej against", *(f"risk {100 * risk:g} %" for risk in RISKS)], rows)
    behind = [
        f"{name} (risk {100 * risk:g} %: {100 * ours:.1f} against {100 * theirs:.1f} %)"
        for name, block in blocks.items()
        for risk in RISKS
        if (theirs := mean_certified(block, MAPIE, risk)) > (ours := mean_certified(block, "auto", risk)) + NEAR
    ]
    large = [block for name, block in blocks.items() if not name.startswith("digits")]
    means = [
        ", ".join(f"{100 * np.mean([mean_certified(block, rule, risk) for block in large]):.1f}" for risk in RISKS)
        for rule in ("auto", MAPIE)
        if large
    ]
    return [
        *lines,
        f"Where drrej certifies less than MAPIE's split fixed sequence: {'; '.join(behind) or 'nowhere'}.",
        "",
        f"Without the {len(blocks) - len(large)} small experiments on digits, means are {' against '.join(means)} %.",
        "",
    ]


def _against(blocks: dict[str, list[Results]], rival: str, risk: float) -> str:
    gaps = [mean_certified(block, "auto", risk) - mean_certified(block, rival, risk) for block in blocks.values()]
    more, less = (sum(sign * gap > NEAR for gap in gaps) for sign in (1, -1))
    return f"more {more}, equal {len(gaps) - more - less}, less {less}"


def _shifted(blocks: dict[str, list[Results]]) -> list[str]:
    rows = []
    for name, (own,) in blocks.items():
        accuracies = [f"{100 * own[key]:.1f}" for key in ("validation accuracy", "base accuracy")]
        cells = []
        for rule in ("auto", MAPIE):
            for risk in RISKS[1:]:
                coverage, share = own["certified"][rule][f"{100 * risk:g} %"]
                cells.append(f"{100 * share:.1f} [{100 * coverage:.1f}]")
        areas = [f"{1e4 * mean_order([own], score):.0f}" for score in ("auto", "max probability")]
        rows.append([name.removesuffix(", official test rows"), *accuracies, *cells, *areas])
    head = [
        "",
        "accuracy, validation",
        "test",
        *(f"{who}, {100 * risk:g} %" for who in ("drrej", "MAPIE") for risk in RISKS[1:]),
    ]
    lines = [
        "## When validation rows differ from new rows: MedMNIST's official test rows",
        "",
        SHIFTED.format(confidence=1 - DELTA),
        "",
    ]
    return lines + table([*head, "AUGRC, `auto`", "max probability"], rows)


def against_the_best(folds: list[Results]) -> tuple[float, float, float]:
    """AUGRC of `auto` minus the best other score, with the mean of the folds' intervals: wider than need be."""
    ends = [[fold["auto"]["difference"], *fold["auto"]["interval"]] for fold in folds]
    difference, lower, upper = np.mean(ends, axis=0).tolist()
    return difference, lower, upper


def _verdicts(results: Results) -> list[str]:
    blocks = experiments(results)
    found = {name: against_the_best(folds) for name, folds in blocks.items()}
    worse = {name: own for name, own in found.items() if own[0] > 0}
    sure = [name for name, (_, lower, _) in worse.items() if lower > 0]
    better = [name for name, (_, _, upper) in found.items() if upper < 0]
    lines = [
        "## `auto` against the best single score in hindsight",
        "",
        "The rival is whichever other score turned out best on the test rows, which nobody could know beforehand; the",
        "best of up to ten scores is partly lucky. AUGRC of `auto` minus rival, with paired 95 % intervals:",
        "",
        f"- of {len(found)} experiments `auto` is better or equal in {len(found) - len(worse)} (significantly",
        f"  better in {len(better)}) and worse in {len(worse)} (significantly in {'; '.join(sure) or 'none'});",
        "- where nothing differs, about 1 in 40 would be significantly worse by chance, and more against a rival",
        "  that is chosen after the fact.",
        "",
    ]
    rows = []
    for name in sorted(worse, key=lambda name: -worse[name][0])[:10]:
        folds = blocks[name]
        errors = np.mean([fold["rows"][0] * (1 - fold["validation accuracy"]) for fold in folds])
        best = Counter(fold["auto"]["best"] for fold in folds).most_common(1)[0][0]
        shares = [f"{1e4 * value:+.2f}" for value in worse[name]]
        rows.append([name, f"{errors:.0f}", best, shares[0], f"{shares[1]} to {shares[2]}"])
    head = ["largest differences, AUGRC times 10,000", "errors to learn from", "best", "`auto` minus best", "interval"]
    return lines + table(head, rows)


def every(blocks: dict[str, list[Results]]) -> list[str]:
    """The figures of each experiment."""
    rows = []
    for name, folds in blocks.items():
        single = [score for score in folds[0]["order"] if score not in LEARNED]
        best = min(single, key=lambda score: mean_order(folds, score))
        areas = [f"{1e4 * mean_order(folds, score):.1f}" for score in ("auto", best)]
        cells = [f"{100 * mean_certified(folds, rule, 0.02):.1f}" for rule in ("auto", MAPIE)]
        base = f"{100 * np.mean([fold['base accuracy'] for fold in folds]):.2f}"
        title = f"{name} ({len(folds)})" if len(folds) > 1 else name
        rows.append([title, base, areas[0], best, areas[1], *cells])
    head = ["experiment (folds)", "accuracy, %", "AUGRC, `auto`", "best plain score", "its AUGRC"]
    text = "AUGRC times 10,000, low is good; certified coverage at risk 2 %, in percent, of `auto`."
    return [text, "", *table([*head, "certified by drrej", "by MAPIE, split"], rows)]


def draw(results: Results, path: Path) -> None:
    """Mean ranks of AUGRC, and one critical difference from the best."""
    found = rankings(results, "augrc")
    with drawn(path, 1, len(found), (4.4 * len(found), 3.6)) as axes:
        for axis, (title, (means, enough, blocks)) in zip(axes, found.items(), strict=True):
            ordered = sorted(((mean, name) for name, mean in means.items()), reverse=True)
            axis.axvspan(ordered[-1][0], ordered[-1][0] + enough, color=GREY, alpha=0.2, lw=0)
            for height, (mean, name) in enumerate(ordered):
                axis.plot([mean], [height], "o", color=COLOURS[0 if name in OURS else 1])
            axis.set_yticks(range(len(ordered)), [name for _, name in ordered])
            axis.set_xlabel("mean rank of AUGRC (1 is best)\nshaded: not significantly different from the best")
            axis.set_title(f"{title}: {blocks}")
