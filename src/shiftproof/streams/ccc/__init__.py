"""CCC, continuously changing corruptions (Press et al. 2023): calibration, paths of constant difficulty, schedule."""
