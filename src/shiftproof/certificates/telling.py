"""What a certification or a spectrum says in words and rows, for terminals."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shiftproof.certificates.certification import Certification
from shiftproof.certificates.frequencies import BANDS
from shiftproof.certificates.radius import round_down
from shiftproof.certificates.spectral_analysis import Spectrum
from shiftproof.measures.intervals import TOO_FEW

COLUMNS = 5
"""Distances in a table, from 0 on."""


def verdict(found: Certification) -> str:
    """Say in a sentence or two what was found."""
    row, terms, acr = found.to_row(), found.terms, found.acr
    asked = terms.rule.get("asked")
    reach = f"{acr.interval.low:.4f} to {acr.interval.high:.4f}" if acr.interval else TOO_FEW
    average = f"Average certified radius {acr.value:.4f} ({reach})."
    if asked is not None:
        average += f" The rule asked only whether a radius is at least {asked:g}: the average is that times the share."
    drawn = found.samples / len(found.certificates)
    where = "clean images" if terms.shift == "clean" else f"images under {terms.shift}"
    return (
        f"{len(found.certificates):,} {where}, the model smoothed with noise {terms.sigma:g} and a vote: "
        f"{found.accuracy().value:.1%} {'are right and' if found.labels is not None else 'are'} certified at some "
        f"distance, {row['abstained']} abstained, {row['skipped']} guessed wrong. {average} {drawn:,.0f} samples per "
        f"image ({terms.rule['rule']}). Without noise and a vote the model has no such guarantee."
    )


def certified_table(found: Sequence[Certification]) -> str:
    """Return certified accuracies by distance, one row per certification, as text; distances are rounded down."""
    asked = found[0].terms.rule.get("asked")
    reach = max(float(each.radii.max()) for each in found)
    wanted = np.linspace(0, reach, COLUMNS) if asked is None else [float(asked)]
    distances = sorted({round_down(distance, _decimals(distance)) for distance in wanted})
    width = max(len(each.terms.shift) for each in found)
    head = f"{'L2 distance':<{max(width, 11)}}  {'ACR':>7}  " + "  ".join(f"{distance:>7g}" for distance in distances)
    lines = [
        f"{each.terms.shift:<{max(width, 11)}}  {each.acr.value:7.4f}  "
        + "  ".join(f"{each.accuracy(distance).value:7.1%}" for distance in distances)
        for each in found
    ]
    return "\n".join([head, *lines])


def _decimals(distance: float) -> int:
    """Return the decimals that leave a distance two digits."""
    return 1 - math.floor(math.log10(distance)) if distance else 0


def spectrum_table(found: Spectrum) -> str:
    """Return the values by band of frequencies, and where corruptions act, as text."""
    shown = ".1%" if found.measure == "accuracy" else ".4f"
    what = "accuracy" if found.measure == "accuracy" else "average certified radius"
    (i, j), worst = found.worst()
    lines = [
        f"{what} {found.clean:{shown}} on clean images; {worst:{shown}} under the worst wave, {i} cycles down and {j} "
        "across",
        "",
        f"{what + ' under':<28}" + "".join(f"{name:>9}" for name in BANDS),
    ]
    rows = {"a wave": found.bands()}
    rows |= {f"noise, alpha {alpha:g}": bands for alpha, bands in found.set_bands().items()}
    lines += [
        f"  {name:<26}" + "".join(f"{bands[part]:>9{shown}}" if part in bands else " " * 9 for part in BANDS)
        for name, bands in rows.items()
    ]
    lines += ["", f"{'share of the change by':<28}" + "".join(f"{name:>9}" for name in BANDS)]
    lines += [
        f"  {name:<26}" + "".join(f"{shares[part]:>9.0%}" for part in BANDS)
        for name, shares in found.shares().items()
        if name != "clean"
    ]
    return "\n".join(lines)
