"""What a certification or a spectrum says in words and rows, for terminals."""

from __future__ import annotations

from collections.abc import Sequence

from shiftproof.certificates.certification import Certification
from shiftproof.certificates.certifying_maps import MapCertification
from shiftproof.certificates.frequencies import BANDS
from shiftproof.certificates.spectrum_result import Spectrum
from shiftproof.certificates.suite import CertifiedSuite, check_equal_terms
from shiftproof.measures.intervals import TOO_FEW

GROUPED = 12
"""Of more shifts than this, the groups are shown and not every one."""


def verdict(found: Certification) -> str:
    """Say in a few sentences what was found, of the smoothed model and of the model itself."""
    row, terms, acr = found.to_row(), found.terms, found.acr
    asked = terms.rule.get("asked")
    reach = f"{acr.interval.low:.4f} to {acr.interval.high:.4f}" if acr.interval else TOO_FEW
    what = "radius" if terms.against == "l2" else f"range of {terms.against}"
    average = f"Average certified {what} {acr.value:.4f} ({reach})."
    if asked is not None:
        average += f" The rule asked only whether a radius is at least {asked:g}: the average is that times the share."
    drawn = found.samples / len(found.certificates)
    where = "clean images" if terms.shift == "clean" else f"images under {terms.shift}"
    noise = f"noise {terms.sigma:g}" if terms.law.pixels else terms.law.noise.format(terms.sigma)
    known = found.labels is not None
    guessed = f", {row['skipped']} guessed wrong" if known else ""
    said = [
        f"{len(found.certificates):,} {where}, the model smoothed with {noise} and a vote: "
        f"{found.accuracy().value:.1%} {'are right and' if known else 'are'} certified at some "
        f"distance, {row['abstained']} abstained{guessed}.",
        "" if known else "They have no labels: what is certified counts whether it is right or wrong.",
        average,
        _accuracies(found),
        f"{drawn:,.0f} samples per image ({terms.rule['rule']}).",
        _price(found),
        _clipped(found),
        _joint(found),
        "Without noise and a vote the model has no such guarantee.",
    ]
    return " ".join(each for each in said if each)


def _accuracies(found: Certification) -> str:
    smoothed, plain, wrong = found.smoothed_accuracy, found.plain_accuracy, found.certified_wrong()
    if smoothed is None or plain is None:
        return ""
    said = (
        f"By a first vote, before it may abstain, the smoothed model is right on {smoothed.value:.1%} of them, the "
        f"model itself on {plain.value:.1%}."
    )
    return said if wrong is None else f"{said} Certified but wrong: {wrong.value:.1%}."


def _price(found: Certification) -> str:
    """Say what stopping early costs."""
    full = found.acr_by_fixed
    if full is None:
        return ""
    return f"At the same shares of hits, rule fixed with all {found.terms.rule['n']:,} samples would show {full:.4f}."


def _clipped(found: Certification) -> str:
    """Say how many certified ranges hold real images only, of transformations that may leave [0, 1]."""
    if all(each is None for each in found.room):
        return ""
    at = found.distances[1]
    return (
        f"The claim is about images that are not clipped: at {at:g}, {found.unclipped(at).value:.1%} are certified and "
        "have no value that leaves [0, 1]."
    )


def _joint(found: Certification) -> str:
    terms = found.terms
    if not terms.joint:
        return ""
    return (
        f"All {terms.joint:,} certificates hold together, but for a probability of "
        f"{float(terms.rule['alpha']) * terms.joint:g}."
    )


def certified_table(found: Sequence[Certification]) -> str:
    """Return certified accuracies by distance, one row per certification on equal terms, as text."""
    check_equal_terms(found)
    terms = found[0].terms
    asked = terms.rule.get("asked")
    distances = found[0].distances if asked is None else (float(asked),)
    title = {"l2": "L2 distance"}.get(terms.against, terms.against)
    width = max(len(title), *(len(each.terms.shift) for each in found))
    lines = [f"{title:<{width}}  {'ACR':>7}  " + "  ".join(f"{distance:>7g}" for distance in distances)]
    if terms.against == "l2":
        levels = "  ".join(f"{255 * found[0].linf(distance):>7.2f}" for distance in distances)
        lines.append(f"{'Linf, /255':<{width}}  {'':>7}  {levels}")
    lines += [
        f"{each.terms.shift:<{width}}  {each.acr.value:7.4f}  "
        + "  ".join(f"{each.accuracy(distance).value:7.1%}" for distance in distances)
        for each in found
    ]
    return "\n".join(lines)


def suite_table(found: CertifiedSuite) -> str:
    """Return the mean average certified radius over all shifts and over each group, as text, after single shifts."""
    rows = {"mACR": found.macr}
    rows |= {f"  {name}": each for name, each in found.group_means().items()}
    width = max(map(len, rows))
    lines = [
        f"{name:<{width}}  {each.value:.4f}"
        + (f"  ({each.interval.low:.4f} to {each.interval.high:.4f})" if each.interval else "")
        for name, each in rows.items()
    ]
    few = [each for each in found if len(found.parts) <= GROUPED or each is found.clean]
    return "\n\n".join([*([certified_table(few)] if few else []), "\n".join(lines)])


def spectrum_table(found: Spectrum) -> str:
    """Return the values by band of frequencies, and where corruptions act, as text."""
    shown = ".4f" if found.measure == "acr" else ".1%"
    what = {"acr": "average certified radius", "miou": "mIoU"}.get(found.measure, found.measure)
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


def certified_maps_table(found: MapCertification) -> str:
    """Return what is certified of the pixels of images, by condition, as text."""
    options, first = found.options, found.first
    lines = [
        f"{first.pixel_accuracy:.1%} of labelled pixels have a right class that no change of the image within an L2 "
        f"radius of {found.radius:.2f} can alter; {first.abstained:.1%} of pixels abstain",
        f"noise {options.sigma:g}, tau {options.tau:.3g}, {options.choosing} copies choose and {options.testing} test; "
        f"with probability {1 - options.alpha:g} every certified pixel of an image holds",
        "",
        f"{'':<24}{'images':>8}{'certified pixels':>18}{'certified mIoU':>16}{'abstain':>10}",
    ]
    lines += [
        f"{label:<24}{part.found.images:>8,}{part.pixel_accuracy:>18.1%}{part.miou:>16.1%}{part.abstained:>10.1%}"
        for label, part in found.parts.items()
    ]
    return "\n".join(lines)
