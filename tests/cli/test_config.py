"""Options from configuration files and variables: the order of precedence, and what is refused."""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import fail, logit_columns, make_model, succeed
from running import drrej


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    logits, labels = make_model(200, 3, 1)
    pq.write_table(pa.table({**logit_columns(logits, "fixed"), "kind": labels}), tmp_path / "val.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rejector(*words: str) -> dict[str, object]:
    made = succeed("calibrate", "val.parquet", "--label", "kind")
    Path("c.json").write_bytes(made)
    Path("r.json").write_bytes(succeed("fit", "val.parquet", "-r", "c.json"))
    loaded: dict[str, object] = json.loads(succeed("threshold", "val.parquet", "-r", "r.json", *words))
    return loaded


def rule(document: dict[str, object]) -> tuple[str, float]:
    threshold = document["threshold"]
    assert isinstance(threshold, dict)
    return threshold["rule"]["kind"], threshold["rule"]["target"]


def test_a_key_is_an_option_of_every_command_that_has_it(folder: Path) -> None:
    fail("calibrate", "val.parquet")  # nothing says that `kind` holds the labels
    (folder / "drrej.toml").write_text('label = "kind"\n')
    assert json.loads(succeed("calibrate", "val.parquet"))["columns"]["label"] == "kind"


def test_the_table_of_a_command_is_for_it_alone(folder: Path) -> None:
    (folder / "drrej.toml").write_text("[threshold]\ncoverage = 0.5\n[run]\ncoverage = 0.6\n")
    assert rule(rejector()) == ("coverage", 0.5)


def test_a_key_is_left_to_the_commands_that_take_such_a_value(folder: Path) -> None:
    (folder / "drrej.toml").write_text('label = "kind"\nformat = "markdown"\nlambda = 2\n')
    document = rejector("--coverage", "0.5")
    assert document["ratio"]["lambda"] == 2.0  # type: ignore[index]
    assert "|" not in succeed("inspect", "val.parquet").decode()  # has no Markdown


def test_what_is_configured_for_others_does_not_stop_a_command(folder: Path) -> None:
    (folder / "drrej.toml").write_text(
        'label = "kind"\njobs = 1\nprediction = "p"\nreport-by = "kind"\n[monitor]\nconfidence = 0.9\n'
    )
    rejector("--coverage", "0.5")
    succeed("plan", "--risk", "0.1")
    assert "--jobs" in fail("plan", "--risk", "0.1", "--label", "kind")
    (folder / "t.json").write_bytes(succeed("threshold", "val.parquet", "-r", "r.json", "--coverage", "0.5"))
    succeed("monitor", "state.json", "val.parquet", "-r", "t.json", "--max-risk", "0.9", "-q")
    succeed("monitor", "state.json")
    assert "--confidence requires" in fail("monitor", "state.json", "--confidence", "0.9")
    assert drrej("evaluate", "val.parquet", "-r", "t.json").code == 0
    assert "--prediction: it is for a regression" in fail(
        "evaluate", "val.parquet", "-r", "t.json", "--prediction", "p"
    )


def test_precedence(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """pyproject.toml or drrej.toml, then --config, then variables, then the command line."""
    (folder / "pyproject.toml").write_text("[tool.drrej]\nlabel = 'kind'\n[tool.drrej.threshold]\ncoverage = 0.5\n")
    assert rule(rejector()) == ("coverage", 0.5)
    (folder / "drrej.toml").write_text("coverage = 0.6\n")  # beside it: this one counts, the other is not read
    assert rule(rejector()) == ("coverage", 0.6)
    (folder / "ci.toml").write_text("coverage = 0.7\n")
    named = json.loads(succeed("--config", "ci.toml", "threshold", "val.parquet", "-r", "r.json"))
    assert rule(named) == ("coverage", 0.7)
    monkeypatch.setenv("DRREJ_COVERAGE", "0.8")
    named = json.loads(succeed("--config", "ci.toml", "threshold", "val.parquet", "-r", "r.json"))
    assert rule(named) == ("coverage", 0.8)
    assert rule(rejector("--coverage", "0.9")) == ("coverage", 0.9)


def test_a_rule_on_the_command_line_takes_the_place_of_a_configured_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "drrej.toml").write_text("coverage = 0.6\n")
    assert rule(rejector("--risk", "0.2")) == ("risk", 0.2)
    monkeypatch.setenv("DRREJ_MAX_LOSS", "0.3")
    assert rule(rejector()) == ("max-loss", 0.3)


def test_the_nearest_file_counts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "drrej.toml").write_text("coverage = 0.6\n")
    (folder / "inner" / "deep").mkdir(parents=True)
    (folder / "inner" / "pyproject.toml").write_text("[tool.other]\nx = 1\n")  # says nothing of drrej
    monkeypatch.chdir(folder / "inner" / "deep")
    assert "coverage = 0.6" in succeed("config").decode()


def test_files_are_relative_to_the_file_that_names_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "names.txt").write_text("a\nb\nc\n")
    (folder / "drrej.toml").write_text('label = "kind"\nclasses = "names.txt"\n')
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    assert json.loads(succeed("calibrate", "../val.parquet"))["class_names"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lable = 'y'", "lable: there is no option of this name that can be configured; did you mean label?"),
        ("by = 'site'", "can be configured; it is now --cutoff-by"),
        ("tls-ca = 'ca.pem'", "can be configured; it was removed: certificates come from Dask's own configuration"),
        ("[evaluat]\njobs = 1", "[evaluat] is not the name of a command; did you mean evaluate?"),
        ("[calibrate]\ncoverage = 0.5", "coverage: there is no option of this name that can be configured"),
        ("output = 'x'", "output: there is no option of this name"),
        ("force = true", "force: there is no option of this name"),
        ("allow-reuse = true", "allow-reuse: there is no option of this name"),
        ("jobs = 'many'", "jobs must be a whole number"),
        ("jobs = true", "jobs must be a whole number"),
        ("binary = 1", "binary must be true or false"),
        ("label = 3", "label must be a text"),
        ("input = 'softmax'", "input must be logits or probs or log-probs"),
        ("a = [", "not a TOML file"),
    ],
)
def test_what_is_refused(folder: Path, text: str, message: str) -> None:
    (folder / "drrej.toml").write_text(text)
    said = fail("calibrate", "val.parquet")
    assert "drrej.toml: " in said
    assert message in said


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("DRREJ_JOB", "1", "DRREJ_JOB: there is no option of this name that can be configured; did you mean jobs?"),
        ("DRREJ_JOBS", "two", "DRREJ_JOBS must be a whole number, not 'two'"),
        ("DRREJ_BINARY", "perhaps", "DRREJ_BINARY must be true or false, not 'perhaps'"),
    ],
)
def test_variables_that_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, message: str
) -> None:
    monkeypatch.setenv(variable, value)
    assert message in fail("calibrate", "val.parquet", "--label", "kind")


def test_a_named_file_that_is_not_there(folder: Path) -> None:
    assert "none.toml: the configuration cannot be read" in fail("--config", "none.toml", "calibrate", "val.parquet")


def test_gates_by_variable_are_one_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = rejector("--coverage", "0.8")
    Path("r.json").write_text(json.dumps(document))
    monkeypatch.setenv("DRREJ_GATE", "coverage >= 0.5\naccuracy >= 0.999999\n")
    outcome = drrej("evaluate", "val.parquet", "-r", "r.json", "-q", "--verbose")
    assert outcome.code == 1
    assert b"PASS  coverage >= 0.5" in outcome.out
    assert b"FAIL  accuracy >= 0.999999" in outcome.out


def test_config_shows_toml_that_reads_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'label = "kind"\ngate = ["accuracy >= 0.9"]\nlambda = 2.0\n[threshold]\ncoverage = 0.5\n'
    (folder / "drrej.toml").write_text(text)
    monkeypatch.setenv("DRREJ_JOBS", "2")
    shown = succeed("config").decode()
    assert tomllib.loads(shown) == tomllib.loads("jobs = 2\n" + text)
    assert "jobs = 2  # DRREJ_JOBS\n" in shown
    assert f'label = "kind"  # {folder / "drrej.toml"}\n' in shown


def test_nothing_is_configured(folder: Path) -> None:
    assert succeed("config") == b"# nothing is configured\n"


def test_a_file_of_somebody_else_is_not_obeyed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anybody may put a drrej.toml into /tmp; that it names a cluster must not send rows there."""
    (folder / "drrej.toml").write_text('label = "kind"\n')
    monkeypatch.setattr("os.getuid", lambda: 1234567)
    if (folder / "drrej.toml").stat().st_uid == 0:
        os.chown(folder / "drrej.toml", 65534, 65534)
    said = fail("calibrate", "val.parquet")
    assert f"belongs to another user; if you trust it, pass drrej --config {folder / 'drrej.toml'}" in said
    assert json.loads(succeed("--config", "drrej.toml", "calibrate", "val.parquet"))["columns"]["label"] == "kind"


@pytest.mark.parametrize(
    "text",
    [
        "cluster = 'tcp://127.0.0.1:8786'",
        "[calibrate]\ncluster = 'tcp://127.0.0.1:8786'",
        "labels-from = 'labels.parquet'",
        "[run]\nval = ['val.parquet']",
        "[evaluate]\nbaseline = 'before.json'",
        "cost-matrix = 's3://bucket/costs.csv'",
        "classes = '/etc/hosts'",
        "classes = '../names.txt'",
        "cost-matrix = 'linked.csv'",
    ],
)
def test_a_file_that_is_found_names_no_clusters_and_no_inputs(folder: Path, text: str) -> None:
    """A cloned repository must not run code elsewhere, or read what the caller did not name and it does not hold."""
    (folder / "linked.csv").symlink_to("/etc/hosts")
    key = text.rpartition("\n")[2].split(" ")[0]
    (folder / "drrej.toml").write_text(text)
    said = fail("calibrate", "val.parquet", "--label", "kind")
    assert f"drrej.toml: {key} names a cluster or an input" in said
    assert f"--config {folder / 'drrej.toml'}" in said
    assert "cannot be set" not in drrej("--config", "drrej.toml", "config").err
    (folder / "drrej.toml").rename(folder / "other.toml")
    (folder / "pyproject.toml").write_text(
        f"[tool.drrej]\n{text.replace('[', '[tool.drrej.', 1) if text[0] == '[' else text}"
    )
    assert "names a cluster or an input" in fail("calibrate", "val.parquet", "--label", "kind")
    (folder / "pyproject.toml").unlink()
    assert "cannot be set" not in drrej("--config", "other.toml", "config").err


def test_toml_that_is_nested_too_deeply(folder: Path) -> None:
    (folder / "drrej.toml").write_text("a = " + "[" * 100_000)
    assert "drrej.toml: not a TOML file (" in fail("calibrate", "val.parquet")
