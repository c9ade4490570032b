"""The tables and the figure of `results/results.json`, and the marks in pages between which tables stand."""

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import COLOURS, GREY, drawn, table
from benchmarks.paper.data import SMALL
from benchmarks.paper.judge import COVERAGES, TARGETS, Figures, figures_of, folds_of

HERE = Path(__file__).parent
TITLES = {"har": "HAR", "gas_drift": "Gas Drift", "mnist": "MNIST", "cifar10": "CIFAR-10"}
TITLES |= {"organsmnist": "OrganSMNIST", "octmnist": "OctMNIST"}
TITLES |= {"har_small": "HAR, one hidden layer", "gas_drift_small": "Gas Drift, one hidden layer"}
METHODS = {"kl": "KL", "alpha3": "α = 3", "predrej": "PredRej", "css": "CSS", "defer": "DEFER", "gce": "GCE"}
SWEPT = {"alpha": "α", "lam": "λ"}
START, END = "<!-- tables: written by the command -->", "<!-- end of tables -->"
FIGURE = """![Accuracy of the accepted rows against coverage on the six data sets](figures/paper.svg)

KL with the log loss, as in the paper; crosses are the paper's cells. The earlier runs on MNIST and CIFAR-10 kept no
points further to the left."""
STUDY = """Means ± standard deviations over folds, in percent, at 80 and 90 % of the test rows. The paper shows these
studies as curves without figures."""
EARLIER = "earlier"
"""So begins how rows were made that an older drrej has judged; KL is the same there, `auto` was another rule."""


def published() -> Figures:
    """The paper's own figures."""
    document: Figures = json.loads((HERE / "published.json").read_text())["targets"]
    return document


def judged(work: Path, data: Path | None, path: Path) -> list[Figures]:
    """Figures of what is there; an experiment without dumps keeps the figures it has."""
    known = json.loads(path.read_text()) if path.is_file() else []
    theirs = published()
    now = [figures_of(names, folds, theirs) for names, folds in folds_of(work, data)]
    fresh, before = {_key(row): row for row in now}, {_key(row): row for row in known}
    for key in fresh.keys() & before.keys():  # baselines take hours: where there are no dumps of any, theirs are kept
        fresh[key]["rivals"] = fresh[key]["rivals"] or before[key]["rivals"]
    rows = [*(row for row in known if _key(row) not in fresh), *now]
    rows.sort(key=lambda row: (list(TITLES).index(row["dataset"]), row["noise"], row["network"]))
    return rows


def _key(row: Figures) -> tuple[Any, ...]:
    return row["dataset"], row["noise"], row["network"]


def write(rows: Sequence[Figures], path: Path) -> None:
    """`results.json`, one line for each experiment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text(f"[\n{lines}\n]\n")


def show(page: Path, text: str) -> None:
    """Put tables between the marks of a page."""
    before, _, rest = page.read_text().partition(START)
    page.write_text(f"{before}{START}\n\n{text}\n\n{END}{rest.partition(END)[2]}")


def summary(rows: Sequence[Figures]) -> str:
    """For the site: a line for each experiment of the paper's table, then other noise rates and smaller networks."""
    named = [f"{METHODS[method]}, {target} %" for target in TARGETS for method in ("kl", "alpha3")]
    lines = []
    for row in (row for row in rows if row["cells"]):
        cells = [f"{row['paper base']:.2f} → {statistics.fmean(row['base']):.2f}"]
        for cell in row["cells"]:
            theirs, ours = cell["paper"], cell["log, test"][0]
            cells.append(f"{theirs['accuracy']:.2f} → {ours:.2f} [{theirs['coverage']:.1f}]")
        lines.append([title(row), str(row["folds"]), *cells])
    cells = table(["", "folds", "base", *named], lines)
    return "\n".join([*cells, *made(rows), "", FIGURE, "", *_study(rows, "##")]).rstrip()


def made(rows: Sequence[Figures]) -> list[str]:
    """The command, and when and where each data set was judged."""
    lines = ["Made by `python -m benchmarks.paper table`:", ""]
    for when in dict.fromkeys(row["made"] for row in rows):
        names = dict.fromkeys(TITLES[row["dataset"]] for row in rows if row["made"] == when)
        lines.append(f"- {'; '.join(names)}: {when}")
    return lines


def markdown(rows: Sequence[Figures]) -> str:
    """All tables."""
    head = ["", "folds", "base, paper", "base, here", "target", "method", "paper", "here, same coverage", "difference"]
    head += ["here, cutoff from validation rows", "`auto`, the same"]
    parts = ["### The paper's cells", "", *table(head, [line for row in rows for line in _cells(row)])]
    if rivals := [line for row in rows for line in _rivals(row)]:
        head = ["", "folds", "target", "baseline", "cost", "most it accepts, % (costs tried)", "its accuracy"]
        head += ["KL at its coverage", "KL minus baseline"]
        parts += ["### Baselines at their own coverage", "", *table(head, rivals)]
    parts += _study(rows, "###")
    if swept := [sweep for row in rows for sweep in row["sweeps"]]:
        lines = [
            [SWEPT[one["parameter"]], f"{one['value']:g}", _point(one["points"][:2]), _point(one["points"][2:])]
            for one in swept
        ]
        head = ["", "value", "accuracy [coverage] at τ = 0.5", "at τ = 1"]
        parts += ["### α and λ: what a τ means (HAR, clean)", "", *table(head, lines)]
    return "\n".join(parts).rstrip()


def title(row: Figures) -> str:
    """Data set, labels and network."""
    noise = f"{row['noise']} % flipped" if row["noise"] else "clean"
    return f"{TITLES[row['dataset']]}, {noise}" + ("" if row["network"] == "own" else f", {row['network']}")


def _cells(row: Figures) -> list[list[str]]:
    lines = []
    for position, cell in enumerate(row["cells"]):
        first = [title(row), str(row["folds"]), f"{row['paper base']:.2f}", f"{statistics.fmean(row['base']):.2f}"]
        own = [_point(cell["log, test"]), _difference(cell["difference"]), _point(cell["log, validation"])]
        auto = f"{_point(cell['auto, validation'])}{' †' if row['made'].startswith(EARLIER) else ''}"
        theirs = _point((cell["paper"]["accuracy"], cell["paper"]["coverage"]))
        names = [f"{cell['target']} %", METHODS[cell["method"]], theirs]
        lines.append([*([""] * 4 if position else first), *names, *own, auto])
    return lines


def _rivals(row: Figures) -> list[list[str]]:
    lines = []
    for rival in row["rivals"]:
        names = [title(row), str(rival["folds"]), f"{rival['target']} %", METHODS[rival["method"]]]
        most = f"{rival['most']:.1f} ({rival['costs']})" if "most" in rival else "†"
        cells = [f"{rival['cost']:.2f}", most, _point(rival["baseline"]), f"{rival['log'][0]:.2f}"]
        lines.append([*names, *cells, _difference(rival["difference"])])
    return lines


def _study(rows: Sequence[Figures], level: str) -> list[str]:
    """Data sets with noise rates other than 25 %, and smaller networks; means and spreads over folds."""
    noises = {row["dataset"] for row in rows if row["noise"] not in (0, 25)}
    lines = []
    for row in (row for row in rows if row["dataset"] in noises or row["dataset"].endswith(SMALL)):
        ends = [(row["curves"][loss], row["spreads"][loss]) for loss in ("log", "auto")]
        cells = [f"{means[-1]:.2f} ± {spreads[-1]:.2f}" for means, spreads in ends[:1]]  # at 100 %: the base network
        for means, spreads in ends:
            cells += [f"{means[place]:.2f} ± {spreads[place]:.2f}" for place in map(COVERAGES.index, TARGETS)]
        lines.append([title(row), str(row["folds"]), *cells])
    head = ["", "folds", "base", *(f"{name} at {target} %" for name in ("KL", "`auto`") for target in TARGETS)]
    return [f"{level} Other noise rates, and smaller networks", "", STUDY, "", *table(head, lines)] if lines else []


def _point(cell: Sequence[float]) -> str:
    """Accuracy and coverage."""
    return f"{cell[0]:.2f} [{cell[1]:.1f}]"


def _difference(found: Sequence[float | None]) -> str:
    """A difference with its interval, where it has one."""
    value, lower, upper = found
    if value is None:
        return "-"
    return f"{value:+.2f}" if lower is None or upper is None else f"{value:+.2f} ({lower:+.2f} to {upper:+.2f})"


def draw(rows: Sequence[Figures], path: Path) -> None:
    """A panel for each data set: accuracy against coverage of KL, and the paper's cells as points."""
    with drawn(path, 2, 3, (9, 5.4)) as axes:
        for axis, dataset in zip(axes, list(TITLES)[:6], strict=True):
            own = [row for row in rows if row["dataset"] == dataset and row["noise"] in (0, 25)]
            for row, colour in zip(own, COLOURS, strict=False):
                name = title(row).split(", ", 1)[1].removeprefix("clean, ").replace(" of others", "")
                axis.plot(COVERAGES, row["curves"]["log"], color=colour, label=name)
                places = [(c["paper"]["coverage"], c["paper"]["accuracy"]) for c in row["cells"] if c["method"] == "kl"]
                if row["network"] == "own" or row is own[0]:
                    marks = colour if row["network"] == "own" else GREY
                    said = f"paper, {'flipped' if row['noise'] else 'clean'}"
                    axis.plot(*zip(*places, strict=True), "x", color=marks, label=said)
            axis.set_title(TITLES[dataset])
            axis.set_xlabel("coverage, %")
            axis.set_ylabel("accuracy, %")
            if own:
                low, high = axis.get_ylim()
                axis.set_ylim(low - 0.1 * len(own) * (high - low), high)  # the legend has room below the curves
                axis.legend(fontsize=6, frameon=False, labelcolor=GREY, loc="lower left")
