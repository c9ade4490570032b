"""The commands in the order of the pipeline; importing this module registers them."""

from drrej.cli import (
    calibrate,  # noqa: F401 - this order is that of `drrej --help`
    evaluate,  # noqa: F401
    fit,  # noqa: F401
    inspect,  # noqa: F401
    reject,  # noqa: F401
    run,  # noqa: F401
    threshold,  # noqa: F401
)
