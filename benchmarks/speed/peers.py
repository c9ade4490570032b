"""What people use today, each as a process of its own: `python -m benchmarks.speed.peers NAME FILE ...`.

Those that work in memory print their wall and processor time as JSON, imports not counted; of the others the whole
process is measured.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def decode(path: str, columns: str, threads: str) -> None:
    """The limit: a streamed, threaded decode of the columns, thrown away."""
    _stream(path, columns.split(","), int(threads), lambda _: None)


def plain_numpy(path: str, columns: str, threads: str) -> None:
    """The same decode, and of each block the entropy and the largest probability as numpy's users write them."""

    def score(block: pa.RecordBatch) -> None:
        if block.num_columns == 1:
            z = block.column(0).flatten().to_numpy().reshape(block.num_rows, -1) / np.float32(TEMPERATURE)
        else:
            z = np.column_stack([column.to_numpy() for column in block.columns]) / np.float32(TEMPERATURE)
        z -= z.max(axis=1, keepdims=True)
        powers = np.exp(z)
        total = powers.sum(axis=1)
        entropy = np.log(total) - (powers * z).sum(axis=1) / total
        _ = entropy >= CUTOFF, 1.0 / total

    _stream(path, columns.split(","), int(threads), score)


def _stream(path: str, names: list[str], threads: int, use: Callable[[pa.RecordBatch], None]) -> None:
    first = pq.ParquetFile(path).metadata
    groups = iter(range(first.num_row_groups))
    lock = threading.Lock()
    batch = max(1, (8 << 20) * first.row_group(0).num_rows // first.row_group(0).total_byte_size)

    def work() -> None:
        file = pq.ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)
        while True:
            with lock:
                group = next(groups, None)
            if group is None:
                return
            for block in file.iter_batches(batch_size=batch, row_groups=[group], columns=names, use_threads=False):
                use(block)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()


TEMPERATURE, CUTOFF = 1.7, 0.5
"""What the masks of peers are made with: the same work whatever the numbers."""


def polars_mask(path: str, columns: str, mask: str) -> None:
    """Softmax, entropy, largest probability and a mask with polars, lazily, from parquet to parquet.

    Lists go through `list.eval`, wide columns through horizontal sums: how its users write it.
    """
    import polars as pl

    names = columns.split(",")
    frame = pl.scan_parquet(path)
    if len(names) == 1:
        item = pl.element() / TEMPERATURE
        power = (item - item.max()).exp()
        p = power / power.sum()
        scored = frame.select(
            "id",
            pl.col(names[0]).list.eval(-(p * (p + 1e-45).log()).sum()).list.first().alias("entropy"),
            pl.col(names[0]).list.eval(p.max()).list.first().alias("confidence"),
        )
    else:
        largest = pl.max_horizontal(names)
        powers = [((pl.col(name) - largest) / TEMPERATURE).exp() for name in names]
        weighted = [power * (pl.col(name) - largest) / TEMPERATURE for power, name in zip(powers, names, strict=True)]
        total, moment = pl.sum_horizontal(powers), pl.sum_horizontal(weighted)
        scored = frame.select("id", (total.log() - moment / total).alias("entropy"), (1.0 / total).alias("confidence"))
    scored.with_columns((pl.col("entropy") >= CUTOFF).alias("rejected")).sink_parquet(mask)


def duckdb_mask(path: str, columns: str, mask: str) -> None:
    """The same with DuckDB, in SQL: lists through lambdas, wide columns through sums."""
    import duckdb

    names = columns.split(",")
    if len(names) == 1:
        inner = f"select id, {names[0]} as z, list_max(z) as m from '{path}'"  # noqa: S608 - our own names
        powers = f"list_transform(z, lambda x: exp((x - m) / {TEMPERATURE}))"
        source = f"select id, {powers} as e, list_sum(e) as s from ({inner})"  # noqa: S608 - our own names
        entropy = "ln(s) - list_sum(list_transform(e, lambda x: x * ln(x + 1e-45))) / s"
        confidence = "1.0 / s"
    else:
        gaps = [f"({name} - m) / {TEMPERATURE}" for name in names]
        total = " + ".join(f"exp({gap})" for gap in gaps)
        moment = " + ".join(f"exp({gap}) * {gap}" for gap in gaps)
        inner = f"select *, greatest({', '.join(names)}) as m from '{path}'"  # noqa: S608 - our own names
        source = f"select id, {total} as s, {moment} as v from ({inner})"  # noqa: S608 - our own names
        entropy, confidence = "ln(s) - v / s", "1.0 / s"
    query = f"select id, {entropy} as entropy, {confidence} as confidence, entropy >= {CUTOFF} as rejected"
    duckdb.execute(f"copy ({query} from ({source})) to '{mask}' (format parquet)")


def load(path: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Logits (rows x classes) and labels in memory."""
    table = pq.read_table(path, columns=["logits", "label"])
    logits = table.column("logits").combine_chunks()
    values = logits.values.to_numpy()
    return values.reshape(table.num_rows, -1), table.column("label").to_numpy()


def torch_entropy(path: str) -> dict[str, float]:
    """Load everything, softmax, entropy, in memory."""
    import torch

    def work() -> torch.Tensor:
        logits, _ = load(path)
        p = torch.softmax(torch.from_numpy(logits), dim=1)
        return -(p * torch.log(p)).nansum(dim=1)

    return timed(work)


def authors(path: str) -> dict[str, float]:
    """The authors' recipe: LBFGS on T, learning rate 0.1, 50 iterations, |T|, start 1.5; loading not counted."""
    import torch

    logits, labels = load(path)

    def work() -> None:
        z, y = torch.from_numpy(logits), torch.from_numpy(labels)
        temperature = torch.nn.Parameter(torch.ones(1) * 1.5)
        optimizer = torch.optim.LBFGS([temperature], lr=0.1, max_iter=50)
        criterion = torch.nn.CrossEntropyLoss()

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss: torch.Tensor = criterion(z / temperature.abs(), y)
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimizer.step(closure)

    return timed(work)


def sklearn_temperature(path: str) -> dict[str, float]:
    """scikit-learn's temperature scaling; loading not counted."""
    from sklearn.calibration import _TemperatureScaling

    logits, labels = load(path)
    return timed(lambda: _TemperatureScaling().fit(logits, labels))


def mapie_threshold(path: str) -> dict[str, float]:
    """MAPIE certifies one of 100 thresholds of max p (5 % errors among the accepted, 90 %); scores are not counted."""
    import warnings

    from mapie.risk_control import BinaryClassificationController

    logits, labels = load(path)
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    confidence = p.max(axis=1) / p.sum(axis=1)
    right = (logits.argmax(axis=1) == labels).astype(int)

    def work() -> Any:
        return BinaryClassificationController(
            lambda scores: np.column_stack([1.0 - scores, scores]),
            "precision",
            0.95,
            confidence_level=0.9,
            list_predict_params=np.linspace(0.0, 0.99, 100),
        ).calibrate(confidence, right)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return timed(work)


def timed(work: Callable[[], Any]) -> dict[str, float]:
    """Wall and processor time of `work`."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


PEERS: dict[str, Callable[..., dict[str, float] | None]] = {
    "decode": decode,
    "numpy": plain_numpy,
    "polars": polars_mask,
    "duckdb": duckdb_mask,
    "torch": torch_entropy,
    "authors": authors,
    "sklearn": sklearn_temperature,
    "mapie": mapie_threshold,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(PEERS[sys.argv[1]](*sys.argv[2:])))
