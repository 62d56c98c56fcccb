"""The papers' headline claims beside our figures, and for those that differ, the causes that were tested.

The verdict follows from the figures: the effect has the paper's sign and at least half its size (yes), at least a fifth
(in part), or less (no). Claims that are not fully reproduced name the causes that an experiment tested, or say that
none was, and the experiment that would settle them with its cost.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.reproduce import papers
from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.tables.evidence import (
    Pair,
    adapted,
    along_a_million,
    along_cells,
    chains_a_batch,
    consistency,
    faces,
    faster,
    fouriermix,
    nothing_to_recover,
    pool_of_cnns,
    pool_of_heads,
    sphere,
    tau,
    text_tau,
    under_evolution,
)
from benchmarks.reproduce.tables.files import Files
from benchmarks.reproduce.tables.plans import PLANS, table
from benchmarks.reproduce.tables.tested import chains_of_segmenters, length_of_training, samples_and_training

NOT_TESTED = "cause not tested"


class Claim(NamedTuple):
    """A claim: where it stands, in words, the paper's pair, ours from the figures, and digits.

    `cause` says what was tested if ours differs; `settles` names the experiment in `PLANS` that would settle it.
    """

    where: str
    says: str
    paper: Pair
    ours: Callable[[Files], Pair]
    digits: int
    cause: Callable[[Files], str] = lambda _: NOT_TESTED
    settles: str = ""


def verdict(paper: Pair, ours: Pair) -> str:
    """Return whether ours shows the paper's effect.

    >>> [verdict(Pair(60.8, 49.3), Pair(61.4, after)) for after in (49.4, 57.3, 61.0)]
    ['yes', 'in part', 'no']
    """
    share = ours.effect / paper.effect
    return "yes" if share >= 0.5 else "in part" if share >= 0.2 else "no"


def claims(files: Files) -> str:
    """Return the table that opens the page, below a line that counts its verdicts."""
    rows = []
    for claim in CLAIMS:
        ours = claim.ours(files)
        told = [_told(pair, claim.digits) for pair in (claim.paper, ours)]
        rows.append([_link(claim), verdict(claim.paper, ours), claim.says, *told])
    head = ["paper", "reproduced", "claim", "paper's figures", "ours, 95% interval"]
    said = [row[1] for row in rows]
    counted = f"Of {len(rows)} claims, {said.count('yes')} are reproduced, {said.count('in part')} in part, and "
    return f"{counted}{said.count('no')} are not.\n\n{markdown(head, rows, words=head)}"


def causes(files: Files) -> str:
    """Return what was tested of the claims that are not fully reproduced, and what would settle them."""
    rows = [
        [_link(claim), claim.says, claim.cause(files), PLANS[claim.settles].told(files)] for claim in _unsettled(files)
    ]
    head = ["paper", "claim", "tested cause", "experiment that would settle it, cost"]
    return markdown(head, rows, words=head)


def not_run(files: Files) -> str:
    """Return the experiments that were not run, but for those that the table of causes names."""
    named = {claim.settles for claim in _unsettled(files)}
    return table(files, [plan for name, plan in PLANS.items() if name not in named])


def _unsettled(files: Files) -> list[Claim]:
    return [claim for claim in CLAIMS if verdict(claim.paper, claim.ours(files)) != "yes"]


def _link(claim: Claim) -> str:
    return f"[{claim.where}]({SECTIONS[claim.where]})"


def _told(pair: Pair, digits: int) -> str:
    """Return both numbers, or the second alone where the effect is a number by itself, and the second's interval."""
    numbers = [pair.after] if not pair.before else [pair.before, pair.after]
    reach = "" if pair.interval is None else f" ({pair.interval[0]:.{digits}f} to {pair.interval[1]:.{digits}f})"
    return "\u00a0→\u00a0".join(f"{value:.{digits}f}" for value in numbers) + reach


SECTIONS = {
    "Schneider": "#adapting-batch-statistics-schneider-et-al-2020",
    "Press": "#streams-press-et-al-2023",
    "Sun": "#certified-radii-under-corruptions-sun-et-al-2022",
    "Volpi": "#the-worst-case-volpi-murino-2019",
    "Ng": "#estimates-without-labels-ng-et-al-2023",
}
"""First author -> the section of the page."""


def _in_paper(before: str, after: str) -> Pair:
    return Pair(papers.CCC_MEDIUM[before], papers.CCC_MEDIUM[after])


CLAIMS = (
    Claim(
        "Schneider",
        "Full adaptation of batch statistics lowers ResNet-50's error on ImageNet-C, %",
        Pair(float(papers.ADAPTATION[0]), float(papers.ADAPTATION[2])),
        adapted("full"),
        1,
        settles="imagenet",
    ),
    Claim(
        "Schneider",
        "Partial adaptation with batches of 8 lowers ResNet-50's error on ImageNet-C, %",
        Pair(float(papers.ADAPTATION[0]), float(papers.ADAPTATION[1])),
        adapted("partial"),
        1,
        settles="imagenet",
    ),
    Claim(
        "Sun",
        "JSD consistency raises the clean average certified radius (ACR) over plain noise training",
        Pair(papers.CERTIFICATES["gaussian"][0], papers.CERTIFICATES["gaussian+jsd"][0]),
        consistency,
        3,
        settles="networks",
    ),
    Claim(
        "Sun",
        "FourierMix + HCR exceeds noise + JSD in mean ACR on CIFAR-10-C",
        Pair(papers.CERTIFICATES["gaussian+jsd"][1], papers.CERTIFICATES["fouriermix+hcr"][1]),
        fouriermix,
        3,
        samples_and_training,
        "networks",
    ),
    Claim(
        "Press",
        "Tent falls below the source model on CCC-Medium, accuracy, % (ours: one run of 1,000,000 images)",
        _in_paper("source", "tent"),
        along_a_million("source", "tent"),
        1,
        settles="cells",
    ),
    Claim(
        "Press",
        "ETA falls below the source model on CCC-Medium, accuracy, % (ours: mean of nine CCC cells of 100,000 images)",
        _in_paper("source", "eta"),
        along_cells("source", "eta"),
        1,
        faster,
        "steps",
    ),
    Claim(
        "Press",
        "RDumb exceeds EATA, accuracy, % (ours: the same nine cells)",
        _in_paper("eata", "rdumb"),
        along_cells("eata", "rdumb"),
        1,
        nothing_to_recover,
        "steps",
    ),
    Claim(
        "Ng",
        "CIFAR-10: NI-RandAug ranks networks better than ATC-MC, macro tau",
        Pair(papers.CI10["ATC-MC"][2] or 0, papers.CI10["NI-RandAug"][2] or 0),
        tau("cifar", "ATC-MC", "NI-RandAug"),
        3,
        length_of_training,
        "pool",
    ),
    Claim(
        "Ng",
        "texts: NI-SSMBA ranks CNNs better than ATC-MC, macro tau (ours: two classes)",
        Pair(papers.SENTIMENT["ATC-MC"][2], papers.SENTIMENT["NI-SSMBA"][2]),
        text_tau("cnn", "ATC-MC", "NI-SSMBA"),
        3,
        pool_of_cnns,
        "texts",
    ),
    Claim(
        "Ng",
        "texts: NI-SSMBA ranks networks with a pretrained encoder better than ATC-MC, macro tau (paper: RoBERTa; "
        "ours: heads on a frozen MiniLM)",
        Pair(papers.ENCODED_SENTIMENT["ATC-MC"][2], papers.ENCODED_SENTIMENT["NI-SSMBA"][2]),
        text_tau("head", "ATC-MC", "NI-SSMBA"),
        3,
        pool_of_heads,
        "encoder",
    ),
    Claim(
        "Ng",
        "sphere: the rank correlation crosses 0 near a quarter of pi, distance in pi",
        Pair(0.0, papers.SPHERE_ZERO),
        sphere,
        2,
        settles="pool",
    ),
    Claim(
        "Volpi",
        "MNIST: training on searched chains (ESDA instead of ERM) preserves accuracy under the worst chain",
        Pair(papers.MNIST["ES"]["erm"], papers.MNIST["ES"]["esda"]),
        under_evolution("mnist", "erm", "esda"),
        3,
        settles="runs",
    ),
    Claim(
        "Volpi",
        "CIFAR-10: ESDA instead of ERM, one chain per batch, preserves accuracy under the worst chain",
        Pair(papers.CIFAR["ES"]["erm"], papers.CIFAR["ES"]["esda"]),
        under_evolution("cifar", "erm", "esda"),
        3,
        chains_a_batch,
        "epochs",
    ),
    Claim(
        "Volpi",
        "CamVid: training on searched chains (ESDA) exceeds training on random ones (RDA), pixel accuracy",
        Pair(papers.CAMVID["ES"]["rda"], papers.CAMVID["ES"]["esda"]),
        under_evolution("camvid", "rda", "esda"),
        3,
        chains_of_segmenters,
        "camvid",
    ),
    Claim(
        "Volpi",
        "Face detector: evolution finds chains of five that hide more faces than random search, share found",
        Pair(papers.FACES["RS N=5"], papers.FACES["ES N=5"]),
        faces,
        3,
        settles="runs",
    ),
)
"""The headline claims of the five papers."""
