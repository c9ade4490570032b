"""The paper's experiments from training to figures, on a small slice, and their losses against plain arithmetic."""

import json
import math

import numpy as np
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch", reason="the paper's experiments train networks: pip install 'drrej[paper]'")
pytest.importorskip("matplotlib", reason="the paper's experiments draw figures: pip install 'drrej[paper]'")

from benchmarks.paper.__main__ import main  # noqa: E402 - after the check that torch is there
from benchmarks.paper.baselines import BASELINES, costs  # noqa: E402
from benchmarks.paper.networks import EXPERIMENTS, Settings, tabular  # noqa: E402
from benchmarks.paper.training import moved, one_cycle, outputs_of, train  # noqa: E402


def write_clusters(path, classes=6, rows=3000, features=20):
    """Points around one centre per class, near enough that some are wrong."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, classes, rows)
    centres = rng.normal(size=(classes, features))
    np.savez(path, X=(centres[labels] + rng.normal(size=(rows, features))).astype(np.float32), y=labels)


@pytest.fixture(scope="module")
def chain(tmp_path_factory):
    """One fold, one epoch, small slice: every command once."""
    folder = tmp_path_factory.mktemp("paper")
    data, work, out = folder / "data", folder / "work", folder / "results"
    data.mkdir()
    write_clusters(data / "har.npz")
    common = ["har", "--data", str(data), "--work", str(work), "--folds", "1", "--epochs", "1"]
    judging = ["--work", str(work), "--out", str(out)]
    assert main(["train", *common, "--learning-rate", "0.05"]) == 0
    assert main(["baselines", *common, "--costs", "0.17", "0.33", "--learning-rate", "0.05"]) == 0
    before = _written(work)
    assert main(["baselines", *common, "--costs", "0.17", "0.33", "--learning-rate", "0.05"]) == 0
    assert _written(work) == before  # nothing is trained twice
    assert main(["table", *judging]) == 0
    return work, out


def _written(work):
    return {path: path.stat().st_mtime_ns for path in work.rglob("cost-*/*")}


def test_dumps_hold_the_parts_of_the_fold_with_clean_labels(chain):
    work, _ = chain
    for noise in ("noise0", "noise25"):
        parts = [pq.read_table(work / "har" / noise / "fold1" / f"{p}.parquet") for p in ("val", "test")]
        assert [part.num_rows for part in parts] == [480, 600]
        assert parts[0]["label"].equals(pq.read_table(work / "har" / "noise0" / "fold1" / "val.parquet")["label"])
    record = json.loads((work / "har" / "noise25" / "fold1" / "training.json").read_text())
    assert (record["noise"], record["settings"]["epochs"]) == (0.25, 1)


def test_the_table_says_what_the_dumps_say(chain):
    """Base accuracy and each baseline's coverage and accuracy, recomputed from the dumps."""
    work, out = chain
    rows = json.loads((out / "results.json").read_text())
    assert [(row["dataset"], row["noise"], row["folds"]) for row in rows] == [("har", 0, 1), ("har", 25, 1)]
    for row in rows:
        folder = work / "har" / f"noise{row['noise']}" / "fold1"
        base = pq.read_table(folder / "test.parquet")
        right = np.array(base["logits"].to_pylist()).argmax(axis=1) == base["label"].to_numpy()
        assert row["base"] == [pytest.approx(100 * right.mean(), abs=1e-3)]
        for rival in row["rivals"]:
            dump = pq.read_table(folder / rival["method"] / f"cost-{rival['cost']:.4f}" / "test.parquet")
            accepted = ~dump["rejected"].to_numpy()
            right = np.array(dump["logits"].to_pylist()).argmax(axis=1) == dump["label"].to_numpy()
            assert rival["baseline"] == pytest.approx([100 * right[accepted].mean(), 100 * accepted.mean()], abs=1e-3)
    assert {sweep["parameter"] for sweep in rows[0]["sweeps"]} == {"alpha", "lam"}
    assert "<svg" in (out / "paper.svg").read_text()


def test_one_command_trains_and_judges_a_fold_of_a_smaller_network(tmp_path, capsys):
    write_clusters(tmp_path / "gas_drift.npz", rows=600)
    words = ["--data", str(tmp_path), "--epochs", "1", "--learning-rate", "0.05"]
    assert main(["one", "gas_drift_small", *words]) == 0
    said = capsys.readouterr().out
    assert "Gas Drift, one hidden layer, clean | 1 |" in said
    assert "seconds of processor time" in said


def test_training_that_was_interrupted_ends_with_the_same_network(tmp_path):
    inputs, labels = torch.randn(40, 5, generator=torch.manual_seed(0)), torch.arange(40) % 3

    def run(epochs, checkpoint=None):
        settings = Settings(batch=16, learning_rate=0.01, epochs=epochs)
        loss = torch.nn.CrossEntropyLoss()
        return train(lambda: tabular(5, 3), inputs, labels, settings, loss, checkpoint=checkpoint).model(inputs)

    whole = run(4)
    run(2, tmp_path / "checkpoint.pt")
    assert torch.equal(run(4, tmp_path / "checkpoint.pt"), whole)


def softmax(values):
    powers = [math.exp(value) for value in values]
    return [power / sum(powers) for power in powers]


def sigmoid_loss(margin):
    return 1 / (1 + math.exp(margin))


def test_losses_follow_their_formulas():
    """One row of three classes at c = 0.3, by plain arithmetic."""
    cost, label = 0.3, 1
    outputs = [0.4, -0.2, 1.1, 0.7]
    p = softmax(outputs)
    expected = {
        "defer": -math.log(p[label]) - (1 - cost) * math.log(p[3]),
        "gce": (1 - p[label] ** 0.7) / 0.7 + (1 - cost) * (1 - p[3] ** 0.7) / 0.7,
        "css": cost * sigmoid_loss(-0.2) + (1 - cost) * sum(sigmoid_loss(-g) for g in (0.4, 1.1, 0.7)),
        "predrej": math.exp(0.4) * label + cost * math.exp(-0.4),
    }
    for name, value in expected.items():
        found = BASELINES[name].loss(torch.tensor([outputs]), torch.tensor([label]), cost)
        assert found.item() == pytest.approx(value, rel=1e-5)


def test_costs_are_those_of_the_papers_grid_and_equidistant():
    assert costs(49) == [number / 100 for number in range(1, 50)]
    assert costs(4) == [0.1, 0.2, 0.3, 0.4]


def test_rejection_follows_the_rule_of_each_method():
    outputs = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 3.0], [-1.0, -2.0, -0.5], [0.0, 0.5, -1.0], [2.0, 0.5, -1.0]])
    assert BASELINES["defer"].rejects(outputs).tolist() == [True, False, True, False, False]
    assert BASELINES["css"].rejects(outputs).tolist() == [True, True, True, False, True]
    assert BASELINES["predrej"].rejects(outputs).tolist() == [False, False, True, True, False]


@pytest.mark.parametrize(
    ("dataset", "inputs", "parameters"),
    [
        ("har", (2, 561), 40_646),
        ("gas_drift", (2, 128), 12_934),
        ("har_small", (2, 561), 36_486),
        ("gas_drift_small", (2, 128), 8_774),
    ],
)
def test_base_networks_have_as_many_parameters_as_the_paper_says(dataset, inputs, parameters):
    """The paper's counts are one higher: the temperature."""
    network = EXPERIMENTS[dataset].network(inputs[1], 6, False)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert network(torch.zeros(inputs)).shape == (2, 6)


def test_the_network_of_mnist_takes_its_images():
    for outputs, normalised in ((10, False), (11, True)):
        network = EXPERIMENTS["mnist"].network(1, outputs, normalised)
        assert network(torch.zeros(2, 1, 28, 28)).shape == (2, outputs)
        assert isinstance(network[-1], torch.nn.BatchNorm1d) == normalised


def test_the_first_layer_of_the_compact_network_whitens_patches():
    """Uncorrelated, of variance 1: recomputed from the images patch by patch."""
    images = torch.randn(300, 3, 8, 8, generator=torch.manual_seed(0)).cumsum(dim=3)
    network = EXPERIMENTS["cifar10"].network(3, 10, False)
    EXPERIMENTS["cifar10"].prepare(network, images)
    with torch.no_grad():
        out = network.white(images)
    first, negative = out[:, :12], out[:, 12:]
    torch.testing.assert_close(first, -negative)
    rows = first.permute(0, 2, 3, 1).reshape(-1, 12).double()
    torch.testing.assert_close(rows.T @ rows / len(rows), torch.eye(12).double(), rtol=0, atol=0.01)


def test_outputs_are_the_mean_over_the_views_of_an_image():
    """Six views by hand: the padded image cut at three places, and mirrored."""
    images = torch.randn(5, 3, 32, 32, generator=torch.manual_seed(0))
    experiment = EXPERIMENTS["cifar10"]
    network = experiment.network(3, 10, False)
    experiment.prepare(network, images)
    network.eval()
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    with torch.no_grad():
        outputs = [
            network(torch.stack([_cut32(image, start, flipped) for image in padded]))
            for start in (0, 1, 2)
            for flipped in (False, True)
        ]
    expected = sum(outputs) / 6
    np.testing.assert_allclose(outputs_of(network, images, experiment.views), expected, atol=1e-6)
    assert np.abs(outputs_of(network, images) - expected.numpy()).max() > 1e-4


def _cut32(image, start, flipped):
    part = image[:, start : start + 32, start : start + 32]
    return part.flip(2) if flipped else part


def test_images_are_moved_and_flipped_and_nothing_else():
    images = torch.arange(2 * 3 * 6 * 6).reshape(2, 3, 6, 6).float()
    padded = torch.nn.functional.pad(images, (1, 1, 1, 1), mode="reflect")
    torch.manual_seed(0)
    seen = set()
    for _ in range(100):
        mirrored = torch.rand(2) < 0.5
        for row, image in enumerate(moved(images, 1, mirrored)):
            places = [
                (down, across, flipped)
                for down in range(3)
                for across in range(3)
                for flipped in (False, True)
                if torch.equal(_cut(padded[row], down, across, flipped), image)
            ]
            assert len(places) == 1
            assert places[0][2] == mirrored[row]
            seen.update(places)
    assert len(seen) == 18
    assert moved(images, 0, mirrored) is images


def test_a_row_is_mirrored_in_every_other_epoch(monkeypatch):
    """Each row has its number in all pixels of its left half: where it shows tells whether the row was mirrored."""
    images = torch.zeros(32, 3, 32, 32)
    images[:, :, :, :16] = torch.arange(1.0, 33.0)[:, None, None, None]
    shown = {}

    def watched(batch, shift, mirrored):
        picked = moved(batch, shift, mirrored)
        for image in picked:
            shown.setdefault(int(image.max()), []).append(bool(image[0, 16, 0] == 0))
        return picked

    monkeypatch.setattr("benchmarks.paper.training.moved", watched)
    settings = Settings(batch=32, learning_rate=0.01, epochs=4, shift=2)
    experiment = EXPERIMENTS["cifar10"]
    train(lambda: experiment.network(3, 2, False), images, torch.arange(32) % 2, settings, torch.nn.CrossEntropyLoss())
    rows = [shown[number] for number in range(1, 33)]
    assert {tuple(row) for row in rows} == {(True, False, True, False), (False, True, False, True)}


def _cut(image, down, across, flipped):
    part = image[:, down : down + 6, across : across + 6]
    return part.flip(2) if flipped else part


@pytest.mark.parametrize("momentum", [True, False])
def test_the_rate_goes_up_and_down_once_and_an_interrupted_cycle_ends_with_the_same_network(tmp_path, momentum):
    assert [round(one_cycle(done), 12) for done in (0.0, 0.1, 0.2, 0.6, 1.0)] == [0.0, 0.5, 1.0, 0.5, 0.0]
    images, labels = torch.randn(24, 3, 32, 32, generator=torch.manual_seed(0)), torch.arange(24) % 3
    settings = Settings(batch=8, learning_rate=0.05, epochs=3, momentum=momentum, one_cycle=True, shift=2, small=1)
    experiment = EXPERIMENTS["cifar10"]

    def build():
        network = experiment.network(3, 3, False)
        experiment.prepare(network, images)
        return network

    def run(checkpoint=None, stop=None):
        class StoppedError(Exception):
            pass

        calls = 0

        def loss(out, y):
            nonlocal calls
            calls += 1
            if calls == stop:
                raise StoppedError
            return torch.nn.functional.cross_entropy(out, y)

        try:
            return train(build, images, labels, settings, loss, checkpoint=checkpoint).model(images)
        except StoppedError:
            return None

    whole = run()
    assert run(tmp_path / "checkpoint.pt", stop=5) is None
    assert torch.equal(run(tmp_path / "checkpoint.pt"), whole)


def test_multiplications_of_a_network_are_counted_by_its_layers():
    from benchmarks.paper.cascade import multiplications

    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 36, 5)
    )
    assert multiplications(network, torch.zeros(3, 8, 8)) == 36 * 4 * 3 * 9 + 4 * 36 * 5
