"""The papers' claims in one table: what each says, what we have, and whether that says the same.

Whether a claim is reproduced follows from the figures: the effect has the paper's sign and at least half its size
(yes), a fifth of it (in part), or less (no). Why it differs is written by hand and shown where it does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.tables.certificates import certified
from benchmarks.reproduce.tables.estimation import first_zero, sphere_curves
from benchmarks.reproduce.tables.files import Files, figures


class Pair(NamedTuple):
    """Two numbers whose difference is the effect that a claim is about."""

    before: float
    after: float

    @property
    def effect(self) -> float:
        """The difference."""
        return self.after - self.before


class Claim(NamedTuple):
    """A claim: where it stands, in words, the paper's pair, ours from the figures, digits, and why they may differ."""

    where: str
    says: str
    paper: Pair
    ours: Callable[[Files], Pair]
    digits: int
    why: str


def verdict(paper: Pair, ours: Pair) -> str:
    """Return whether ours shows the paper's effect.

    >>> [verdict(Pair(60.8, 49.3), Pair(61.4, after)) for after in (49.4, 57.3, 61.0)]
    ['yes', 'in part', 'no']
    """
    share = ours.effect / paper.effect
    return "yes" if share >= 0.5 else "in part" if share >= 0.2 else "no"


def claims(files: Files) -> str:
    """Return the table that opens the page."""
    rows = []
    for claim in CLAIMS:
        ours = claim.ours(files)
        said = verdict(claim.paper, ours)
        told = [_told(pair, claim.digits) for pair in (claim.paper, ours)]
        link, why = f"[{claim.where}]({SECTIONS[claim.where]})", "" if said == "yes" else claim.why
        rows.append([link, claim.says, *told, said, why])
    head = ["paper", "claim", "paper's figures", "ours", "reproduced", "why not, or not in full"]
    return markdown(head, rows, words=head)


def _told(pair: Pair, digits: int) -> str:
    """Return both numbers, or the second alone where the effect is a number by itself."""
    return "\u00a0→\u00a0".join(f"{value:.{digits}f}" for value in (pair if pair.before else pair[1:]))


SECTIONS = {
    "Schneider": "#adapting-batch-statistics-schneider-et-al-2020",
    "Press": "#streams-press-et-al-2023",
    "Sun": "#certified-radii-under-corruptions-sun-et-al-2022",
    "Volpi": "#the-worst-case-volpi-murino-2019",
    "Ng": "#estimates-without-labels-ng-et-al-2023",
}
"""First author -> the section of the page."""


def _adapted(way: str) -> Callable[[Files], Pair]:
    def ours(files: Files) -> Pair:
        found = figures(files, "statistics-imagenet-resnet50")["adaptation"]
        return Pair(100 * found["without"]["error"], 100 * found[way]["error"])

    return ours


def _along_ccc(before: str, after: str) -> Callable[[Files], Pair]:
    def ours(files: Files) -> Pair:
        found = {row["method"]: 100 * row["accuracy"] for row in figures(files, "streams-ccc")["1"]}
        return Pair(found[before], found[after])

    return ours


def _in_paper(before: str, after: str) -> Pair:
    return Pair(papers.CCC_MEDIUM[before], papers.CCC_MEDIUM[after])


def _radii(before: str, after: str, shifted: bool) -> Callable[[Files], Pair]:
    def radius(files: Files, recipe: str) -> float:
        found = certified(files, recipe)
        return float(found["common"]["macr"] if shifted else found["clean"]["acr"])

    return lambda files: Pair(radius(files, before), radius(files, after))


def _under_evolution(task: str, before: str, after: str) -> Callable[[Files], Pair]:
    def worst(files: Files, recipe: str) -> float:
        return float(figures(files, f"worst-case-{task}-{recipe}")["ES"]["worst"])

    return lambda files: Pair(worst(files, before), worst(files, after))


def _tau(part: str, before: str, after: str) -> Callable[[Files], Pair]:
    def ours(files: Files) -> Pair:
        found = figures(files, f"estimation-{part}")["scores"]
        return Pair(*(found[measure]["macro_tau"]["mean"] for measure in (before, after)))

    return ours


def _sphere(files: Files) -> Pair:
    zero = first_zero(next(iter(sphere_curves(files).values())))
    return Pair(0.0, zero or 0.0)


def _faces(files: Files) -> Pair:
    found = figures(files, "worst-case-faces")
    return Pair(found["RS N=5"]["worst"], found["ES N=5"]["worst"])


SHORT = "CIFAR-10 with ten classes for ImageNet, a million images for 7.5 million, slower learning rates"
CLAIMS = (
    Claim(
        "Schneider",
        "full adaptation of batch statistics lowers ResNet-50's error on ImageNet-C, %",
        Pair(float(papers.ADAPTATION[0]), float(papers.ADAPTATION[2])),
        _adapted("full"),
        1,
        "other weights, 1,000 images",
    ),
    Claim(
        "Schneider",
        "so does partial adaptation, with batches of 8",
        Pair(float(papers.ADAPTATION[0]), float(papers.ADAPTATION[1])),
        _adapted("partial"),
        1,
        "the prior is fixed at 16 and not chosen on hold-out corruptions; other weights; 500 images",
    ),
    Claim(
        "Press",
        "Tent falls below the unadapted model along CCC, accuracy, %",
        _in_paper("source", "tent"),
        _along_ccc("source", "tent"),
        1,
        SHORT,
    ),
    Claim("Press", "and so does ETA", _in_paper("source", "eta"), _along_ccc("source", "eta"), 1, SHORT),
    Claim("Press", "RDumb is ahead of EATA", _in_paper("eata", "rdumb"), _along_ccc("eata", "rdumb"), 1, SHORT),
    Claim(
        "Sun",
        "consistency (JSD) raises the clean average certified radius over plain noise",
        Pair(papers.CERTIFICATES["gaussian"][0], papers.CERTIFICATES["gaussian+jsd"][0]),
        _radii("gaussian", "gaussian+jsd", shifted=False),
        3,
        "",
    ),
    Claim(
        "Sun",
        "FourierMix with HCR is ahead of noise with JSD on CIFAR-10-C, mACR",
        Pair(papers.CERTIFICATES["gaussian+jsd"][1], papers.CERTIFICATES["fouriermix+hcr"][1]),
        _radii("gaussian+jsd", "fouriermix+hcr", shifted=True),
        3,
        "n = 1,000 caps radii at 0.60; ResNet-20 for 80 epochs; 200 images a corruption tell 0.02 apart",
    ),
    Claim(
        "Volpi",
        "MNIST: training on searched chains (ESDA) keeps the accuracy under the worst chain",
        Pair(papers.MNIST["ES"]["erm"], papers.MNIST["ES"]["esda"]),
        _under_evolution("mnist", "erm", "esda"),
        3,
        "",
    ),
    Claim(
        "Volpi",
        "CIFAR-10: the same, one chain a batch",
        Pair(papers.CIFAR["ES"]["erm"], papers.CIFAR["ES"]["esda"]),
        _under_evolution("cifar", "erm", "esda"),
        3,
        "batch normalisation takes the chain of a batch out; with several chains a batch it is robust here too",
    ),
    Claim(
        "Volpi",
        "CamVid: searched chains (ESDA) are better to train on than random ones (RDA)",
        Pair(papers.CAMVID["ES"]["rda"], papers.CAMVID["ES"]["esda"]),
        _under_evolution("camvid", "rda", "esda"),
        3,
        "a small segmenter, 60 epochs on 200 images",
    ),
    Claim(
        "Volpi",
        "evolution finds chains of five that hide more faces than random search does",
        Pair(papers.FACES["RS N=5"], papers.FACES["ES N=5"]),
        _faces,
        3,
        "",
    ),
    Claim(
        "Ng",
        "CIFAR-10: NI-RandAug ranks networks better than ATC-MC, macro tau",
        Pair(papers.CI10["ATC-MC"][2] or 0, papers.CI10["NI-RandAug"][2] or 0),
        _tau("cifar", "ATC-MC", "NI-RandAug"),
        3,
        "groups of four to seven networks with accuracies a few points apart",
    ),
    Claim(
        "Ng",
        "texts: NI-SSMBA ranks networks better than ATC-MC, macro tau",
        Pair(papers.SENTIMENT["ATC-MC"][2] or 0, papers.SENTIMENT["NI-SSMBA"][2] or 0),
        _tau("text", "ATC-MC", "NI-SSMBA"),
        3,
        "small CNNs near chance on other categories, 48 networks for 2,418",
    ),
    Claim(
        "Ng",
        "sphere: rankings turn around a quarter of pi, where tau is 0, in pi",
        Pair(0.0, papers.SPHERE_ZERO),
        _sphere,
        2,
        "",
    ),
)
"""The headline claims of the five papers."""
