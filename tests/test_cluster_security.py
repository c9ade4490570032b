"""Who may give orders to a cluster, and what happens where no cluster answers."""

from __future__ import annotations

import datetime
import http.server
import ipaddress
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import SAMPLE, environment, only_line, run_drrej, succeed
from dask_processes import dask_processes

import drrej

pytest.importorskip("distributed", reason="the extra 'cluster' is not installed: pip install 'drrej[cluster]'")

from drrej.engines import dask_cluster
from drrej.engines.dask_cluster import Cluster
from drrej.engines.dask_security import is_open_to_strangers

pytestmark = pytest.mark.filterwarnings("default")  # Dask's own warnings are not ours to mend

KNOCK = """
import asyncio, os, sys
import distributed
from distributed.comm import connect

address, user = sys.argv[1], int(sys.argv[2])
security, stranger = distributed.Security(), distributed.Security.temporary()
if user != os.getuid():  # all is imported: another user may not be able to read the packages
    os.setgroups([])
    os.setuid(user)

async def knock(address, security):
    comm = await connect(address, timeout=5, **security.get_connection_args("client"))
    await comm.write({"op": "identity", "reply": True})
    return (await comm.read())["type"]

def answer(address, security):
    try:
        return asyncio.run(asyncio.wait_for(knock(address, security), 8))
    except Exception as error:
        return "refused"

plain = address.replace("tls://", "tcp://")
print(os.getuid(), answer(plain, security), answer(address, stranger))
"""
"""What a stranger tries: plain tcp, and TLS with a key of its own."""


@pytest.fixture(scope="module")
def local() -> Iterator[Cluster]:
    cluster = Cluster("local:1")
    assert cluster.client
    yield cluster
    cluster.close()


def ports_of_this_user(cluster: Cluster) -> dict[str, str]:
    """Every address that the local cluster listens on."""
    workers = cluster.client.scheduler_info(n_workers=-1)["workers"]
    addresses = {"scheduler": cluster._local.scheduler_address}
    for address, worker in workers.items():
        addresses |= {f"worker {address}": address, f"nanny of {address}": worker["nanny"]}
    return addresses


@pytest.mark.parametrize("user", [None, 65534])
def test_a_stranger_is_refused_on_the_local_cluster(local: Cluster, user: int | None) -> None:
    if user is not None and os.getuid() != 0:
        pytest.skip("only root can become somebody else")
    user = os.getuid() if user is None else user
    addresses = ports_of_this_user(local)
    assert len(addresses) == 3
    for who, address in addresses.items():
        done = subprocess.run(
            [sys.executable, "-c", KNOCK, address, str(user)], capture_output=True, text=True, cwd="/", timeout=60
        )
        assert done.stdout == f"{user} refused refused\n", (who, done.stderr)


def test_who_has_the_key_is_let_in(local: Cluster) -> None:
    """Else the test above would pass with any closed port."""
    import asyncio

    from distributed.comm import connect

    async def knock() -> str:
        settings = local.client.security.get_connection_args("client")
        comm = await connect(local._local.scheduler_address, timeout=20, **settings)
        await comm.write({"op": "identity", "reply": True})
        return str((await comm.read())["type"])

    assert asyncio.run(knock()) == "Scheduler"


def test_what_workers_spill_is_out_of_reach_of_others(local: Cluster) -> None:
    """Files of spilled results are unpickled: nobody else may have made the folder that they lie in."""
    folders = [worker["local_directory"] for worker in local.client.scheduler_info(n_workers=-1)["workers"].values()]
    assert len(folders) == 1
    private = [path for path in (Path(folders[0]), *Path(folders[0]).parents) if path.name.startswith("drrej-workers-")]
    assert len(private) == 1
    assert stat.S_IMODE(private[0].stat().st_mode) == 0o700
    assert private[0].stat().st_uid == os.getuid()


def test_the_local_cluster_shows_no_pages(local: Cluster) -> None:
    workers = local.client.scheduler_info(n_workers=-1)["workers"].values()
    pages = [local._local.scheduler.services.get("dashboard"), *(w["services"].get("dashboard") for w in workers)]
    ports = {local._local.scheduler.http_server.port, *(page for page in pages if isinstance(page, int))}
    assert len(ports) == 2
    for port in ports:
        for path in ("info/main/workers.html", "json/counts.json", "metrics", "health"):
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}", timeout=20)
            assert caught.value.code == 404


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
    assert not Cluster("local:1").is_open_to_strangers


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
        cluster = Cluster(dask.address, security=drrej.Tls(str(own), str(own)))
        try:
            engine = drrej.DaskEngine(cluster)
            assert drrej.calibrate(drrej.Source([str(dump)], engine=engine)).to_json().encode() == expected
        finally:
            cluster.close()
        by_dasks_own = run_drrej("calibrate", dump, "--cluster", dask.address, env=tls_settings(own))
        assert (by_dasks_own.returncode, by_dasks_own.stdout) == (0, expected), by_dasks_own.stderr
        none = only_line(run_drrej("calibrate", dump, "--cluster", dask.address), 2)
        assert "an encrypted cluster needs --tls-ca, --tls-cert and --tls-key" in none
        wrong = only_line(run_drrej("calibrate", dump, "--cluster", dask.address, env=tls_settings(other)), 2)
        assert f"{dask.address}: no Dask scheduler answers (" in wrong


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "text.pem").write_text("not a certificate")
    text = str(tmp_path / "text.pem")
    with pytest.raises(drrej.OptionError, match="the certificates cannot be read"):
        Cluster("tls://127.0.0.1:1", security=drrej.Tls(text, text))
    with pytest.raises(drrej.OptionError, match="the certificates cannot be read"):
        Cluster("tls://127.0.0.1:1", security=drrej.Tls("no.pem", "no.pem"))
    for address in ("tcp://127.0.0.1:1", "local:2"):
        with pytest.raises(drrej.OptionError, match="begins with tls://"):
            Cluster(address, security=drrej.Tls(text, text))


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
    monkeypatch.setattr(dask_cluster, "CONNECT_SECONDS", 2)
    port = {"mute": lambda: serve(mute), "ssh": lambda: serve(ssh), "http": web_server}[kind]()
    started = time.monotonic()
    with pytest.raises(drrej.ClusterError) as caught:
        assert Cluster(f"tcp://127.0.0.1:{port}").client
    assert time.monotonic() - started < 15
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
    assert time.monotonic() - sent < 5
    assert (process.returncode, out, errors) == (code, b"", b"")
