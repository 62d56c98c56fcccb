"""Causes that experiments of their own tested: what was changed, and what became of the difference."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import mean
from typing import Any

from scipy.stats import t

from benchmarks.reproduce import papers
from benchmarks.reproduce.equal_n_table import COMPARED
from benchmarks.reproduce.estimation_causes import GROUP, RANKED, REFERENCE
from benchmarks.reproduce.markdown import markdown
from benchmarks.reproduce.segmentation_causes import SETTINGS
from benchmarks.reproduce.tables.certificates import COLUMNS
from benchmarks.reproduce.tables.evidence import Pair, fouriermix, more_samples, student
from benchmarks.reproduce.tables.files import Files, figures

ONE, EACH, OFTEN = SETTINGS
"""Settings of the segmenters: one chain per batch, one per image, and that with a search after every epoch."""


def _runs(files: Files, setting: str, recipe: str, value: str) -> list[float]:
    """Return a value of every run of small segmenters, by seed."""
    found = figures(files, "worst-case-camvid-causes")[f"{setting}, {recipe}"]
    return [float(found[seed][value]) for seed in sorted(found, key=int)]


def _random(setting: str) -> str:
    """Return the setting of the segmenters on random chains that a setting is compared with."""
    return EACH if setting == OFTEN else setting


def _lead(files: Files, setting: str) -> str:
    """Return how far esda is ahead of rda under evolution's chain, with Student's interval over seeds."""
    before, after = _runs(files, _random(setting), "rda", "worst"), _runs(files, setting, "esda", "worst")
    differences = [other - one for one, other in zip(before, after, strict=True)]
    low, high = student(differences)
    return f"{mean(differences):+.3f} ({low:.3f} to {high:.3f})"


def camvid_causes(files: Files) -> str:
    """Return what small segmenters do under their worst chains, by setting: means over seeds."""
    rows = []
    for setting in SETTINGS:
        cells = [
            f"{mean(_runs(files, which, recipe, value)):.3f}"
            for value in ("clean", "worst", "adapted")
            for recipe, which in (("rda", _random(setting)), ("esda", setting))
        ]
        found = figures(files, "worst-case-camvid-causes")[f"{setting}, esda"]
        chains = next(iter(found.values()))["chains"]
        rows.append([setting, f"{chains}", *cells, _lead(files, setting)])
    values = ("original", "ES", "ES, test-batch statistics")
    columns = [f"{value}: {recipe}" for value in values for recipe in ("rda", "esda")]
    return markdown(["setting", "chains of esda", *columns, "ES: esda ahead by"], rows)


def chains_of_segmenters(files: Files) -> str:
    """Say what chains per image, and more of them, change between random and searched chains on CamVid."""
    one, each, often = (mean(_runs(files, setting, "esda", "worst")) for setting in SETTINGS)
    random = [mean(_runs(files, setting, "rda", "worst")) for setting in (ONE, EACH)]
    adapted = mean(_runs(files, ONE, "esda", "adapted"))
    found = figures(files, "worst-case-camvid-causes")
    chains = [next(iter(found[f"{setting}, esda"].values()))["chains"] for setting in (EACH, OFTEN)]
    return (
        f"in small segmenters, three seeds: too few searched chains: with one chain per image, ESDA goes from "
        f"{each:.3f} with {chains[0]} chains, {_lead(files, EACH)} against RDA, to {often:.3f} with {chains[1]}, "
        f"{_lead(files, OFTEN)}; batch normalisation lowers both: from one chain per batch to one per image RDA rises "
        f"from {random[0]:.3f} to {random[1]:.3f} and ESDA from {one:.3f} to {each:.3f}, or to {adapted:.3f} with "
        "test-batch statistics; network and image size not tested"
    )


def _pools(files: Files) -> dict[str, dict[str, Any]]:
    """Return the pools of small CIFAR-10 networks by epochs, in words, few epochs first."""
    found = figures(files, "estimation-cifar-causes")
    return dict(sorted(found.items(), key=lambda item: _epochs(item[0])))


def _interval(found: Mapping[str, Any], name: str) -> str:
    return f"{found[name]:.3f} ({found[f'{name} low']:.3f} to {found[f'{name} high']:.3f})"


def strengths_of_shift(files: Files) -> str:
    """Return how well both measures rank small networks, by epochs and strength of shift."""
    rows = []
    for epochs, pool in _pools(files).items():
        for strength, found in pool["by strength"].items():
            ranked, reference = (found["tau"][name] for name in (RANKED, REFERENCE))
            told = [f"{found['accuracy']:.1f}", f"{found['spread']:.1f}"]
            taus = [_interval(ranked, "mean"), _interval(reference, "mean"), _interval(ranked, "ahead")]
            rows.append([f"{epochs}, {strength}", *told, *taus])
    return markdown(["tau", "accuracy, %", "deviation", RANKED, REFERENCE, f"{RANKED} ahead by"], rows)


def transformations(files: Files) -> str:
    """Return figure 5 of paper 004 as numbers: the entropy that a transformation adds, and tau of its invariance."""
    pool = list(_pools(files).values())[-1]["transformations"]
    rows = [
        [name, f"{found['entropy']:.3f}", _interval(found, "mean")]
        for name, found in sorted(pool.items(), key=lambda item: item[1]["entropy"])
    ]
    return markdown(["transformation", "entropy added, nats", "tau of invariance"], rows)


def length_of_training(files: Files) -> str:
    """Say what longer training, milder shifts and larger groups change in how far NI-RandAug is ahead of ATC-MC."""
    (few, short), (many, long) = _pools(files).items()
    one, other = (pool["by strength"]["all corruptions"]["tau"] for pool in (short, long))
    mild, strong = (long["by strength"][name]["tau"][RANKED] for name in ("severity 1", "severity 5"))
    group = long["small groups"][RANKED]
    return (
        f"networks not fitted, in a pool of {long['networks']} small networks: from {few} to {many}, which raises "
        f"training accuracy from {100 * short['training accuracy']:.0f} to {100 * long['training accuracy']:.0f}%, "
        f"NI-RandAug's tau rises from {_interval(one[RANKED], 'mean')} to {_interval(other[RANKED], 'mean')}, ATC-MC's "
        f"goes from {one[REFERENCE]['mean']:.3f} to {other[REFERENCE]['mean']:.3f}, and the lead rises from "
        f"{_interval(one[RANKED], 'ahead')} to {_interval(other[RANKED], 'ahead')}; not the strength of the shift: the "
        f"lead is {_interval(mild, 'ahead')} at severity 1 and {_interval(strong, 'ahead')} at 5; not the size of "
        f"groups: in groups of {GROUP} NI-RandAug's mean tau is {group['mean']:.3f}; networks fitted to 99% not tested"
    )


def _epochs(name: str) -> int:
    return int(name.split(maxsplit=1)[0])


def _lengths(found: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what small smoothed networks tell by epochs, in words, few epochs first."""
    names = sorted((name for name in found if name.endswith(" epochs")), key=_epochs)
    return {name: found[name]["by group"] for name in names}


def _signed(found: Mapping[str, Any]) -> str:
    return f"{found['mean']:+.3f} ({found['low']:+.3f} to {found['high']:+.3f})"


def certificates_causes(files: Files) -> str:
    """Return the radii of small smoothed networks by length of training, and how far FourierMix with HCR is ahead."""
    found = figures(files, "certificates-causes")
    lengths, changed = _lengths(found), found.get("change", {})
    head = ["ACR"]
    for epochs in lengths:
        head += [f"{epochs}: {recipe}" for recipe in COMPARED] + ["ahead by", "deviation"]
    head += ["change"] * bool(changed)
    rows = []
    for group, called in COLUMNS.items():
        cells = []
        for by_group in lengths.values():
            if group in by_group:
                acr, lead = by_group[group]["acr"], by_group[group]["lead"]
                cells += [*(f"{acr[recipe]:.3f}" for recipe in COMPARED), _signed(lead), f"{lead['deviation']:.3f}"]
        if cells:
            rows.append([called.removesuffix(" ACR"), *cells, *([_signed(changed[group])] if changed else [])])
    return markdown(head, rows)


def samples_and_training(files: Files) -> str:
    """Say what n, coverage, the length of training and its seed change in how far FourierMix with HCR is ahead."""
    return f"{more_samples(files)}; {length_and_seed(files)}"


def length_and_seed(files: Files) -> str:
    """Say what smaller trainings tell of the lead of FourierMix with HCR: by length, and by seed."""
    found = figures(files, "certificates-causes")
    lengths = _lengths(found)
    if not lengths:
        return "network and training not tested"
    few, many = min(lengths, key=_epochs), max(lengths, key=_epochs)
    before, lead = (lengths[epochs]["common"]["lead"] for epochs in (few, many))
    seeds, base = len(lead["by seed"]), lengths[many]["common"]["acr"][COMPARED[0]]
    if "change" in found:
        change = found["change"]["common"]
        told = (
            f"in smaller trainings with {seeds} seeds {_course(change)}: from {few} to {many} it goes from "
            f"{_signed(before)} to {_signed(lead)}, by {_signed(change)}"
        )
    else:
        told = f"in smaller trainings with {seeds} seeds for {many} the lead is {_signed(lead)}; length not tested"
    share, missing = lead["deviation"] / base, _missing(files)
    return (
        f"{told}; {_one_training(share, missing, seeds)}: as a share of JSD's mean ACR, the lead has a standard "
        f"deviation of {100 * share:.1f} points over these seeds, and the paper's is {100 * missing:.1f} points above "
        "ours; network not tested"
    )


def _course(change: Mapping[str, float]) -> str:
    """Say whether the lead rises or falls, by the interval of its change."""
    if change["low"] > 0:
        return "the lead rises with longer training"
    if change["high"] < 0:
        return "the lead falls with longer training"
    return "it cannot be told whether the lead changes with longer training"


def _missing(files: Files) -> float:
    """Return how far the paper's lead is above ours, each as a share of the mean ACR of noise with JSD."""
    theirs = Pair(papers.CERTIFICATES[COMPARED[0]][1], papers.CERTIFICATES[COMPARED[1]][1])
    ours = fouriermix(files)
    return theirs.effect / theirs.before - ours.effect / ours.before


def _one_training(deviation: float, missing: float, seeds: int) -> str:
    """Say whether the luck of one training may hide a lead, by the deviation over few seeds.

    It may where the lead is within the middle 95% even if the deviation were known, and may not where it is outside
    Student's range, which allows for its being of few seeds.

    >>> [_one_training(deviation, 0.05, 3) for deviation in (0.001, 0.015, 0.03)]
    ['not one training each', 'whether one training each hides it cannot be told', 'one training each can hide it']
    """
    known, unknown = (float(t.ppf(0.975, free)) * deviation for free in (float("inf"), seeds - 1))
    if missing <= known:
        return "one training each can hide it"
    return "not one training each" if missing > unknown else "whether one training each hides it cannot be told"
