"""The report as one self-contained page: no network, no scripts; light, dark, print, phone."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

from drrej.report.numbers import against, counted, figure, percent, percents
from drrej.report.plots import page_plots
from drrej.report.tables import Table, tables

Report = dict[str, Any]

_COMPARISONS = ("Difference to the baseline", "Scores", "Masks")
_POINTS = "Points of the curve"
_OWN_FORM = ("Coverage and accuracy", "Curve", "By class")
"""Titles of the text report's tables: what is neither of these, nor by group, goes beside the plots as it is."""

_TAU_EVERY = 5
_LONGEST = 32
_SAFE = "default-src 'none'; style-src 'unsafe-inline'"


def render_html(report: Report) -> str:
    """The page; what a report without labels lacks is left out."""
    plain = {table.title: table for table in tables(report)}
    beside = [title for title in plain if title not in (*_COMPARISONS, _POINTS, *_OWN_FORM, f"By {report.get('by')}")]
    plots = page_plots(report, _plot_texts(report))

    def shown(*titles: str) -> str:
        return "\n".join(_plain(plain[title]) for title in titles if title in plain)

    sections = [
        _header(report),
        _cards(report),
        _plots(report, plots, shown(*beside)),
        shown(*_COMPARISONS),
        _members(report),
        _confusions(report),
        _side_by_side(_taus(report), shown(_POINTS)),
        _made(report),
    ]
    style = files("drrej.report").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_SAFE}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>drrej report: {_text(_short(report))}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(section for section in sections if section)
        + f"\n</main>\n<footer>drrej {_text(report['drrej_version'])}, {_text(report['format'])}. Intervals are 95 %, "
        "exact, two-sided.</footer>\n</body>\n</html>\n"
    )


def _text(value: Any) -> str:
    """Text of the user's, made harmless."""
    seen = "".join(sign if sign.isprintable() or sign == "\n" else "\N{REPLACEMENT CHARACTER}" for sign in str(value))
    return escape(seen)


def _name(text: str) -> str:
    """A name in a table; a long one is wrapped."""
    return f'<span class="long">{_text(text)}</span>' if len(text) > _LONGEST else _text(text)


# The verdict


def verdict(report: Report) -> str:
    """What the rejector does to these rows, in a sentence."""
    coverage = percent(report["coverage"]["value"])
    if "accuracy" not in report:
        expected = percent(report["expected_accuracy"]["value"])
        return f"Accepts {coverage} of {report['rows']:,} rows; the probabilities promise {expected} accuracy there."
    base = f"without rejection {percent(report['base_accuracy']['value'])}"
    if report["accuracy"]["value"] is None:
        return f"Accepts none of {report['rows']:,} rows; {base}."
    accuracy = report["accuracy"]
    return (
        f"Accepts {coverage} of rows at {percent(accuracy['value'])} accuracy "
        f"(95 % interval {percents(accuracy['lower'], accuracy['upper'])}); {base}."
    )


def _short(report: Report) -> str:
    accuracy = report["accuracy"]["value"] if "accuracy" in report else None
    return f"coverage {percent(report['coverage']['value'])}, accuracy {percent(accuracy)}"


def _header(report: Report) -> str:
    return (
        f'<header>\n<p class="kicker">drrej report</p>\n<h1>{_text(verdict(report)).replace(" %", "&nbsp;%")}</h1>\n'
        f'<p class="lead">{_text(_decision(report))}</p>\n{_gates(report["gates"])}</header>'
    )


def _decision(report: Report) -> str:
    start = f"{report['rows']:,} rows, {report['classes']:,} classes. "
    if report["cutoff"] is not None:
        tau = "" if report["tau"] is None else f", that is where its ratio is τ = {figure(report['tau'], 6)} or less"
        return f"{start}A row is rejected where its expected loss is {figure(report['cutoff'], 6)} or more{tau}."
    return start + ("Nothing is rejected." if report["tau"] is not None else "Each group has its own cutoff.")


def _gates(gates: Sequence[Report]) -> str:
    items = "".join(
        f'<li class="{"passed" if gate["passed"] else "failed"}"><b>{"✓ passed" if gate["passed"] else "✗ failed"}</b> '
        f"<code>{_text(gate['gate'])}</code> <span>value {against(gate['value'], gate['limit'])}</span></li>\n"
        for gate in gates
    )
    return f'<ul class="gates" aria-label="Gates">\n{items}</ul>\n' if items else ""


# Figures at a glance


def _cards(report: Report) -> str:
    cards = [_card("Coverage", report["coverage"], f"{report['coverage']['accepted']:,} of {report['rows']:,} rows")]
    if "accuracy" in report:
        cards += [
            _card("Accuracy of the accepted", report["accuracy"], counted(report["accuracy"]["errors"], "error")),
            _card("Without rejection", report["base_accuracy"], counted(report["base_accuracy"]["errors"], "error")),
        ]
    expected = percent(report["expected_accuracy"]["value"])
    cards.append(
        f"<div><dt>Expected accuracy</dt><dd><b>{expected}</b><small>what the probabilities say</small></dd></div>"
    )
    return '<dl class="cards">\n' + "\n".join(cards) + "\n</dl>"


def _card(name: str, group: Report, count: str) -> str:
    spread = "" if group["lower"] is None else f"<small>{percents(group['lower'], group['upper'])}</small>"
    return f"<div><dt>{name}</dt><dd><b>{percent(group['value'])}</b>{spread}<small>{count}</small></dd></div>"


# Plots

_PLOT_TITLES = {
    "curve": "Accuracy against coverage",
    "losses": "Expected losses",
    "reliability": "Can the confidence be trusted?",
}


def _plot_texts(report: Report) -> dict[str, str]:
    """What each plot shows, for those who do not see it."""
    texts = {"losses": "Histogram of the expected losses of the rows, with the cutoff."}
    if "coverage_curve" in report:
        curve = report["coverage_curve"]
        steps = ", ".join(f"{percent(p['accuracy'])} at {percent(p['coverage'])}" for p in curve[4::15])
        texts["curve"] = f"Line plot of accuracy against coverage: {steps}. {verdict(report)}"
        before, after = percent(report["ece"]["uncalibrated"]), percent(report["ece"]["all"])
        texts["reliability"] = (
            f"Reliability diagram: accuracy against confidence. The expected calibration error is {before} before and "
            f"{after} after the temperature."
        )
        texts["losses"] = "Histograms of the expected losses of right and of wrong predictions, with the cutoff."
    return texts


def _plot_captions(report: Report) -> dict[str, str]:
    chosen = f"The dot is this rejector{'' if report['tau'] is None else ', τ = ' + figure(report['tau'])}"
    captions = {
        "curve": f"{chosen}. Upwards is better; the ideal order would accept every right row before any wrong one.",
        "losses": "Each row's own expected loss. Rows in the shaded part are rejected.",
    }
    if "ece" in report:
        ece = report["ece"]
        captions["reliability"] = (
            "On the diagonal, confidence is what it says. Calibration error (ECE) "
            f"{percent(ece['uncalibrated'])} before the temperature, {percent(ece['all'])} after. "
            "Below: where the rows are."
        )
    return captions


def _plots(report: Report, plots: dict[str, str], numbers: str) -> str:
    captions = _plot_captions(report)
    made = [
        f"<figure>\n<h2>{_PLOT_TITLES[name]}</h2>\n{svg}\n<figcaption>{_text(captions[name])}</figcaption>\n</figure>"
        for name, svg in plots.items()
    ]
    return '<div class="plots">\n' + "\n".join(made) + f'\n<div class="numbers">\n{numbers}\n</div>\n</div>'


# Tables


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """A table of cells that are HTML already; the first cell of a row is its header."""
    top = "".join(f'<th scope="col">{cell or "<span class=hidden>figure</span>"}</th>' for cell in header)
    body = "".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{cell}</td>" for cell in row[1:]) + "</tr>\n"
        for row in rows
    )
    note = f"<p class=note>{caption}</p>" if caption else ""
    table = f"<table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>"
    return f'<div class="wide" tabindex="0">{table}</div>\n{note}'


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{_text(title)}</h2>\n{body}\n</section>"


def _side_by_side(*sections: str) -> str:
    return '<div class="tables">\n' + "\n".join(section for section in sections if section) + "\n</div>"


def _plain(table: Table) -> str:
    cells = [[_name(row[0]), *(_text(_typeset(cell)) for cell in row[1:])] for row in table.rows]
    return _section(table.title, _table([_text(cell) for cell in table.header], cells, _text(table.remark)))


def _typeset(cell: str) -> str:
    return cell.replace(" - ", " to ").replace("+-", "\N{PLUS-MINUS SIGN}")


def _bar(share: float, kind: str) -> str:
    return f'<span class="bar {kind}" aria-hidden="true"><i style="width:{100 * share:.1f}%"></i></span>'


def _members(report: Report) -> str:
    """The tables by group and by class."""
    pictures, made = report["pictures"], []
    if "groups" in pictures:
        made.append(_worst_first(f"By {report['by']}", report["by"], pictures["groups"], "groups"))
    if "classes" in pictures:
        made.append(_worst_first("By class", "true class", pictures["classes"], "classes"))
    return "\n".join(made)


def _worst_first(title: str, name: str, members: Report, plural: str) -> str:
    rest = members["rest"]
    rows = [_member(_name(row["name"]), row) for row in members["shown"]]
    note = "The lowest accuracy first. The bar of the error rate is relative to the highest of them."
    if rest is not None:
        rows.append(_member(f"<em>{rest['members']:,} other {plural}</em>", rest))
        note += f" The {len(members['shown'])} worst are shown one by one, the others together."
    header = [_text(name), "rows", "coverage", "errors", "error rate of the accepted", "accuracy", "without rejection"]
    return _section(title, _table(header, rows, note))


def _member(name: str, row: Report) -> list[str]:
    return [
        name,
        f"{row['rows']:,}",
        f"{_bar(row['coverage'], 'coverage')} {percent(row['coverage'])}",
        f"{row['errors']:,}",
        f"{_bar(row['of_highest'], 'errors')} {percent(row['error_rate'])}",
        percent(row["accuracy"]),
        percent(row["base_accuracy"]),
    ]


def _confusions(report: Report) -> str:
    if "confusions" not in report["pictures"]:
        return ""
    found = report["pictures"]["confusions"]
    title = "Errors that remain among the accepted rows"
    if not found["top"]:
        return _section(title, "<p>None: every accepted row is right.</p>")
    rows = [
        [
            _name(row["label"]),
            _name(row["prediction"]),
            f"{row['rows']:,}",
            f"{_bar(row['share'], 'errors')} {percent(row['share'])}",
        ]
        for row in found["top"]
    ]
    note = f"{counted(found['errors'], 'error')} in all."
    if found["other_pairs"]:
        note += f" {found['other_pairs']:,} rarer pairs make up {found['other_rows']:,} of them."
    body = _table(["true class", "predicted", "rows", "share of these errors"], rows, note)
    return _section(title, f'<div class="pairs">{body}</div>')


def _taus(report: Report) -> str:
    if "curve" not in report:
        return ""
    header = ["τ", "coverage", "accuracy", "95 % interval"]
    rows = [
        [f"{point['tau']:.2f}", percent(point["coverage"]), percent(point["accuracy"]), _interval(point)]
        for point in report["curve"]
    ]
    some = _table(header, rows[_TAU_EVERY - 1 :: _TAU_EVERY])
    every = f"<details><summary>All {len(rows)} steps</summary>\n{_table(header, rows)}\n</details>"
    return _section("What other τ would do", f"{some}\n{every}")


def _interval(group: Report) -> str:
    return "-" if group["lower"] is None else percents(group["lower"], group["upper"])


# How it was made


def _made(report: Report) -> str:
    made = report["pictures"]["made"]
    words = "".join(f"<li>{_text(line)}</li>\n" for line in made["words"])
    commands = "\n".join(_text(command) for command in made["commands"])
    return _section(
        "How it was made",
        f'<ul class="facts">\n{words}</ul>\n<h3>The commands to repeat it</h3>\n'
        f'<pre tabindex="0"><code>{commands}</code></pre>\n'
        "<p class=note>VAL stands for the dump that the rejector was made on; a guarantee needs fresh rows for its "
        "threshold.</p>",
    )
