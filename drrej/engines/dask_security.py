"""How a Dask cluster is reached: certificates, and whether it is a Dask scheduler that answers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import ipaddress
import logging
import threading
import warnings
from typing import Any
from urllib.parse import urlsplit

from drrej.errors import ClusterError, OptionError
from drrej.records import dataclass

_ENCRYPTED = ("tls://", "wss://")


@dataclass(frozen=True)
class Tls:
    """Files for an encrypted cluster: the authority that signed its certificates, and this client's own.

    `key` may be None where the certificate's file holds it too.
    """

    ca: str
    cert: str
    key: str | None = None


def security_of(address: str, security: Any) -> Any:
    """Dask's own object for a `Tls`, for itself, or for None: as Dask is configured on this machine."""
    distributed = import_distributed()
    if security is not None and not address.startswith(_ENCRYPTED):
        raise OptionError(f"`cluster={address}`: certificates go with an address that begins with tls://")
    try:
        if isinstance(security, Tls):
            security = distributed.Security(
                require_encryption=True,
                tls_ca_file=security.ca,
                tls_client_cert=security.cert,
                tls_client_key=security.key,
            )
        security = security or distributed.Security()
        settings = security.get_connection_args("client")
    except (OSError, ValueError) as error:
        raise OptionError(f"`cluster={address}`: the certificates cannot be read ({one_line(error)})") from None
    if address.startswith(_ENCRYPTED) and settings.get("ssl_context") is None:
        raise OptionError(
            f"`cluster={address}`: an encrypted cluster needs `tls_ca`, `tls_cert` and `tls_key`, or Dask's own "
            "configuration (distributed.comm.tls)"
        )
    return security


def is_open_to_strangers(address: str) -> bool:
    """Whether anybody on the network may be listening, or give the same orders: not encrypted, beyond this machine."""
    if address.startswith((*_ENCRYPTED, "inproc://")):
        return False
    host = urlsplit(address).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def connect(address: str, security: Any, seconds: float) -> Any:
    """A client of the scheduler at an address."""
    distributed = import_distributed()
    quiet()
    try:
        _shake_hands(address, security.get_connection_args("client"), seconds)
        return distributed.Client(address, timeout=seconds, set_as_default=False, security=security)
    except Exception as error:  # whatever Dask makes of what answers there
        reason = one_line(error) if isinstance(error, OSError) else "another program answers there"
        raise ClusterError(
            f"{address}: no Dask scheduler answers ({reason}); is it running, is the address right, and do its "
            "certificates and yours fit?"
        ) from None


def _shake_hands(address: str, settings: dict[str, Any], seconds: float) -> None:
    """Raise unless something that speaks Dask's language answers in time; a client of Dask's would wait for ever.

    In a thread, because the caller may have an event loop of its own, and so that a signal ends the wait at once.
    """
    from distributed.comm import connect as call

    async def shake() -> None:
        comm = await call(address, timeout=seconds, **settings)
        await comm.close()

    def wait() -> None:
        try:
            asyncio.run(asyncio.wait_for(shake(), seconds))
            answer.set_result(None)
        except BaseException as error:
            answer.set_exception(error)

    answer: concurrent.futures.Future[None] = concurrent.futures.Future()
    threading.Thread(target=wait, daemon=True).start()
    try:
        answer.result(seconds + 2)
    except TimeoutError:
        raise OSError(f"whoever listens there has said nothing for {seconds} seconds") from None


def import_distributed() -> Any:
    """The package `distributed`, or a line about how to get it."""
    try:
        import distributed
    except ImportError:
        raise OptionError("`cluster` needs the package distributed: pip install 'drrej[cluster]'") from None
    return distributed


def quiet() -> None:
    """What Dask logs is for its operators; drrej says in one line what went wrong."""
    for name in ("distributed", "tornado", "asyncio", *logging.root.manager.loggerDict):
        if name.partition(".")[0] in ("distributed", "tornado", "asyncio"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    warnings.filterwarnings("ignore", module="distributed|dask|tornado")


def one_line(error: BaseException) -> str:
    """The message of someone else's exception on one line."""
    return " ".join(str(error).replace("`", "'").split())[:300] or type(error).__name__
