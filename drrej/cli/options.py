"""Options that commands share: each is declared here, once, with its flag, help and panel.

A command lists those it takes in its signature, as is usual with typer, and gathers them in the dataclasses of
`reading`, `choosing` and `judging`. Options of a single command are in its own module. Help texts have no square
brackets: rich would take them for markup.
"""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import typer

from drrej.report import TextFormat

rule = partial(typer.Option, rich_help_panel="Rule: exactly one")
guarantee = partial(typer.Option, rich_help_panel="Guarantee and groups")
objective = partial(typer.Option, rich_help_panel="Loss and divergence")
swept = partial(typer.Option, rich_help_panel="Swept")
report = partial(typer.Option, rich_help_panel="Report")
rivals = partial(typer.Option, rich_help_panel="Comparisons")
regression = partial(typer.Option, rich_help_panel="Regression")
reading = partial(typer.Option, rich_help_panel="Reading")
engine = partial(typer.Option, rich_help_panel="Engine")

FLAG = ""
"""The metavar of an option without a value: typer's own is <bool>."""

# What is read, and what is known already

Dumps = Annotated[list[str], typer.Argument(metavar="DUMP", hidden=True)]  # the help would say <list[str]>
_rejector = typer.Option("-r", "--rejector", metavar="FILE", help="The rejector so far; - is standard input.")
RejectorFile = Annotated[str, _rejector]
RejectorSoFar = Annotated[str | None, _rejector]
Temperature = Annotated[
    float | None,
    typer.Option(
        "--temperature", metavar="T", help="Use this temperature instead of a fitted one (1: logits as they are)."
    ),
]

Calibrator = Annotated[
    Literal["temperature", "vector", "beta", "dirichlet", "auto"] | None,
    typer.Option(
        "--calibrator",
        metavar="NAME",
        show_default="temperature",
        help="temperature, vector (numbers per class), beta (for two), dirichlet (per pair), or auto.",
    ),
]

# Output

OutputPath = Annotated[
    str, typer.Option("-o", "--output", metavar="FILE", help="Where to write; - is standard output.")
]
Force = Annotated[bool, typer.Option("-f", "--force", metavar=FLAG, help="Overwrite what exists.")]
Keep = Annotated[
    str | None,
    typer.Option("--keep", metavar="COLS", show_default="all but the logits", help="Comma list of columns to copy."),
]
OnBadRow = Annotated[
    Literal["error", "reject", "skip"],
    typer.Option("--on-bad-row", help="What becomes of a row without usable scores; skip: it is left out."),
]
OnUnseenGroup = Annotated[
    Literal["error", "reject"],
    typer.Option("--on-unseen-group", help="What becomes of a row of a group that the threshold does not know."),
]
Table = Annotated[
    str | None, typer.Option("--table", metavar="FILE", help="Also write all candidates, as .parquet or .csv.")
]
Format = Annotated[
    TextFormat,
    typer.Option("--format", metavar="FORMAT", help="On standard output: text, json, markdown, github or junit."),
]

# The rule

Tau = Annotated[float | None, rule("--tau", metavar="T", help="Reject where the ratio is at most T.")]
Coverage = Annotated[float | None, rule("--coverage", metavar="C", help="Accept at least this share of the rows.")]
Accuracy = Annotated[
    float | None, rule("--accuracy", metavar="A", help="Accept as many rows as keep their accuracy at or above A.")
]
Risk = Annotated[
    float | None, rule("--risk", metavar="R", help="Accept as many rows as keep their error rate at or below R.")
]
MaxLoss = Annotated[float | None, rule("--max-loss", metavar="L", help="Reject where the expected loss is L or more.")]
ReviewCost = Annotated[
    float | None, rule("--review-cost", metavar="C", help="Least total cost, where a rejected row costs C.")
]
ErrorCost = Annotated[
    float | None,
    guarantee("--error-cost", metavar="E", help="With --review-cost: an accepted error costs E (or use --loss cost)."),
]
MeanCost = Annotated[
    float | None, rule("--mean-cost", metavar="M", help="Mean cost of accepted rows at most M, with --loss cost.")
]
Mse = Annotated[float | None, rule("--mse", metavar="M", help="Mean squared error at most M, of a regression.")]
Mae = Annotated[float | None, rule("--mae", metavar="M", help="Mean absolute error at most M, of a regression.")]
Clip = Annotated[
    float | None,
    guarantee("--clip", metavar="B", help="With --mse or --mae: the error of a row counts as B at most."),
]
Confidence = Annotated[
    float | None,
    guarantee(
        "--confidence",
        metavar="P",
        help="Make the accuracy, risk, coverage or mean hold on new rows with probability P.",
    ),
]
Method = Annotated[
    Literal["fixed-sequence", "sgr", "betting", "hoeffding-bentkus"] | None,
    guarantee(
        "--method",
        metavar="METHOD",
        help="fixed-sequence, or sgr if risk grows with coverage; of a mean: betting or hoeffding-bentkus.",
    ),
]
CutoffBy = Annotated[
    str | None, guarantee("--by", metavar="COL", help="A cutoff for each value of a column, or of 'prediction'.")
]
AllowReuse = Annotated[
    bool,
    guarantee(
        "--allow-reuse",
        metavar=FLAG,
        help="Allow rows that calibrate or fit have seen; then the guarantee does not hold.",
    ),
]

# The objective

Divergence = Annotated[
    Literal["kl", "chi2"] | None,
    objective("--divergence", show_default="kl", help="Divergence between ideal and real data."),
]
Alpha = Annotated[float | None, objective("--alpha", metavar="A", help="Any alpha-divergence (1 is kl, 3 is chi2).")]
Lambda = Annotated[
    float | None,
    objective("--lambda", metavar="L", show_default="1", help="Weight of the divergence against the loss."),
]
EffectiveSample = Annotated[
    float | None,
    objective(
        "--effective-sample",
        metavar="S",
        help="Choose --lambda: the idealized distribution keeps this share of the effective sample, e.g. 0.5.",
    ),
]
LossName = Annotated[
    str,
    objective(
        "--loss",
        metavar="NAME",
        help="log, zero-one, brier, margin, logit-margin, flat, sharp, sharper, norm-1, norm-2, norm-4; with labels "
        "learned, auto; cost, column.",
    ),
]
CostMatrixFile = Annotated[
    str | None,
    objective("--cost-matrix", metavar="FILE", help="For --loss cost: true class x action; csv, json, parquet."),
]
LossColumn = Annotated[
    str | None, objective("--loss-column", metavar="COL", help="For --loss column: each row's own loss.")
]

# The report

Gates = Annotated[
    list[str] | None,
    report("--gate", metavar="EXPR", help="Exit 1 unless METRIC OP NUMBER holds, e.g. 'accuracy >= 0.97'. Repeatable."),
]
Metrics = Annotated[
    list[str] | None,
    report("--metric", metavar="POINT", help="Also report a point such as accuracy@coverage=0.9. Repeatable."),
]
Intervals = Annotated[
    bool, report("--intervals", metavar=FLAG, help="Also give intervals of the areas and of coverages at a risk.")
]
Classwise = Annotated[
    bool, report("--classwise", metavar=FLAG, help="Also give the calibration error of each class's probability.")
]
Examples = Annotated[
    str | None,
    report("--examples", metavar="COLS", help="Also show these columns of some rejected rows and accepted errors."),
]
Title = Annotated[str | None, report("--title", metavar="TEXT", help="Heads the page.")]
Model = Annotated[str | None, report("--model", metavar="NAME", help="What was judged, for the page.")]
Compare = Annotated[
    bool, rivals("--compare", metavar=FLAG, help="Also judge the usual scores: max probability, entropy, margin, ...")
]
Scores = Annotated[list[str] | None, rivals("--score", metavar="COL", help="Also judge a column as score. Repeatable.")]
ScoreOrders = Annotated[
    list[str] | None,
    rivals(
        "--score-order",
        metavar="high|low",
        show_default="high",
        help="Which end of --score is accepted first; once, or once for each.",
    ),
]
Masks = Annotated[
    list[str] | None, rivals("--rejected", metavar="COL", help="Also judge another rejector's mask. Repeatable.")
]
Baseline = Annotated[
    str | None, rivals("--baseline", metavar="FILE", help="Also report differences to an earlier report (JSON).")
]
BaselineDumps = Annotated[
    list[str] | None,
    rivals(
        "--baseline-dump",
        metavar="DUMP",
        help="Differences to a dump of the same rows, paired by --join-on. Repeatable.",
    ),
]
BaselineRejector = Annotated[
    str | None,
    rivals("--baseline-rejector", metavar="FILE", show_default="the same", help="Rejector of --baseline-dump."),
]

# Regression

PredictionColumn = Annotated[str | None, regression("--prediction", metavar="COL", help="The predicted value.")]
TargetColumn = Annotated[str | None, regression("--target", metavar="COL", help="The true value.")]

# How dumps are read

Logits = Annotated[
    str | None, reading("--logits", metavar="COL", help="A column, a path, a glob such as 'prob_*', or a list: A,B.")
]
Label = Annotated[str | None, reading("--label", metavar="COL", show_default="label", help="Label column.")]
LabelsFrom = Annotated[
    str | None, reading("--labels-from", metavar="FILE", help="Labels kept in another file, of any format.")
]
PairedOn = Annotated[str, typer.Option("--join-on", metavar="COL", help="The column that pairs rows of the dumps.")]
JoinOn = Annotated[
    str | None, reading("--join-on", metavar="COL", help="Key column shared with --labels-from; arrays go row by row.")
]
OnMissingLabel = Annotated[
    Literal["error", "skip"] | None,
    reading(
        "--on-missing-label",
        show_default="error",
        help="What becomes of rows without a label (null, or not in --labels-from).",
    ),
]
SkipBadRow = Annotated[
    Literal["error", "skip"],
    reading("--on-bad-row", help="What becomes of a row without usable scores; skip: it is left out."),
]
OnBadFile = Annotated[
    Literal["error", "skip"],
    reading("--on-bad-file", help="What becomes of a file that cannot be read; skip: it is left out."),
]
MaxBad = Annotated[
    float | None,
    reading(
        "--max-bad", metavar="SHARE", show_default="no limit", help="Exit 2 if more of the rows, or files, are bad."
    ),
]
Input = Annotated[
    Literal["logits", "probs", "log-probs"] | None,
    reading("--input", show_default="logits", help="What the scores are; log-probs only where a class may have 0."),
]
Normalize = Annotated[
    bool, reading("--normalize", metavar=FLAG, help="Divide each row of --input probs by its sum, whatever that is.")
]
Floor = Annotated[
    float | None,
    reading("--floor", metavar="P", show_default="chosen by likelihood", help="What a probability of 0 counts as."),
]
Binary = Annotated[bool, reading("--binary", metavar=FLAG, help="One score per row: that of class 1.")]
Classes = Annotated[
    str | None, reading("--classes", metavar="NAMES", help="Class names in logit order: a file or a comma list.")
]

Filter = Annotated[
    str | None, reading("--filter", metavar="NAME", help="Of a log of lm-evaluation-harness with several filters.")
]
PerLength = Annotated[
    bool,
    reading("--per-length", metavar=FLAG, help="Divide log-likelihoods of choices by their length in characters."),
]

# How passes are run

Precision = Annotated[
    Literal["auto", "float64"] | None,
    engine("--precision", show_default="auto", help="auto: float32 sums for float16 and float32 logits."),
]
Memory = Annotated[
    str | None,
    engine(
        "--memory",
        metavar="SIZE",
        show_default="a quarter of the machine's",
        help="Keep rows in memory up to this size, e.g. 4G.",
    ),
]
Jobs = Annotated[int, engine("--jobs", metavar="N", help="Workers on this machine; 0 is all cores.")]
ClusterAddress = Annotated[
    str | None,
    engine(
        "--cluster",
        metavar="ADDRESS",
        envvar="DASK_SCHEDULER_ADDRESS",
        help="Work on a Dask cluster: tls://HOST:8786, tcp://HOST:8786, or local:N processes.",
    ),
]
TlsAuthority = Annotated[
    str | None, engine("--tls-ca", metavar="FILE", help="For tls://: who signed the certificates of the cluster.")
]
TlsCertificate = Annotated[str | None, engine("--tls-cert", metavar="FILE", help="For tls://: your certificate.")]
TlsKey = Annotated[
    str | None, engine("--tls-key", metavar="FILE", show_default="in --tls-cert", help="For tls://: its key.")
]
Quiet = Annotated[bool, engine("-q", "--quiet", metavar=FLAG, help="No progress, no warnings.")]
