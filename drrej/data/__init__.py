"""Parquet in and out: finding files and columns, reading blocks, writing masks."""

from drrej.data.columns import LABEL, LOGITS
from drrej.data.dump import Block, Dump, DumpOptions, RowGroup
from drrej.data.opening import open_dump

__all__ = ["LABEL", "LOGITS", "Block", "Dump", "DumpOptions", "RowGroup", "open_dump"]
