"""The contract of keyed randomness, and its distributions against scipy's."""

import os
import signal
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from shiftproof.keyed import SMALL, Keyed, key_of, over_threads, philox_unit, poisson_quantile

DRAWS = {
    "scalar": lambda rng: rng.uniform(),
    "small uniform": lambda rng: rng.uniform(-2, 3, (5,)),
    "uniform field": lambda rng: rng.uniform(shape=(3, 32, 33)),
    "small normal": lambda rng: rng.normal(shape=(7,)),
    "normal field": lambda rng: rng.normal(1.0, 2.0, (3, 31, 33)),
    "integers": lambda rng: rng.integers(-4, 5, (2, 20, 20)),
    "poisson": lambda rng: rng.poisson(torch.full((len(rng), 3, 20, 20), 4.5, device=rng.device)),
    "permutation": lambda rng: rng.permutation(300),
    "second draw": lambda rng: [rng.uniform(shape=(400,)), rng.uniform(shape=(400,))][1],
    "fork": lambda rng: rng.fork("a").fork("b").normal(shape=(400,)),
}


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=9, unique=True), st.integers(0, 2**31), st.data())
def test_a_row_depends_on_seed_and_key_alone(draw, keys, seed, data):
    whole = draw(Keyed(seed, keys))
    order = data.draw(st.permutations(range(len(keys))))
    cut = data.draw(st.integers(0, len(keys)))
    for part in (order[:cut], order[cut:]):
        if part:
            assert torch.equal(draw(Keyed(seed, [keys[i] for i in part])), whole[part])


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_threads_do_not_change_the_bits(draw):
    keys, threads = list(range(5)), torch.get_num_threads()
    two = draw(Keyed(0, keys))
    try:
        torch.set_num_threads(1)
        assert torch.equal(draw(Keyed(0, keys)), two)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("count", [4, SMALL, SMALL + 1, 5000])
def test_seed_key_draw_and_fork_each_give_other_numbers(count):
    def numbers(rng: Keyed) -> tuple[float, ...]:
        return tuple(rng.uniform(shape=(count,))[0].tolist())

    later = Keyed(0, [1])
    later.uniform(shape=(count,))
    rngs = [Keyed(0, [1]), Keyed(1, [1]), Keyed(0, [2]), Keyed(0, [1 + 2**40]), Keyed(0, [1]).fork("x"), later]
    assert len({numbers(rng) for rng in rngs}) == len(rngs)


def samples(draw):
    return np.concatenate([draw(Keyed(seed, torch.arange(64))).flatten().numpy() for seed in range(2)])


@pytest.mark.parametrize("shape", [(8,), (40, 40)], ids=["small", "field"])
def test_distributions(shape):
    uniform = samples(lambda rng: rng.uniform(-1.0, 3.0, shape))
    assert stats.kstest(uniform, stats.uniform(-1, 4).cdf).pvalue > 1e-3
    assert uniform.min() >= -1
    assert uniform.max() < 3
    normal = samples(lambda rng: rng.normal(2.0, 0.5, shape))
    assert stats.kstest(normal, stats.norm(2, 0.5).cdf).pvalue > 1e-3
    whole = samples(lambda rng: rng.integers(-3, 4, shape))
    assert stats.chisquare(np.bincount(whole + 3, minlength=7)).pvalue > 1e-3


def test_numbers_of_one_image_and_of_neighbouring_keys_are_uncorrelated():
    field = Keyed(0, torch.arange(200)).normal(shape=(1000,)).double()
    limit = 5 / np.sqrt(field.numel())
    assert abs((field[:, 1:] * field[:, :-1]).mean()) < limit
    assert abs((field[1:] * field[:-1]).mean()) < limit
    assert abs((field[:, :500] * field[:, 500:]).mean()) < limit * np.sqrt(2)


def test_permutations_are_uniform():
    orders = Keyed(3, torch.arange(6000)).permutation(3)
    assert torch.equal(orders.sort(dim=1).values, torch.arange(3).expand(6000, 3))
    counts = np.bincount((orders * torch.tensor([9, 3, 1])).sum(1).numpy())
    assert stats.chisquare(counts[counts > 0]).pvalue > 1e-3
    assert (counts > 0).sum() == 6


@pytest.mark.parametrize("rate", [0.0, 0.3, 4.5, 60.0, 500.0])
def test_poisson_on_the_cpu_and_by_quantile(rate):
    rates = torch.full((50, 400), rate)
    rng = Keyed(0, torch.arange(50))
    for drawn in (rng.poisson(rates), poisson_quantile(rates, rng.uniform(shape=(400,)))):
        counts = drawn.flatten().double().numpy()
        if rate == 0:
            assert not counts.any()
            continue
        edges = np.unique(stats.poisson(rate).ppf(np.linspace(0.05, 0.95, 10)))
        expected = np.diff(np.concatenate([[0], stats.poisson(rate).cdf(edges), [1]])) * counts.size
        observed = np.diff(np.concatenate([[0], [(counts <= edge).sum() for edge in edges], [counts.size]]))
        assert stats.chisquare(observed, expected).pvalue > 1e-3


@given(st.floats(0, 200), st.floats(0, 1 - 2**-24))
@settings(deadline=None)
def test_poisson_quantile_is_the_inverse_of_scipys_distribution_function(rate, probability):
    k = poisson_quantile(torch.tensor([rate], dtype=torch.float64), torch.tensor([probability], dtype=torch.float64))
    count, slack = int(k), 1e-9
    assert stats.poisson.cdf(count, rate) > probability - slack
    assert count == 0 or stats.poisson.cdf(count - 1, rate) <= probability + slack


def test_philox_matches_the_published_test_vectors():
    # Salmon et al. 2011, known-answer tests of Philox-4x32-10: counter and key all zeros, then all ones bits.
    zeros = philox_unit(0, torch.tensor([0]), 0, 4)[0]
    expected = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert zeros.tolist() == [(word >> 8) / 2**24 for word in expected]


def test_key_of_is_stable_and_fits_a_signed_integer():
    assert key_of("cat/1.png") == key_of("cat/1.png") != key_of("cat/2.png")
    assert 0 <= key_of("cat/1.png") < 2**63


def test_wrong_arguments_are_refused():
    rng = Keyed(0, [1, 2])
    with pytest.raises(ValueError, match="low < high"):
        rng.integers(3, 3)
    with pytest.raises(ValueError, match="2 images, 3 rows"):
        rng.poisson(torch.ones(3, 4))


def with_two_threads(call):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        return call(), torch.get_num_threads()
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("cost", [1, 10**9], ids=["small", "large"])
def test_work_over_threads_is_done_once_each_and_leaves_the_setting_of_torch_alone(cost):
    done: list[int] = []
    _, after = with_two_threads(lambda: over_threads(done.append, 9, cost=cost))
    assert sorted(done) == list(range(9))
    assert after == 2


def test_work_over_threads_raises_what_the_work_raises():
    def work(number):
        if number == 3:
            raise KeyError("three")

    with pytest.raises(KeyError, match="three"):
        with_two_threads(lambda: over_threads(work, 5, cost=10**9))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_has_threads_of_its_own():
    with_two_threads(lambda: over_threads(lambda number: None, 4, cost=10**9))
    child = os.fork()
    if child == 0:
        torch.set_num_threads(2)
        over_threads(lambda number: None, 4, cost=10**9)
        os._exit(7)
    for _ in range(6000):  # five minutes, which is forever: it ends at once, or never
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process waited for its parent's threads")
    assert os.waitstatus_to_exitcode(status) == 7


ON_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@ON_CUDA
@pytest.mark.parametrize("count", [1, 1001, 3072, 150528])
@pytest.mark.parametrize("draw", [1, 3])
def test_the_kernels_give_the_numbers_of_the_tensor_arithmetic(count, draw):
    pytest.importorskip("triton")
    from shiftproof import keyed_triton

    stream, keys = 2**63 + 12345, torch.tensor([1, 2, 2**62 + 5], device="cuda")
    assert torch.equal(keyed_triton.philox_unit(stream, keys, draw, count), philox_unit(stream, keys, draw, count))
    half = 4 * -(-count // 8)
    unit = philox_unit(stream, keys, draw, 2 * half).double()
    length, angle = (-2 * (1 - unit[:, :half]).log()).sqrt(), 2 * torch.pi * unit[:, half:]
    expected = torch.cat([length * angle.cos(), length * angle.sin()], dim=1)[:, :count] * 2 + 1
    drawn = keyed_triton.normal(stream, keys, draw, count, 1.0, 2.0)
    assert torch.allclose(drawn.double(), expected, atol=1e-5)


@ON_CUDA
@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS.keys())
def test_a_row_depends_on_seed_and_key_alone_on_cuda(draw):
    keys = torch.arange(64, device="cuda") * 7919
    whole = draw(Keyed(5, keys))
    order = torch.randperm(64, generator=torch.Generator().manual_seed(0)).cuda()
    for size in (1, 7):
        for part in order.split(size):
            assert torch.equal(draw(Keyed(5, keys[part])), whole[part])
