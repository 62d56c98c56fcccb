from __future__ import annotations

import pickle
import resource
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from shiftproof.data import Batch, ImageSet, load_images
from shiftproof.data.contents import content_keys
from shiftproof.data.images import spooled
from shiftproof.data.images.spooled import SpooledSource
from shiftproof.errors import ConfigurationError

IMAGES = np.random.default_rng(0).integers(0, 256, (23, 8, 9, 3), dtype=np.uint8)
LABELS = np.arange(23) % 4
KEYS = content_keys(torch.from_numpy(IMAGES).permute(0, 3, 1, 2)).tolist()


@pytest.fixture
def data() -> ImageSet:
    return load_images((IMAGES, LABELS))


def joined(batches: object) -> tuple[Tensor, Tensor | None, Tensor]:
    parts: list[Batch] = list(batches)  # type: ignore[call-overload]
    labels = [part.labels for part in parts if part.labels is not None]
    images, keys = torch.cat([part.inputs for part in parts]), torch.cat([part.keys for part in parts])
    return images, torch.cat(labels) if labels else None, keys


class TestBatches:
    @pytest.mark.parametrize("size", [1, 7, 23, 100])
    def test_hold_every_image_once_in_order(self, size: int, data: ImageSet) -> None:
        batches = list(data.batches(size))
        assert [len(batch) for batch in batches[:-1]] == [size] * (len(batches) - 1)
        images, labels, keys = joined(batches)
        assert images.dtype == torch.float32
        expected = torch.from_numpy(IMAGES).permute(0, 3, 1, 2).float() / 255
        assert torch.equal(images, expected)
        assert labels is not None
        assert labels.tolist() == LABELS.tolist()
        assert keys.tolist() == KEYS
        assert {batch.shift for batch in batches} == {"clean"}

    def test_do_not_share_memory_with_the_set(self, data: ImageSet) -> None:
        next(data.batches(4)).inputs.zero_()
        assert next(data.batches(4)).inputs.sum() > 0

    def test_without_labels(self) -> None:
        data = load_images(IMAGES)
        assert data.labels is None
        assert data.classes == ()
        assert next(data.batches(4)).labels is None

    @pytest.mark.parametrize(("size", "workers"), [(0, 0), (4, -1)])
    def test_need_a_size(self, size: int, workers: int, data: ImageSet) -> None:
        with pytest.raises(ConfigurationError, match="Invalid batch settings"):
            data.batches(size, workers=workers)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_are_the_same_on_another_device(self, data: ImageSet) -> None:
        batch, cuda = next(data.batches(23)), next(data.batches(23, device="cuda"))
        assert cuda.inputs.is_cuda
        assert cuda.keys.is_cuda
        assert torch.equal(cuda.inputs.cpu(), batch.inputs)


class TestSubset:
    def test_is_in_the_order_given(self, data: ImageSet) -> None:
        part = data.subset([20, 3, 4])
        images, labels, keys = joined(part.batches(2))
        whole, _, _ = joined(data.batches(23))
        assert torch.equal(images, whole[[20, 3, 4]])
        assert labels is not None
        assert labels.tolist() == [0, 3, 0]
        assert keys.tolist() == [KEYS[20], KEYS[3], KEYS[4]]
        assert len(part) == 3

    def test_of_a_subset(self, data: ImageSet) -> None:
        assert data.subset(range(10, 20)).subset([0, 9]).keys.tolist() == [KEYS[10], KEYS[19]]

    def test_has_its_own_fingerprint(self, data: ImageSet) -> None:
        whole = data.fingerprint
        assert data.subset(range(22)).fingerprint != whole
        assert data.subset(range(23)).fingerprint == whole
        assert data.subset(range(22, -1, -1)).fingerprint != whole


class TestTake:
    @given(st.lists(st.integers(0, 4), min_size=23, max_size=23), st.integers(1, 23))
    @example([0] * 3 + [1] * 3 + [2] * 3 + [3] * 11 + [4] * 3, 2)  # both of the large class: Sainte-Lague breaks quota
    @settings(max_examples=60, deadline=None)
    def test_has_the_classes_in_their_shares(self, labels: list[int], n: int) -> None:
        taken = load_images((IMAGES, labels)).take(n).labels
        assert taken is not None
        counts, whole = taken.bincount(minlength=5), torch.tensor(labels).bincount(minlength=5)
        assert counts.sum() == n
        # The k-th of m inputs comes when (k - 1/2)/m is due: a count is within 1/2 of its due at a common time, and
        # that time is off by as much as the halves of all classes together.
        limit = 0.5 + whole / 23 * whole.count_nonzero() / 2
        assert ((counts - whole * n / 23).abs() <= limit + 1e-6).all()

    def test_keeps_the_mix_of_a_set_with_77_percent_of_one_class(self) -> None:
        images = np.random.default_rng(1).integers(0, 256, (300, 4, 4, 3), dtype=np.uint8)
        labels = load_images((images, [0] * 231 + [1] * 50 + [2] * 19)).take(100).labels
        assert labels is not None
        assert labels.bincount().tolist() == [77, 17, 6]

    def test_is_in_a_uniform_order(self) -> None:
        """Every image comes first as often as any other, and neighbours are of one class as often as chance has it."""
        data = load_images((np.arange(8, dtype=np.uint8)[:, None, None, None].repeat(3, 3), [0] * 4 + [1] * 4))
        drawn = torch.stack([data.draw(seed=seed) for seed in range(2000)])
        for place in (0, 3, 7):
            counts = drawn[:, place].bincount(minlength=8)
            assert (counts - 250).abs().max() < 5 * 14.8  # five standard deviations of Binomial(2000, 1/8)
        alike = (drawn[:, 0] < 4) == (drawn[:, 1] < 4)
        assert abs(float(alike.float().mean()) - 3 / 7) < 5 * 0.0111

    def test_any_first_part_is_a_sample(self) -> None:
        images = np.random.default_rng(1).integers(0, 256, (1000, 2, 2, 3), dtype=np.uint8)
        labels = load_images((images, np.arange(1000) // 100)).take().labels
        assert labels is not None
        assert labels[:64].bincount(minlength=10).min() > 0  # the files are in the order of their classes

    def test_grows(self, data: ImageSet) -> None:
        chosen = [set(data.take(n).keys.tolist()) for n in range(1, 23)]
        assert all(small < large for small, large in pairwise(chosen))

    def test_depends_on_the_seed(self, data: ImageSet) -> None:
        assert data.take(8, seed=1).keys.tolist() == data.take(8, seed=1).keys.tolist()
        assert data.take(8, seed=1).keys.tolist() != data.take(8, seed=2).keys.tolist()

    @settings(max_examples=20, deadline=None)
    @given(st.permutations(range(23)), st.integers(1, 22))
    def test_does_not_depend_on_the_order_of_images(self, order: list[int], n: int) -> None:
        data = load_images((IMAGES, LABELS))
        moved = load_images((IMAGES[order], LABELS[order]))
        assert moved.take(n).keys.tolist() == data.subset(order).take(n).keys.tolist() == data.take(n).keys.tolist()
        assert moved.take().fingerprint == data.take().fingerprint

    def test_every_image_has_the_same_chance(self) -> None:
        data = load_images(np.zeros((10, 1, 1, 3), np.uint8))
        taken = torch.cat([data.draw(3, seed=seed) for seed in range(1000)]).bincount(minlength=10)
        assert taken.min() > 300 - 5 * 14.5  # five standard deviations of Binomial(1000, 0.3)
        assert taken.max() < 300 + 5 * 14.5

    def test_more_than_there_are_is_all(self, data: ImageSet) -> None:
        assert data.take(23).fingerprint == data.take().fingerprint == data.take(1000).fingerprint
        assert set(data.take().keys.tolist()) == set(KEYS)
        with pytest.raises(ConfigurationError):
            data.take(0)


class TestInMemory:
    def test_is_the_same_set(self, data: ImageSet) -> None:
        part = data.subset([5, 1, 22])
        held = part.in_memory()
        assert torch.equal(joined(held.batches(2))[0], joined(part.batches(2))[0])
        assert held.fingerprint == part.fingerprint
        assert held.subset([2, 0]).fingerprint == part.subset([2, 0]).fingerprint
        assert held.keys.tolist() == part.keys.tolist() == [KEYS[5], KEYS[1], KEYS[22]]

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
    def test_is_the_same_set_on_a_gpu(self, data: ImageSet) -> None:
        part = data.subset([5, 1, 22])
        held = part.in_memory(device="cuda")
        assert torch.equal(joined(held.batches(2))[0], joined(part.batches(2))[0])
        assert all(batch.inputs.is_cuda for batch in held.batches(2, device="cuda"))
        assert held.fingerprint == part.fingerprint
        assert held.keys.tolist() == part.keys.tolist()

    @pytest.mark.parametrize("floats", [False, True])
    def test_on_disk_is_the_same_set(self, data: ImageSet, floats: bool) -> None:
        part = (load_images((IMAGES / 255.0).astype(np.float32)) if floats else data).subset([5, 1, 22, 4, 5, 6])
        kept = part.on_disk()
        assert isinstance(kept.source, SpooledSource)
        for size in (2, 6):
            assert torch.equal(joined(kept.batches(size))[0], joined(part.batches(size))[0])
        assert kept.fingerprint == part.fingerprint
        assert kept.subset([2, 0]).fingerprint == part.subset([2, 0]).fingerprint
        assert kept.keys_known
        assert kept.keys.tolist() == part.keys.tolist()
        sent = pickle.loads(pickle.dumps(kept))
        assert torch.equal(joined(sent.batches(4))[0], joined(part.batches(4))[0])

    def test_stays_as_it_is_without_room_on_the_disk(self, data: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(spooled, "MOST_BYTES", data.nbytes - 1)
        assert data.on_disk() is data

    def test_stays_as_it_is_where_a_file_cannot_grow(self, data: ImageSet) -> None:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (data.nbytes // 2, before[1]))
        try:
            assert data.on_disk() is data
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def test_takes_as_much_as_it_says(self, data: ImageSet) -> None:
        assert data.nbytes == 23 * 8 * 9 * 3
        floats = load_images((IMAGES / 255.0).astype(np.float32))
        assert floats.nbytes == 4 * data.nbytes
        assert torch.equal(joined(floats.in_memory().batches(9))[0], joined(floats.batches(9))[0])


class TestFingerprint:
    def test_is_sixteen_hexadecimal_digits(self, data: ImageSet) -> None:
        assert len(data.fingerprint) == 16
        int(data.fingerprint, 16)

    def test_is_the_same_for_the_same_images(self, data: ImageSet) -> None:
        assert load_images((IMAGES.copy(), LABELS.tolist())).fingerprint == data.fingerprint

    def test_changes_with_pixels_labels_names_and_size(self, data: ImageSet) -> None:
        pixels, labels = IMAGES.copy(), LABELS.copy()
        pixels[22, 7, 8, 2] ^= 1
        labels[22] = 0
        others = [
            load_images((pixels, LABELS)),
            load_images((IMAGES, labels)),
            load_images((IMAGES, LABELS), classes=["a", "b", "c", "d"]),
            load_images((IMAGES, LABELS), size=4),
            load_images(IMAGES),
        ]
        assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 6


def test_shape_and_side(data: ImageSet) -> None:
    assert data.shape == (3, 8, 9)
    assert data.side == 8
    assert "23 images" in repr(data)
