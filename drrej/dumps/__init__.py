"""Parquet in and out: finding files and columns, reading blocks, writing masks."""

from drrej.dumps.columns import LABEL, LOGITS
from drrej.dumps.dump import Block, Dump, DumpOptions, RowGroup
from drrej.dumps.opening import open_dump

__all__ = ["LABEL", "LOGITS", "Block", "Dump", "DumpOptions", "RowGroup", "open_dump"]
