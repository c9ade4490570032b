"""Every option of every command acts or is refused, and is documented.

`CASES` has an entry for each option that typer knows of: words that change what the command does, or words that are
refused and the message. An option without an entry fails the test.
"""

from __future__ import annotations

import contextlib
import functools
import re
import runpy
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conftest import ROOT, fail, logit_columns, make_model, more_trials, succeed, thorough
from registry import commands, flag, options
from running import Outcome, drrej

import drrej.pipeline.calibrate as drrej_calibrate
from drrej.engines import Progress
from drrej.engines.local import LocalEngine

NAMES = np.array(["a", "b", "c"])


def _dump(rows: int, seed: int) -> dict[str, Any]:
    """Rows with more columns than one needs: every option finds one to name."""
    rng = np.random.default_rng(seed)
    logits, labels = make_model(rows, 3, seed)
    other, truth = make_model(rows, 3, seed + 50)
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    return {
        "key": np.arange(rows),
        **logit_columns(logits, "fixed"),
        "other": logit_columns(other, "fixed")["logits"],
        "probs": logit_columns(probs, "fixed")["logits"],
        "score": logits[:, 0].astype(np.float64),
        "label": labels,
        "truth": truth.astype(np.int32),
        "bit": labels % 2,
        "name": NAMES[labels],
        "region": NAMES[np.arange(rows) % 2],
        "trust": rng.random(rows),
        "refused": rng.random(rows) < 0.3,
        "own": rng.random(rows),
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dumps and documents that the cases name."""
    folder = tmp_path_factory.mktemp("options")
    val, test = _dump(120, 1), _dump(90, 2)

    def write(name: str, columns: dict[str, Any]) -> None:
        pq.write_table(pa.table(columns), folder / name)

    write("val.parquet", val)
    write("test.parquet", test)
    doubled = 2 * np.exp(make_model(90, 3, 2)[0].clip(-20, 0))
    write("doubled.parquet", {**test, **logit_columns(doubled, "fixed")})
    write("second.parquet", {**val, **logit_columns(2.0 * make_model(120, 3, 1)[0] + 0.5, "fixed")})
    write("bare.parquet", {name: values for name, values in test.items() if name != "label"})
    write("turned.parquet", {"key": val["key"], "label": (val["label"] + (val["key"] % 3 == 0)) % 3})
    write("some.parquet", {"key": val["key"][:100], "label": val["label"][:100]})
    write("strange.parquet", {"key": val["key"], "label": np.where(val["key"] % 7 == 0, 5, val["label"])})
    first = np.linspace(0.5, 0.9, 40, dtype=np.float32)
    zeros = np.stack([first, 1 - first, 0 * first], axis=1)
    labels = {"label": np.arange(40) % 5 // 4, "key": np.arange(40)}
    write("zeros.parquet", {**logit_columns(zeros, "fixed"), **labels})
    broken = make_model(90, 3, 2)[0]
    broken[7] = np.nan
    write("broken.parquet", {**test, **logit_columns(broken, "fixed")})
    write("formulas.parquet", {**test, "note": ["=1+1"] * 90})
    write("unseen.parquet", {**test, "region": np.array(["b", "z"])[np.arange(90) % 2]})
    spread = np.random.default_rng(3).random(60)
    columns = {"mean": spread * 2, "value": spread * 3, "far": spread - 9, "region": NAMES[np.arange(60) % 2]}
    write("forecasts.parquet", {"variance": spread, **columns})
    write("odd.parquet", {"variance": spread, **columns, "region": NAMES[np.arange(60) % 3]})
    log = (ROOT / "sample_data" / "llm" / "samples_arithmetic_val.jsonl").read_text().splitlines(keepends=True)[:30]
    (folder / "log.jsonl").write_text("".join(log))
    (folder / "twice.jsonl").write_text("".join([*log, *(line.replace('"none"', '"best"') for line in log)]))
    (folder / "costs.csv").write_text("0,1,2\n3,0,1\n1,5,0\n")
    (folder / "named.csv").write_text(",c,b,a\nc,0,1,2\nb,3,0,1\na,1,5,0\n")

    def make(line: str) -> None:
        succeed(*shlex.split(line), cwd=folder)

    make("calibrate val.parquet -o cal.json")
    make("fit val.parquet -r cal.json -o fit.json")
    make("threshold val.parquet -r fit.json --coverage 0.8 -o r.json")
    make("threshold val.parquet -r fit.json --coverage 0.4 -o half.json")
    make("threshold val.parquet -r fit.json --coverage 0.8 --cutoff-by region -o regions.json")
    make("evaluate val.parquet -r half.json -o before.json")
    make("fit val.parquet -r cal.json --loss cost --cost-matrix costs.csv -o cost.json")
    make("fit forecasts.parquet --loss column --loss-column variance --prediction mean --target value -o rfit.json")
    make("threshold forecasts.parquet -r rfit.json --coverage 0.5 -o rr.json")
    make("threshold forecasts.parquet -r rfit.json --coverage 0.5 --cutoff-by region -o rregions.json")
    make("monitor kept.json test.parquet -r r.json --max-risk 0.9")
    make("monitor bare.json bare.parquet -r r.json --batch bare")
    make("reject val.parquet -r r.json -o masks/")
    (folder / "cut").mkdir()
    whole = (folder / "test.parquet").read_bytes()
    for name, content in (("a.parquet", whole), ("b.parquet", whole[:-30])):
        (folder / "cut" / name).write_bytes(content)
    (folder / "full").mkdir()
    (folder / "full" / "cascade.txt").write_text("")
    (folder / "there.json").write_text("{}")
    (folder / "there.parquet").write_text("")
    return folder


@dataclass(frozen=True)
class Acts:
    """With `given` after `base` the command ends well and does something else than without."""

    given: str
    base: str | None = None
    code: int = 0


@dataclass(frozen=True)
class Refused:
    """With `given` after `base` the command is refused, and says so."""

    given: str
    says: str
    base: str | None = None


Case = Acts | Refused

BASES = {
    "calibrate": "val.parquet",
    "fit": "val.parquet -r cal.json",
    "threshold": "val.parquet -r fit.json --coverage 0.8",
    "evaluate": "val.parquet -r r.json --verbose",
    "reject": "val.parquet -r r.json -o out.parquet",
    "run": "--val val.parquet --test test.parquet --coverage 0.8 -o out",
    "plan": "--risk 0.3",
    "monitor": "new.json val.parquet -r r.json",
    "cascade": "--stage s=val.parquet:1 --stage l=second.parquet:9 --join-on key --accuracy 0.3",
    "inspect": "val.parquet",
    "convert": "val.parquet -o new.parquet",
    "metrics": "",
    "schema": "rejector",
    "config": "",
    "compare": "before.json second=before.json",
    "demo": "",
    "export": "r.json --to python",
}


def engine() -> dict[str, Case]:
    """How passes are run."""
    return {
        "--jobs": Acts("--jobs 2"),
        "--cluster": Refused("--cluster nowhere", "--cluster nowhere: write the address of a Dask scheduler"),
    }


def unknown(base: str) -> dict[str, Case]:
    """How labels that are none of the classes are taken."""
    return {
        "--on-unknown-label": Acts("--on-unknown-label wrong", f"{base} --labels-from strange.parquet --join-on key")
    }


def reading(base: str, zeros: str, binary: Case, named: str) -> dict[str, Case]:
    """How dumps are read. `zeros` works on probabilities that are noted, `named` needs the names of classes."""
    return {
        **engine(),
        "--normalize": Acts("--normalize", zeros.replace("zeros.", "doubled.")),
        "--logits": Acts("--logits other"),
        "--label": Acts("--label truth", base),
        "--labels-from": Acts("--labels-from turned.parquet --join-on key", base),
        "--join-on": Refused("--join-on key", "--labels-from FILE and --join-on COL require each other"),
        "--on-missing-label": Acts("--on-missing-label skip", f"{base} --labels-from some.parquet --join-on key"),
        "--input": Acts("--input probs", f"{base} --logits probs"),
        "--binary": binary,
        "--classes": Acts("--classes a,b,c", named),
        "--quiet": Acts("--quiet", zeros),
        **scored(base),
    }


def scored(base: str) -> dict[str, Case]:
    """The options about scores of any kind, with logits."""
    return {
        "--score": Refused("--score nowhere", "--score", base),
        "--correct": Refused("--correct bit", "--correct requires --score COL", base),
        "--prediction": Refused("--prediction bit", "requires --score COL", base),
        "--lower-is-better": Refused("--lower-is-better", "--lower-is-better requires --score COL", base),
    }


OBJECTIVE: dict[str, Case] = {
    "--divergence": Acts("--divergence chi2"),
    "--alpha": Acts("--alpha 2"),
    "--lambda": Acts("--lambda 2"),
    "--loss": Acts("--loss zero-one"),
    "--cost-matrix": Acts("--loss cost --cost-matrix costs.csv"),
    "--loss-column": Acts("--loss column --loss-column own"),
}

OTHER_CLASSES = "has 2 scores per row but the rejector was made for 3 classes"

RUN = "--val val.parquet --test test.parquet -o out"
DIVIDED = "val.parquet --coverage 0.8 -o out"
PLANNED = "val.parquet -r fit.json"
RUN_ZEROS = "--val zeros.parquet --test zeros.parquet --input probs --coverage 0.8 -o out"
CASCADE = "--stage s=val.parquet:1 --stage l=second.parquet:9 --join-on key --accuracy 0.3"
RISK = "val.parquet -r fit.json --risk 0.7"


def bad(base: str) -> dict[str, Case]:
    """The options about bad rows and files."""
    row = base.replace("test.parquet" if "test.parquet" in base else "val.parquet", "broken.parquet")
    return {
        "--on-bad-row": Acts("--on-bad-row skip", row),
        "--on-bad-file": Acts("--on-bad-file skip", row.replace("broken.parquet", "cut")),
        "--max-bad": Refused("--max-bad 0.001", "more than --max-bad 0.001 allows", f"{row} --on-bad-row skip"),
    }


def cascade_of(name: str) -> str:
    """A cascade whose two stages are one dump."""
    return CASCADE.replace("val.", f"{name}.").replace("second.", f"{name}.")


CASES: dict[str, dict[str, Case]] = {
    "calibrate": {
        **bad(BASES["calibrate"]),
        "--model": Acts("--model net@8"),
        "dumps": Acts("test.parquet"),
        "--output": Acts("-o new.json"),
        "--force": Acts("--force", "val.parquet -o there.json"),
        **reading(
            "val.parquet",
            "zeros.parquet --input probs",
            Acts("--binary", "val.parquet --logits score --label bit"),
            "val.parquet",
        ),
        "--floor": Acts("--floor 0.01", "zeros.parquet --input probs"),
        "--calibrator": Acts("--calibrator vector"),
        "--precision": Acts("--precision float64"),
        "--memory": Acts("--memory 0"),
    },
    "fit": {
        **bad(BASES["fit"]),
        "--model": Acts("--model net@8"),
        "dumps": Acts("test.parquet"),
        "--rejector": Acts("-r cal.json", "val.parquet"),
        "--temperature": Acts("--temperature 3", "val.parquet"),
        "--output": Acts("-o new.json"),
        "--force": Acts("--force", "val.parquet -r cal.json -o there.json"),
        **OBJECTIVE,
        "--prediction": Acts("--prediction mean", "forecasts.parquet --loss column --loss-column variance"),
        "--target": Acts("--target value", "forecasts.parquet --loss column --loss-column variance"),
        **reading(
            "val.parquet -r cal.json --loss learned",
            "zeros.parquet --input probs --temperature 1",
            Acts("--binary", "val.parquet --logits score --temperature 1 --loss log"),
            "val.parquet -r cal.json --loss learned --label name",
        ),
        "--floor": Acts("--floor 0.01", "zeros.parquet --input probs --temperature 1"),
        "--precision": Acts("--precision float64", "val.parquet --temperature 1"),
    },
    "threshold": {
        **bad(BASES["threshold"]),
        "--model": Acts("--model net@8"),
        **unknown(RISK),
        "dumps": Acts("test.parquet"),
        "--rejector": Acts("-r fit.json", "val.parquet --coverage 0.8"),
        "--output": Acts("-o new.json"),
        "--force": Acts("--force", "val.parquet -r fit.json --coverage 0.8 -o there.json"),
        "--mask": Acts("--mask new.parquet"),
        "--table": Acts("--table new.csv"),
        "--tau": Acts("--tau 0.9", "val.parquet -r fit.json"),
        "--coverage": Acts("--coverage 0.7", "val.parquet -r fit.json"),
        "--accuracy": Acts("--accuracy 0.7", "val.parquet -r fit.json"),
        "--risk": Acts("--risk 0.3", "val.parquet -r fit.json"),
        "--max-missed": Acts("--max-missed 1=0.9", "val.parquet -r fit.json"),
        "--overall-risk": Acts("--overall-risk 0.4", "val.parquet -r fit.json"),
        "--reviewer-accuracy": Acts("--reviewer-accuracy 0.9", "val.parquet -r fit.json --overall-risk 0.4"),
        "--reviews": Acts("--reviews 50 --per 100", "val.parquet -r fit.json"),
        "--per": Acts("--per 200", "val.parquet -r fit.json --reviews 50"),
        "--review-cost": Acts("--review-cost 1", "val.parquet -r fit.json --error-cost 5"),
        "--error-cost": Acts("--error-cost 5", "val.parquet -r fit.json --review-cost 1"),
        "--mean-cost": Acts("--mean-cost 0.5", "val.parquet -r cost.json"),
        "--mse": Acts("--mse 0.5", "forecasts.parquet -r rfit.json"),
        "--mae": Acts("--mae 0.5", "forecasts.parquet -r rfit.json"),
        "--clip": Acts("--clip 0.9", "forecasts.parquet -r rfit.json --mae 0.5"),
        "--max-loss": Acts("--max-loss 0.5", "val.parquet -r fit.json"),
        "--confidence": Acts("--confidence 0.9", "test.parquet -r fit.json --coverage 0.5"),
        "--cutoff-by": Acts("--cutoff-by region"),
        "--allow-reuse": Acts("--allow-reuse", "val.parquet -r fit.json --coverage 0.5 --confidence 0.9"),
        "--group": Refused("--group nowhere", "nowhere", "test.parquet -r fit.json --risk 0.6 --confidence 0.9"),
        **reading(
            RISK,
            "zeros.parquet -r fit.json --input probs --coverage 0.8",
            Refused("--binary --logits score", OTHER_CLASSES),
            f"{RISK} --label name",
        ),
    },
    "evaluate": {
        **bad(BASES["evaluate"]),
        **unknown(BASES["evaluate"]),
        "dumps": Acts("test.parquet"),
        "--rejector": Acts("-r half.json", "val.parquet"),
        "--output": Acts("-o new.json"),
        "--force": Acts("--force", "val.parquet -r r.json --verbose -o there.json"),
        "--format": Acts("--format markdown"),
        "--verbose": Acts("--verbose", "val.parquet -r r.json"),
        "--group": Refused("--group nowhere", "there is no column 'nowhere'"),
        "--on-unseen-group": Acts("--on-unseen-group reject", "unseen.parquet -r regions.json"),
        "--gate": Acts("--gate 'coverage > 0.99'", code=1),
        "--audited": Acts("--audited"),
        "--metric": Acts("--metric accuracy@coverage=0.31"),
        "--intervals": Acts("--intervals"),
        "--classwise": Acts("--classwise"),
        "--minutes": Acts("--minutes 3"),
        "--report-by": Acts("--report-by region"),
        "--no-labels": Acts("--no-labels"),
        "--examples": Acts("--examples key"),
        "--title": Refused("--title Weekly", "--title is for a page"),
        "--model": Acts("--model net@8"),
        "--compare": Acts("--compare"),
        "--score-list": Acts("--score-list entropy,margin"),
        "--rival": Acts("--rival trust"),
        "--rival-order": Acts("--rival-order low", "val.parquet -r r.json --verbose --rival trust"),
        "--ood": Acts("--ood refused"),
        "--ood-cost": Acts("--ood-cost 3", "val.parquet -r r.json --verbose --ood refused"),
        "--baseline": Acts("--baseline before.json"),
        "--baseline-dump": Acts("--baseline-dump val.parquet", "val.parquet -r r.json --verbose --join-on key"),
        "--baseline-rejector": Acts(
            "--baseline-rejector half.json", "val.parquet -r r.json --verbose --baseline-dump val.parquet --join-on key"
        ),
        "--task": Refused("--task regression", "--task regression: the rejector is for a classification"),
        "--prediction": Acts("--prediction far", "forecasts.parquet -r rr.json"),
        "--target": Acts("--target far", "forecasts.parquet -r rr.json"),
        **reading(
            "val.parquet -r r.json --verbose",
            "zeros.parquet -r r.json --input probs",
            Refused("--binary --logits score", OTHER_CLASSES),
            "val.parquet -r r.json --verbose --label name",
        ),
    },
    "reject": {
        **scored(BASES["reject"]),
        **bad(BASES["reject"]),
        "--model": Acts("--model net@8"),
        "--update": Acts("--update", "val.parquet -r r.json -o masks/"),
        "--log": Acts("--log json"),
        "--summary": Acts("--summary new.json"),
        "dumps": Acts("test.parquet"),
        "--rejector": Acts("-r half.json", "val.parquet -o out.parquet"),
        "--output": Acts("-o new.parquet", "val.parquet -r r.json"),
        "--review": Acts("--review tasks.json"),
        "--reviews": Acts("--reviews 2", "val.parquet -r r.json -o out.parquet --review rows.jsonl"),
        "--audit": Acts("--audit 9", "val.parquet -r r.json -o out.parquet --review rows.jsonl"),
        "--seed": Acts("--seed 2", "val.parquet -r r.json -o out.parquet --review rows.jsonl --audit 9"),
        "--safe-csv": Acts("--safe-csv", "formulas.parquet -r r.json -o out.csv --keep note"),
        "--force": Acts("--force", "val.parquet -r r.json -o there.parquet"),
        "--keep": Acts("--keep key"),
        "--on-bad-row": Acts("--on-bad-row reject", "broken.parquet -r r.json -o out.parquet"),
        "--on-unseen-group": Acts("--on-unseen-group reject", "unseen.parquet -r regions.json -o out.parquet"),
        "--logits": Acts("--logits other"),
        "--label": Acts("--label truth"),
        "--input": Acts("--input probs", "val.parquet -r r.json -o out.parquet --logits probs"),
        "--binary": Refused("--binary --logits score", OTHER_CLASSES),
        "--classes": Acts("--classes a,b,c"),
        **engine(),
        "--normalize": Acts("--normalize", "doubled.parquet -r r.json -o out.parquet --input probs"),
        "--quiet": Acts("--quiet", "zeros.parquet -r r.json -o out.parquet --input probs"),
    },
    "run": {
        **bad(BASES["run"]),
        "dumps": Acts("val.parquet", "--coverage 0.8 -o out"),
        "--split": Acts("--split 60,20,20", DIVIDED),
        "--seed": Acts("--seed 3", DIVIDED),
        "--group": Acts("--group key", DIVIDED),
        "--val": Acts("--val test.parquet"),
        "--test": Acts("--test val.parquet"),
        "--output": Acts("-o new", "--val val.parquet --test test.parquet --coverage 0.8"),
        "--choose": Acts("--choose test.parquet"),
        "--temperature": Acts("--temperature 3"),
        "--calibrator": Acts("--calibrator vector"),
        "--force": Acts("--force", f"{RUN} --coverage 0.8 --table there.csv"),
        "--format": Acts("--format json"),
        "--verbose": Acts("--verbose"),
        "--table": Acts("--table new.csv"),
        "--keep": Acts("--keep key"),
        "--on-bad-row": Acts("--on-bad-row reject", "--val val.parquet --test broken.parquet --coverage 0.8 -o out"),
        "--on-unseen-group": Acts(
            "--on-unseen-group reject",
            "--val val.parquet --test unseen.parquet --coverage 0.8 --cutoff-by region -o out",
        ),
        "--tau": Acts("--tau 0.9", RUN),
        "--coverage": Acts("--coverage 0.7", RUN),
        "--accuracy": Acts("--accuracy 0.7", RUN),
        "--risk": Acts("--risk 0.3", RUN),
        "--max-missed": Acts("--max-missed 1=0.9", RUN),
        "--overall-risk": Acts("--overall-risk 0.4", RUN),
        "--reviewer-accuracy": Acts("--reviewer-accuracy 0.9", f"{RUN} --overall-risk 0.4"),
        "--reviews": Acts("--reviews 50 --per 100", RUN),
        "--per": Acts("--per 200", f"{RUN} --reviews 50"),
        "--review-cost": Acts("--review-cost 1 --error-cost 5", f"{RUN} --max-missed 1=0.9"),
        "--error-cost": Acts("--error-cost 5", f"{RUN} --review-cost 1 --overall-risk 0.4"),
        "--mean-cost": Acts("--mean-cost 0.5", f"{RUN} --loss cost --cost-matrix costs.csv"),
        "--max-loss": Acts("--max-loss 0.5", RUN),
        "--confidence": Acts("--confidence 0.9", f"{RUN} --coverage 0.5 --choose test.parquet"),
        "--cutoff-by": Acts("--cutoff-by region"),
        "--allow-reuse": Acts("--allow-reuse", f"{RUN} --coverage 0.5 --confidence 0.9"),
        **OBJECTIVE,
        "--gate": Acts("--gate 'coverage > 0.99'", code=1),
        "--metric": Acts("--metric accuracy@coverage=0.31"),
        "--intervals": Acts("--intervals"),
        "--classwise": Acts("--classwise"),
        "--minutes": Acts("--minutes 3"),
        "--title": Acts("--title Night"),
        "--model": Acts("--model net7"),
        "--report-by": Acts("--report-by region"),
        "--compare": Acts("--compare"),
        "--score-list": Acts("--score-list entropy,margin"),
        "--rival": Acts("--rival trust"),
        "--rival-order": Acts("--rival-order low", f"{RUN} --coverage 0.8 --rival trust"),
        "--baseline": Acts("--baseline before.json"),
        "--baseline-dump": Acts("--baseline-dump test.parquet", f"{RUN} --coverage 0.8 --join-on key"),
        "--baseline-rejector": Acts(
            "--baseline-rejector half.json", f"{RUN} --coverage 0.8 --baseline-dump test.parquet --join-on key"
        ),
        **reading(
            BASES["run"],
            RUN_ZEROS,
            Acts("--binary", f"{RUN} --coverage 0.8 --logits score --label bit"),
            f"{RUN} --coverage 0.8 --label name",
        ),
        "--floor": Acts("--floor 0.01", RUN_ZEROS),
        "--precision": Acts("--precision float64"),
        "--memory": Acts("--memory 0"),
    },
    "plan": {
        "dumps": Acts("val.parquet -r fit.json"),
        "--rejector": Refused("-r fit.json", "go with a DUMP"),
        "--accuracy": Acts("--accuracy 0.9", "--coverage 0.9"),
        "--risk": Acts("--risk 0.1", "--coverage 0.9"),
        "--confidence": Acts("--confidence 0.9"),
        "--max-missed": Acts("--max-missed a=0.1 --class-share a=0.2", ""),
        "--overall-risk": Acts("--overall-risk 0.1", ""),
        "--class-share": Acts("--class-share a=0.3", "--max-missed a=0.1"),
        "--coverage": Acts("--coverage 0.9"),
        "--error": Acts("--error 0.1"),
        "--power": Acts("--power 0.9"),
        "--output": Acts("-o new.md"),
        "--force": Acts("--force", "--risk 0.3 -o there.json"),
        "--format": Acts("--format json"),
        **reading(
            PLANNED,
            "zeros.parquet -r r.json --input probs",
            Refused("--binary --logits score", OTHER_CLASSES, PLANNED),
            f"{PLANNED} --label name",
        ),
        "--logits": Acts("--logits other", PLANNED),
        "--join-on": Refused("--join-on key", "--labels-from FILE and --join-on COL require each other", PLANNED),
        "--jobs": Acts("--jobs 2", PLANNED),
        "--cluster": Refused("--cluster nowhere", "--cluster nowhere: write the address of a Dask scheduler", PLANNED),
    },
    "monitor": {
        **bad(BASES["monitor"]),
        "state": Acts("kept.json", ""),
        "dumps": Acts("val.parquet", "kept.json -r r.json"),
        "--rejector": Acts("-r r.json", "new.json val.parquet"),
        "--output": Acts("-o new.txt"),
        "--force": Acts("--force", "kept.json -o there.json"),
        "--format": Acts("--format json"),
        "--gate": Acts("--gate 'coverage > 0.99'", code=1),
        "--on-unseen-group": Acts("--on-unseen-group reject", "new.json unseen.parquet -r regions.json"),
        "--max-risk": Acts("--max-risk 0.9"),
        "--min-coverage": Acts("--min-coverage 0.1"),
        "--no-drift": Acts("--no-drift", "new.json val.parquet -r r.json --max-risk 0.9"),
        "--confidence": Acts("--confidence 0.9"),
        "--report-by": Acts("--report-by region"),
        **unknown("new.json val.parquet -r r.json"),
        "--batch": Acts("--batch x"),
        "--audited": Acts("--late bare --audited", "bare.json test.parquet -r r.json"),
        "--late": Acts("--late bare", "bare.json test.parquet -r r.json"),
        "--reset": Acts("--reset why", "kept.json val.parquet -r r.json"),
        **reading(
            "new.json val.parquet -r r.json",
            "new.json zeros.parquet -r r.json --input probs --no-drift --max-risk 0.9",
            Refused("--binary --logits score", OTHER_CLASSES),
            "new.json val.parquet -r r.json --label name",
        ),
    },
    "cascade": {
        **scored(BASES["cascade"]),
        "--stage": Acts("--stage m=val.parquet:4"),
        "--accuracy": Refused("--accuracy 1.5", "--accuracy 1.5: it must be above 0 and at most 1"),
        "--join-on": Refused("--join-on nothing", "there is no column 'nothing'"),
        "--confidence": Acts("--confidence 0.6"),
        "--review-cost": Acts("--review-cost 30"),
        "--calibrator": Acts("--calibrator vector", f"{CASCADE} --format json"),
        "--loss": Acts("--loss log", CASCADE.replace("0.3", "0.9 --review-cost 50 --format json")),
        "--seed": Acts("--seed 3", f"{CASCADE} --confidence 0.6 --format json"),
        "--output": Acts("-o new"),
        "--force": Acts("--force", f"{CASCADE} -o full"),
        "--format": Acts("--format json"),
        **engine(),
        "--normalize": Acts("--normalize", f"{cascade_of('doubled')} --input probs"),
        "--logits": Acts("--logits other"),
        "--label": Acts("--label truth"),
        "--input": Acts("--input probs", f"{CASCADE} --logits probs"),
        "--binary": Acts("--binary", f"{CASCADE} --logits score --label bit"),
        "--classes": Acts("--classes a,b,c", f"{CASCADE} --label name"),
        "--labels-from": Acts("--labels-from turned.parquet"),
        "--on-missing-label": Acts("--on-missing-label skip", f"{CASCADE} --labels-from some.parquet"),
        "--quiet": Acts("--quiet", f"{cascade_of('zeros')} --input probs"),
    },
    "inspect": {
        "files": Acts("r.json"),
        **reading(
            "val.parquet",
            "val.parquet",
            Acts("--binary", "val.parquet --logits score"),
            "val.parquet --label name",
        ),
        "--on-missing-label": Acts(
            "--on-missing-label skip", "val.parquet --labels-from some.parquet --join-on key --logits logits"
        ),
        "--score": Acts("--score trust --correct refused"),
        "--normalize": Acts("--normalize", "doubled.parquet --input probs"),
        "--filter": Acts("--filter none", "twice.jsonl"),
        "--per-length": Acts("--per-length", "log.jsonl"),
    },
    "convert": {
        "dumps": Acts("test.parquet"),
        "--output": Acts("-o other.parquet"),
        "--force": Acts("--force", "val.parquet -o there.parquet"),
        **reading(
            "val.parquet -o new.parquet",
            "val.parquet -o new.parquet",
            Acts("--binary", "val.parquet --logits score -o new.parquet"),
            "val.parquet -o new.parquet",
        ),
        "--normalize": Acts("--normalize", "doubled.parquet --input probs -o new.parquet"),
        "--filter": Acts("--filter none", "twice.jsonl -o new.parquet"),
        "--per-length": Acts("--per-length", "log.jsonl -o new.parquet"),
    },
    "metrics": {
        "words": Acts("accuracy"),
        "--regression": Acts("--regression"),
        "--format": Acts("--format json"),
    },
    "schema": {"document": Acts("report", "")},
    "compare": {
        "reports": Acts("third=before.json"),
        "--output": Acts("-o new.md"),
        "--force": Acts("--force", "before.json second=before.json -o there.csv"),
    },
    "demo": {"--output": Acts("-o new"), "--force": Acts("--force", "-o full")},
    "config": {},
    "export": {
        "rejector": Acts("r.json", "--to python"),
        "--to": Acts("--to js"),
        "--output": Acts("-o new.py"),
        "--force": Acts("--force", "r.json --to python -o there.json"),
        "--golden": Acts("--golden 3"),
        "--dialect": Acts("--dialect postgres", "r.json --to sql"),
        "--scores": Acts("--scores other", "r.json --to sql"),
        "--append": Refused("--append none.onnx", "--append requires --to onnx", "r.json --to python"),
    },
}


@dataclass(frozen=True)
class Doing:
    """All that can be seen of a command: what it says, writes, and asks of the engine."""

    outcome: Outcome
    files: dict[str, bytes]
    asked: tuple[Any, ...]


def do(command: str, words: str, folder: Path) -> Doing:
    """Run a command in a copy of the folder, which always has the same name."""
    here = folder.with_name("here")
    shutil.copytree(folder, here)
    (here / "there.csv").write_text("")
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    with spied() as asked:
        outcome = drrej(command, *shlex.split(words), cwd=here)
    after = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    changed = {str(path.relative_to(here)): after[path] for path in after if after[path] != before.get(path)}
    shutil.rmtree(here)
    return Doing(outcome, changed, tuple(asked))


@contextlib.contextmanager
def spied() -> Iterator[list[Any]]:
    """What changes no result: the number of threads, whether progress is shown, the memory of `calibrate`."""
    asked: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        calibrated = drrej_calibrate.calibrate

        def make(jobs: int, *rest: Any, **more: Any) -> LocalEngine:
            asked.append(jobs)
            return LocalEngine(jobs, *rest, **more)

        def bar() -> Progress:
            asked.append("bar")
            return Progress()

        def calibrate(source: Any, options: drrej_calibrate.CalibrateOptions) -> Any:
            asked.append(options.memory)
            return calibrated(source, options)

        patch.setattr("drrej.engines.local.LocalEngine", make)
        patch.setattr("drrej.cli.options.is_terminal", lambda stream: True)
        patch.setattr("drrej.cli.options.Bar", bar)
        patch.setattr(drrej_calibrate, "calibrate", calibrate)
        yield asked


ALL = [(command, flag(option)) for command in commands() for option in options(command)]


def test_there_is_a_case_for_every_option() -> None:
    known = {(command, name) for command, cases in CASES.items() for name in cases}
    assert set(ALL) == known


@pytest.fixture(scope="module")
def plain(folder: Path) -> Callable[[str, str], Doing]:
    """What commands do without the option in question, which many cases share."""
    return functools.cache(lambda command, base: do(command, base, folder))


def declared(option: Any) -> tuple[object, ...]:
    """How an option is declared, but for its help."""
    return (str(option.type_descriptor.annotation), option.metavar, option.multiple, option.nargs, *option.opts)


OF_ITS_OWN = {"--accuracy", "--output", "--format", "--loss", "--on-bad-row", "--review-cost"}
"""What each command takes in its own kinds."""


def test_an_option_means_the_same_in_every_command() -> None:
    ways: dict[str, set[tuple[object, ...]]] = {}
    for option in (option for command in commands() for option in options(command)):
        ways.setdefault(flag(option), set()).add(declared(option))
    assert {name for name, found in ways.items() if len(found) > 1} <= OF_ITS_OWN


def cases() -> list[Any]:
    """Each option with one command that has it, another command for the next option; a second in a thorough run."""
    having: dict[str, list[str]] = {}
    for command, name in ALL:
        having.setdefault(name, []).append(command)
    shared = [name for name, users in having.items() if len(users) > 1 and name not in OF_ITS_OWN]
    turns = {
        name: [having[name][(number + step) % len(having[name])] for step in (0, 1)]
        for number, name in enumerate(shared)
    }
    found: list[Any] = []
    for command, name in ALL:
        first, second = turns.get(name, (command, command))
        later = thorough if command == second else more_trials
        found.append((command, name) if command == first else later(command, name))
    return found


@pytest.mark.parametrize(("command", "option"), cases(), ids=lambda value: value.lstrip("-"))
def test_every_option_acts_or_is_refused(
    command: str, option: str, folder: Path, plain: Callable[[str, str], Doing]
) -> None:
    case = CASES[command][option]
    base = BASES[command] if case.base is None else case.base
    done = do(command, f"{base} {case.given}", folder)
    without = plain(command, base)
    assert without.outcome.code == 0 or isinstance(case, Acts)
    if isinstance(case, Refused):
        assert done.outcome.code == 2
        assert case.says in done.outcome.err
        return
    assert done.outcome.code == case.code, done.outcome.err
    assert done != without


# What goes with some rejectors and not with others


REGRESSION = "forecasts.parquet -r rr.json"


@pytest.mark.parametrize(
    "given",
    [
        *("--metric accuracy@coverage=0.5", "--intervals", "--report-by region", "--no-labels"),
        *("--compare", "--rival variance", "--baseline before.json"),
        *("--baseline-dump forecasts.parquet --join-on mean", "--label value", "--logits mean", "--binary"),
        *("--labels-from some.parquet --join-on mean", "--input probs", "--classes a,b", "--normalize"),
    ],
)
def test_a_regression_refuses_what_is_not_for_it(given: str, folder: Path) -> None:
    message = fail("evaluate", *shlex.split(f"{REGRESSION} {given}"), cwd=folder)
    assert re.match(r"--[a-z-]+: it does not apply to a regression, which this rejector is for", message)
    assert message.split(":")[0] in given


@pytest.mark.parametrize("output", ["new.html", "new.png"])
def test_a_regression_has_no_pictures(output: str, folder: Path) -> None:
    assert "a regression has no plots" in fail("evaluate", *REGRESSION.split(), "-o", output, cwd=folder)
    assert not (folder / output).exists()


def test_what_a_regression_takes(folder: Path) -> None:
    """The task is the rejector's, and so are the columns unless others are named."""
    text = succeed("evaluate", *REGRESSION.split(), cwd=folder)
    assert text == succeed("evaluate", *REGRESSION.split(), "--task", "regression", cwd=folder)
    assert b"regression" in text
    unseen = ["evaluate", "odd.parquet", "-r", "rregions.json"]
    assert "use --on-unseen-group reject" in fail(*unseen, cwd=folder)
    assert b"regression" in succeed(*unseen, "--on-unseen-group", "reject", cwd=folder)


@pytest.mark.parametrize("option", ["--prediction", "--target"])
@pytest.mark.parametrize("base", ["evaluate val.parquet -r r.json", "fit val.parquet -r cal.json"])
def test_a_classification_refuses_the_columns_of_a_regression(option: str, base: str, folder: Path) -> None:
    assert f"{option}: it is for a regression" in fail(*base.split(), option, "key", cwd=folder)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("calibrate val.parquet --max-bad 0.1", "--max-bad requires --on-bad-row or --on-bad-file"),
        ("reject val.parquet -r r.json -o out/ --update --force", "give one of them"),
        ("fit val.parquet -r cal.json --floor 0.1", "--floor is stored in the rejector"),
        ("calibrate val.parquet --normalize", "--normalize requires --input probs"),
        ("calibrate val.parquet --input logits --normalize", "--normalize requires --input probs"),
        (
            "calibrate val.parquet --logits score --label bit --binary --input probs --normalize",
            "cannot be combined with --binary",
        ),
        ("calibrate val.parquet --floor 0.1", "--floor requires probabilities"),
        ("calibrate val.parquet --cluster local:1", "drrej no longer starts workers of its own; --jobs uses"),
        (
            "calibrate val.parquet --tls-ca x",
            "--tls-ca: it was removed: certificates come from Dask's own configuration",
        ),
        ("evaluate val.parquet -r r.json --rival-order low", "--rival-order requires --rival"),
        ("evaluate val.parquet -r r.json --baseline-rejector r.json", "--baseline-rejector requires --baseline-dump"),
        ("evaluate val.parquet -r r.json --baseline-dump val.parquet", "--baseline-dump requires --join-on COL"),
        ("run --val val.parquet --test test.parquet --tau 1 -o out --temperature 1 --memory 1G", "--memory cannot"),
        (
            "run --val val.parquet --test test.parquet --tau 1 -o out --temperature 1 --calibrator vector",
            "--calibrator cannot be combined with --temperature",
        ),
        ("calibrate val.parquet --calibrator beta", "--calibrator beta is for two classes, here are 3"),
        ("reject val.parquet -r r.json -o out.parquet --labels-from some.parquet", "No such option: --labels-from"),
        (
            "threshold val.parquet -r fit.json --tau 1 --confidence 0.9",
            "--confidence cannot be combined with --tau; it requires --accuracy, ",
        ),
    ],
)
def test_options_that_need_each_other(line: str, says: str, folder: Path) -> None:
    assert says in fail(*shlex.split(line), cwd=folder)


# Documentation


def test_every_option_is_documented() -> None:
    """The page is made from the help texts; `python docs/make_commands.py` writes it."""
    page = runpy.run_path(str(ROOT / "docs" / "make_commands.py"))["page"]()
    assert (ROOT / "docs" / "commands.md").read_text(encoding="utf-8") == page
    for command, name in ALL:
        section = page.split(f"\n## {command}\n")[1].split("\n## ")[0]
        assert not name.startswith("--") or re.search(rf"^\| `[^|]*{name}[ `]", section, re.MULTILINE), (command, name)
