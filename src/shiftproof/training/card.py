"""The model card of a trained folder: what it is, how it came about, and whose terms it stands under."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from shiftproof.runs import Json, Row

CARD = "README.md"
_SHARES = ("accuracy", "noisy_accuracy", "clean_accuracy")
_LOGGING = ("log_every", "checkpoint_every")


def card(facts: Mapping[str, Json], classes: Sequence[str], last: Row, settings: Mapping[str, str]) -> str:
    """Return the card as Markdown: of the facts of model.json, the classes, a line of the log, and the settings."""
    sigma = float(str(facts["sigma"]))
    rows = {
        "network": facts["model"] or "a module given from Python",
        "recipe": f"{facts['recipe']}, sigma {sigma:g}" if sigma else facts["recipe"],
        "trained on": facts["data"],
        "classes": ", ".join(classes),
        "steps": f"{last['step']:,} ({last['epoch']:g} epochs)",
        **{
            f"{name.replace('_', ' ')} on the validation set": f"{100 * float(str(last[name])):.1f}%"
            for name in _SHARES
            if name in last
        },
        "made by": f"shiftproof {facts['version']}",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items()]
    options = ", ".join(f"{name} {value}" for name, value in settings.items() if value and name not in _LOGGING)
    return f"""# A network trained by shiftproof

| | |
|---|---|
{chr(10).join(lines)}

Settings: {options}.

Load it with `shiftproof.load_model("this folder")` or `--model this-folder`. Images are float32 in [0, 1], and
normalisation is inside the network. Accuracy on other data was not measured here: `shiftproof audit --model this-folder
--data your-images` does.

## Licence

Shiftproof sets no terms for these weights. Those of the network they began with, of the images they were trained on,
and of the files in `source/` apply, and are not recorded here.
"""
