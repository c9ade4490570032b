"""Values of float columns straight from parquet pages, where every row has K of them; all else is left to Arrow.

Arrow decodes the levels of a list column into numbers and bitmaps, which takes longer than its values. In a dump every
list has K values, so the levels are known, and it is enough to compare them:

    with open(path, "rb") as stream:
        try:
            file = LocalFile(stream.fileno())
            footer = open_footer(file, metadata)
            chunk = open_chunk(file, footer, row_group, leaf, classes)
            for block in chunk.blocks(rows):
                ...
        except NeedsArrowError as rest:
            ...  # Arrow reads the row group from row `rest.row` on

A block is right once it is handed out. Whatever does not fit, damaged or only unusual, is left to Arrow to read or to
refuse, so open the file there with `page_checksum_verification=True`: a wrong checksum is left to it as well.
"""

from drrej.data.pages.chunk import Chunk, NeedsArrowError, chunk_range, open_chunk, open_footer
from drrej.data.pages.footer import TAIL, Footer
from drrej.data.pages.storage import Fetched, LocalFile, Storage

__all__ = [
    "TAIL",
    "Chunk",
    "Fetched",
    "Footer",
    "LocalFile",
    "NeedsArrowError",
    "Storage",
    "chunk_range",
    "open_chunk",
    "open_footer",
]
