"""Who may give orders to a cluster, and what happens where no cluster answers."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SAMPLE, environment, only_line, run_drrej, succeed
from dask_processes import dask_processes

import drrej
from drrej.errors import ClusterError

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed: pip install 'drrej[cluster]'")

import distributed

from drrej.engines import dask
from drrej.engines.dask import DaskEngine, connect, is_open_to_strangers

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own warnings are not ours to mend


@pytest.mark.parametrize(
    ("address", "is_open"),
    [
        ("tcp://10.0.0.7:8786", True),
        ("tcp://scheduler.example:8786", True),
        ("ws://10.0.0.7:80", True),
        ("tls://10.0.0.7:8786", False),
        ("tcp://127.0.0.1:8786", False),
        ("tcp://[::1]:8786", False),
        ("tcp://localhost:8786", False),
    ],
)
def test_plain_tcp_beyond_this_machine_is_open_to_strangers(address: str, is_open: bool) -> None:
    assert is_open_to_strangers(address) == is_open


# A real cluster with certificates


def make_certificate(folder: Path, name: str) -> Path:
    """A key and a certificate that signs itself, in one file."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(certificate.public_bytes(pem) + private)
    path.chmod(0o600)
    return path


def tls_settings(file: Path) -> dict[str, str]:
    """Dask's own configuration, by environment."""
    prefix = "DASK_DISTRIBUTED__COMM__"
    roles = {
        f"{prefix}TLS__{role}__{what}": str(file)
        for role in ("SCHEDULER", "WORKER", "CLIENT")
        for what in ("KEY", "CERT")
    }
    return {**roles, f"{prefix}TLS__CA_FILE": str(file), f"{prefix}REQUIRE_ENCRYPTION": "true"}


def test_a_cluster_with_certificates(tmp_path: Path) -> None:
    own, other = make_certificate(tmp_path, "own"), make_certificate(tmp_path, "other")
    dump = SAMPLE / "val.parquet"
    expected = succeed("calibrate", dump)
    with dask_processes(tmp_path, workers=1, env=tls_settings(own), protocol="tls") as dask:
        assert dask.address.startswith("tls://")
        security = distributed.Security(tls_ca_file=str(own), tls_client_cert=str(own), require_encryption=True)
        with distributed.Client(dask.address, security=security, set_as_default=False) as client:
            engine = DaskEngine(client)
            assert drrej.calibrate(drrej.Source([str(dump)], engine=engine)).to_json().encode() == expected
        by_dasks_own = run_drrej("calibrate", dump, "--cluster", dask.address, env=tls_settings(own))
        assert (by_dasks_own.returncode, by_dasks_own.stdout) == (0, expected), by_dasks_own.stderr
        none = only_line(run_drrej("calibrate", dump, "--cluster", dask.address), 2)
        assert "an encrypted cluster needs certificates in Dask's configuration" in none
        wrong = only_line(run_drrej("calibrate", dump, "--cluster", dask.address, env=tls_settings(other)), 2)
        assert f"{dask.address}: no Dask scheduler answers (" in wrong


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("not a certificate")
    for file in (tmp_path / "text.pem", Path("no.pem")):
        done = run_drrej("inspect", SAMPLE / "val.parquet", "--cluster", "tls://127.0.0.1:1", env=tls_settings(file))
        assert "the certificates cannot be read" in only_line(done, 2)


# Something else answers


def serve(talk: Callable[[socket.socket], None]) -> int:
    """A port on which somebody does this with every caller; the lines stay open."""
    server = socket.create_server(("127.0.0.1", 0))
    callers = []

    def run() -> None:
        while True:
            caller, _ = server.accept()
            callers.append(caller)
            talk(caller)

    threading.Thread(target=run, daemon=True).start()
    port: int = server.getsockname()[1]
    return port


def mute(caller: socket.socket) -> None:
    """Say nothing."""


def ssh(caller: socket.socket) -> None:
    caller.sendall(b"SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""


def web_server() -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


@pytest.mark.parametrize("kind", ["mute", "ssh", "http"])
def test_something_else_answers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask, "CONNECT_SECONDS", 2)
    port = {"mute": lambda: serve(mute), "ssh": lambda: serve(ssh), "http": web_server}[kind]()
    started = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        connect(f"tcp://127.0.0.1:{port}")
    assert time.monotonic() - started < 25  # and not the minutes that Dask itself would try
    assert str(caught.value).startswith(f"tcp://127.0.0.1:{port}: no Dask scheduler answers (")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_the_wait_at_once(number: signal.Signals, code: int) -> None:
    reached = threading.Event()
    port = serve(lambda _: reached.set())
    command = [sys.executable, "-m", "drrej", "calibrate", str(SAMPLE / "val.parquet"), "--cluster"]
    process = subprocess.Popen(
        [*command, f"tcp://127.0.0.1:{port}"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert reached.wait(60)
    time.sleep(0.3)  # it waits for an answer now
    process.send_signal(number)
    sent = time.monotonic()
    out, errors = process.communicate(timeout=60)
    assert time.monotonic() - sent < 9  # the wait itself is one of ten seconds
    assert (process.returncode, out, errors) == (code, b"", b"")
