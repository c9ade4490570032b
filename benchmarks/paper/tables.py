"""The tables and the figure of `results/results.json`, and the marks in pages between which tables stand."""

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.paper.judge import COVERAGES, Figures, figures_of, folds_of

HERE = Path(__file__).parent
TITLES = {"har": "HAR", "gas_drift": "Gas Drift", "mnist": "MNIST", "cifar10": "CIFAR-10"}
TITLES |= {"organsmnist": "OrganSMNIST", "octmnist": "OctMNIST"}
TITLES |= {"har_small": "HAR, one hidden layer", "gas_drift_small": "Gas Drift, one hidden layer"}
METHODS = {"kl": "KL", "alpha3": "α = 3", "predrej": "PredRej", "css": "CSS", "defer": "DEFER", "gce": "GCE"}
SWEPT = {"alpha": "α", "lam": "λ"}
START, END = "<!-- tables: written by the command -->", "<!-- end of tables -->"
EARLIER = "earlier"
"""The version of rows that were judged by an older drrej; KL is the same there, `auto` was another rule."""


def published() -> Figures:
    """The paper's own figures."""
    document: Figures = json.loads((HERE / "published.json").read_text())["targets"]
    return document


def judged(work: Path, data: Path | None, path: Path) -> list[Figures]:
    """Figures of what is there; an experiment without dumps keeps the figures it has."""
    known = json.loads(path.read_text()) if path.is_file() else []
    theirs, made = published(), time.strftime("%Y-%m-%d")
    now = [figures_of(names, folds, theirs) | {"made": made} for names, folds in folds_of(work, data)]
    fresh, before = {_key(row): row for row in now}, {_key(row): row for row in known}
    for key in fresh.keys() & before.keys():  # baselines take hours: where there are no dumps of any, theirs are kept
        fresh[key]["rivals"] = fresh[key]["rivals"] or before[key]["rivals"]
    rows = [*(row for row in known if _key(row) not in fresh), *now]
    rows.sort(key=lambda row: (list(TITLES).index(row["dataset"]), row["noise"], row["network"]))
    return rows


def _key(row: Figures) -> tuple[Any, ...]:
    return row["dataset"], row["noise"], row["network"]


def write(rows: Sequence[Figures], out: Path) -> None:
    """`results.json`, one line for each experiment, and `tables.md`."""
    out.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    (out / "results.json").write_text(f"[\n{lines}\n]\n")
    (out / "tables.md").write_text(markdown(rows))


def show(page: Path, text: str) -> None:
    """Put tables between the marks of a page."""
    before, _, rest = page.read_text().partition(START)
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def summary(rows: Sequence[Figures]) -> str:
    """A line for each experiment of the paper's table: the paper's accuracy and ours at the paper's coverage."""
    paper = [row for row in rows if any(cell["paper"] for cell in row["cells"])]
    named = [f"{METHODS[method]}, {target} %" for target in (80, 90) for method in ("kl", "alpha3")]
    lines = []
    for row in paper:
        pairs = [(row["paper base"], sum(row["base"]) / len(row["base"]))]
        pairs += [(cell["paper"]["accuracy"], cell["log, test"][0]) for cell in row["cells"]]
        coverages = ["", *(f" [{cell['paper']['coverage']:.1f}]" for cell in row["cells"])]
        cells = [f"{theirs:.2f} → {ours:.2f}{at}" for (theirs, ours), at in zip(pairs, coverages, strict=True)]
        lines.append([title(row), str(row["folds"]), *cells])
    return table(["", "folds", "base", *named], lines)


def markdown(rows: Sequence[Figures]) -> str:
    """All tables."""
    paper = [row for row in rows if any(cell["paper"] for cell in row["cells"])]
    noises = {row["dataset"] for row in rows if row["noise"] not in (0, 25)}
    study = [row for row in rows if row["dataset"] in noises or row["dataset"].endswith("_small")]
    parts = ["### The paper's cells", table(HEAD, [line for row in paper for line in _cells(row)])]
    rivals = [line for row in rows for line in _rivals(row)]
    if rivals:
        parts += ["### Baselines at their own coverage", table(RIVAL_HEAD, rivals)]
    if study:
        parts += ["### Other noise rates, and smaller networks", table(STUDY_HEAD, [_study(row) for row in study])]
    swept = [line for row in rows for line in map(_swept, row["sweeps"])]
    if swept:
        parts += ["### α and λ: what a τ means (HAR, clean)", table(SWEEP_HEAD, swept)]
    return "\n\n".join(parts)


def title(row: Figures) -> str:
    """Data set, labels and network."""
    noise = f"{row['noise']} % flipped" if row["noise"] else "clean"
    return f"{TITLES[row['dataset']]}, {noise}" + ("" if row["network"] == "own" else f", {row['network']}")


HEAD = ["", "folds", "base, paper", "base, here", "target", "method", "paper", "here, same coverage", "difference"]
HEAD += ["here, cutoff from validation rows", "`auto`, the same"]


def _cells(row: Figures) -> list[list[str]]:
    lines = []
    base = sum(row["base"]) / len(row["base"])
    old = row["version"] == EARLIER
    for position, cell in enumerate(row["cells"]):
        paper = cell["paper"]
        first = [title(row), str(row["folds"]), f"{row['paper base']:.2f}", f"{base:.2f}"]
        own = [point(cell["log, test"]), difference(cell["difference"]), point(cell["log, validation"])]
        auto = f"{point(cell['auto, validation'])}{' †' if old else ''}"
        names = [f"{cell['target']} %", METHODS[cell["method"]], f"{paper['accuracy']:.2f} [{paper['coverage']:.1f}]"]
        lines.append([*(first if not position else [""] * 4), *names, *own, auto])
    return lines


RIVAL_HEAD = ["", "folds", "target", "baseline", "cost", "its accuracy", "KL at its coverage", "KL minus baseline"]


def _rivals(row: Figures) -> list[list[str]]:
    lines = []
    for rival in row["rivals"]:
        names = [title(row), str(rival["folds"]), f"{rival['target']} %", METHODS[rival["method"]]]
        cells = [f"{rival['cost']:.2f}", point(rival["baseline"]), f"{rival['log'][0]:.2f}"]
        lines.append([*names, *cells, difference(rival["difference"])])
    return lines


STUDY_HEAD = ["", "folds", "base", "KL at 80 %", "KL at 90 %", "`auto` at 80 %", "`auto` at 90 %"]


def _study(row: Figures) -> list[str]:
    values = [row["curves"][loss][COVERAGES.index(target)] for loss in ("log", "auto") for target in (80, 90)]
    cells = ["-" if value is None else f"{value:.2f}" for value in values]
    return [title(row), str(row["folds"]), f"{sum(row['base']) / len(row['base']):.2f}", *cells]


SWEEP_HEAD = ["", "value", "accuracy [coverage] at τ = 0.5", "at τ = 1"]


def _swept(sweep: Figures) -> list[str]:
    points = sweep["points"]
    return [SWEPT[sweep["parameter"]], f"{sweep['value']:g}", point(points[:2]), point(points[2:])]


def point(cell: Sequence[float]) -> str:
    """Accuracy and coverage."""
    return f"{cell[0]:.2f} [{cell[1]:.1f}]"


def difference(found: Sequence[float | None]) -> str:
    """A difference with its interval, where it has one."""
    value, lower, upper = found
    if value is None:
        return "-"
    return f"{value:+.2f}" if lower is None or upper is None else f"{value:+.2f} ({lower:+.2f} to {upper:+.2f})"


def table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *lines])


def draw(rows: Sequence[Figures], path: Path) -> None:
    """A panel for each data set: accuracy against coverage of KL, and the paper's cells as points."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    shown = list(TITLES)[:6]
    colours = ("#4a7ebb", "#d9822b", "#5a9e6f", "#a06bb5")
    grey = "#808080"  # reads on light and on dark pages
    style = {"svg.hashsalt": "drrej", "font.size": 8, "text.color": grey, "axes.labelcolor": grey}
    style |= {"axes.edgecolor": grey, "xtick.color": grey, "ytick.color": grey, "axes.titlecolor": grey}
    with plt.rc_context(style):
        figure, axes = plt.subplots(2, 3, figsize=(9, 5.4))
        for axis, dataset in zip(axes.flat, shown, strict=True):
            own = [row for row in rows if row["dataset"] == dataset and row["noise"] in (0, 25)]
            for row, colour in zip(own, colours, strict=False):
                name = title(row).split(", ", 1)[1].removeprefix("clean, ").replace(" of others", "")
                axis.plot(COVERAGES, row["curves"]["log"], color=colour, label=name)
                paper = [cell["paper"] for cell in row["cells"] if cell["method"] == "kl" and cell["paper"]]
                if row["network"] == "own" or row is own[0]:
                    marks = colour if row["network"] == "own" else grey
                    places = [(each["coverage"], each["accuracy"]) for each in paper]
                    axis.plot(
                        *zip(*places, strict=True),
                        "x",
                        color=marks,
                        label=f"paper, {'flipped' if row['noise'] else 'clean'}",
                    )
            axis.set_title(TITLES[dataset])
            axis.set_xlabel("coverage, %")
            axis.set_ylabel("accuracy, %")
            axis.set_facecolor("none")
            if own:
                axis.legend(fontsize=6, frameon=False, labelcolor=grey)
            for side in ("top", "right"):
                axis.spines[side].set_visible(False)
        figure.tight_layout()
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None}, transparent=True)
        plt.close(figure)
