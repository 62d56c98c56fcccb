"""The papers' own figures, as printed, for the tables beside ours."""

from __future__ import annotations

ADAPTATION = ("60.8", "51.4", "49.3", "76.7", "65.0", "62.2")
"""Schneider et al. 2020, table 1, vanilla ResNet-50: top-1 error and mCE without, with partial and full adaptation."""

REGRESSION = {
    "noise": (73.29, 69.68, 5.84),
    "blur": (64.89, 54.53, 11.04),
    "weather": (53.87, 42.92, 11.21),
    "digital": (54.37, 51.96, 6.97),
}
"""Schneider et al. 2020, table 11 (i): true and predicted error, mean absolute difference, in points."""

CIN_C = {
    "source": 18.0, "bn": 31.5, "tent": 15.6, "rpl": 21.8, "slr": 12.4, "cpl": 3.0, "cotta": 34.0, "eta": 43.8,
    "eata": 41.8, "rdumb": 46.5,
}  # fmt: skip
"""Press et al. 2023, table 2: accuracy of ResNet-50 on CIN-C."""

CCC_EASY = {
    "source": 34.1, "bn": 42.6, "tent": 3.9, "rpl": 7.5, "slr": 22.2, "cpl": 0.41, "cotta": 14.9, "eta": 41.4,
    "eata": 48.2, "rdumb": 49.3,
}  # fmt: skip
"""Press et al. 2023, table 2: accuracy of ResNet-50 on CCC-Easy."""

CCC_MEDIUM = {
    "source": 17.3, "bn": 27.9, "tent": 1.4, "rpl": 2.7, "slr": 7.7, "cpl": 0.22, "cotta": 7.7, "eta": 1.1,
    "eata": 35.4, "rdumb": 38.9,
}  # fmt: skip
"""Press et al. 2023, table 2: accuracy of ResNet-50 on CCC-Medium."""

RESETS = {"125": 42.1, "250": 44.4, "500": 46.0, "1000": 46.7, "1500": 46.5, "2000": 46.4}
"""Press et al. 2023, table 1."""

MARGINS = {
    "eata": {"0.1": 27.8, "0.2": 27.9, "0.3": 29.9, "0.4": 30.8, "0.5": 28.7, "0.6": 28.0, "0.7": 0.33},
    "rdumb": {"0.1": 31.6, "0.2": 32.9, "0.3": 33.1, "0.4": 32.6, "0.5": 30.7, "0.6": 25.7, "0.7": 16.8},
}
"""Press et al. 2023, table 3."""

CERTIFICATES = {
    "gaussian": (0.461, 0.363, 0.301, 0.353, 0.435, 0.314),
    "gaussian+jsd": (0.535, 0.439, 0.346, 0.451, 0.520, 0.393),
    "augmix+jsd": (0.518, 0.430, 0.357, 0.436, 0.496, 0.382),
    "fouriermix+jsd": (0.522, 0.444, 0.375, 0.454, 0.504, 0.397),
    "fouriermix+hcr": (0.535, 0.460, 0.384, 0.473, 0.521, 0.419),
}
"""Sun et al. 2022, table 1: clean ACR, mACR on CIFAR-10-C, its low, mid and high groups, mACR on C-bar."""

CERTIFICATES_N = 100_000
"""The samples behind each of these radii."""

MNIST = {
    "original": {"erm": 0.993, "ada": 0.992, "rda": 0.993, "rsda": 0.992, "esda": 0.993},
    "RS": {"erm": 0.160, "ada": 0.192, "rda": 0.941, "rsda": 0.977, "esda": 0.979},
    "ES": {"erm": 0.122, "ada": 0.177, "rda": 0.927, "rsda": 0.979, "esda": 0.977},
    "SAE": {"erm": 0.979, "ada": 0.980, "rda": 0.985, "rsda": 0.974, "esda": 0.971},
    "negative": {"erm": 0.436, "ada": 0.448, "rda": 0.991, "rsda": 0.992, "esda": 0.992},
    "USPS": {"erm": 0.812, "ada": 0.819, "rda": 0.832, "rsda": 0.831, "esda": 0.840},
}
"""Volpi & Murino 2019, tables 1 and 3."""

CIFAR = {
    "original": {"erm": 0.946, "rda": 0.944, "rsda": 0.950, "esda": 0.946},
    "RS": {"erm": 0.724, "rda": 0.899, "rsda": 0.904, "esda": 0.915},
    "ES": {"erm": 0.565, "rda": 0.862, "rsda": 0.867, "esda": 0.913},
}
"""Volpi & Murino 2019, table 4."""

CAMVID = {
    "original": {"erm": 0.862, "rda": 0.851, "rsda": 0.854, "esda": 0.851},
    "RS": {"erm": 0.458, "rda": 0.812, "rsda": 0.825, "esda": 0.820},
    "ES": {"erm": 0.311, "rda": 0.811, "rsda": 0.824, "esda": 0.822},
}
"""Volpi & Murino 2019, table 5."""

FACES = {"original": 0.878, "RS N=3": 0.789, "ES N=3": 0.705, "RS N=5": 0.516, "ES N=5": 0.174}
"""Volpi & Murino 2019, table 6."""

CI10 = {
    "NI-RandAug": (0.899, 3.11, 0.768, 0.793, 0.837),
    "NI-Translate": (0.732, 3.56, 0.607, 0.661, 0.786),
    "NI-Erase": (0.518, 4.41, 0.411, 0.406, 0.299),
    "NI-FC": (0.417, 4.47, 0.371, 0.344, 0.683),
    "ATC-NE": (0.655, 3.61, 0.548, 0.693, 0.689),
    "ATC-MC": (0.640, 3.65, 0.544, 0.682, 0.685),
}
"""Ng et al. 2023, table 2b, CI10: R2, MAE, macro, ID and arch tau."""

NUMBERS = {
    "NI-RandAug": (0.764, 5.33, 0.642, 0.733, None),
    "NI-Translate": (0.685, 6.12, 0.667, 0.881, None),
    "NI-Erase": (0.153, 10.17, -0.135, 0.324, None),
    "NI-FC": (0.208, 10.42, -0.316, -0.033, None),
    "ATC-NE": (0.616, 6.74, 0.637, 0.859, None),
    "ATC-MC": (0.692, 6.19, 0.682, 0.844, None),
}
"""Ng et al. 2023, table 2b, Numbers."""

SENTIMENT = {
    "NI-SSMBA": (0.662, 1.93, 0.677, 0.689, 0.629),
    "NI-EDA": (0.641, 2.04, 0.664, 0.649, 0.611),
    "NI-BT": (0.550, 2.99, 0.592, 0.501, 0.538),
    "NI-RandRep": (0.409, 2.64, 0.544, 0.554, 0.439),
    "ATC-NE": (0.760, 2.47, 0.514, 0.633, 0.467),
    "ATC-MC": (0.761, 2.46, 0.517, 0.634, 0.467),
}
"""Ng et al. 2023, table 2c, CNN: R2, MAE, macro, micro and ID tau, of 2,418 networks on ten categories."""

ENCODED_SENTIMENT = {
    "NI-SSMBA": (0.972, 1.29, 0.832, 0.829, 0.838),
    "NI-EDA": (0.968, 1.45, 0.830, 0.810, 0.830),
    "NI-BT": (0.961, 1.47, 0.813, 0.801, 0.801),
    "NI-RandRep": (0.967, 1.27, 0.821, 0.816, 0.822),
    "ATC-NE": (0.852, 2.38, 0.707, 0.691, 0.749),
    "ATC-MC": (0.869, 2.26, 0.722, 0.705, 0.749),
}
"""Ng et al. 2023, table 2c, RoBERTa: the same, of 332 networks."""

PAIRS = {
    "NI-SSMBA": (0.933, 1.19, 0.750, 0.730, 0.771),
    "NI-EDA": (0.941, 1.26, 0.789, 0.757, 0.799),
    "NI-BT": (0.944, 1.07, 0.759, 0.740, 0.778),
    "NI-RandRep": (0.890, 1.70, 0.688, 0.647, 0.710),
    "ATC-NE": (0.737, 2.22, 0.557, 0.541, 0.739),
    "ATC-MC": (0.769, 2.10, 0.581, 0.567, 0.748),
}
"""Ng et al. 2023, table 2d, RoBERTa: R2, MAE, macro, micro and ID tau, of 213 networks on ten genres of MNLI."""

SPHERE_ZERO = 0.25
"""Ng et al. 2023, section 5.1: the distance, in multiples of pi, around which Kendall's tau is nearly 0."""
