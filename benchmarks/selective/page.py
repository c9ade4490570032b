"""The page and the figure, from the results alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.selective.judge import DELTA, RISKS, RIVALS
from benchmarks.selective.ranks import Array, Ranking, ranking
from benchmarks.selective.scores import LOGITS_ONLY, OURS, SCORES

Results = dict[str, Any]
ORDER = {"aurc": 1, "augrc": 1, "accuracy at 80 %": -1, "accuracy at 90 %": -1}
"""Figures of an order, and whether low (1) or high (-1) is good."""

INTRODUCTION = """{dumps} dumps of {experiments} experiments (folds of one experiment count once in the ranks):
{kinds}. Scores of drrej are calibrated and fitted on the validation rows; the others' scores are computed from the
model's own outputs in float64. `pNorm` chooses its p on the validation rows. Figures are of the test rows.
Experiments on the same data are not independent, so that the critical differences are somewhat too small."""

CERTIFIED = """Half of the validation rows fit, the other half certify a risk with confidence {confidence:g}; the
mean coverage of the test rows over all dumps, in percent, 0 where nothing can be certified. In brackets: dumps
whose test rows contradict the promise (one-sided binomial test, 5 %). Some are bound to: a promise may fail with
chance {delta:g}. Scores are certified with drrej's rule, and two of them with the rules of others as well."""

FEWEST = 5
"""Experiments that a ranking needs to be printed."""

TITLES = {"aurc": "AURC", "augrc": "AUGRC"}


KINDS = {"DenseNet": "networks of others", "MLP": "perceptrons", " network, ": "networks of the paper's table"}
"""What dumps are, by a word in their name; all others are scikit-learn's models."""


def kinds(results: Results) -> str:
    """How many dumps there are of each kind, none included: what is missing is said."""
    words = {name: next((kind for word, kind in KINDS.items() if word in name), None) for name in results}
    counts = {kind: list(words.values()).count(kind) for kind in KINDS.values()}
    told = [f"{count} of {kind}" if count else f"none yet of {kind}" for kind, count in counts.items()]
    return ", ".join([f"{list(words.values()).count(None)} of scikit-learn's models on real data", *told])


def groups(results: Results) -> dict[str, list[Results]]:
    """Dumps by experiment: its folds count as one block of a ranking."""
    found: dict[str, list[Results]] = defaultdict(list)
    for figures in results.values():
        found[figures["group"]].append(figures)
    return dict(found)


def matrix(blocks: Sequence[list[Results]], names: Sequence[str], figure: str) -> Array:
    """(block, score): the figure's mean over the folds of a block."""
    return np.array([[np.mean([fold["order"][name][figure] for fold in block]) for name in names] for block in blocks])


def rankings(results: Results, figure: str) -> dict[str, Ranking]:
    """By kind of dump: all with the scores that all have, and those with logits with every score."""
    blocks = list(groups(results).values())
    with_logits = [block for block in blocks if not block[0]["probabilities"]]
    common = [name for name in SCORES if name not in LOGITS_ONLY]
    chosen = {"all dumps": (blocks, common), "dumps with logits": (with_logits, list(SCORES))}
    return {
        title: ranking(names, ORDER[figure] * np.round(matrix(some, names, figure), 7))
        for title, (some, names) in chosen.items()
        if some
    }


def shown(results: Results, figure: str) -> dict[str, Ranking]:
    """The rankings that are worth a look: of fewer than `FEWEST` experiments only that of all."""
    found = rankings(results, figure)
    return {title: own for title, own in found.items() if own.blocks >= FEWEST or title == "all dumps"}


def page(results: Results) -> str:
    """The whole page."""
    blocks = groups(results)
    lines = [
        "# Which score, and how far ahead",
        "",
        "Made by `python -m benchmarks.selective` from `benchmarks/selective/results/results.json`.",
        "",
        INTRODUCTION.format(dumps=len(results), experiments=len(blocks), kinds=kinds(results)),
        "",
        *_ranks(results),
        "![mean ranks of AUGRC](figures/selective.svg)",
        "",
        *_certified(results),
        *_verdicts(results),
        *_dumps(results),
    ]
    return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [
        "| " + " | ".join(header) + " |",
        "|" + "---|" * len(header),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def _ranks(results: Results) -> list[str]:
    lines = [
        "## Order: mean ranks",
        "",
        "1 is the best rank. Bold: not told from the best by Nemenyi's critical difference (5 %).",
        "",
    ]
    found = {figure: shown(results, figure) for figure in ORDER}
    few = [own.blocks for title, own in rankings(results, "augrc").items() if title not in found["augrc"]]
    for count in few:
        lines += [
            f"Energy, max logit and pNorm need logits, and {count} experiment(s) with logits are too few to rank:"
        ]
        lines += ["their figures are in the last table.", ""]
    for title, first in found["augrc"].items():
        rows = []
        for place in np.argsort(first.mean, kind="stable"):
            name = first.names[place]
            cells = [f"`{name}`" if name in OURS else name]
            for figure in ORDER:
                own = found[figure][title]
                cells.append(_rank(own, name))
            rows.append(cells)
        tests = [found[figure][title] for figure in ORDER]
        rows.append(["critical difference", *(f"{own.critical_difference:.2f}" for own in tests)])
        rows.append(["Friedman's p", *(f"{own.p_value:.1g}" for own in tests)])
        lines += [f"### {title[0].upper()}{title[1:]}, {first.blocks} experiments", ""]
        lines += _table(["score", *(TITLES.get(figure, figure) for figure in ORDER)], rows)
    return lines


def _rank(own: Ranking, name: str) -> str:
    mean = own.mean[own.names.index(name)]
    near = mean - min(own.mean) < own.critical_difference
    return f"**{mean:.2f}**" if near else f"{mean:.2f}"


def _certified(results: Results) -> list[str]:
    """Mean coverage, and promises that the test rows contradict."""
    from scipy.stats import binom

    lines = ["## Certified coverage", ""]
    lines += [
        CERTIFIED.format(confidence=1 - DELTA, delta=DELTA),
        "",
    ]
    kinds = {
        "all dumps": list(results.values()),
        "dumps with logits": [figures for figures in results.values() if not figures["probabilities"]],
    }
    for title, some in kinds.items():
        if not some:
            continue
        names = [name for name in [*SCORES, *RIVALS] if all(name in figures["certified"] for figures in some)]
        rows = []
        for name in names:
            cells = [f"`{name}`" if name in OURS else name]
            for risk in RISKS:
                pairs = [(*figures["certified"][name][f"{100 * risk:g} %"], figures["rows"][1]) for figures in some]
                broken = sum(
                    bool(binom.sf(round(share * coverage * rows_) - 1, round(coverage * rows_), risk) < 0.05)
                    for coverage, share, rows_ in pairs
                    if coverage
                )
                cells.append(f"{100 * np.mean([pair[0] for pair in pairs]):.2f} ({broken})")
            rows.append(cells)
        lines += [f"### {title[0].upper()}{title[1:]}: {len(some)}", ""]
        lines += _table(["", *(f"risk {100 * risk:g} %" for risk in RISKS)], rows)
    if known := easier(results):
        lines += [
            "No promise holds where the validation rows are easier than the test rows. They are, by more than three"
        ]
        lines += [f"standard errors of the base accuracy, on: {'; '.join(known)}.", ""]
    return lines


def worse(results: Results) -> dict[str, list[str]]:
    """Dumps on which `auto` is worse than the best other score: at all, significantly, and allowing for all looks."""
    of = {name: figures["auto"]["augrc"] for name, figures in results.items()}
    area = {name: figures["auto"]["aurc"] for name, figures in results.items()}
    return {
        "at all": [name for name, own in of.items() if own["difference"] > 0],
        "significantly": [name for name, own in of.items() if own["interval"][0] > 0],
        "significantly in AURC": [name for name, own in area.items() if own["interval"][0] > 0],
        "allowing for all looks": [name for name, own in of.items() if own["interval of all"][0] > 0],
    }


def ahead(results: Results) -> list[str]:
    """Dumps on which the AUGRC of `auto` is below that of every single score."""
    found = []
    for name, figures in results.items():
        areas = {score: own["augrc"] for score, own in figures["order"].items() if score != "learned"}
        if areas.pop("auto") < min(areas.values()):
            found.append(name)
    return found


def easier(results: Results, limit: float = 3.0) -> list[str]:
    """Dumps whose validation rows are right more often than their test rows, by so many standard errors."""
    found = []
    for name, figures in results.items():
        chances = figures["validation accuracy"], figures["base accuracy"]
        spread = sum(p * (1 - p) / rows for p, rows in zip(chances, figures["rows"], strict=True)) ** 0.5
        if chances[0] - chances[1] > limit * spread:
            found.append(name)
    return found


def _verdicts(results: Results) -> list[str]:
    found = worse(results)
    count = len(results)
    lines = [
        "## `auto` against the best single score",
        "",
        "The rival is whichever other score turned out best on the test rows of the dump, which nobody could know; the",
        "best of up to eleven is lucky as well as good. Differences of AUGRC are `auto` less rival, times 10,000, with",
        "paired 95 % intervals.",
        "",
        f"- Worse at all on {len(found['at all'])} of {count} dumps, equal or better on the others.",
        f"- Significantly worse, one dump at a time: **{len(found['significantly'])}**; where nothing differs, about",
        "  1 in 40 is expected, and more for a rival that is chosen after the fact. In AURC, with an interval that",
        f"  allows for an error never seen: {len(found['significantly in AURC'])}.",
        "- Significantly worse when the 5 % are shared over all scores and dumps: "
        f"**{len(found['allowing for all looks'])}**.",
        f"- Below every single score, `learned` left aside because `auto` often is `learned`: {len(ahead(results))}.",
        "",
        "`auto` learns from the errors among the validation rows. Where these are few, scores can hardly be told apart",
        "there: nothing says beforehand which will be best.",
        "",
    ]
    rows = []
    for name in sorted(found["at all"], key=lambda name: -results[name]["auto"]["augrc"]["difference"]):
        own = results[name]["auto"]["augrc"]
        lower, upper = (10_000 * end for end in own["interval"])
        mark = (
            "all looks" if name in found["allowing for all looks"] else "yes" if name in found["significantly"] else ""
        )
        cells = [f"{10_000 * own['difference']:+.2f}", f"{lower:+.2f} to {upper:+.2f}", mark]
        rows.append([name, str(errors_to_learn_from(results[name])), own["best"], *cells])
    head = ["dump where `auto` is worse", "errors to learn from", "best", "AUGRC", "interval", "significant"]
    return lines + _table(head, rows)


def errors_to_learn_from(figures: Results) -> int:
    """Wrong validation rows."""
    return round(figures["rows"][0] * (1 - figures["validation accuracy"]))


def _dumps(results: Results) -> list[str]:
    """AUGRC of every score on every experiment."""
    names = list(SCORES)
    rows = []
    for group, folds in sorted(groups(results).items()):
        cells = [f"{group} ({len(folds)} folds)" if len(folds) > 1 else group]
        cells.append(f"{100 * np.mean([fold['base accuracy'] for fold in folds]):.2f}")
        values = {
            name: float(np.mean([fold["order"][name]["augrc"] for fold in folds]))
            for name in names
            if name in folds[0]["order"]
        }
        least = min(values.values())
        for name in names:
            if name not in values:
                cells.append("")
                continue
            shown = f"{10_000 * values[name]:.1f}"
            cells.append(f"**{shown}**" if values[name] <= least + 5e-8 else shown)
        rows.append(cells)
    lines = ["## AUGRC of every experiment, times 10,000", "", "Low is good; the best in bold.", ""]
    return lines + _table(["", "base accuracy, %", *names], rows)


def draw(results: Results, path: Path) -> None:
    """Mean ranks of AUGRC, and one critical difference from the best."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    found = shown(results, "augrc")
    with plt.rc_context({"svg.hashsalt": "drrej", "font.size": 9}):
        figure, axes = plt.subplots(1, len(found), figsize=(4.4 * len(found), 3.6), squeeze=False)
        for axis, (title, own) in zip(axes[0], found.items(), strict=True):
            ordered = sorted(own.pairs(), key=lambda pair: -pair[1])
            best = min(own.mean)
            axis.axvspan(best, best + own.critical_difference, color="#dfe7f1", lw=0)
            for height, (name, mean) in enumerate(ordered):
                axis.plot([mean], [height], "o", color="#3465a4" if name in OURS else "#d9822b")
            axis.set_yticks(range(len(ordered)), [name for name, _ in ordered])
            axis.set_xlabel("mean rank of AUGRC (1 is best)")
            axis.set_title(f"{title}: {own.blocks} experiments", fontsize=9)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
        figure.text(0.5, 0.005, "shaded: not told from the best (Nemenyi, 5 %)", ha="center", fontsize=8)
        figure.tight_layout(rect=(0, 0.03, 1, 1))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
