"""Writing to object storage by URI, through pyarrow's filesystems.

An object appears whole: it is uploaded from complete content, and a multipart upload that is not completed leaves no
object. There is no rename and no lock: whether a target is free is looked at before the work and before the upload.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from typing import IO, Any

from drrej.data.uris import redacted
from drrej.errors import OutputError

_CHUNK = 8 << 20


def check_free(target: str, force: bool) -> None:
    """Raise unless an object may be written here."""
    import pyarrow.fs as pafs

    with told(target):
        filesystem, key = open_uri(target)
        kind = filesystem.get_file_info(key).type
    if kind == pafs.FileType.Directory:
        raise OutputError(f"{redacted(target)}: it is a directory; name a file in it")
    if kind == pafs.FileType.File and not force:
        raise OutputError(f"{redacted(target)}: it exists already; use `force=True` to overwrite")


def parse(target: str) -> tuple[Any, str]:
    """The filesystem and the key or path on it."""
    import pyarrow.fs as pafs

    filesystem, key = pafs.FileSystem.from_uri(target)
    return filesystem, key.rstrip("/")


def open_uri(target: str) -> tuple[Any, str]:
    """The filesystem and the key. A missing bucket is an error: pyarrow would try to make it."""
    import pyarrow.fs as pafs

    filesystem, key = parse(target)
    if filesystem.type_name in ("s3", "gcs"):
        bucket = key.split("/", 1)[0]
        if filesystem.get_file_info(bucket).type == pafs.FileType.NotFound:
            raise OutputError(f"{redacted(target)}: there is no bucket '{bucket}'; create it first")
    return filesystem, key


def upload(content: IO[bytes], target: str) -> None:
    """Copy complete content to a URI."""
    with told(target):
        filesystem, key = open_uri(target)
        with filesystem.open_output_stream(key) as stream:
            shutil.copyfileobj(content, stream, _CHUNK)


@contextlib.contextmanager
def told(target: str) -> Iterator[None]:
    """What goes wrong with object storage as one line."""
    import pyarrow as pa

    try:
        yield
    except (OSError, pa.ArrowException, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise OutputError(redacted(f"{target}: cannot be written ({reason})")) from None
