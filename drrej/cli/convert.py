"""drrej convert."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated

from drrej.cli.console import show
from drrej.cli.input_options import EngineOptions, LayoutOptions, check_spared
from drrej.cli.options import Dumps, Force, option
from drrej.errors import OptionError

if TYPE_CHECKING:
    from drrej.pipeline.convert import Converted

EXAMPLES = """
drrej convert val.csv -o val.parquet
drrej convert logits.npy --labels-from labels.npy -o val.parquet
cat val.csv | drrej convert - -o - > val.parquet
"""


def convert(
    dumps: Dumps,
    output: Annotated[str, option("-o --output FILE", "Where to write; - is standard output.")],
    input: LayoutOptions,
    engine: EngineOptions,
    force: Force = False,
) -> None:
    """Write a dump of any format and layout as one parquet file.

    DUMP: files, directories, globs or URIs; - is standard input.
    """
    from drrej.outputs.destinations import OutputFile
    from drrej.pipeline.convert import convert as step

    source = input.source(dumps, engine.start())
    if not output.lower().endswith((".parquet", ".pq")) and output != "-":
        raise OptionError(f"-o {output}: the output is parquet; end its name in .parquet")
    with OutputFile(output, force) as file:
        check_spared(input.classes)
        written = step(source, file)
        file.commit()
    if not engine.quiet and output != "-":
        show(f"{written.rows} rows; go on with:\n  {_next(output, written, input.normalize)}\n")


def _next(output: str, written: Converted, normalize: bool) -> str:
    """The command for the new file."""
    flags = ["--logits", written.scores] if written.scores != "logits" else []
    flags += ["--label", written.label] if written.label not in (None, "label") else []
    flags += ["--input", written.input] if written.input != "logits" else []
    flags += ["--normalize"] if normalize else []
    flags += ["--binary"] if written.binary else []
    flags += ["--classes", ",".join(written.classes)] if written.classes else []
    return shlex.join(["drrej", "calibrate", output, *(flag for flag in flags if flag is not None)])
