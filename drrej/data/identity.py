"""Whether a file is still the one that was opened first: a dump that changes while it is read gives no result."""

from __future__ import annotations

import os
from typing import Any

from drrej.data.part import Identity, Part
from drrej.errors import DumpError


def identity_of(part: Part, stream: Any = None) -> Identity:
    """The identity of a part as it is now; of an object by way of its open stream, if there is one."""
    if part.uri is None:
        status = os.stat(part.path)
        return Identity(status.st_size, status.st_mtime_ns, status.st_dev, status.st_ino)
    if stream is None:
        stream = part.filesystem().open_input_file(part.path)
    tag = stream.metadata().get("ETag")
    if tag is not None:
        return Identity(stream.size(), tag.decode())
    info = part.filesystem().get_file_info(part.path)
    return Identity(info.size, info.mtime_ns or 0)


def check_unchanged(part: Part, found: Identity | None = None) -> None:
    """Raise unless a part, as found now, is what it was when the dump was opened."""
    if part.identity is None:
        return
    try:
        same = part.identity.same_as(found or identity_of(part))
    except OSError:  # gone
        same = False
    if not same:
        raise DumpError(
            f"{part.name}: the file was changed, replaced or removed while it was being read; "
            "wait until it is complete, then run the command again"
        )
