"""A report as an audit makes it, in small: every kind of block, with plausible numbers and drawn pictures."""

from __future__ import annotations

import base64
import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from shiftproof.reports.view import Action, Column, Figure, Gallery, Masthead, Picture, Sentence, Table, Tile, View

CORRUPTIONS = {
    "gaussian_noise": ("noise", 0.49),
    "shot_noise": ("noise", 0.41),
    "impulse_noise": ("noise", 0.52),
    "defocus_blur": ("blur", 0.22),
    "glass_blur": ("blur", 0.45),
    "motion_blur": ("blur", 0.28),
    "zoom_blur": ("blur", 0.26),
    "snow": ("weather", 0.23),
    "frost": ("weather", 0.30),
    "fog": ("weather", 0.24),
    "brightness": ("weather", 0.08),
    "contrast": ("digital", 0.675),
    "elastic_transform": ("digital", 0.21),
    "pixelate": ("digital", 0.36),
    "jpeg_compression": ("digital", 0.27),
}
"""Name -> category and the accuracy lost at severity 5."""

CLEAN = 0.9153


def masthead() -> Masthead:
    return Masthead(
        model="ResNet-20 (demo)",
        data="CIFAR-10 test sample, 1,000 images in 10 classes",
        facts={
            "Date": "3 March 2026",
            "Budget": "quick",
            "Device": "CPU, 2 threads",
            "Duration": "2 min 14 s",
            "Model fingerprint": "7c1f0a9be2d4",
            "Data fingerprint": "e03b5517a86c",
        },
        command="shiftproof audit --model demo --data demo --budget quick --seed 0 --out runs/demo",
        method={
            "Images": "1,000 for clean accuracy, 250 for each corruption and severity",
            "Intervals": "95%, Wilson",
            "Seed": "0",
            "Versions": "shiftproof 0.1.0, torch 2.13.0, numpy 2.4.0",
            "Cut to fit the budget": "severities 2 and 4 use 100 images; certified radii from 1,000 noise samples",
        },
        times={"clean": (2.5, 3.1), "corruptions": (70.0, 61.2), "worst_case": (None, 38.0), "stability": (30.0, 32.4)},
        failures=("corruptions: frost@5 stopped after 2 attempts: out of memory. Its cell is empty in the table.",),
        limits=("Every figure is about images like these.", "Only the listed shifts were tested."),
    )


def views(class_name: str = "ship") -> tuple[View, ...]:
    """Return five sections; `class_name` occurs in sentences, tables, charts and under pictures."""
    return _clean(class_name), _corruptions(class_name), _worst_case(class_name), _certified(), _endurance()


def png(pixels: NDArray[np.float64]) -> str:
    """Return an H x W x 3 array in [0, 1] as a PNG in base64."""
    file = io.BytesIO()
    Image.fromarray((pixels.clip(0, 1) * 255).astype(np.uint8)).save(file, "PNG", optimize=True)
    return base64.b64encode(file.getvalue()).decode()


def scene(kind: int, side: int = 32) -> NDArray[np.float64]:
    """Draw a little landscape, H x W x 3 in [0, 1]: a sky, a ground and something on it."""
    y, x = np.mgrid[0:side, 0:side] / (side - 1)
    skies = ((0.45, 0.66, 0.86), (0.86, 0.72, 0.58), (0.62, 0.78, 0.72), (0.70, 0.70, 0.82))
    grounds = ((0.10, 0.26, 0.40), (0.40, 0.32, 0.22), (0.22, 0.40, 0.20), (0.34, 0.34, 0.36))
    bodies = ((0.86, 0.84, 0.80), (0.70, 0.14, 0.12), (0.32, 0.20, 0.12), (0.94, 0.78, 0.20))
    image = np.where((y > 0.66)[..., None], grounds[kind % 4], np.array(skies[kind % 4]) + 0.25 * (0.5 - y)[..., None])
    if kind % 2:
        body = np.hypot((x - 0.5) / 1.3, y - 0.58) < 0.22
    else:
        body = (abs(x - 0.5) < 0.34 - 0.5 * (y - 0.56)) & (y > 0.5) & (y < 0.72) | (abs(x - 0.54) < 0.09) & (
            y > 0.3
        ) & (y < 0.5)
    return np.where(body[..., None], np.array(bodies[kind % 4]) - 0.25 * (y - 0.4)[..., None], image)


def _clean(class_name: str) -> View:
    classes = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", class_name, "truck")
    accuracies = (0.93, 0.97, 0.88, 0.80, 0.92, 0.86, 0.95, 0.94, 0.96, 0.95)
    table = Table(
        "Accuracy by class",
        (Column("Class"), Column("Images", "number"), Column("Accuracy", "percent"), Column("Most often taken for")),
        tuple(
            (name, 100, accuracy, classes[(index + 2) % 10])
            for index, (name, accuracy) in enumerate(zip(classes, accuracies, strict=True))
        ),
    )
    plot = {
        "data": [
            {
                "type": "bar",
                "orientation": "h",
                "x": accuracies,
                "y": classes,
                "hovertemplate": "%{y}<br>%{x:.1%}<extra></extra>",
            }
        ],
        "layout": {
            "xaxis": {"title": {"text": "Accuracy"}, "tickformat": ".0%", "range": [0, 1]},
            "yaxis": {"autorange": "reversed"},
        },
    }
    return View(
        "clean",
        "Before any shift",
        "How good is the model on the images it was made for?",
        (Sentence("Accuracy on clean images is 91.5% (89.6 to 93.1%).", "good"),),
        (Tile("Clean accuracy", "91.5%", "89.6 to 93.1%", "good", "at least 90%"),),
        (
            Figure(
                "Cats are the hardest class: 80% against 91.5% overall",
                plot,
                table,
                "The class to look at is the lowest bar.",
            ),
        ),
    )


def _corruptions(class_name: str) -> View:
    rows: list[tuple[str | float | None, ...]] = []
    for name, (category, loss) in CORRUPTIONS.items():
        cells: list[float | None] = [CLEAN - loss * (severity / 5) ** 1.3 for severity in range(1, 6)]
        mean = sum(cell for cell in cells if cell is not None) / 5
        if name == "frost":
            cells[-1] = None  # a cell that failed
        rows.append((name.replace("_", " "), category, *cells, mean))
    severities = tuple(Column(str(severity), "percent", (0.0, 1.0)) for severity in range(1, 6))
    heat = Table(
        "Noise and contrast loss do the most damage",
        (Column("Corruption"), Column("Category"), *severities, Column("Mean", "percent")),
        tuple(rows),
        "Accuracy at severities 1 to 5. Sort by a column to bring what breaks first to the top. An empty cell failed.",
        {
            (row, 1 + severity): Picture(png(_dull(row, severity)), f"{class_name}, {40 + row}% sure", severity < 3)
            for row in range(len(rows))
            for severity in range(1, 6)
            if rows[row][1 + severity] is not None
        },
    )
    worst = sorted(rows, key=lambda row: float(row[-1] or 0))[:8]
    drops = Table(
        "Points lost on average",
        (Column("Corruption"), Column("Points lost", "number")),
        tuple((row[0], 100 * (CLEAN - float(row[-1] or 0))) for row in worst),
    )
    plot = {
        "data": [{"type": "bar", "x": [row[0] for row in drops.rows], "y": [row[1] for row in drops.rows]}],
        "layout": {"yaxis": {"title": {"text": "Accuracy lost (percentage points)"}}, "height": 380},
    }
    return View(
        "corruptions",
        "Corruption robustness",
        "Which everyday changes of an image does the model not survive, and how soon?",
        (
            Sentence(
                "Accuracy is 91.5% on clean images and 76.4% on average under 15 corruptions. Contrast loss and noise "
                f"cost most; the lowest is 24.0% (21.4 to 26.8%) under contrast loss; {class_name} loses most.",
                "bad",
            ),
        ),
        (
            Tile("Accuracy under corruption", "76.4%", "75.7 to 77.1%", "watch", "10 to 20 points under clean"),
            Tile("mCE against AlexNet", "68.2", "66.9 to 69.5", "good", "under 80"),
        ),
        (
            heat,
            Figure(
                "Contrast loss costs 36 points on average, more than twice the median corruption",
                plot,
                drops,
                "The eight most harmful corruptions. A steep first step means that fixing one cause pays.",
            ),
            _examples(class_name),
        ),
        (
            "Severities follow the published tables for 32-pixel images.",
            "mCE is relative to AlexNet's published errors; `shiftproof list shifts` names all corruptions.",
        ),
        actions=(
            Action(
                "Train with AugMix",
                "Contrast loss and noise cost 9.5 points on average.",
                "shiftproof train --data train/ --recipe augmix+jsd",
                9.5,
                "on average under corruption",
                bound=True,
            ),
        ),
    )


def _dull(kind: int, severity: int) -> NDArray[np.float64]:
    return 0.5 + (1 - severity / 6) * (scene(kind, 16) - 0.5)


def _examples(class_name: str) -> Gallery:
    noise = np.random.default_rng(0)
    pictures = []
    for kind, (truth, seen) in enumerate(
        ((class_name, "airplane"), ("automobile", "automobile"), ("deer", "frog"), ("truck", "ship"))
    ):
        pictures.append(Picture(png(scene(kind)), f"{truth}, unchanged: {truth} 97%", True))
        dull = 0.5 + 0.25 * (scene(kind) - 0.5)
        pictures.append(Picture(png(dull), f"contrast 5: {seen} {48 + 9 * kind}%", truth == seen))
        grainy = scene(kind) + noise.normal(0, 0.18, (32, 32, 3))
        pictures.append(Picture(png(grainy), f"gaussian noise 5: {seen} {55 + 7 * kind}%", truth == seen))
    return Gallery(
        "Four images under the two worst shifts", tuple(pictures), "Prediction and its confidence under each."
    )


def _worst_case(class_name: str) -> View:
    budgets = [2**power for power in range(4, 12)]
    curves = {
        "random search": [0.62 - 0.035 * index for index in range(8)],
        "genetic algorithm": [0.63 - 0.046 * index for index in range(8)],
        "CMA-ES": [0.60 - 0.041 * index - 0.02 * math.sin(index) for index in range(8)],
    }
    table = Table(
        "Lowest accuracy found, by number of evaluations",
        (Column("Evaluations", "number"), *(Column(name, "percent") for name in curves)),
        tuple((budget, *(curve[index] for curve in curves.values())) for index, budget in enumerate(budgets)),
    )
    plot = {
        "data": [
            {"type": "scatter", "mode": "lines+markers", "name": name, "x": budgets, "y": curve}
            for name, curve in curves.items()
        ],
        "layout": {
            "xaxis": {"type": "log", "title": {"text": "Evaluations"}, "tickvals": budgets, "ticktext": budgets},
            "yaxis": {"title": {"text": "Lowest accuracy so far"}, "tickformat": ".0%"},
        },
    }
    pictures = (
        Picture(png(scene(0)), f"{class_name}, unchanged", True),
        Picture(png(scene(0)[..., ::-1] * 0.7), f"{class_name} after the chain: taken for bird", False),
        Picture(png(scene(1, 224)), "automobile at 224 pixels, shown as it is", None),
    )
    return View(
        "worst_case",
        "Worst-case transformations",
        "How low can a chain of five harmless edits bring it?",
        (Sentence("A chain of five colour edits that leaves the images recognisable brings it to 31.0%.", "bad"),),
        (Tile("Worst case found", "31.0%", "28.2 to 33.9%", "bad", "under half of clean accuracy"),),
        (
            Figure(
                "The genetic algorithm finds the worst chain, 31%, after 2,048 evaluations",
                plot,
                table,
                "A curve that is still falling at the right end says that there is worse to be found.",
            ),
            Gallery("Before and after the worst chain", pictures),
        ),
        ("Worst chain: solarise 0.4, contrast 0.6, posterise 5 bits, colour 0.3, brightness 1.2.",),
    )


def _certified() -> View:
    radii = [0.0, 0.125, 0.25, 0.375, 0.5, 0.75, 1.0]
    clean = [0.66, 0.54, 0.41, 0.30, 0.22, 0.09, 0.02]
    fog = [0.40, 0.23, 0.12, 0.07, 0.04, 0.01, 0.0]
    table = Table(
        "Certified accuracy by radius",
        (Column("L2 radius", "number"), Column("Clean", "percent"), Column("Fog at 3", "percent")),
        tuple(zip(radii, clean, fog, strict=True)),
    )
    plot = {
        "data": [
            {"type": "scatter", "mode": "lines+markers", "name": "clean", "x": radii, "y": clean},
            {"type": "scatter", "mode": "lines+markers", "name": "fog at 3", "x": radii, "y": fog},
        ],
        "layout": {
            "xaxis": {"title": {"text": "Certified L2 radius"}},
            "yaxis": {"title": {"text": "Certified accuracy"}, "tickformat": ".0%", "rangemode": "tozero"},
        },
    }
    return View(
        "certified",
        "Certified robustness",
        "How large a change of an image is guaranteed not to change the answer of the smoothed model?",
        (
            Sentence(
                "Certified accuracy of the smoothed model is 41.0% (37.9 to 44.1%) on clean images and 12.0% under fog "
                "at an L2 radius of 0.25 (noise 0.25).",
                "watch",
            ),
        ),
        (Tile("Certified accuracy at L2 0.25", "41.0%", "37.9 to 44.1%", "watch", "Good: 50% or more"),),
        (Figure("Under fog the guarantee shrinks to a third", plot, table, "Higher and further right is better."),),
        ("The certificate holds for the smoothed model, with 99.9% confidence for each image.",),
    )


def _endurance() -> View:
    steps = list(range(0, 20_001, 500))
    traces = {
        "source": [0.58 + 0.04 * math.sin(step / 1700) for step in steps],
        "Tent": [0.70 - 0.55 / (1 + math.exp((10_500 - step) / 1600)) + 0.03 * math.sin(step / 1500) for step in steps],
        "RDumb": [0.72 + 0.03 * math.sin(step / 1600 + 1) for step in steps],
    }
    table = Table(
        "Rolling accuracy",
        (Column("Images seen", "number"), *(Column(name, "percent") for name in traces)),
        tuple((step, *(trace[index] for trace in traces.values())) for index, step in enumerate(steps)),
    )
    plot = {
        "data": [
            {"type": "scatter", "mode": "lines", "name": name, "x": steps, "y": trace} for name, trace in traces.items()
        ],
        "layout": {
            "xaxis": {"title": {"text": "Images seen"}},
            "yaxis": {"title": {"text": "Accuracy over 1,000 images"}, "tickformat": ".0%", "range": [0, 1]},
            "shapes": [
                {
                    "type": "line",
                    "x0": 9000,
                    "x1": 9000,
                    "y0": 0,
                    "y1": 1,
                    "line": {"color": "var(--bad)", "dash": "dot", "width": 1},
                }
            ],
            "annotations": [{"x": 9000, "y": 0.97, "text": "Tent collapses", "showarrow": False, "xanchor": "left"}],
        },
    }
    return View(
        "stability",
        "Test-time adaptation",
        "What does adapting to the stream win, and does it last?",
        (
            Sentence(
                "Normalising with the statistics of the incoming batch improves accuracy by 18 points on average.",
                "good",
            ),
            Sentence(
                "Over a long stream Tent falls below the unadapted model after 9,000 images; RDumb does not.", "watch"
            ),
        ),
        (Tile("Best gain by adaptation", "+18.0 points", "16.1 to 19.8", "good", "at least 5 points"),),
        (
            Figure(
                "Tent collapses after 9,000 images; RDumb holds 72%",
                plot,
                table,
                "Watch for a line that leaves the others.",
            ),
        ),
        actions=(
            Action("Watch it", "Nothing is won, and nothing is missed.", "monitor = Monitor.fit(model, images)"),
            Action(
                "Normalise with batch statistics",
                "It improves accuracy by 18 points.",
                'adapted = shiftproof.adapt(model, "bn", prior=16)',
                18.0,
                "on average",
            ),
        ),
    )
