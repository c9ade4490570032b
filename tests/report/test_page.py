"""The report as a page and the curve as a figure: what is in them, without a browser."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import jsonschema
import pytest
from conftest import (
    ROOT,
    environment,
    fail,
    load_json,
    make_model,
    make_rejector,
    run_drrej,
    sketches,
    source,
    succeed,
    write_dump,
)
from msgspec.structs import replace
from pages import NAMES, SCRIPT, TITLE, make_page

import drrej
from drrej.documents.document import schema_of
from drrej.documents.figures import Proportion
from drrej.pipeline.evaluate import EvaluateOptions
from drrej.report import PLOTS
from drrej.report.page import render_page, verdict
from drrej.report.plots import curve_figure
from drrej.report.words import percent, percents

for library in ("matplotlib", "jinja2"):
    pytest.importorskip(library, reason="pages need the extra: pip install 'drrej[plot]'")

_VOID = {"meta", "br", "img", "input", "link"}


class Page(HTMLParser):
    """The elements and the visible text of a page; complains of tags that do not match."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in _VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_page(tmp_path_factory.mktemp("page"))


@pytest.fixture(scope="module")
def page(path: Path) -> Page:
    return Page(path.read_text(encoding="utf-8"))


def test_names_are_shown_as_they_are(page: Page) -> None:
    kinds = {tag for tag, _ in page.tags}
    assert not kinds & {"img", "link", "iframe", "object"}
    assert [attributes.get("type") for tag, attributes in page.tags if tag == "script"] == [
        "application/json",
        "module",
    ]
    assert SCRIPT in page.text
    assert sum(name in page.text for name in NAMES[:5]) >= 3
    assert "site 0 <img src=x onerror=alert(2)>" in page.text


def test_the_page_needs_nothing_from_elsewhere(page: Page) -> None:
    addresses = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href", "xlink:href", "srcset", "action") and value is not None
    ]
    assert all(address.startswith("#") for address in addresses)
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    assert "default-src 'none'" in (policy or "")
    script = files("drrej.report").joinpath("slider.js").read_bytes()
    allowed = f"script-src 'sha256-{b64encode(sha256(script).digest()).decode()}'"
    assert (policy or "").endswith(allowed)  # this script and no other
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_ids_are_unique_and_references_lead_somewhere(path: Path, page: Page) -> None:
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', text)) <= set(ids)


def test_plots_and_tables_can_be_read_aloud(page: Page) -> None:
    plots = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(plots) == 3
    assert all(plot["role"] == "img" and len(plot["aria-label"] or "") > 40 for plot in plots)
    headers = [attributes for tag, attributes in page.tags if tag == "th"]
    assert headers
    assert all(header.get("scope") in ("col", "row") for header in headers)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_the_page_opens_with_the_verdict_and_has_every_part(page: Page) -> None:
    text = page.text.replace("\N{NO-BREAK SPACE}", " ")
    assert re.search(
        r"Accepts 70\.0 % of rows at [\d.]+ % accuracy \(95 % interval [\d.]+.[\d.]+ %\); without rejection [\d.]+ %\.",
        text,
    )
    places = [
        text.index(part)
        for part in (
            TITLE,
            "? Target inconclusive",
            "Wanted coverage ≥ 70 %: 70.0 %",
            "Accepts",
            "✓ passed",
            "Accuracy against coverage",
            "Expected losses",
            "Accuracy against confidence",
            "By group <i>",
            "Scores",
            "Difference from the baseline",
            "By class",
            "the 20 of 40 classes with the lowest accuracy",
            "Confusion matrix",
            "Area under error rate against coverage.",
            "What other τ would do",
            "Rejected rows",
            "Accepted errors",
            "How it was made",
            "drrej evaluate",
        )
    ]
    assert places == sorted(places)


def test_the_slider_starts_where_the_report_is(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    found = re.search(r'<script type="application/json" id="curve-data">(.*?)</script>', text)
    start = re.search(r'<input type="range" min="0" max="(\d+)" value="(\d+)"', text)
    assert found is not None
    assert start is not None
    points = json.loads(found[1])["points"]
    assert int(start[1]) == len(points) - 1
    assert points == sorted(points, key=lambda point: point[0])
    shown = re.search(r"<dt>Coverage</dt><dd><b>([\d.]+) %", text)
    assert shown is not None
    assert f"{100 * points[int(start[2])][0]:.1f}" == shown[1]


def test_the_confusion_matrix_is_shaded_by_the_share_of_each_row(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    table = text[text.index('<section id="confusion">') :].split("</table>")[0]
    rows = re.findall(r"<tr><th scope=\"row\">.*?</tr>", table)
    assert len(rows) > 1
    for row in rows:
        cells = re.findall(r'<td style="--share: (\d+)%">(\d+)</td>', row)
        counts = [int(count) for _, count in cells]
        assert [int(shade) for shade, _ in cells] == [-(-50 * count // max(sum(counts), 1)) for count in counts]


def test_plots_take_their_colours_from_the_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    plots = "".join(re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL))
    used = set(re.findall(r"var\(--(\w+)\)", text))
    assert {"ink", "main", "old", "rival1", "wrong"} <= used
    assert all(f"--{name}:" in text for name in used)
    assert set(re.findall(r"#[0-9a-f]{6}\b", plots)) <= {"#ffffff", "#000000"}


@pytest.mark.parametrize("baseline", [False, True])
def test_at_most_six_curves_are_drawn_and_no_two_look_alike(path: Path, baseline: bool) -> None:
    report = drrej.Report.from_json(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert report.pictures is not None
    (row, *_) = report.scores or ()
    area = {f"score{i}": replace(row.augrc, value=0.1 - 0.01 * i) for i in range(8)}
    pictures = {name: value for name, value in report.pictures.items() if baseline or name != "baseline"}
    scores = (row, *(replace(row, score=name, augrc=augrc) for name, augrc in area.items()))
    (axes,) = curve_figure(replace(report, scores=scores, pictures=pictures)).axes
    lines = {line.get_label(): line for line in axes.lines}
    drawn = [name for name in lines if name.startswith("score")]
    assert sorted(drawn, reverse=True) == ["score7", "score6", "score5", "score4", "score3"][: 5 - baseline]
    curves = [lines[name] for name in ["this rejector", *drawn, *["baseline"] * baseline]]
    assert len({line.get_color() for line in curves}) == len({str(line._dash_pattern) for line in curves}) == 6
    assert len({line.get_marker() for line in curves}) >= 5


def test_the_report_with_pictures_follows_the_schema(path: Path) -> None:
    text = path.with_suffix(".json").read_text(encoding="utf-8")
    jsonschema.validate(json.loads(text), schema_of(drrej.Report))
    assert render_page(drrej.Report.from_json(text)) == path.read_text(encoding="utf-8")


def test_a_report_without_labels_is_a_page_too(tmp_path: Path, rejector_file: str, test: str) -> None:
    succeed("evaluate", test, "-r", rejector_file, "--no-labels", "-o", tmp_path / "r.html", "-o", tmp_path / "r.json")
    page = Page((tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "their expected accuracy is" in page.text
    assert sum(tag == "svg" for tag, _ in page.tags) == 1
    jsonschema.validate(load_json(tmp_path / "r.json"), schema_of(drrej.Report))
    for name in ("curve.png", "curve.csv"):
        assert "needs labels" in fail("evaluate", test, "-r", rejector_file, "--no-labels", "-o", tmp_path / name)


def page_of(dump: str, rejector: drrej.Rejector) -> Page:
    """The page of a report made without the command line."""
    return Page(render_page(drrej.evaluate(source(dump), rejector, [], EvaluateOptions(pictures=True))))


@pytest.mark.parametrize(
    ("rule", "words"), [(("tau", 0.0), "Accepts 100.0"), (("max-loss", 1e-300), "Accepts none of")]
)
def test_all_or_nothing_accepted(val: str, test: str, rule: tuple[str, float], words: str) -> None:
    assert words in page_of(test, make_rejector(source(val), rule)).text


@pytest.mark.parametrize("right", [True, False])
def test_a_model_without_errors_and_one_without_right_rows(tmp_path: Path, val: str, right: bool) -> None:
    logits, _ = make_model(50, 6, 3)
    dump = write_dump(tmp_path / "d.parquet", logits, logits.argmax(axis=1) if right else logits.argmin(axis=1))
    page = page_of(dump, make_rejector(source(val), ("tau", 0.0)))
    assert ("50 errors" in page.text) != right


def test_the_curve_alone(tmp_path: Path, rejector_file: str, test: str) -> None:
    for name in ("a", "b"):
        outputs = [word for kind in PLOTS for word in ("-o", tmp_path / f"{name}.{kind}")]
        succeed("evaluate", test, "-r", rejector_file, *outputs)
    for kind, start in zip(PLOTS, (b"\x89PNG", b"<?xml", b"%PDF"), strict=True):
        drawn = (tmp_path / f"a.{kind}").read_bytes()
        assert drawn.startswith(start)
        assert drawn == (tmp_path / f"b.{kind}").read_bytes()
    assert b"accuracy of the accepted rows" in (tmp_path / "a.svg").read_bytes()


def test_without_matplotlib_it_says_so_before_any_work(tmp_path: Path) -> None:
    (tmp_path / "matplotlib.py").write_text("raise ImportError('not here')")
    path = f"{tmp_path}:{environment()['PYTHONPATH']}"
    for name in ("r.html", "curve.png"):
        done = run_drrej("evaluate", "no.parquet", "-r", "no.json", "-o", name, cwd=tmp_path, env={"PYTHONPATH": path})
        assert done.returncode == 2
        assert done.stderr == (
            f"drrej: error: -o {name}: plots need matplotlib; install it with: pip install 'drrej[plot]'\n".encode()
        )
    assert not (tmp_path / "r.html").exists()


def test_only_the_page_needs_jinja(tmp_path: Path, rejector_file: str, test: str) -> None:
    (tmp_path / "jinja2.py").write_text("raise ImportError('not here')")
    path = {"PYTHONPATH": f"{tmp_path}:{environment()['PYTHONPATH']}"}
    done = run_drrej("evaluate", "no.parquet", "-r", "no.json", "-o", "r.html", cwd=tmp_path, env=path)
    assert done.returncode == 2
    assert done.stderr == (
        b"drrej: error: -o r.html: the page needs jinja2; install it with: pip install 'drrej[plot]'\n"
    )
    done = run_drrej("evaluate", test, "-r", rejector_file, "-o", tmp_path / "curve.png", env=path)
    assert (done.returncode, done.stderr) == (0, b"")


def test_without_a_page_matplotlib_is_not_loaded(rejector_file: str, test: str) -> None:
    code = (
        "import contextlib, runpy, sys\n"
        f"sys.argv = ['drrej', 'evaluate', {test!r}, '-r', {rejector_file!r}]\n"
        "with contextlib.suppress(SystemExit):\n"
        "    runpy.run_module('drrej', run_name='__main__')\n"
        "sys.exit('numpy' not in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True).returncode == 0


def test_the_example_is_what_the_code_makes(
    tmp_path: Path, val: str, test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its verdict; docs/make_example.py makes it again."""
    monkeypatch.setattr("drrej.report.page.page_plots", sketches)
    example = (ROOT / "docs" / "example-report.html").read_text(encoding="utf-8")
    succeed("run", "--val", val, "--test", test, "--split", "60,40", "--accuracy", "0.98", "-q", "-o", tmp_path / "o")
    report = drrej.Report.from_json((tmp_path / "o" / "report.json").read_text(encoding="utf-8"))
    assert verdict(report) in Page(example).text.replace("\N{NO-BREAK SPACE}", " ")
    assert len(example) < 200_000
    assert (ROOT / "docs" / "example-report.png").stat().st_size < 300_000


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.5, "50.0 %"), (1.0, "100.0 %"), (0.99996, "99.996 %"), (0.0, "0.0 %"), (0.0004, "0.04 %")],
)
def test_percentages_do_not_round_to_all_or_nothing(value: float | None, text: str) -> None:
    assert percent(value) == text


def between(lower: float | None, upper: float | None) -> Proportion:
    return Proportion(value=lower, lower=lower, upper=upper)


def test_intervals_of_percentages_show_both_ends() -> None:
    assert percents(between(0.984, 0.9931)) == "98.4\N{EN DASH}99.3 %"
    assert percents(between(0.98401, 0.98403)) == "98.401\N{EN DASH}98.403 %"
    assert percents(between(1.0, 1.0)) == "100.0\N{EN DASH}100.0 %"
    assert percents(between(None, None)) == "-"
