"""drrej cascade."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Literal

from drrej.cli.console import in_flags, say_notes, show
from drrej.cli.input_options import InputOptions, check_one_stdin
from drrej.cli.options import REQUIRED, EngineOptions, Options, OutputOptions, open_files, option, rare
from drrej.cli.rule_options import CalibrationOptions, Calibrator, LossOfScores
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.engines.protocol import Engine
    from drrej.pipeline.cascade import Stage


class StageOptions(Options):
    """The models, what their answers must keep, and what is written and shown."""

    stage: list[str] = option(
        "A model: its predictions file and its cost per row. Repeatable.", "NAME=DUMP:COST", default=REQUIRED
    )
    accuracy: float = option("Accuracy that all answers together must reach.", "A", default=REQUIRED)
    join_on: str = option("Column that pairs the rows of the files.", "COL", default=REQUIRED)
    confidence: float | None = option("Certify the accuracy for new rows, using half of the rows.", "P")
    review_cost: float | None = option("Let people answer what is left, at this cost per row.", "COST")
    calibrator: Calibrator | None = CalibrationOptions.calibrator
    loss: LossOfScores = option(
        "Loss by which a stage passes rows on: log, margin, auto, ...", "NAME", default="zero-one"
    )
    seed: int = rare("Random seed for the halves.", "N", default=0)
    output: str | None = option("Directory for the report, rejectors and routing.", "DIR")
    force: bool = OutputOptions.force
    format: Literal["text", "json"] = option("Format of standard output.", default="text")


def cascade(stages: StageOptions, input: Annotated[InputOptions, {"join_on": None}], engine: EngineOptions) -> None:
    """Combine a cheap and an expensive model at the lowest cost that keeps an accuracy.

    Stages are asked in the order given, with labelled dumps of the same rows.

    Examples:
    drrej cascade --accuracy 0.9 --join-on id --stage s=small:1 --stage l=large:9
    drrej cascade --accuracy 0.99 --join-on id --stage s=small:1 --review-cost 9

    """
    from drrej.outputs.destinations import prepare_directory
    from drrej.outputs.masks import write_table
    from drrej.pipeline.cascade import CascadeOptions
    from drrej.pipeline.cascade import cascade as step
    from drrej.report.text import render_text

    wanted = stages.into(CascadeOptions, key=stages.join_on)
    workers, folder = engine.start(), stages.output
    if input.labels_from is not None:
        input = input.replaced(join_on=stages.join_on)
    models = [_stage(text, input, workers) for text in stages.stage]
    check_one_stdin(*(model.source for model in models))
    with ExitStack() as stack:
        files = {}
        if folder is not None:
            stack.enter_context(prepare_directory(folder))
            names = [*(f"{model.name}.json" for model in models), "cascade.json", "cascade.txt", "routing.parquet"]
            if len(set(names)) < len(names):
                raise OptionError("--stage cascade: the report has this name; choose another")
            paths = [os.path.join(folder, name) for name in names]
            files = dict(zip(names, open_files(stack, paths, stages.force), strict=True))
        found = step(models, wanted)
        text = in_flags(render_text(found.report))
        if files:
            contents = {f"{name}.json": rejector.to_json() for name, rejector in found.rejectors.items()}
            contents |= {"cascade.json": found.report.to_json(), "cascade.txt": text}
            routing = files["routing.parquet"]
            write_table(found.routing, routing.path, routing.target)
            for name, content in contents.items():
                files[name].write_text(content)
            for name in (*contents, "routing.parquet"):
                files[name].commit()
    for model in models:
        say_notes(model.source, engine.quiet)
    show(found.report.to_json() if stages.format == "json" else text)


def _stage(text: str, input: InputOptions, engine: Engine) -> Stage:
    """NAME=DUMP:COST as a stage; a DUMP may have colons."""
    from drrej.pipeline.cascade import Stage

    name, _, rest = text.partition("=")
    dump, _, price = rest.rpartition(":")
    try:
        cost = float(price)
    except ValueError:
        name = ""
    if not (name and dump):
        raise OptionError(f"--stage {text}: write NAME=DUMP:COST, such as small=small.parquet:1")
    return Stage(name, input.source([dump], engine), cost)
