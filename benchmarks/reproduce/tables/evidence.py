"""What our figures say of the papers' claims: pairs of numbers, and the causes of differences that were tested."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any, NamedTuple

from benchmarks.reproduce.tables.estimation import first_zero, sphere_curves, texts
from benchmarks.reproduce.tables.files import Files, figures
from benchmarks.reproduce.tables.streams import CELLS
from benchmarks.reproduce.worst_case_table import SIZES as SEARCHED
from shiftproof.measures.intervals import proportion_intervals


class Pair(NamedTuple):
    """Two numbers whose difference is the effect that a claim is about, and the interval of the second, if any."""

    before: float
    after: float
    interval: tuple[float, float] | None = None

    @property
    def effect(self) -> float:
        """The difference."""
        return self.after - self.before


def adapted(way: str) -> Callable[[Files], Pair]:
    """Return ResNet-50's errors without and with adaptation, %."""

    def ours(files: Files) -> Pair:
        found = figures(files, "statistics-imagenet-resnet50")["adaptation"]
        low, high = found[way]["interval"]
        return Pair(100 * found["without"]["error"], 100 * found[way]["error"], (100 * low, 100 * high))

    return ours


def _cells(files: Files, part: str, method: str) -> list[float]:
    found = figures(files, "streams-cells")[part]
    return [100 * found[stream]["methods"][method]["accuracy"] for stream in CELLS]


def along_cells(before: str, after: str, part: str = "demo") -> Callable[[Files], Pair]:
    """Return the mean over the nine cells of CCC, with the interval of the paired difference."""

    def ours(files: Files) -> Pair:
        one, other = (_cells(files, part, method) for method in (before, after))
        low, high = student([after - before for before, after in zip(one, other, strict=True)])
        return Pair(mean(one), mean(other), (mean(one) + low, mean(one) + high))

    return ours


def student(values: Sequence[float]) -> tuple[float, float]:
    """Return Student's interval of a mean."""
    from scipy.stats import t

    count = len(values)
    spread = math.sqrt(sum((value - mean(values)) ** 2 for value in values) / (count - 1) / count)
    reach = float(t.ppf(0.975, count - 1)) * spread
    return mean(values) - reach, mean(values) + reach


def _collapsed(files: Files, part: str, method: str) -> str:
    found = figures(files, "streams-cells")[part]
    fell = sum(found[stream]["methods"][method]["collapsed at"] is not None for stream in CELLS)
    return f"{fell} of {len(CELLS)} cells"


def along_a_million(before: str, after: str) -> Callable[[Files], Pair]:
    """Return accuracies along the million images of CCC-Medium, %; one run, of methods at the public rates."""

    def ours(files: Files) -> Pair:
        found = {row["method"]: 100 * row["accuracy"] for row in figures(files, "streams-ccc")["1"]}
        return Pair(found[before], found[after])

    return ours


def faster(files: Files) -> str:
    """Return who collapses at faster rates."""
    usual, tenfold = (_collapsed(files, part, "eata") for part in ("demo", "demo x10"))
    return (
        f"learning rate: EATA (ETA with an anti-forgetting penalty) collapses in {usual} at the published rates and in "
        f"{tenfold} at ten times those rates; number of classes and stream length not tested"
    )


def nothing_to_recover(files: Files) -> str:
    """Return what a reset is worth where it is needed."""
    pair = along_cells("eata", "rdumb", "demo x10")(files)
    low, high = (edge - pair.before for edge in pair.interval or (0.0, 0.0))
    usual, tenfold = (_collapsed(files, part, "eata") for part in ("demo", "demo x10"))
    return (
        f"no collapse to recover from: EATA collapses in {usual}; at ten times the rates, where it collapses in "
        f"{tenfold}, RDumb is ahead by {pair.effect:.1f} points ({low:.1f} to {high:.1f})"
    )


def _equal(files: Files, recipe: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = figures(files, "certificates-equal-n")["equal"]["recipes"][recipe][name]
    return found


def consistency(files: Files) -> Pair:
    """Return clean radii of plain noise, without and with consistency."""
    before, after = (_equal(files, recipe, "clean") for recipe in ("gaussian", "gaussian+jsd"))
    return Pair(before["acr"], after["acr"], tuple(after["interval"]))


def fouriermix(files: Files) -> Pair:
    """Return radii under corruptions, with the interval of the paired difference."""
    before, after = (_equal(files, recipe, "common")["acr"] for recipe in ("gaussian+jsd", "fouriermix+hcr"))
    low, high = figures(files, "certificates-equal-n")["differences"]["common"]["interval"]
    return Pair(before, after, (before + low, before + high))


def more_samples(files: Files) -> str:
    """Say what more samples could change, and whether the difference lies in fewer images or in smaller radii."""
    found = figures(files, "certificates-equal-n")
    parts = found["differences"]["common"]
    before, after = parts["at the largest"]
    room = (found["clean"]["largest"] - found["equal"]["largest"]) * (after - before)
    return (
        f"not n: {100 * after:.0f}% of HCR's radii and {100 * before:.0f}% of JSD's are at the largest value n allows, "
        f"so ten times the samples would change the difference by about {room:+.3f}; not coverage: the share of "
        f"certified images contributes {parts['by more images']:+.3f}"
    )


def under_evolution(task: str, before: str, after: str) -> Callable[[Files], Pair]:
    """Return accuracies of two recipes under the worst tuple that evolution found for each."""
    images = SEARCHED["short"].get(task, {}).get("images", 30)

    def ours(files: Files) -> Pair:
        one, other = (_worst(files, task, recipe) for recipe in (before, after))
        return Pair(one, other, None if task == "camvid" else _share(other, images))

    return ours


def _share(value: float, images: int) -> tuple[float, float]:
    """Return the interval of a share of images."""
    low, high = proportion_intervals([round(value * images)], [images])[0]
    return float(low), float(high)


def _worst(files: Files, task: str, recipe: str) -> float:
    return float(figures(files, f"worst-case-{task}-{recipe}")["ES"]["worst"])


def chains_a_batch(files: Files) -> str:
    """Return what several chains a batch, and statistics of test batches, change."""
    mixed, found = _worst(files, "cifar", "esda-mixed"), figures(files, "worst-case-cifar-rda")["ES"]
    return (
        f"batch normalisation removes a chain shared by a whole batch: with eight chains per batch ESDA reaches "
        f"{mixed:.3f}, and RDA's network goes from {found['worst']:.3f} to {found['adapted']:.3f} with test-batch "
        "statistics"
    )


def tau(part: str, before: str, after: str) -> Callable[[Files], Pair]:
    """Return macro taus of two measures, with the interval over groups of networks."""

    def ours(files: Files) -> Pair:
        one, other = (figures(files, f"estimation-{part}")["scores"][name]["macro_tau"] for name in (before, after))
        reach = 1.96 * other["std"] / math.sqrt(other["groups"])
        return Pair(one["mean"], other["mean"], (other["mean"] - reach, other["mean"] + reach))

    return ours


def text_tau(architecture: str, before: str, after: str) -> Callable[[Files], Pair]:
    """Return macro taus of two measures on other categories, with the interval of the paired difference."""

    def ours(files: Files) -> Pair:
        found = texts(files, architecture)["intervals"]["all texts"]
        base, other = found[before]["mean"], found[after]
        return Pair(base, other["mean"], (base + other["ahead low"], base + other["ahead high"]))

    return ours


def _ahead(found: dict[str, Any], measure: str = "NI-SSMBA") -> str:
    one = found[measure]
    return f"{one['ahead']:+.3f} ({one['ahead low']:.3f} to {one['ahead high']:.3f})"


def pool_of_cnns(files: Files) -> str:
    """Say how little the CNNs tell, and what label noise and the share of texts change among heads."""
    cnns, heads = (texts(files, architecture) for architecture in ("cnn", "head"))
    pools, before, after = heads["intervals"], "all texts", "no label noise"
    spread = [heads["pools"][pool]["spread"] for pool in (before, after)]
    tau = [pools[pool]["NI-SSMBA"]["mean"] for pool in (before, after)]
    return (
        f"too few networks to tell: with {cnns['kept']} the lead is {_ahead(cnns['intervals'][before])}; tau is low "
        f"where networks differ little: the CNNs do by {cnns['accuracies']['spread']:.1f} points, and among heads, "
        f"without those with label noise, the deviation falls from {spread[0]:.1f} to {spread[1]:.1f} points "
        f"and NI-SSMBA's tau from {tau[0]:.2f} to {tau[1]:.2f}; the share of texts, varied among heads, changes "
        f"little: the lead is {_ahead(pools[before])} without and {_ahead(pools['fewer texts too'])} with heads that "
        "see fewer; number of classes not tested"
    )


def pool_of_heads(files: Files) -> str:
    """Say what label noise and the share of texts change in how far invariance is ahead of ATC."""
    pools = texts(files, "head")["intervals"]
    return (
        f"NI-SSMBA is ahead by {_ahead(pools['no label noise'])} among heads without label noise, by "
        f"{_ahead(pools['fewer texts too'])} with heads that see fewer texts; fine-tuning not tested"
    )


def sphere(files: Files) -> Pair:
    """Return where tau comes down to 0, in pi."""
    zero = first_zero(next(iter(sphere_curves(files).values())))
    return Pair(0.0, zero or 0.0)


def faces(files: Files) -> Pair:
    """Return the faces found under the worst tuples of random search and of evolution."""
    found = figures(files, "worst-case-faces")
    after = found["ES N=5"]["worst"]
    return Pair(found["RS N=5"]["worst"], after, _share(after, SEARCHED["short"]["faces"]["images"]))
