"""Object storage: dumps, rejectors, reports and masks by URI, against a server on loopback."""

from __future__ import annotations

import contextlib
import http.server
import os
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import fail, make_model, only_line, run_drrej, succeed, write_dump
from dask_processes import dask_processes
from running import drrej as run

import drrej
from drrej.documents.summaries import MaskedFile
from drrej.engines import Progress
from drrej.engines.local import LocalEngine
from drrej.outputs.dataset import open_dataset

boto3 = pytest.importorskip("boto3", reason="moto[server] and boto3 are not installed: pip install 'drrej[test]'")
moto_server = pytest.importorskip(
    "moto.server", reason="moto[server] and boto3 are not installed: pip install 'drrej[test]'"
)

pytestmark = pytest.mark.filterwarnings("default")  # moto's own warnings are not ours to mend

SECRET = "wJalrXUtnFEMI"


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of a server with a bucket `data`; the environment says where it is, as for real ones."""
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    endpoint = f"http://127.0.0.1:{port}"
    settings = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_MAX_ATTEMPTS": "1",
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    boto3.client("s3").create_bucket(Bucket="data")
    yield endpoint
    server.stop()
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value


@pytest.fixture(scope="module")
def dataset(s3: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files, here and under s3://data/in/."""
    folder = tmp_path_factory.mktemp("s3") / "in"
    folder.mkdir()
    for number in range(2):
        logits, labels = make_model(1500, 8, seed=number)
        write_dump(folder / f"{number}.parquet", logits, labels, row_group=400)
        boto3.client("s3").upload_file(str(folder / f"{number}.parquet"), "data", f"in/{number}.parquet")
    return folder


def objects(prefix: str) -> dict[str, bytes]:
    """Name and content of what lies below a prefix; markers of empty folders left out."""
    client = boto3.client("s3")
    listed = client.list_objects_v2(Bucket="data", Prefix=prefix).get("Contents", [])
    keys = [entry["Key"] for entry in listed if not entry["Key"].endswith("/")]
    return {key[len(prefix) :]: client.get_object(Bucket="data", Key=key)["Body"].read() for key in keys}


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}


def test_the_pipeline_by_uri(dataset: Path, tmp_path: Path) -> None:
    """Every document and mask has the bytes of a run on files."""
    succeed("calibrate", dataset, "-o", tmp_path / "c.json")
    succeed("calibrate", "s3://data/in/", "-o", "s3://data/docs/c.json")
    succeed("fit", dataset, "-r", tmp_path / "c.json", "-o", tmp_path / "f.json")
    succeed("fit", "s3://data/in", "-r", "s3://data/docs/c.json", "-o", "s3://data/docs/f.json")
    rule = ["--coverage", "0.8"]
    succeed("threshold", dataset, "-r", tmp_path / "f.json", *rule, "-o", tmp_path / "t.json")
    succeed("threshold", "s3://data/in", "-r", "s3://data/docs/f.json", *rule, "-o", "s3://data/docs/t.json")
    assert objects("docs/") == contents(tmp_path)
    succeed("reject", dataset, "-r", tmp_path / "t.json", "-o", f"{tmp_path}/masks/")
    succeed("reject", "s3://data/in", "-r", "s3://data/docs/t.json", "-o", "s3://data/masks/")
    assert objects("masks/") == contents(tmp_path / "masks") | {"_SUCCESS": b""}
    assert fail("reject", "s3://data/in", "-r", tmp_path / "t.json", "-o", "s3://data/masks/") == (
        "s3://data/masks: there is a dataset already; use --force to replace it, or --update to add what is new"
    )
    before = boto3.client("s3").head_object(Bucket="data", Key="masks/1.parquet")["LastModified"]
    updated = run("reject", "s3://data/in", "-r", tmp_path / "t.json", "--update", "-o", "s3://data/masks/")
    assert "2 files (2 of them already there)" in updated.lines[-1]
    assert boto3.client("s3").head_object(Bucket="data", Key="masks/1.parquet")["LastModified"] == before
    assert objects("masks/") == contents(tmp_path / "masks") | {"_SUCCESS": b""}
    succeed("reject", "s3://data/in/1.parquet", "-r", tmp_path / "t.json", "-f", "-o", "s3://data/masks/")
    assert set(objects("masks/")) == {"1.parquet", "_SUCCESS"}


def test_a_dataset_by_workers(dataset: Path, tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="the extra 'cluster' is not installed: pip install 'drrej[cluster]'")
    rejector = tmp_path / "r.json"
    fitted = succeed("fit", dataset, "--temperature", "2")
    rejector.write_bytes(succeed("threshold", dataset, "-r", "-", "--tau", "0.8", stdin=fitted))
    succeed("reject", dataset, "-r", rejector, "-o", f"{tmp_path}/masks/")
    with dask_processes(tmp_path, workers=2) as dask:
        succeed("reject", "s3://data/in", "-r", rejector, "-o", "s3://data/by-workers/", "--cluster", dask.address)
    assert objects("by-workers/") == contents(tmp_path / "masks") | {"_SUCCESS": b""}


def test_what_is_not_there(s3: str, dataset: Path, tmp_path: Path, rejector_file: str) -> None:
    assert fail("calibrate", "s3://data/nothing") == "s3://data/nothing: no such file or directory"
    assert fail("calibrate", "s3://nowhere/x") == "s3://nowhere/x: no such file or directory"
    message = fail("calibrate", dataset, "-o", "s3://nowhere/r.json")
    assert message == "s3://nowhere/r.json: there is no bucket 'nowhere'; create it first"
    assert "s3://data/none.json: cannot be read" in fail("fit", dataset, "-r", "s3://data/none.json")
    boto3.client("s3").put_object(Bucket="data", Key="taken.json", Body=b"{}")
    message = fail("calibrate", dataset, "-o", "s3://data/taken.json")
    assert message == "s3://data/taken.json: it exists already; use --force to overwrite"


def test_a_folder_of_other_things_is_not_replaced(dataset: Path, rejector_file: str) -> None:
    boto3.client("s3").put_object(Bucket="data", Key="home/thesis.tex", Body=b"...")
    message = fail("reject", dataset, "-r", rejector_file, "-f", "-o", "s3://data/home/")
    assert "contains files other than masks (thesis.tex)" in message
    assert objects("home/") == {"thesis.tex": b"..."}


@pytest.mark.parametrize("uri", ["s3://AKIA:{}@data/none.parquet", "s3://AKIA:a/{}@data/none.parquet", "s3://A:{}@x y"])
def test_credentials_are_never_shown(s3: str, uri: str) -> None:
    for arguments in (["calibrate", uri.format(SECRET)], ["fit", "s3://data/in", "-r", uri.format(SECRET)]):
        done = run_drrej(*arguments)
        assert done.returncode == 2
        assert SECRET.encode() not in done.stdout + done.stderr, done.stderr


class _Denying(http.server.BaseHTTPRequestHandler):
    """Access denied, whatever is asked for."""

    def do_GET(self) -> None:
        body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
        self.send_response(403)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815 - as the class asks for them

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_access_denied(s3: str, dataset: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Denying) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        env = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}"}
        read = run_drrej("calibrate", "s3://data/in", env=env)
        written = run_drrej("calibrate", dataset, "-o", "s3://data/new.json", env=env)
        server.shutdown()
    for done, where in (
        (read, "s3://data/in: cannot be opened ("),
        (written, "s3://data/new.json: cannot be written ("),
    ):
        assert where in only_line(done, 2)
        assert "ACCESS_DENIED" in only_line(done, 2)


class _Dropping(socketserver.ThreadingTCPServer):
    """Passes requests on to a server, and cuts the line in the middle of an answer of more than so many bytes."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, port: int, most: int) -> None:
        self.behind, self.most = port, most
        super().__init__(("127.0.0.1", 0), _Relay)


class _Relay(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Dropping)
        with socket.create_connection(("127.0.0.1", self.server.behind)) as behind:
            threading.Thread(target=_copy, args=(self.request, behind, 1 << 40), daemon=True).start()
            _copy(behind, self.request, self.server.most)


def _copy(source: socket.socket, target: socket.socket, most: int) -> None:
    try:
        while most > 0 and (data := source.recv(min(most, 1 << 16))):
            target.sendall(data)
            most -= len(data)
    except OSError:
        pass
    for end in (source, target):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def dropping(s3: str) -> Iterator[Callable[[int], str]]:
    servers = []

    def serve(most: int) -> str:
        server = _Dropping(int(s3.rpartition(":")[2]), most)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


def test_a_connection_that_drops_midway(dropping: Callable[[int], str], dataset: Path, rejector_file: str) -> None:
    logits, labels = make_model(20_000, 8, seed=5)
    path = dataset.parent / "big.parquet"
    write_dump(path, logits, labels)
    boto3.client("s3").upload_file(str(path), "data", "big.parquet")
    done = run_drrej("calibrate", "s3://data/big.parquet", env={"AWS_ENDPOINT_URL": dropping(200_000)})
    assert (done.returncode, done.stdout) == (2, b"")
    message = done.stderr.decode()
    assert message.startswith("drrej: error: s3://data/big.parquet: cannot be read to the end (")
    assert message.count("\n") == 1


class _Stops(Progress):
    """Ctrl-C when a file is finished."""

    def finished(self, file: MaskedFile) -> None:  # noqa: ARG002
        raise KeyboardInterrupt


def test_an_interrupted_dataset_is_resumed_or_removed(dataset: Path) -> None:
    fitted = drrej.fit(dataset, drrej.calibrate(dataset))
    rejector = drrej.threshold(dataset, fitted, drrej.Rule("coverage", 0.8))
    dump = drrej.Source(dataset, engine=LocalEngine(1, _Stops()))

    def interrupted(target: str) -> None:
        with pytest.raises(KeyboardInterrupt):
            drrej.reject(dump, rejector, target)
        assert set(objects(target.removeprefix("s3://data/"))) == {"0.parquet"}

    interrupted("s3://data/interrupted/")
    assert drrej.reject(dataset, rejector, "s3://data/interrupted/").reused == 1
    assert set(objects("interrupted/")) == {"0.parquet", "1.parquet", "_SUCCESS"}
    interrupted("s3://data/failed/")
    with open_dataset("s3://data/failed/") as output:
        drrej.reject(dataset, rejector, output)  # and never commits
    assert objects("failed/") == {}
    assert ".failed.drrej-masks.json" not in objects("")
