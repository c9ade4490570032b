"""Renderers, schemas and gates on the command line."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

import jsonschema
import numpy as np
import pytest
from worlds import SAMPLE, cli, fitted, source, too_sure, write

import drrej
from drrej.documents.document import schema_of
from drrej.documents.rejector import Rejector
from drrej.documents.report import Report
from drrej.documents.summaries import Cascade, Plan
from drrej.errors import ReportError
from drrej.pipeline.compare import BaselineDump, Rivals
from drrej.report import RENDERERS

VAL, TEST = str(SAMPLE / "val.parquet"), str(SAMPLE / "test.parquet")


@pytest.fixture(scope="module")
def rejector():
    return fitted(VAL, drrej.Rule("coverage", 0.9))


@pytest.fixture(scope="module")
def rejector_file(rejector, tmp_path_factory):
    path = tmp_path_factory.mktemp("rejector") / "rejector.json"
    path.write_text(rejector.to_json(), encoding="utf-8")
    return str(path)


def report(rejector, *gates, **options):
    parsed = [drrej.Gate.parse(gate) for gate in gates]
    return drrej.evaluate(source(TEST), rejector, parsed, drrej.EvaluateOptions(**options))


def variants(rejector):
    yield report(rejector, "accuracy >= 0.9", "risk@coverage=0.7 <= 0.5")
    yield report(rejector, labels=False)
    yield report(rejector, intervals=True, by="prediction", rivals=Rivals(usual=True))
    yield report(rejector, baseline=report(rejector))
    yield report(rejector, baseline_dump=BaselineDump(source(TEST), rejector, "id"), intervals=True)
    rejects_all = drrej.threshold(source(VAL), rejector, drrej.Rule("tau", 50.0))
    yield report(rejects_all, by="prediction")


def test_documents_validate_and_every_renderer_takes_them(rejector):
    for schema in (schema_of(drrej.Report), schema_of(drrej.Rejector)):
        jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema_of(drrej.Report))
    for tree in variants(rejector):
        again = json.loads(RENDERERS["json"](tree))
        validator.validate(again)
        assert again == tree
        for name, render in RENDERERS.items():
            if name == "csv" and "accuracy" not in tree:
                with pytest.raises(ReportError, match="needs labels"):
                    render(tree)
            elif name != "html":  # needs the report's pictures: see test_html
                assert render(tree).endswith("\n")
    jsonschema.validate(json.loads(rejector.to_json()), schema_of(drrej.Rejector))


def test_schemas_refuse_other_documents(rejector):
    tree = json.loads(rejector.to_json())
    tree["ratio"]["rows"] = "many"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(tree, schema_of(drrej.Rejector))
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**report(rejector), "coverage": 1.0}, schema_of(drrej.Report))


def test_schema_command():
    documents = {
        "rejector": schema_of(Rejector),
        "report": schema_of(Report),
        "plan": schema_of(Plan),
        "cascade": schema_of(Cascade),
    }
    for document, schema in documents.items():
        assert json.loads(cli("schema", document, check=True).stdout) == json.loads(json.dumps(schema))


def test_junit_has_a_case_per_gate(rejector):
    tree = ET.fromstring(RENDERERS["junit"](report(rejector, "accuracy >= 0.9", "coverage > 0.99", "rows >= 1")))
    cases = tree.findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == ["accuracy >= 0.9", "coverage > 0.99", "rows >= 1"]
    assert [case.find("failure") is not None for case in cases] == [False, True, False]
    suite = tree.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("3", "1")
    assert len(ET.fromstring(RENDERERS["junit"](report(rejector))).findall("testsuite/testcase")) == 1


def test_github_annotations(rejector):
    lines = RENDERERS["github"](report(rejector, "accuracy >= 0.9", "coverage > 0.99")).splitlines()
    assert lines[0].startswith("::notice title=drrej gate passed::accuracy >= 0.9: the value is ")
    assert lines[1].startswith("::error title=drrej gate failed::coverage > 0.99: the value is ")
    assert (
        lines[2] == "::warning title=drrej target::wanted coverage ≥ 90 %25: 87.4 %25 (85.9\N{EN DASH}88.8 %25): missed"
    )
    line, target = RENDERERS["github"](report(rejector)).splitlines()
    assert [target] == lines[2:]
    assert line.startswith("::notice title=drrej::coverage ")


def test_github_escapes():
    from drrej.report.ci import command

    assert command("error", "a:b,c", "50%\nmore") == "::error title=a%3Ab%2Cc::50%25%0Amore\n"


def test_markdown_tables_are_whole_and_names_are_escaped(tmp_path):
    logits, labels = too_sure(200, 3, seed=1)
    groups = np.array(["a|b", "*c_d*"])[np.arange(200) % 2]
    path = write(tmp_path / "d.parquet", logits, labels, place=groups)
    tree = drrej.evaluate(
        source(path), fitted(path, drrej.Rule("coverage", 0.5)), (), drrej.EvaluateOptions(by="place")
    )
    lines = RENDERERS["markdown"](tree).splitlines()
    tables = [[]]
    for line in lines:
        if line.startswith("|"):
            tables[-1].append(line)
        elif tables[-1]:
            tables.append([])
    for table in filter(None, tables):
        bars = {line.replace("\\|", "").count("|") for line in table}
        assert len(bars) == 1, table
    text = "\n".join(lines)
    assert "a\\|b" in text
    assert "\\*c\\_d\\*" in text
    assert text.count("<details>") == text.count("</details>") > 0


def test_formats_by_ending_and_on_stdout(rejector_file, tmp_path):
    outputs = [str(tmp_path / name) for name in ("r.txt", "r.json", "r.md", "r.xml")]
    flags = [word for path in outputs for word in ("-o", path)]
    done = cli("evaluate", TEST, "-r", rejector_file, "--format", "github", "--gate", "coverage > 0.99", *flags)
    assert done.returncode == 1
    assert done.stdout.startswith("::error")
    assert "gate failed" in done.stderr
    tree = drrej.Report.from_json((tmp_path / "r.json").read_text(encoding="utf-8"))
    for name, kind in (("r.txt", "text"), ("r.md", "markdown"), ("r.xml", "junit")):
        assert (tmp_path / name).read_text(encoding="utf-8") == RENDERERS[kind](tree)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--gate", "accuracy@coverage=0.9 >= 0.9"], 0, ""),
        (["--gate", "coverage@risk=0.001 >= 0.999"], 1, "gate failed"),
        (["--gate", "accuracy@coverage=0.9.lower >= 0.9999"], 1, "gate failed"),
        (["--gate", "acuracy >= 0.9"], 2, "no metric 'acuracy'"),
        (["--gate", "aurc.upper <= 1"], 2, "no metric 'aurc.upper'"),
        (["--gate", "aurc.upper <= 1", "--intervals"], 0, ""),
        (["--gate", "difference.accuracy.lower >= -1"], 2, "no metric"),
        (["--gate", "accuracy@risk=0.9 >= 0"], 2, "not a point"),
        (["--gate", "accuracy >= 0.9", "--no-labels"], 2, "no metric 'accuracy'"),
        (["--gate", "accuracy@coverage=0.9 >= 0.9", "--no-labels"], 2, "needs labels"),
        (["--gate", "drift.p_value >= 1e-6", "--no-labels"], 0, ""),
        (["--gate", "worst_group.accuracy >= 0.5", "--report-by", "prediction"], 0, ""),
        (["--report-by", "nowhere"], 2, "no column 'nowhere'"),
        (["--rival", "logits"], 2, "not numbers"),
        (["--rival-order", "low"], 2, "requires --rival"),
        (["--baseline-dump", TEST], 2, "requires --join-on"),
        (["--baseline-dump", TEST, "--join-on", "id", "--gate", "difference.augrc.upper <= 0.002"], 0, ""),
        (["--baseline", VAL], 2, "not a JSON document"),
    ],
)
def test_gates_and_options_on_the_command_line(rejector_file, arguments, code, said):
    done = cli("evaluate", TEST, "-r", rejector_file, *arguments)
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_gate_on_an_empty_file_or_a_null_is_exit_2(rejector, rejector_file, tmp_path):
    empty = write(tmp_path / "empty.parquet", np.empty((0, 6), np.float32), np.empty(0, np.int64))
    done = cli("evaluate", empty, "-r", rejector_file, "--gate", "accuracy >= 0")
    assert done.returncode == 2
    assert "zero rows" in done.stderr
    nothing = drrej.threshold(source(VAL), rejector, drrej.Rule("tau", 50.0))
    path = tmp_path / "nothing.json"
    path.write_text(nothing.to_json(), encoding="utf-8")
    done = cli("evaluate", TEST, "-r", str(path), "--gate", "accuracy >= 0")
    assert done.returncode == 2
    assert "undefined" in done.stderr
