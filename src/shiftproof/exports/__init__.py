"""Data sets written under shifts: corrupted copies, the layouts of published suites, and pages to look at."""
